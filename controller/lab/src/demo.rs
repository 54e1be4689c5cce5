//! `crux demo`: the whole system in one process, ECMP against Crux.
//!
//! The testbed of Crux §6.1 on the embedded fabric, or a case in which levels decide. [`scenario`]
//! defines jobs and placement, [`emulated_run`] makes one run with a controller over real gRPC,
//! [`switch_audit`] reads tables and counters from the switches, [`packet_walk`] sends packets
//! through those whose pins do not count, [`calibration`] fits the volumes that the paper
//! withholds, [`policy_change`] measures a change of policy, [`congestion`] has what queues and
//! rate control did, and [`report`] compares the runs. The decision: only runs of one scenario on
//! one virtual clock are compared, so every figure but the wall-clock ones is the same on every
//! machine.

mod calibration;
mod congestion;
mod documents;
mod emulated_run;
mod packet_walk;
mod policy_change;
mod report;
pub(crate) mod scenario;
mod switch_audit;

pub(crate) use self::calibration::CALIBRATED;
pub(crate) use self::emulated_run::{JobVisibility, ServedTestbed, TrainingOptions};
pub(crate) use self::policy_change::{
    ForecastErrors, MeasuredChange, PolicyTransition, change_to, measure_change, put_in_force,
};
pub(crate) use self::scenario::{DemoScenario, PipelineChoice, ScenarioChoice};

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use controller::RawSai;
use controller::pipelines::sai::select_program;
use emulator::TimeScale;
use p4::fabric::IpVersion;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use topology::{Forwarding, spec};

use self::emulated_run::EmulatedRun;
use self::report::DemoReport;
use crate::transport_flags::TransportFlags;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Run five training jobs on an embedded Clos fabric, under ECMP and under Crux, and compare.
///
/// Twelve emulated hosts send real RoCEv2 packets through eight embedded switches; a controller
/// programs them over P4Runtime. Fails if a table differs from the desired one, if a pinned flow
/// took another path, or if a job did not finish.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux demo
  crux demo --html demo.html
  crux demo --seeds 5 --format json
  crux demo --comm-scale 1.5
  crux demo --comm-scale 1.5 --change policy.toml
  crux demo --scenario shared-uplinks
  crux demo --transport dcqcn --levels 4
  crux demo --pipeline sai
  crux demo --forwarding spray")]
pub(crate) struct DemoArgs {
    /// The fabric and its jobs
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    scenario: ScenarioChoice,
    /// The P4 programs of the switches
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    pipeline: PipelineChoice,
    /// Who chooses the paths of packets. With `spray` and `auto`, the run beside Crux is spraying on one level
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    forwarding: ForwardingChoice,
    /// P4Info of another SAI P4 program for the switches with SAI P4 (docs/sai.md)
    #[arg(long, value_name = "FILE", requires = "sai_json")]
    sai_p4info: Option<PathBuf>,
    /// The program of --sai-p4info as p4c compiles it for BMv2
    #[arg(long, value_name = "FILE", requires = "sai_p4info")]
    sai_json: Option<PathBuf>,
    /// Draws the UDP source ports, which ECMP hashes, and the start of every job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat ECMP and Crux with so many seeds, this one and the following, because one ECMP draw
    /// may be lucky
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Multiply the calibrated communication volumes
    #[arg(long, default_value_t = 1.0, value_parser = comm_scale)]
    comm_scale: f64,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
    /// Iterations of the slowest job that are measured, after one that is not
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    iterations: u16,
    /// Give the hosts IPv6 addresses. Their hashes differ, so ECMP takes other paths
    #[arg(long)]
    ipv6: bool,
    /// Fit the communication volumes to the case of Crux §2.2 again and print it; no demo
    #[arg(long)]
    calibrate: bool,
    /// Write the fabric and the jobs of the seed there (fabric.json, jobs.json), for other
    /// networks; no demo
    #[arg(long, value_name = "FOLDER")]
    documents: Option<PathBuf>,
    /// Instead: apply this policy while the jobs train, and print its forecast beside what they
    /// measured, before and after
    #[arg(long, value_name = "POLICY")]
    change: Option<String>,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["change", "calibrate", "documents"])]
    html: Option<String>,
    #[command(flatten)]
    transport: TransportFlags,
    #[command(flatten)]
    output: FormatArg,
}

impl DemoArgs {
    fn scenario_of_seed(&self, seed: u64) -> Result<DemoScenario, CommandError> {
        let volumes = CALIBRATED.scaled_by(self.comm_scale);
        let addresses = if self.ipv6 { IpVersion::V6 } else { IpVersion::V4 };
        let scenario = DemoScenario::of_choice(self.scenario, addresses, volumes, seed)?;
        let fabric = scenario.fabric.with_pipelines(&self.pipeline.of_tiers());
        let forwarding = match self.forwarding {
            ForwardingChoice::Pin => Forwarding::Pin,
            ForwardingChoice::Spray => Forwarding::Spray,
            ForwardingChoice::Auto => Forwarding::Auto,
        };
        let fabric = spec::with_forwarding(&fabric, forwarding);
        let fabric = fabric.map_err(|error| CommandError::input("--forwarding", error))?;
        Ok(DemoScenario { fabric, ..scenario })
    }

    /// Has switches with SAI P4 run the program of the flags, if there is one.
    fn select_program(&self) -> Result<(), CommandError> {
        let files = RawSai { p4info: self.sai_p4info.clone(), json: self.sai_json.clone() };
        let program = files.load_program().map_err(CommandError::failed)?;
        program
            .map_or(Ok(()), |program| select_program(&Arc::new(program)))
            .map_err(CommandError::failed)
    }

    /// The change of policy that is measured, if one is: the file's, or from one level to eight.
    fn policy_transition(&self) -> Result<Option<PolicyTransition>, CommandError> {
        let levels = self.transport.levels;
        Ok(match (&self.change, self.scenario) {
            (Some(file), _) => {
                Some(PolicyTransition::from_default(crux::read_policy_to_send(file)?, levels))
            }
            (None, ScenarioChoice::SharedUplinks) => Some(PolicyTransition::from_one_level(levels)),
            (None, ScenarioChoice::Testbed) => None,
        })
    }
}

/// Who chooses the paths of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ForwardingChoice {
    /// The controller, for each flow
    #[default]
    Pin,
    /// The switches, for each packet
    Spray,
    /// Whichever is expected to keep more GPUs busy
    Auto,
}

fn comm_scale(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let sensible = (0.01..=100.0).contains(&factor);
    sensible.then_some(factor).ok_or_else(|| "not from 0.01 to 100".to_owned())
}

pub(crate) fn parse_time_scale(text: &str) -> Result<TimeScale, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let scale = TimeScale::new(factor).filter(|scale| scale.factor() <= 1e5);
    scale.ok_or_else(|| "not from 1 to 100000".to_owned())
}

pub(crate) fn run_demo(args: &DemoArgs) -> Result<(), CommandError> {
    if let Some(folder) = &args.documents {
        let scenario = args.scenario_of_seed(args.seed)?;
        return documents::write_documents(&scenario, folder);
    }
    args.select_program()?;
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let training = TrainingOptions {
        scale: args.time_scale,
        iterations: usize::from(args.iterations),
        testbed: args.transport.testbed_options()?,
    };
    if args.calibrate {
        let case = runtime.block_on(calibration::fit_volumes(training))?;
        return output::print_json(&case);
    }
    if let Some(transition) = args.policy_transition()? {
        let scenario = args.scenario_of_seed(args.seed)?;
        let changing = measure_change(&scenario, transition, training);
        return runtime.block_on(changing)?.print_report(args.output);
    }
    let runs = runtime.block_on(all_runs(args, training))?;
    let report = DemoReport::new(args, &runs)?;
    files::write_requested(args.html.as_deref(), || report.render_page())?;
    match args.output.format {
        OutputFormat::Json => output::print_json(&report)?,
        OutputFormat::Table => output::print_line(&report)?,
    }
    report.check_verified()
}

/// All runs: each job alone, then ECMP and Crux for every seed.
#[derive(Debug)]
struct DemoRuns {
    scenario: DemoScenario,
    alone: Vec<EmulatedRun>,
    comparisons: Vec<SeedComparison>,
}

/// The two runs of one seed.
#[derive(Debug)]
struct SeedComparison {
    seed: u64,
    ecmp: EmulatedRun,
    crux: EmulatedRun,
}

async fn all_runs(args: &DemoArgs, training: TrainingOptions) -> Result<DemoRuns, CommandError> {
    let seeds = (0..args.seeds).map(|more| args.seed.wrapping_add(more));
    let scenarios = seeds.map(|seed| Ok((seed, args.scenario_of_seed(seed)?)));
    let scenarios = scenarios.collect::<Result<Vec<_>, CommandError>>()?;
    let scenario = args.scenario_of_seed(args.seed)?;

    let crew = RunPool::new(training);
    let pairs: Vec<_> = scenarios
        .into_iter()
        .map(|(seed, scenario)| {
            let ecmp = crew.spawn_run(
                format!("ECMP, seed {seed}"),
                scenario.clone(),
                JobVisibility::Hidden,
            );
            let crux =
                crew.spawn_run(format!("Crux, seed {seed}"), scenario, JobVisibility::Reported);
            (seed, ecmp, crux)
        })
        .collect();
    let alone: Vec<_> = (0..scenario.jobs.len())
        .map(|index| {
            let name = format!("{} alone", scenario.jobs[index].id);
            crew.spawn_run(name, scenario.single_job(index), JobVisibility::Reported)
        })
        .collect();

    let mut comparisons = Vec::new();
    for (seed, ecmp, crux) in pairs {
        comparisons.push(SeedComparison {
            seed,
            ecmp: await_run(ecmp).await?,
            crux: await_run(crux).await?,
        });
    }
    let mut runs = DemoRuns { scenario, alone: Vec::new(), comparisons };
    for run in alone {
        runs.alone.push(await_run(run).await?);
    }
    Ok(runs)
}

/// Runs at most as many runs at a time as the machine has cores, in order.
struct RunPool {
    training: TrainingOptions,
    places: Arc<Semaphore>,
}

impl RunPool {
    fn new(training: TrainingOptions) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { training, places: Arc::new(Semaphore::new(cores)) }
    }

    fn spawn_run(
        &self,
        name: String,
        scenario: DemoScenario,
        telling: JobVisibility,
    ) -> JoinHandle<Result<EmulatedRun, CommandError>> {
        let (training, places) = (self.training, Arc::clone(&self.places));
        tokio::spawn(async move {
            let place = places.acquire_owned().await.map_err(CommandError::failed)?;
            eprintln!("{name}: started");
            let begun = std::time::Instant::now();
            let run = emulated_run::run_emulated(&scenario, telling, training).await;
            drop(place);
            eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
            run
        })
    }
}

async fn await_run(
    run: JoinHandle<Result<EmulatedRun, CommandError>>,
) -> Result<EmulatedRun, CommandError> {
    run.await.map_err(CommandError::failed)?
}
