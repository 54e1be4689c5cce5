//! `crux replay`: a trace of jobs that come, are placed, train and leave, under one placement and
//! several communication schedulers.
//!
//! [`source`] makes the trace, [`runs`] replays it under all schedulers at a time and keeps
//! checkpoints, [`table`] and [`page`] show what came of it. What happens in a replay is
//! [`simulator::replay`]'s.

mod page;
pub(super) mod runs;
mod source;
mod table;

use std::fs;

use simulator::Scheduler;
use simulator::placement::{Cluster, Placement};
use simulator::replay::{Hindrance, Replays, Setup};
use simulator::trace::Trace;

use self::source::SourceArgs;
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Format, FormatArg};

/// Replay a trace of jobs on a fabric: placement, scheduling at every arrival and departure, and
/// what that is worth.
///
/// Between two events the jobs that share links are simulated until they repeat themselves, and the
/// rest of the time is jumped over; docs/simulation.md says what that may cost in accuracy.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux replay --trace lingjun-like --fabric clos.toml --volume 8
  crux replay --trace jobs.csv --fabric clos.toml --placement hived --scheduler ecmp,crux
  crux replay --trace jobs.csv --fabric clos.toml --checkpoint run --html replay.html")]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    #[arg(long)]
    fabric: String,
    /// Policy document; without one, the defaults without search
    #[arg(long)]
    policy: Option<String>,
    /// The placement policy
    #[arg(long, value_name = "NAME", default_value = "same-leaf")]
    placement: Placement,
    /// Schedulers by name, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "ecmp,sincronia,taccl,cassini,crux"
    )]
    scheduler: Vec<Scheduler>,
    /// Factor on every byte that jobs send
    #[arg(long, default_value_t = 1.0)]
    volume: f64,
    #[command(flatten)]
    checkpoints: runs::Checkpoints,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let setups = args.setups()?;
    let outcomes = runs::replay_all(&setups, &args.checkpoints)?;
    let replays = Replays {
        notes: notes(&setups[0].trace, args),
        volume: args.volume,
        outcomes,
    };
    if let Some(file) = &args.html {
        let page = page::page(&replays);
        fs::write(file, page).map_err(|error| Failure::input(file, error))?;
        eprintln!("wrote {file}");
    }
    match args.output.format {
        Format::Json => output::print_json(&replays),
        Format::Table => table::print(&replays),
    }
}

impl Args {
    /// One setup for each scheduler, of which there is at least one.
    fn setups(&self) -> Result<Vec<Setup>, Failure> {
        if !(self.volume > 0.0 && self.volume.is_finite()) {
            let what = format!("{} is no factor; give more than 0", self.volume);
            return Err(Failure::input("--volume", what));
        }
        let policy = files::policy_with(self.policy.as_deref(), |document| {
            // A search at every event would take days.
            if self.policy.is_none() {
                document.search_events = 0;
            }
        })?;
        let fabric = files::fabric(&self.fabric)?;
        let fabric = policy.apply_drains(&fabric).map_err(Failure::document)?;
        let cluster = Cluster::of(&fabric);
        let models = self.source.models()?;
        let trace = self.source.trace(&models, cluster.gpus())?;
        let first = self.scheduler.first().copied().unwrap_or(Scheduler::Crux);
        let setup = Setup {
            fabric,
            cluster,
            trace,
            models,
            volume: self.volume,
            policy,
            placement: self.placement,
            scheduler: first,
            hindrance: Hindrance::Everyone,
            seed: self.source.seed,
        };
        let schedulers = self.scheduler.iter();
        Ok(schedulers
            .map(|scheduler| Setup {
                scheduler: *scheduler,
                ..setup.clone()
            })
            .collect())
    }
}

/// What a reader should know of the trace.
fn notes(trace: &Trace, args: &Args) -> Vec<String> {
    let mut notes = trace.notes.clone();
    if trace.skipped.rows() > 0 {
        notes.push(format!("skipped: {}", trace.skipped));
    }
    if (args.volume - 1.0).abs() > 0.0 {
        notes.push(format!(
            "every byte that jobs send counts {} times",
            args.volume
        ));
    }
    notes
}
