//! `crux policy`: what is in force, what a change would do, and changes that can be taken back.

mod table;

use std::time::Duration;

use ::controller::ledger::Edition;
use ::controller::northbound::service::{Chapter, Done, Order, Say, Wanted, Wish, read};
use ::controller::preview::Preview;
use planner::OverrideDocument;
use topology::{Severity, document};

use crate::client::To;
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Format, FormatArg};

/// Look at the policy of a running controller, and change it.
///
/// A change is all or nothing: what switches do not hold in time is taken back.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux policy check policy.toml
  crux policy diff policy.toml
  crux policy apply policy.toml --why 'night batch' --confirm-within 60s
  crux policy confirm
  crux policy override 'gpt*' --level 7 --for 1h --why deadline
  crux policy history
  crux policy rollback 3")]
pub(crate) enum Command {
    /// Say what is wrong with a file; no controller is asked
    Check(Check),
    /// Show what is in force
    Show(Plain),
    /// Show what a change would do: levels, flows, entries, utilisation; nothing is written
    Diff(Diff),
    /// Put a policy in force
    Apply(Apply),
    /// Let the change that is on trial stay
    Confirm(Confirm),
    /// Take the change on trial back, or go back to what was before, or to any edition
    Rollback(Rollback),
    /// Show who changed what, when and why
    History(Plain),
    /// Override the policy for some jobs, for some time
    Override(Override),
}

/// Arguments of `check`.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// Policy document
    file: String,
    /// Fabric document, to look whether what is drained is there
    #[arg(long)]
    fabric: Option<String>,
}

/// Arguments of what only shows.
#[derive(clap::Args)]
pub(crate) struct Plain {
    #[command(flatten)]
    to: To,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `diff`.
#[derive(clap::Args)]
pub(crate) struct Diff {
    /// Policy document
    file: String,
    #[command(flatten)]
    plain: Plain,
}

/// Arguments of `apply`.
#[derive(clap::Args)]
pub(crate) struct Apply {
    /// Policy document
    file: String,
    /// Take it back by itself unless it is confirmed within this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    confirm_within: Option<Duration>,
    #[command(flatten)]
    signature: Signature,
    #[command(flatten)]
    plain: Plain,
}

/// Arguments of `confirm`.
#[derive(clap::Args)]
pub(crate) struct Confirm {
    #[command(flatten)]
    signature: Signature,
    #[command(flatten)]
    plain: Plain,
}

/// Arguments of `rollback`.
#[derive(clap::Args)]
pub(crate) struct Rollback {
    /// Number of the edition to go back to, of crux policy history
    edition: Option<u64>,
    #[command(flatten)]
    signature: Signature,
    #[command(flatten)]
    plain: Plain,
}

/// Arguments of `override`.
#[derive(clap::Args)]
pub(crate) struct Override {
    /// Glob over job ids and tenants; job:GLOB or tenant:GLOB for one of the two
    pattern: String,
    /// Fixed class
    #[arg(long, conflicts_with_all = ["max_level", "min_level", "exempt"])]
    level: Option<u8>,
    /// Highest class
    #[arg(long)]
    max_level: Option<u8>,
    /// Lowest class
    #[arg(long)]
    min_level: Option<u8>,
    /// Factor on the priority
    #[arg(long)]
    weight: Option<f64>,
    /// Leave the jobs to ECMP
    #[arg(long)]
    exempt: bool,
    /// How long it lasts, as 30s, 5m or 1h
    #[arg(long = "for", value_parser = duration, value_name = "TIME")]
    lasts: Duration,
    #[command(flatten)]
    signature: Signature,
    #[command(flatten)]
    plain: Plain,
}

/// Who wants it, and why.
#[derive(clap::Args)]
struct Signature {
    /// Why, for the history
    #[arg(long, default_value = "")]
    why: String,
    /// Who, for the history; without it, the user's name
    #[arg(long)]
    who: Option<String>,
}

impl Signature {
    fn who(&self) -> String {
        let user = || std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
        self.who.clone().unwrap_or_else(user)
    }

    fn say(&self, edition: Option<u64>) -> Say {
        Say {
            who: self.who(),
            why: self.why.clone(),
            edition,
        }
    }
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Show(args) => show(args),
        Command::Diff(args) => diff(args),
        Command::Apply(args) => apply(args),
        Command::Confirm(args) => {
            let done = args
                .plain
                .to
                .post("/v1/policy/confirm", &args.signature.say(None))?;
            tell(&done, args.plain.output)
        }
        Command::Rollback(args) => {
            let say = args.signature.say(args.edition);
            let done = args.plain.to.post("/v1/policy/rollback", &say)?;
            tell(&done, args.plain.output)
        }
        Command::History(args) => history(args),
        Command::Override(args) => set_override(args),
    }
}

fn check(args: &Check) -> Result<(), Failure> {
    let text = files::named(&args.file)?;
    let document = read(&text).map_err(|finding| Failure::document(finding.text))?;
    let Some(fabric) = &args.fabric else {
        return output::print("ok");
    };
    let fabric = files::fabric(fabric)?;
    let policy = document.validate(&args.file).map_err(Failure::document)?;
    let checked = policy.check_on(&fabric);
    let format = document::Format::of_file(&args.file).map_err(Failure::document)?;
    checked.map_err(|error| {
        let file = args.file.clone();
        let error = planner::FieldError { file, ..error };
        Failure::document(error.in_text(&text.text, format))
    })?;
    output::print("ok")
}

fn show(args: &Plain) -> Result<(), Failure> {
    let edition: Edition = args.to.get("/v1/policy")?;
    match args.output.format {
        Format::Json => output::print_json(&edition),
        Format::Table => {
            let policy = document::print(&edition.content.policy, document::Format::Toml);
            let policy = policy.map_err(|error| Failure::work(&error))?;
            output::print(format_args!("# edition {}\n{policy}", edition.number))
        }
    }
}

fn diff(args: &Diff) -> Result<(), Failure> {
    let preview: Preview = args.plain.to.post("/v1/policy/diff", &wish(&args.file)?)?;
    match args.plain.output.format {
        Format::Json => output::print_json(&preview),
        Format::Table => table::preview(&preview),
    }
}

fn apply(args: &Apply) -> Result<(), Failure> {
    let order = Order {
        wish: wish(&args.file)?,
        who: args.signature.who(),
        why: args.signature.why.clone(),
        confirm_within: args.confirm_within.map(|within| within.as_secs()),
    };
    let done = args.plain.to.post("/v1/policy/apply", &order)?;
    tell(&done, args.plain.output)
}

fn set_override(args: &Override) -> Result<(), Failure> {
    let rule = OverrideDocument {
        pattern: args.pattern.clone(),
        level: args.level,
        max_level: args.max_level,
        min_level: args.min_level,
        weight: args.weight,
        exempt: args.exempt,
        min_throughput: None,
    };
    let order = Order {
        wish: Wish {
            policy: None,
            temporary: Some(Wanted {
                rule,
                seconds: args.lasts.as_secs(),
            }),
        },
        who: args.signature.who(),
        why: args.signature.why.clone(),
        confirm_within: None,
    };
    let done = args.plain.to.post("/v1/policy/apply", &order)?;
    tell(&done, args.plain.output)
}

fn history(args: &Plain) -> Result<(), Failure> {
    let chapters: Vec<Chapter> = args.to.get("/v1/policy/history")?;
    match args.output.format {
        Format::Json => output::print_json(&chapters),
        Format::Table => output::print(table::history(&chapters)),
    }
}

/// Tells what became of a change; a change that was taken back is no success.
fn tell(done: &Done, output: FormatArg) -> Result<(), Failure> {
    match output.format {
        Format::Json => output::print_json(done)?,
        Format::Table => {
            done.findings.iter().try_for_each(output::print)?;
            let trial = done
                .trial_until_ms
                .map_or("", |_| ", on trial until it is confirmed");
            output::print(format_args!("edition {} is in force{trial}", done.edition))?;
        }
    }
    let error = done
        .findings
        .iter()
        .find(|finding| finding.severity == Severity::Error);
    match error {
        Some(finding) if !done.applied => Err(Failure::Work(finding.text.clone())),
        _ => Ok(()),
    }
}

fn wish(file: &str) -> Result<Wish, Failure> {
    Ok(Wish {
        policy: Some(files::named(file)?),
        temporary: None,
    })
}

/// A time as people write it: 30s, 5m, 1h.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write it as 30s, 5m or 1h");
    let split = text.len() - text.chars().next_back().map_or(0, char::len_utf8);
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!(
            ["30s", "5m", "1h"].map(seconds),
            [Ok(30), Ok(300), Ok(3_600)]
        );
        for wrong in ["", "s", "30", "1d", "5µ"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
