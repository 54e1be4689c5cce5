//! What every program of Crux does around its command: logs to standard error, the exit status, and
//! the programs beside it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::{env, process};

use clap::{ArgMatches, Command, FromArgMatches};

use crate::command_error::CommandError;

/// How a program logs.
#[derive(clap::Args, Clone, Debug)]
pub struct LogArgs {
    /// Log at this level to standard error: error, warn, info, debug, trace, or a filter such as
    /// controller=debug
    // Without an order of its own, its place in every page is the number of commands.
    #[arg(long, global = true, default_value = DEFAULT_LOG, value_name = "FILTER", display_order = 998)]
    log: String,
    /// Write logs as lines of text or of JSON
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    #[arg(display_order = 999)]
    log_format: LogFormat,
}

const DEFAULT_LOG: &str = "warn";

/// How lines of a log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// An object a line, for programs
    Json,
}

impl LogArgs {
    /// Logs of the whole process go to standard error from now on.
    ///
    /// # Errors
    /// The filter is wrong.
    pub fn start_logging(&self) -> Result<(), CommandError> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log)
            .map_err(|error| CommandError::input("--log", error))?;
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_seen = std::io::stderr().is_terminal() && !is_unwanted;
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // A program that runs inside another one logs as that does: its own start is the second.
        let _ = match self.log_format {
            LogFormat::Text if is_journal() => logs.with_ansi(false).without_time().try_init(),
            LogFormat::Text => logs.with_ansi(is_seen).try_init(),
            LogFormat::Json => logs.json().flatten_event(true).with_current_span(true).try_init(),
        };
        Ok(())
    }

    /// The options that make another program log alike; nothing where they are the defaults.
    pub fn to_words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.log != DEFAULT_LOG {
            words.extend(["--log".into(), OsString::from(&self.log)]);
        }
        if self.log_format == LogFormat::Json {
            words.extend(["--log-format", "json"].map(OsString::from));
        }
        words
    }
}

/// Whether the log goes to systemd's journal, which gives each line its time (systemd.exec(5),
/// `JOURNAL_STREAM`). A redirection makes the variable that of another file.
fn is_journal() -> bool {
    let stream = env::var("JOURNAL_STREAM");
    let log = std::fs::metadata("/proc/self/fd/2");
    stream.is_ok_and(|stream| log.is_ok_and(|log| stream == format!("{}:{}", log.dev(), log.ino())))
}

/// The exit status of a program whose command ended so.
pub fn exit_code(ended: Result<(), CommandError>) -> ExitCode {
    ended.map_or_else(CommandError::report, |()| ExitCode::SUCCESS)
}

/// Parses the command line of a program; ends the process with help or an error where that is asked
/// for or due.
pub fn parse_words<P: FromArgMatches>(
    mut command: Command,
    words: impl IntoIterator<Item = OsString>,
) -> (P, ArgMatches) {
    let name = OsString::from(command.get_name());
    let words = std::iter::once(name).chain(words);
    let matches = command.try_get_matches_from_mut(words).unwrap_or_else(|error| error.exit());
    let program = P::from_arg_matches(&matches);
    let program = program.unwrap_or_else(|error| error.format(&mut command).exit());
    (program, matches)
}

/// A command line of a program that may name a command of another program.
#[derive(Debug)]
pub enum ParsedLine<P> {
    /// A command of this program.
    Own(P),
    /// The words from the command on, and how to log.
    Other(Vec<OsString>, LogArgs),
}

/// Parses the command line of this process; `command` has the commands of this program alone.
pub fn parse_line<P: FromArgMatches>(command: &Command) -> ParsedLine<P> {
    let open = command
        .clone()
        .allow_external_subcommands(true)
        .external_subcommand_value_parser(clap::value_parser!(OsString));
    let matches = open.try_get_matches().unwrap_or_else(|error| error.exit());
    let exit = |error: clap::Error| -> ! { error.format(&mut command.clone()).exit() };
    match matches.subcommand() {
        Some((name, rest)) if command.find_subcommand(name).is_none() => {
            let rest = rest.get_many::<OsString>("").unwrap_or_default().cloned();
            let words = std::iter::once(OsString::from(name)).chain(rest).collect();
            let logs = LogArgs::from_arg_matches(&matches).unwrap_or_else(|error| exit(error));
            ParsedLine::Other(words, logs)
        }
        _ => ParsedLine::Own(P::from_arg_matches(&matches).unwrap_or_else(|error| exit(error))),
    }
}

/// Ends the process as it ends for a command that no program has: clap names similar ones.
pub fn refuse_line(command: Command) -> ExitCode {
    match command.try_get_matches() {
        Err(error) => error.exit(),
        Ok(_) => ExitCode::FAILURE,
    }
}

/// A command that another program has, as `git NAME` is `git-NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCall {
    /// The program, such as `crux-switch`.
    pub program: String,
    /// Its arguments.
    pub words: Vec<OsString>,
}

impl ProgramCall {
    /// The programs that may have the command `NAME` of `crux`, best first: `crux-NAME`, and
    /// `crux-lab NAME`.
    pub fn for_command(words: &[OsString]) -> Vec<Self> {
        let Some((name, arguments)) = words.split_first() else {
            return Vec::new();
        };
        // A name is a word and never a path: only programs beside this one are run. `crux lab` is
        // the command `lab` of the laboratory, not the laboratory without a command.
        let is_word =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let own = name.to_str().filter(|name| is_word(name) && *name != "lab");
        let own =
            own.map(|name| Self { program: format!("crux-{name}"), words: arguments.to_vec() });
        let lab = Self { program: "crux-lab".to_owned(), words: words.to_vec() };
        own.into_iter().chain([lab]).collect()
    }

    /// Becomes the program, which must be in the folder of this one; `None` if it is not there.
    pub fn replace_process(&self, logs: &LogArgs) -> Option<CommandError> {
        let path = env::current_exe().ok()?.with_file_name(&self.program);
        if !path.is_file() {
            return None;
        }
        // Signals, standard streams and the exit status are then those of the command itself.
        let error = process::Command::new(&path).args(logs.to_words()).args(&self.words).exec();
        Some(CommandError::input(path.display(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let calls = ProgramCall::for_command(&words);
        calls.iter().map(|call| format!("{} {:?}", call.program, call.words)).collect()
    }

    #[test]
    fn a_command_is_a_program_of_its_own_or_of_the_laboratory() {
        let expect = [r#"crux-switch ["--no-p4"]"#, r#"crux-lab ["switch", "--no-p4"]"#];
        assert_eq!(programs(&["switch", "--no-p4"]), expect);
        assert_eq!(programs(&["lab", "up"]), [r#"crux-lab ["lab", "up"]"#]);
        assert_eq!(programs(&["../../bin/sh"]), [r#"crux-lab ["../../bin/sh"]"#]);
        assert!(programs(&[]).is_empty());
    }
}
