//! `crux replay`: a trace of jobs that come, are placed, train and leave, under one placement and
//! several communication schedulers.
//!
//! [`trace_source`] makes the trace, [`runs`] replays it under all schedulers in parallel and
//! writes checkpoints, [`table`] and [`page`] show the outcomes. [`simulator::replay`] does the
//! replay.

mod page;
mod quota;
pub(super) mod runs;
mod table;
mod trace_source;

use std::fs;

use placement::hived::CellQuota;
use placement::queue::JobFragmentation;
use placement::{GpuCluster, PlacementAlgorithm};
use simulator::Scheduler;
use simulator::replay::{InterferenceModel, ReplayComparison, ReplaySetup, ScheduleAlternative};
use simulator::trace::JobTrace;

use self::trace_source::TraceArgs;
use crate::scheduler_process::ProgramArgs;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

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
  crux replay --trace jobs.csv --fabric clos.toml --placement hived --quota a=4x64+2x8 --quota b=8x8
  crux replay --trace jobs.csv --fabric clos.toml --checkpoint run --html replay.html
  crux replay --trace jobs.csv --fabric clos.toml --scheduler crux --alternatives ecmp,one-level
  crux replay --trace jobs.csv --fabric clos.toml --scheduler-command 'python3 shortest_first.py'")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    source: TraceArgs,
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    #[arg(long)]
    fabric: String,
    /// Policy document; without one, the defaults without search
    #[arg(long)]
    policy: Option<String>,
    /// Events of the fluid model that comparing and searching plans may cost at each arrival and
    /// departure, in place of the policy's; without either 0, the phases of the paper alone
    #[arg(long, value_name = "EVENTS")]
    search_events: Option<u64>,
    /// The placement policy
    #[arg(long, value_name = "NAME", default_value = "same-leaf")]
    placement: PlacementAlgorithm,
    /// Cells that hived guarantees to a tenant of the trace, as NUMBERxGPUS, several joined by +;
    /// once for each tenant. Other jobs run on idle cells and are suspended when these are wanted
    #[arg(long, value_name = "TENANT=CELLS", value_parser = quota::parse_quota)]
    quota: Vec<(String, CellQuota)>,
    /// Schedulers by name, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "ecmp,sincronia,taccl,cassini,crux"
    )]
    scheduler: Vec<Scheduler>,
    #[command(flatten)]
    program: ProgramArgs,
    /// Also judge at every event what the jobs present would get from these, separated by commas:
    /// one-level, unsearched (the phases of Crux alone), or schedulers. Two replays differ by which
    /// jobs stay longer, too; this compares decisions on the same jobs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    alternatives: Vec<ScheduleAlternative>,
    /// Factor on every byte that jobs send
    #[arg(long, default_value_t = 1.0)]
    volume: f64,
    /// Connections of each ring on every NIC
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    #[command(flatten)]
    checkpoints: runs::CheckpointArgs,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_replay(args: &ReplayArgs) -> Result<(), CommandError> {
    let setups = args.build_setups()?;
    let program = args.program.scheduler()?;
    let outcomes = runs::replay_all(&setups, program.as_ref(), &args.checkpoints)?;
    let replays = ReplayComparison {
        notes: trace_notes(&setups[0].trace, args),
        volume: args.volume,
        outcomes,
    };
    if let Some(file) = &args.html {
        let page = page::render_page(&replays);
        fs::write(file, page).map_err(|error| CommandError::input(file, error))?;
        eprintln!("wrote {file}");
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&replays),
        OutputFormat::Table => table::print_replays(&replays),
    }
}

impl ReplayArgs {
    /// One setup for each scheduler, of which there is at least one.
    fn build_setups(&self) -> Result<Vec<ReplaySetup>, CommandError> {
        if !(self.volume > 0.0 && self.volume.is_finite()) {
            let what = format!("{} is not a factor; it must be above 0", self.volume);
            return Err(CommandError::input("--volume", what));
        }
        let fabric = files::read_fabric(&self.fabric)?;
        if fabric.forwarding().sprays() {
            let text = "forwarding: a replay pins flows; leave it out, or use `crux simulate`";
            return Err(CommandError::input(&self.fabric, text));
        }
        let levels = planner::PolicyDocument::default_levels(&fabric);
        let policy = files::policy_with(self.policy.as_deref(), levels, |document| {
            // A comparison at every event takes minutes for every day of the trace.
            let given = self.search_events.or(self.policy.is_none().then_some(0));
            document.search_events = given.unwrap_or(document.search_events);
        })?;
        let fabric = policy.apply_drains(&fabric).map_err(CommandError::document)?;
        let cluster = GpuCluster::from_fabric(&fabric);
        let models = self.source.read_models()?;
        let trace = self.source.load_trace(&models, cluster.total_gpus())?;
        let first = self.scheduler.first().copied().unwrap_or(Scheduler::Crux);
        let setup = ReplaySetup {
            fabric,
            cluster,
            trace,
            models,
            volume: self.volume,
            connections: self.connections,
            policy,
            placement: self.placement,
            fragmentation: JobFragmentation::CALIBRATED,
            quotas: quota::collect_quotas(&self.quota, self.placement)?,
            scheduler: first,
            alternatives: self.alternatives.clone(),
            interference: InterferenceModel::AllJobs,
            seed: self.source.seed,
        };
        let schedulers = self.scheduler.iter();
        Ok(schedulers
            .map(|scheduler| ReplaySetup { scheduler: *scheduler, ..setup.clone() })
            .collect())
    }
}

/// What a reader should know of the trace.
fn trace_notes(trace: &JobTrace, args: &ReplayArgs) -> Vec<String> {
    let mut notes = trace.notes.clone();
    if trace.skipped.total_rows() > 0 {
        notes.push(format!("skipped: {}", trace.skipped));
    }
    if (args.volume - 1.0).abs() > 0.0 {
        notes.push(format!("every byte that jobs send counts {} times", args.volume));
    }
    notes
}
