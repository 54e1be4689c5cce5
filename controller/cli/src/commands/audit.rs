//! `crux audit`: who was let in, refused, and changed the policy.
//!
//! The decision: the chain is verified here and not by the controller, which could be the one that
//! lies; with `--file` no controller is needed, and the mark of the store says how far the trail once
//! was.

use std::path::PathBuf;

use super::local_time::{format_cell_time, time_heading};
use ::controller::audit::{AuditEntry, AuditRecord, AuditTrail, verify_chain, verify_head};
use ::controller::store::AuditHead;
use comfy_table::Table;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};
use topology::count_noun;

/// List who was let in, refused, and changed the policy of a controller, and why.
///
/// A controller answers with its latest 1,000 records, the latest first, to a token of role
/// `write`. Every record has the hash of the one before it. Refusals and admissions that repeat are
/// counted. Each record is also a line of the controller's log with the target `audit`, for syslog.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux audit
  crux audit --verify
  crux audit --file /var/lib/crux/store.audit --verify --format json")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    client: ControllerClient,
    /// Read the files of the trail instead of asking a controller; earlier ones, FILE.1 and so on,
    /// are read, too
    #[arg(long)]
    file: Option<PathBuf>,
    /// Verify that no record was changed, added or removed; exit status 1 if one was. Of a FILE, also
    /// that it has the last record that the mark of the store knows
    #[arg(long)]
    verify: bool,
    /// The store beside whose mark FILE is verified [default: FILE without `.audit`]
    #[arg(long, value_name = "FILE", requires_all = ["file", "verify"])]
    store: Option<PathBuf>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_audit(args: &AuditArgs) -> Result<(), CommandError> {
    // Before the records: a controller that runs appends to them first.
    let head = args.known_head()?;
    let mut records: Vec<AuditRecord> = match &args.file {
        None => args.client.get_json("/v1/audit-records")?,
        Some(file) => AuditTrail::read_files(file)
            .map_err(|error| CommandError::input(file.display(), error))?,
    };
    records.sort_by_key(|record| record.entry.sequence);
    if args.verify {
        verify_chain(&records).map_err(|error| CommandError::failed(&error))?;
        if let Some(head) = &head {
            verify_head(&records, head).map_err(|error| CommandError::failed(&error))?;
        }
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&records)?,
        OutputFormat::Table => output::print_line(records_table(&records))?,
    }
    if args.verify
        && args.output.format == OutputFormat::Table
        && let Some(last) = records.last()
    {
        let count = count_noun(records.len(), "record");
        output::print_line(format_args!("{count} verified, up to {}", last.hash))?;
        if args.file.is_some() && head.is_none() {
            output::print_line("no store has a mark of this trail: its end may be missing")?;
        }
    }
    Ok(())
}

impl AuditArgs {
    /// The last record of the file that the mark of its store knows. A store that the caller names has
    /// one.
    fn known_head(&self) -> Result<Option<AuditHead>, CommandError> {
        if let Some(store) = &self.store {
            let head = AuditHead::of_store(store);
            let missing = || CommandError::input(store.display(), "no mark of a trail beside it");
            return head.map(Some).ok_or_else(missing);
        }
        let file =
            self.file.as_ref().filter(|file| file.extension().is_some_and(|of| of == "audit"));
        Ok(file.and_then(|file| AuditHead::of_store(&file.with_extension(""))))
    }
}

fn records_table(records: &[AuditRecord]) -> Table {
    let at = time_heading();
    let mut table = output::new_table(["number", &at, "who", "action"]);
    for AuditRecord { entry, .. } in records {
        table.add_row([
            entry.sequence.to_string(),
            format_cell_time(entry.at_ms),
            join_known(&[&entry.who, &entry.address], " at "),
            describe_action(entry),
        ]);
    }
    table
}

/// What was done, to what, why, and how often if more than once.
fn describe_action(entry: &AuditEntry) -> String {
    let times = match entry.count {
        0 | 1 => String::new(),
        count => format!(" ({count} times)"),
    };
    let done = format!("{}{times}", entry.action);
    join_known(&[&done, &entry.detail, &entry.reason], ": ")
}

/// The texts that are not empty.
fn join_known(texts: &[&str], between: &str) -> String {
    let known: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    known.join(between)
}

#[cfg(test)]
mod tests {
    use ::controller::audit::AuditAction;

    use super::*;

    #[test]
    fn an_action_says_what_why_and_how_often() {
        let entry = AuditEntry {
            sequence: 1,
            at_ms: 0,
            action: AuditAction::Denied,
            who: String::new(),
            address: "10.0.0.1".to_owned(),
            reason: "a token is missing".to_owned(),
            detail: String::new(),
            count: 3,
        };
        assert_eq!(describe_action(&entry), "denied (3 times): a token is missing");
        assert_eq!(join_known(&["", "10.0.0.1"], " at "), "10.0.0.1");
    }
}
