//! `crux state`: what a controller must not forget, checked, backed up, restored and read.
//!
//! The decision: a backup is one JSON document with a digest, so everything that reads a store
//! reads a backup as well, and what is restored can be looked at before.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ::controller::store::{BackedUpState, EmbeddedStore, StateBackup};
use api::private_file::create_private;
use clap::ValueEnum;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, ControllerClient};

/// Check, back up, restore and read what a controller has stored
///
/// The store (`store.path`) has the policy with its history, jobs, the plan in force, a discovered
/// fabric, and the numbers that controllers must not use twice. Controllers that are led through
/// etcd store there; `etcdctl snapshot save` backs that up.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux state backup --output crux-backup.json
  crux state check crux-backup.json
  crux state restore crux-backup.json /var/lib/crux/store.redb
  crux state export /var/lib/crux/store.redb policy")]
pub(crate) enum StateCommand {
    /// Read a store or a backup as a whole, and print what it has
    Check(StateCheckArgs),
    /// Write a backup of the store of a running controller, or of a store that nobody uses
    Backup(StateBackupArgs),
    /// Make a store from a backup; the controller must not run
    Restore(StateRestoreArgs),
    /// Print a document from a store or a backup
    Export(StateExportArgs),
}

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux state check /var/lib/crux/store.redb
  crux state check crux-backup.json --format json")]
pub(crate) struct StateCheckArgs {
    /// A store that no controller has open, or a backup
    file: PathBuf,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `backup`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux state backup --output crux-backup.json
  crux state backup --store /var/lib/crux/store.redb --output crux-backup.json")]
pub(crate) struct StateBackupArgs {
    #[command(flatten)]
    client: ControllerClient,
    /// Read this store, which no controller has open, instead of asking a controller
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The file to write, which must not exist
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// Arguments of `restore`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux state restore crux-backup.json /var/lib/crux/store.redb")]
pub(crate) struct StateRestoreArgs {
    /// The backup
    backup: PathBuf,
    /// The store to make, which must not exist: move an old one away
    store: PathBuf,
}

/// Arguments of `export`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux state export crux-backup.json policy
  crux state export /var/lib/crux/store.redb jobs > jobs.json")]
pub(crate) struct StateExportArgs {
    /// A store that no controller has open, or a backup
    file: PathBuf,
    /// Which document
    document: StoredDocument,
}

/// A document in a store.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoredDocument {
    /// The policy in force
    Policy,
    /// Jobs of documents
    Jobs,
    /// Jobs that were reported
    ReportedJobs,
    /// The fabric that discovery found
    Fabric,
    /// The plan in force, without reasons
    Plan,
}

pub(crate) fn run_state(command: &StateCommand) -> Result<(), CommandError> {
    match command {
        StateCommand::Check(args) => check_state(args),
        StateCommand::Backup(args) => back_up(args),
        StateCommand::Restore(args) => restore_state(args),
        StateCommand::Export(args) => export_document(args),
    }
}

fn check_state(args: &StateCheckArgs) -> Result<(), CommandError> {
    let backup = read_state(&args.file)?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&StateSummary::new(&backup.state)),
        OutputFormat::Table => output::print_line(summary_table(&StateSummary::new(&backup.state))),
    }
}

fn back_up(args: &StateBackupArgs) -> Result<(), CommandError> {
    let backup = match &args.store {
        Some(store) => read_state(store)?,
        None => args.client.get_json("/v1/state-backup")?,
    };
    backup.check().map_err(CommandError::failed)?;
    let failed = |error| CommandError::input(args.output.display(), error);
    // The policy may name what should not be known, so it is for the owner alone.
    let mut file = create_private(&args.output).map_err(failed)?;
    let text = serde_json::to_vec(&backup).map_err(CommandError::failed)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
    let StateSummary { revision, jobs, .. } = StateSummary::new(&backup.state);
    eprintln!(
        "wrote {}: policy revision {revision}, jobs of documents {jobs}",
        args.output.display()
    );
    Ok(())
}

fn restore_state(args: &StateRestoreArgs) -> Result<(), CommandError> {
    let backup = read_state(&args.backup)?;
    if args.store.exists() {
        let text = "it exists; move it away, with the controller stopped";
        return Err(CommandError::input(args.store.display(), text));
    }
    let part = args.store.with_extension("part");
    let made = EmbeddedStore::open(&part)
        .map_err(CommandError::failed)
        .and_then(|store| store.restore_backup(backup).map_err(CommandError::failed));
    // A store appears as a whole or not at all.
    match made {
        Ok(()) => fs::rename(&part, &args.store)
            .map_err(|error| CommandError::input(args.store.display(), error)),
        Err(failure) => {
            fs::remove_file(&part).ok();
            Err(failure)
        }
    }?;
    eprintln!("made {}", args.store.display());
    Ok(())
}

fn export_document(args: &StateExportArgs) -> Result<(), CommandError> {
    let BackedUpState { policy_revisions, jobs, reported_jobs, fabric, plan, .. } =
        read_state(&args.file)?.state;
    let nothing = || CommandError::input(args.file.display(), "it has no such document");
    match args.document {
        StoredDocument::Policy => {
            let revision = policy_revisions.last().ok_or_else(nothing)?;
            output::print_json(&revision.content.policy)
        }
        StoredDocument::Jobs => output::print_json(&jobs.ok_or_else(nothing)?),
        StoredDocument::ReportedJobs => output::print_json(&reported_jobs.ok_or_else(nothing)?),
        StoredDocument::Fabric => output::print_json(&fabric.ok_or_else(nothing)?),
        StoredDocument::Plan => output::print_json(&plan.ok_or_else(nothing)?.plan),
    }
}

/// Reads a backup, or a store as a backup.
fn read_state(file: &Path) -> Result<StateBackup, CommandError> {
    let failed = |error: &dyn std::error::Error| {
        CommandError::input(file.display(), command_io::error_chain(error))
    };
    let mut first = [0];
    let mut opened = File::open(file).map_err(|error| failed(&error))?;
    opened.read(&mut first).map_err(|error| failed(&error))?;
    let backup = if first == *b"{" {
        let bytes = fs::read(file).map_err(|error| failed(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| failed(&error))?
    } else {
        let store = EmbeddedStore::open(file).map_err(|error| failed(&error))?;
        store.create_backup().map_err(|error| failed(&error))?
    };
    StateBackup::check(&backup).map_err(|error| failed(&error))?;
    Ok(backup)
}

/// What a store has, in numbers.
#[derive(serde::Serialize)]
struct StateSummary {
    schema: u64,
    term: u64,
    generation: u64,
    /// The policy revision in force; 0 without one.
    revision: u64,
    revisions: usize,
    jobs: usize,
    reported_jobs: usize,
    planned_jobs: usize,
    planned_flows: usize,
    has_fabric: bool,
}

impl StateSummary {
    fn new(state: &BackedUpState) -> Self {
        let count = |jobs: &Option<planner::JobsDocument>| {
            jobs.as_ref().map_or(0, |document| document.jobs.len())
        };
        let plan = state.plan.as_ref().map(|stored| &stored.plan);
        Self {
            schema: state.schema,
            term: state.term,
            generation: state.generation,
            revision: state.policy_revisions.last().map_or(0, |revision| revision.number),
            revisions: state.policy_revisions.len(),
            jobs: count(&state.jobs),
            reported_jobs: count(&state.reported_jobs),
            planned_jobs: plan.map_or(0, |plan| plan.jobs.len()),
            planned_flows: plan.map_or(0, |plan| plan.flows.len()),
            has_fabric: state.fabric.is_some(),
        }
    }
}

fn summary_table(summary: &StateSummary) -> comfy_table::Table {
    let mut table = output::new_table(["what", "stored"]);
    let rows = [
        ("schema", summary.schema.to_string()),
        ("term", summary.term.to_string()),
        ("generation", summary.generation.to_string()),
        ("policy revision in force", summary.revision.to_string()),
        ("policy revisions", summary.revisions.to_string()),
        ("jobs of documents", summary.jobs.to_string()),
        ("reported jobs", summary.reported_jobs.to_string()),
        ("jobs of the plan", summary.planned_jobs.to_string()),
        ("flows of the plan", summary.planned_flows.to_string()),
        ("discovered fabric", if summary.has_fabric { "yes" } else { "no" }.to_owned()),
    ];
    for (what, stored) in rows {
        table.add_row([what.to_owned(), stored]);
    }
    table
}
