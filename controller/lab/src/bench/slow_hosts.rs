//! `crux bench slow-hosts`: whether a job is named of which one host computes more slowly, and that
//! host.
//!
//! Jobs share no NIC ([`generate_apart_case`]) and train packet by packet under the plan of a
//! controller: once as they are, once with a host that becomes slow, and once with a link that
//! becomes slow. [`find_slow_jobs`] names jobs and hosts. The decision: the host is drawn from jobs
//! that have their links to themselves and iterate a fifth longer for it, by the fluid model; of
//! others it is not to be known who is to blame.

use std::collections::{BTreeMap, BTreeSet};

use controller::PlanRollout;
use controller::northbound::slow_hosts::{SlowJob, find_slow_jobs, has_links_to_itself};
use emulator::{EmulatedTestbed, TimeScale};
use planner::JobId;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::generate_apart_case;
use topology::{HostId, LinkId};

use super::observed_training::{
    ObservedTraining, TrainingReading, forecast_seconds, iterates_longer,
};
use super::parallel_cases;
use super::slow_links::missed_links;
use crate::demo::{DemoScenario, parse_time_scale};
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Slow the computation of a host while jobs train packet by packet, and count how often its job
/// and the host are named.
///
/// Cases of jobs that share no NIC are drawn from a seed, and of each a job with links of its own
/// and a host. Counters of switches are read 20 times an iteration of the fastest job. Each case
/// also runs as it is, and with a link that carries half: a job that is named there is wrong.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench slow-hosts --cases 100
  crux bench slow-hosts --cases 1 --seed 1 --first 17 --format json")]
pub(crate) struct SlowHostsArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases, the hosts and the start of every job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    first: u32,
    /// How many times as long the slow host computes
    #[arg(long, default_value_t = 1.5)]
    factor: f64,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
    /// Also write the figures of every single case to this file (JSON)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// Iterations of the slowest job after something has become slow.
const ITERATIONS_AFTER: usize = 10;

/// Iterations whose mean is what a job reports.
const REPORTED: usize = 3;

/// A job that misses its host makes iterations longer by this share, by the fluid model.
const MISSED: f64 = 0.2;

/// What the slow link carries.
const LINK_SHARE: f64 = 0.5;

/// What becomes slow in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SlowPart {
    Nothing,
    Host(usize, HostId),
    Link(LinkId),
}

/// A case with what was named in it.
#[derive(Serialize)]
struct SlowHostCase {
    number: u32,
    /// The job of which a host became slow, and the host; none where no job would miss one.
    slow: Option<(JobId, String)>,
    /// Iterations of the job since then when it was named.
    job_named_after: Option<usize>,
    /// Iterations of the job since then when a host was named.
    host_named_after: Option<usize>,
    /// The host that was named first.
    named_host: Option<String>,
    /// Other jobs that were named, and any before.
    wrong: BTreeSet<String>,
    /// Jobs that were named while nothing was slow.
    wrong_when_healthy: BTreeSet<String>,
    /// Jobs that were named while a link was slow.
    wrong_with_slow_link: BTreeSet<String>,
}

/// What came of all cases.
#[derive(Serialize, JsonSchema)]
struct SlowHostsSummary {
    /// Number of cases.
    cases: usize,
    /// What they were drawn from.
    seed: u64,
    /// Cases with a job that misses a host.
    slowed: usize,
    /// Of those, cases in which the job was named.
    jobs_named: usize,
    /// The most iterations until then.
    jobs_latest: usize,
    /// Cases in which the host was named.
    hosts_named: usize,
    /// The most iterations until then.
    hosts_latest: usize,
    /// Cases in which another host of the job was named.
    hosts_wrong: usize,
    /// Jobs named whose hosts were as fast as ever, in all runs.
    jobs_wrong: usize,
    /// Share of the jobs named that had a slow host.
    precision: f64,
}

pub(crate) fn run_slow_hosts(args: &SlowHostsArgs) -> Result<(), CommandError> {
    let examined = parallel_cases::run_cases(args.cases, |number| {
        let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
        runtime.block_on(examine_case(args, args.first.saturating_add(number)))
    })?;
    let cases = examined.into_iter().collect::<Result<Vec<_>, CommandError>>()?;
    files::write_requested(args.raw.as_deref(), || {
        serde_json::to_string(&cases).expect("numbers and names make valid JSON")
    })?;
    let summary = SlowHostsSummary::new(args.seed, &cases);
    match args.output.format {
        OutputFormat::Json => output::print_json(&summary),
        OutputFormat::Table => summary.print_lines(),
    }
}

async fn examine_case(args: &SlowHostsArgs, number: u32) -> Result<SlowHostCase, CommandError> {
    let input = generate_apart_case(args.seed, number);
    let seed = args.seed.wrapping_add(number.into());
    let scenario = DemoScenario { fabric: input.fabric, jobs: input.jobs, seed };
    let (named_when_healthy, rollout) = run_case(args, &scenario, SlowPart::Nothing).await?;
    let missed_links = missed_links(&scenario, &rollout, LINK_SHARE)?;
    let missed_hosts = missed_hosts(&scenario, &rollout, args.factor)?;
    let mut case = SlowHostCase {
        number,
        slow: None,
        job_named_after: None,
        host_named_after: None,
        named_host: None,
        wrong: BTreeSet::new(),
        wrong_when_healthy: job_names(&named_when_healthy, &scenario),
        wrong_with_slow_link: BTreeSet::new(),
    };
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    if let Some(link) = missed_links.choose(&mut random) {
        let (named, _) = run_case(args, &scenario, SlowPart::Link(*link)).await?;
        case.wrong_with_slow_link = job_names(&named, &scenario);
    }
    let Some((job, host)) = missed_hosts.choose(&mut random).copied() else {
        return Ok(case);
    };
    let (mut named, _) = run_case(args, &scenario, SlowPart::Host(job, host)).await?;
    // Named before its host was slow, it is as wrong as another.
    let found = named.remove(&job).filter(|found| found.job_after.is_some());
    let host_name = |host: HostId| scenario.fabric.host(host).name.clone();
    case.slow = Some((scenario.jobs[job].id.clone(), host_name(host)));
    case.job_named_after = found.and_then(|found| found.job_after);
    case.host_named_after = found.and_then(|found| found.host.map(|(_, after)| after));
    case.named_host = found.and_then(|found| found.host.map(|(host, _)| host_name(host)));
    case.wrong = job_names(&named, &scenario);
    Ok(case)
}

/// When a job was first named.
#[derive(Clone, Copy, Debug)]
struct NamedJob {
    /// Iterations that it had completed since something became slow; none before.
    job_after: Option<usize>,
    /// The first host that was named, and after how many.
    host: Option<(HostId, usize)>,
}

/// Jobs that were named, by position in the scenario.
type NamedJobs = BTreeMap<usize, NamedJob>;

fn job_names(named: &NamedJobs, scenario: &DemoScenario) -> BTreeSet<String> {
    named.keys().map(|job| scenario.jobs[*job].id.to_string()).collect()
}

/// Trains the jobs; `slow` becomes slow after some iterations. Returns what is named, and the plan.
async fn run_case(
    args: &SlowHostsArgs,
    scenario: &DemoScenario,
    slow: SlowPart,
) -> Result<(NamedJobs, PlanRollout), CommandError> {
    let training = ObservedTraining::start(scenario, args.time_scale, ITERATIONS_AFTER).await?;
    let rollout = &training.rollout;
    let mut named = NamedJobs::new();
    let inspect = async |reading: TrainingReading<'_>| {
        let reported = reported_seconds(args, scenario, reading.testbed).await?;
        for SlowJob { job, late_host, .. } in find_slow_jobs(rollout, reading.counters, &reported) {
            let id = &rollout.plan.jobs[job].id;
            let Some(job) = scenario.jobs.iter().position(|known| known.id == *id) else {
                continue;
            };
            let job_after = reading.since_slow.as_ref().map(|since| since[job]);
            let found = named.entry(job).or_insert(NamedJob { job_after, host: None });
            let host = late_host.map(|late| (late.host, job_after.unwrap_or(0)));
            found.host = found.host.or(host);
        }
        Ok(())
    };
    training.observe(async |testbed| make_slow(args, testbed, slow).await, inspect).await?;
    Ok((named, training.close().await))
}

async fn make_slow(
    args: &SlowHostsArgs,
    testbed: &EmulatedTestbed,
    slow: SlowPart,
) -> Result<(), CommandError> {
    let slowed = match slow {
        SlowPart::Nothing => Ok(()),
        SlowPart::Host(job, host) => testbed.slow_host(job, host, args.factor).await,
        SlowPart::Link(link) => testbed.slow_link(link, LINK_SHARE).await,
    };
    slowed.map_err(CommandError::failed)
}

/// Seconds of an iteration of each job, a mean over the latest.
async fn reported_seconds(
    args: &SlowHostsArgs,
    scenario: &DemoScenario,
    testbed: &EmulatedTestbed,
) -> Result<BTreeMap<JobId, f64>, CommandError> {
    let starts = testbed.iteration_starts().await.map_err(CommandError::failed)?;
    let mean = |starts: &Vec<u64>| {
        let latest = starts.last_chunk::<{ REPORTED + 1 }>()?;
        let passed = latest[REPORTED] - latest[0];
        Some(args.time_scale.real_seconds(passed) / REPORTED as f64)
    };
    let jobs = scenario.jobs.iter().zip(&starts);
    Ok(jobs.filter_map(|(job, starts)| Some((job.id.clone(), mean(starts)?))).collect())
}

/// Jobs with links of their own, and hosts that they send from, which would miss these.
fn missed_hosts(
    scenario: &DemoScenario,
    rollout: &PlanRollout,
    factor: f64,
) -> Result<Vec<(usize, HostId)>, CommandError> {
    let fabric = &rollout.fabric;
    let before = forecast_seconds(fabric, &scenario.jobs, rollout)?;
    let mut missed = Vec::new();
    for (position, job) in scenario.jobs.iter().enumerate() {
        let mut jobs = scenario.jobs.clone();
        jobs[position].compute_seconds *= factor;
        let after = forecast_seconds(fabric, &jobs, rollout)?;
        let is_longer = iterates_longer(&job.id, [&before, &after], MISSED);
        let planned = rollout.plan.job(&job.id);
        if is_longer && planned.is_some_and(|(planned, _)| has_links_to_itself(rollout, planned)) {
            let hosts = job.flows.iter().map(|flow| scenario.fabric.nic(flow.src).host);
            let hosts: BTreeSet<HostId> = hosts.collect();
            missed.extend(hosts.into_iter().map(|host| (position, host)));
        }
    }
    Ok(missed)
}

impl SlowHostsSummary {
    fn new(seed: u64, cases: &[SlowHostCase]) -> Self {
        let count = |is: fn(&SlowHostCase) -> bool| cases.iter().filter(|case| is(case)).count();
        let is_right = |case: &SlowHostCase| {
            let slow = case.slow.as_ref().map(|(_, host)| host);
            slow.is_some() && slow == case.named_host.as_ref()
        };
        let jobs_named = count(|case| case.job_named_after.is_some());
        let wrong = cases.iter().map(|case| {
            case.wrong.len() + case.wrong_when_healthy.len() + case.wrong_with_slow_link.len()
        });
        let jobs_wrong: usize = wrong.sum();
        Self {
            cases: cases.len(),
            seed,
            slowed: count(|case| case.slow.is_some()),
            jobs_named,
            jobs_latest: cases.iter().filter_map(|case| case.job_named_after).max().unwrap_or(0),
            hosts_named: count(is_right),
            hosts_latest: cases.iter().filter_map(|case| case.host_named_after).max().unwrap_or(0),
            hosts_wrong: count(|case| case.named_host.is_some()) - count(is_right),
            jobs_wrong,
            precision: jobs_named as f64 / (jobs_named + jobs_wrong).max(1) as f64,
        }
    }

    fn print_lines(&self) -> Result<(), CommandError> {
        output::print_line(format_args!(
            "{} cases of seed {}, in {} of which a host of a job becomes slow.\nThe job is named \
             in {} of them, after {} iterations at most; the host in {}, after {} at most, and \
             another host in {}.\n{} jobs without a slow host are named, also in runs without and \
             with a slow link: precision {:.1} %.",
            self.cases,
            self.seed,
            self.slowed,
            self.jobs_named,
            self.jobs_latest,
            self.hosts_named,
            self.hosts_latest,
            self.hosts_wrong,
            self.jobs_wrong,
            self.precision * 100.0,
        ))
    }
}
