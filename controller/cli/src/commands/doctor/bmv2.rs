//! `crux doctor --bmv2`: whether this machine has a bmv2 that our pipelines run on.

use std::process::{Command, Output};

use command_io::CommandError;
use command_io::output::{self, OutputFormat};
use serde::Serialize;
use topology::count_noun;

const PROGRAM: &str = "simple_switch_grpc";

/// Its flag for a queue by level, which it has since 1.15.
const PRIORITY_QUEUES: &str = "--priority-queues";

/// How to get one.
const HOW_TO_GET_IT: &str = "install p4lang's packages for Ubuntu or openSUSE, run its container image \
     p4lang/behavioral-model, or build PI and behavioral-model 1.15.5 from source (40 minutes on two \
     cores); Debian has no package. Without it, use `crux switch`";

/// What is on the path.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FoundBmv2 {
    /// As the program prints it; absent without one.
    version: Option<String>,
    /// Whether it can serve a port's packets by level.
    priority_queues: bool,
    /// What has to be done before it can be used.
    problems: Vec<String>,
}

/// Exit status 1 where it cannot be used.
pub(super) fn check(format: OutputFormat) -> Result<(), CommandError> {
    let found = FoundBmv2::from_output(|flag| Command::new(PROGRAM).arg(flag).output());
    match format {
        OutputFormat::Json => output::print_json(&found)?,
        OutputFormat::Table => found.lines().iter().try_for_each(output::print_line)?,
    }
    match found.problems.len() {
        0 => Ok(()),
        count => Err(CommandError::Failed(count_noun(count, "problem"))),
    }
}

impl FoundBmv2 {
    /// What the program says, given a flag.
    fn from_output(run: impl Fn(&str) -> std::io::Result<Output>) -> Self {
        let text = |output: &Output| {
            let streams = [&output.stdout, &output.stderr];
            streams.map(|stream| String::from_utf8_lossy(stream)).concat()
        };
        let (version, problem) = match run("--version") {
            Ok(output) if output.status.success() => (Some(text(&output).trim().to_owned()), None),
            Ok(output) => {
                let message = text(&output).trim().to_owned();
                (None, Some(format!("{PROGRAM} --version fails ({}): {message}", output.status)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (None, Some(format!("no {PROGRAM} on the path: {HOW_TO_GET_IT}")))
            }
            Err(error) => (None, Some(format!("{PROGRAM} cannot be started: {error}"))),
        };
        // It prints its help with an exit status of 1.
        let help = version.as_ref().and_then(|_| run("--help").ok());
        let priority_queues = help.is_some_and(|help| text(&help).contains(PRIORITY_QUEUES));
        let too_old = (version.is_some() && !priority_queues).then(|| {
            format!("{PROGRAM} knows no {PRIORITY_QUEUES}, so levels do nothing: use 1.15 or later")
        });
        Self { version, priority_queues, problems: problem.into_iter().chain(too_old).collect() }
    }

    fn lines(&self) -> Vec<String> {
        let found = self.version.iter().map(|version| {
            let queues = if self.priority_queues { "with" } else { "without" };
            format!("{PROGRAM} {version}, {queues} {PRIORITY_QUEUES}")
        });
        found.chain(self.problems.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn says(status: i32, text: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(status << 8),
            stdout: text.into(),
            stderr: Vec::new(),
        }
    }

    #[test]
    fn a_new_one_can_be_used_and_an_old_one_has_no_queues() {
        let with_help = |help: &'static str| {
            FoundBmv2::from_output(move |flag| match flag {
                "--version" => Ok(says(0, "1.15.5-9674187f\n")),
                _ => Ok(says(1, help)),
            })
        };
        let new = with_help("  --priority-queues arg\n");
        assert_eq!(new.lines(), ["simple_switch_grpc 1.15.5-9674187f, with --priority-queues"]);
        let old = with_help("  --device-id arg\n");
        assert_eq!(old.problems.len(), 1);
        assert!(old.lines()[1].contains("use 1.15 or later"));
    }

    #[test]
    fn what_is_missing_or_broken_is_a_problem_with_its_remedy() {
        let missing = FoundBmv2::from_output(|_| Err(std::io::ErrorKind::NotFound.into()));
        assert!(missing.problems[0].contains("p4lang/behavioral-model"));
        let broken = FoundBmv2::from_output(|_| Ok(says(127, "libpi.so: not found")));
        assert_eq!(
            broken.problems,
            ["simple_switch_grpc --version fails (exit status: 127): libpi.so: not found"]
        );
        assert_eq!((broken.version, broken.priority_queues), (None, false));
    }
}
