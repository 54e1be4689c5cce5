//! `crux bench slow-links`: whether a link that carries half of its rate is named, and no other.
//!
//! [`simulator::contention`] draws the cases. Jobs train packet by packet under the plan of a
//! controller, once with a link that becomes slow and once without; what the queues of switches
//! count is read as over gNMI, and [`slow_links`](controller::northbound::slow_links) names links.
//! The decision: only links are slowed that some job needs more than half of, by the fluid model;
//! a link that nobody misses is not a finding.

mod fabric_readings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use controller::northbound::slow_links::{SlowLink, find_slow_links};
use controller::{PlanRollout, forecast};
use emulator::{TestbedOptions, TimeScale};
use planner::JobId;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use simulator::contention::generate_packet_case;
use topology::{Bandwidth, Fabric, LinkId};

use self::fabric_readings::{FabricReader, completed_iterations};
use super::parallel_cases::CaseArgs;
use crate::demo::{DemoScenario, JobVisibility, ServedTestbed, TrainingOptions, parse_time_scale};
use command_io::CommandError;

/// Slow a link to half while jobs train packet by packet, and count how often it is named.
///
/// Cases of 2 to 5 jobs are drawn from a seed, and a link of each that switches send on and that
/// some job needs more than half of. Queues of switches are read 20 times an iteration of the
/// fastest job. Each case also runs without a slow link: every link that is named there is wrong.
/// About ten seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench slow-links --cases 100
  crux bench slow-links --cases 1 --seed 1 --first 17 --format json")]
pub(crate) struct SlowLinksArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// What the slow link carries, as a share of its rate
    #[arg(long, default_value_t = 0.5)]
    share: f64,
    /// Divide sizes and computation times; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
}

/// Iterations of the slowest job before a link becomes slow.
const ITERATIONS_BEFORE: usize = 3;

/// Readings in an iteration of the fastest job.
const READINGS: f64 = 20.0;

/// Readings after which nobody waits for the slowest job any longer, before and after: 100 and 250
/// iterations of the fastest job. Some jobs starve under others of higher levels.
const MAX_READINGS: (usize, usize) = (2_000, 5_000);

/// Iterations of the slowest job after a link has become slow.
const ITERATIONS_AFTER: usize = 5;

/// A link that a job misses makes its iteration longer by this share, by the fluid model.
const MISSED: f64 = 0.05;

/// A case with what was named in it.
#[derive(Serialize)]
struct SlowLinkCase {
    number: u32,
    /// The link that became slow; none where no job would miss half of any.
    link: Option<String>,
    /// Iterations that the fastest job on it had completed since then when it was named.
    named_after: Option<usize>,
    /// What it was said to deliver.
    delivered: Option<f64>,
    /// Other links that were named, and any before it became slow.
    wrong: BTreeSet<String>,
    /// Links that were named in the run without a slow link.
    wrong_when_healthy: BTreeSet<String>,
}

/// What came of all cases.
#[derive(Serialize)]
struct SlowLinksSummary {
    cases: usize,
    seed: u64,
    /// Cases with a link that some job needs more than half of.
    slowed: usize,
    /// Of those, cases in which it was named within four iterations of the fastest job on it.
    named: usize,
    /// The most iterations until it was named.
    latest: usize,
    /// Links named that were not slow, in all runs.
    wrong: usize,
    /// Share of the links named that were slow.
    precision: f64,
    /// Runs without a slow link in which one was named.
    healthy_alarms: usize,
}

pub(crate) fn run_slow_links(args: &SlowLinksArgs) -> Result<(), CommandError> {
    let cases = args.cases.examine(|number| {
        let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
        runtime.block_on(examine_case(args, number))
    })?;
    args.cases.write_raw(&cases)?;
    args.cases.print(&SlowLinksSummary::new(args.cases.seed, &cases))
}

async fn examine_case(args: &SlowLinksArgs, number: u32) -> Result<SlowLinkCase, CommandError> {
    let input = generate_packet_case(args.cases.seed, number);
    let seed = args.cases.seed.wrapping_add(number.into());
    let scenario = DemoScenario { fabric: input.fabric, jobs: input.jobs, seed };
    let (named_when_healthy, rollout) = run_case(args, &scenario, None).await?;
    let missed_links = missed_links(&scenario, &rollout, args.share);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut case = SlowLinkCase {
        number,
        link: None,
        named_after: None,
        delivered: None,
        wrong: BTreeSet::new(),
        wrong_when_healthy: named_when_healthy.keys().map(|link| name(&scenario, *link)).collect(),
    };
    let Some(link) = missed_links.choose(&mut random).copied() else {
        return Ok(case);
    };
    let (mut named, _) = run_case(args, &scenario, Some(link)).await?;
    // Named before it was slow, it is as wrong as another.
    let found = named.get(&link).copied().filter(|found| found.iterations.is_some());
    if found.is_some() {
        named.remove(&link);
    }
    case.link = Some(name(&scenario, link));
    case.named_after = found.and_then(|found| found.iterations);
    case.delivered = found.map(|found| found.delivered);
    case.wrong = named.keys().map(|link| name(&scenario, *link)).collect();
    Ok(case)
}

fn name(scenario: &DemoScenario, link: LinkId) -> String {
    scenario.fabric.link_name(link)
}

/// When a link was first named.
#[derive(Clone, Copy, Debug)]
struct NamedLink {
    /// Iterations that the fastest job on the slow link had completed since it became slow; none
    /// before.
    iterations: Option<usize>,
    delivered: f64,
}

/// Trains the jobs; `slow` becomes slow after some iterations. Counters are read at even times
/// until all jobs have completed their iterations. Returns what is named, and the plan.
async fn run_case(
    args: &SlowLinksArgs,
    scenario: &DemoScenario,
    slow: Option<LinkId>,
) -> Result<(BTreeMap<LinkId, NamedLink>, PlanRollout), CommandError> {
    let scale = args.time_scale;
    let training = TrainingOptions {
        scale,
        iterations: ITERATIONS_BEFORE + ITERATIONS_AFTER,
        testbed: TestbedOptions::default(),
    };
    let stage = ServedTestbed::start_servers(scenario, training).await?;
    let controller = stage.start_controller().await?;
    stage.report_jobs(&controller, JobVisibility::Reported).await?;
    let rollout = controller.current_rollout();
    let rollout =
        rollout.ok_or_else(|| CommandError::Failed("the controller has no plan".to_owned()))?;
    let alone = rollout.report.rationales.iter().map(|rationale| rationale.iteration_seconds);
    let fastest = alone.fold(f64::INFINITY, f64::min);
    let step = Duration::from_secs_f64(fastest / READINGS / scale.factor());
    let mut reader = FabricReader::new(scale);
    let mut named: BTreeMap<LinkId, NamedLink> = BTreeMap::new();
    let mut before: Option<Vec<usize>> = None;
    let mut slow_from = MAX_READINGS.0;
    let mut now = stage.begin_training().await?;
    for reading in 0.. {
        now = stage.advance_to(now + step).await?;
        let completed = completed_iterations(&stage).await?;
        reader.read_counters(&stage, &scenario.fabric, step).await?;
        for SlowLink { link, delivered, .. } in find_slow_links(&rollout, &reader.counters) {
            let iterations = before.as_ref().map(|before| {
                let jobs = jobs_on(scenario, &rollout, link).into_iter();
                jobs.map(|job| completed[job] - before[job]).max().unwrap_or(0)
            });
            named.entry(link).or_insert(NamedLink { iterations, delivered });
        }
        match &before {
            Some(before) => {
                let mut pairs = completed.iter().zip(before);
                if pairs.all(|(now, before)| *now >= before + ITERATIONS_AFTER)
                    || reading >= slow_from + MAX_READINGS.1
                {
                    break;
                }
            }
            None => {
                let fewest = completed.iter().copied().min().unwrap_or(0);
                if fewest >= ITERATIONS_BEFORE || reading >= slow_from {
                    slow_from = reading;
                    if let Some(link) = slow {
                        let slowed = stage.testbed().slow_link(link, args.share).await;
                        slowed.map_err(CommandError::failed)?;
                    }
                    before = Some(completed);
                }
            }
        }
    }
    controller.shutdown().await;
    stage.close().await;
    Ok((named, rollout))
}

/// Positions among the jobs of the scenario of those with flows on a link.
fn jobs_on(scenario: &DemoScenario, rollout: &PlanRollout, link: LinkId) -> Vec<usize> {
    let plan = &rollout.plan;
    let on_it: BTreeSet<&JobId> = plan
        .flows
        .iter()
        .filter(|flow| flow.links.contains(&link))
        .map(|flow| &plan.jobs[flow.job].id)
        .collect();
    let jobs = scenario.jobs.iter().enumerate();
    jobs.filter(|(_, job)| on_it.contains(&job.id)).map(|(position, _)| position).collect()
}

/// Links that switches send on and that some job misses if they carry this share only.
fn missed_links(scenario: &DemoScenario, rollout: &PlanRollout, share: f64) -> Vec<LinkId> {
    let fabric = &rollout.fabric;
    let forecast = |fabric: &Fabric| forecast::forecast_plan(fabric, &scenario.jobs, &rollout.plan);
    let before = forecast(fabric);
    let sent_by_switch = |link: &LinkId| fabric.switch_after(link.reverse()).is_some();
    let mut missed = Vec::new();
    for link in fabric.link_ids().filter(sent_by_switch) {
        let after = forecast(&with_slow_link(fabric, link, share));
        let is_longer = |job: &JobId| {
            let seconds = before.seconds(job).zip(after.seconds(job));
            seconds.is_some_and(|(before, after)| after > before * (1.0 + MISSED))
        };
        if before.jobs.keys().any(is_longer) {
            missed.push(link);
        }
    }
    missed
}

/// The fabric with a link that carries a share of what it is built for.
fn with_slow_link(fabric: &Fabric, link: LinkId, share: f64) -> Fabric {
    let mut parts = fabric.parts().clone();
    let slow = &mut parts.links[link.index()];
    slow.bandwidth = Bandwidth::from_gbps(slow.bandwidth.gbps() * share).unwrap_or(slow.bandwidth);
    Fabric::new(parts)
}

impl SlowLinkCase {
    fn is_named_in_time(&self) -> bool {
        self.named_after.is_some_and(|iterations| iterations < ITERATIONS_AFTER)
    }
}

impl SlowLinksSummary {
    fn new(seed: u64, cases: &[SlowLinkCase]) -> Self {
        let count = |is: fn(&SlowLinkCase) -> bool| cases.iter().filter(|case| is(case)).count();
        let found = count(|case| case.named_after.is_some());
        let all_wrong = cases.iter().map(|case| case.wrong.len() + case.wrong_when_healthy.len());
        let wrong: usize = all_wrong.sum();
        Self {
            cases: cases.len(),
            seed,
            slowed: count(|case| case.link.is_some()),
            named: count(SlowLinkCase::is_named_in_time),
            latest: cases.iter().filter_map(|case| case.named_after).max().unwrap_or(0),
            wrong,
            precision: found as f64 / (found + wrong).max(1) as f64,
            healthy_alarms: count(|case| !case.wrong_when_healthy.is_empty()),
        }
    }
}

impl fmt::Display for SlowLinksSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases of seed {}, in {} of which a link that some job needs becomes slow.\n\
             It is named in fewer than {ITERATIONS_AFTER} iterations in {} of them, after {} at \
             most.\n{} other links are named: precision {:.1} %. Without a slow link, some link \
             is named in {} of {} runs.",
            self.cases,
            self.seed,
            self.slowed,
            self.named,
            self.latest,
            self.wrong,
            self.precision * 100.0,
            self.healthy_alarms,
            self.cases,
        )
    }
}
