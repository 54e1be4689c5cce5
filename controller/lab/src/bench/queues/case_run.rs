//! One run of a case: a controller programs the embedded fabric, every flow sends one message, and
//! queues and rates are read at equal steps of virtual time.

use emulator::{DcqcnOptions, HostCluster, HostTransport, SwitchQueues, TestbedOptions, TimeScale};
use fluid::{Engine, EngineOptions, FluidFlow, FluidJob};
use planner::{Plan, Policy};
use serde::Serialize;
use std::time::Duration;
use topology::{FabricNode, LinkId};

use super::case::QueueCase;
use crate::demo::{DemoScenario, JobVisibility, ServedTestbed, TrainingOptions};
use command_io::CommandError;

/// Virtual time between two readings.
pub(super) const STEP_US: u64 = 10;
/// Delay of every cable.
pub(super) const DELAY_NS: u64 = 200;
/// Steps after which a case has stalled.
const MOST_STEPS: usize = 20_000;
/// Bytes on the wire for each byte of a message.
const WIRE_BYTES_PER_BYTE: f64 = 1.0 + 58.0 / 4096.0;

/// What runs of one case may differ in.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseSettings {
    pub(super) dcqcn: DcqcnOptions,
    pub(super) seed: u64,
}

/// What happened.
#[derive(Debug, Default, Serialize)]
pub(super) struct CaseOutcome {
    pub(super) seed: u64,
    pub(super) flows: Vec<FlowResult>,
    /// Packets that queues of switches marked, and notifications that receivers sent.
    pub(super) marked: u64,
    pub(super) notifications: u64,
    /// Pauses of ports and NICs, and how long they lasted together.
    pub(super) pauses: u64,
    pub(super) paused_us: f64,
    pub(super) deepest_bytes: u64,
    pub(super) dropped: u64,
    pub(super) timeouts: u64,
    pub(super) step_us: u64,
    /// The deepest queue over all ports of switches at each step, in bytes, and where it ever was
    /// deepest.
    pub(super) queue_link: String,
    pub(super) queue_bytes: Vec<u64>,
    /// The rate that DCQCN allowed each flow at each step, in Gb/s; 0 once it has ended.
    pub(super) rates_gbps: Vec<Vec<f64>>,
}

/// One flow.
#[derive(Debug, Serialize)]
pub(super) struct FlowResult {
    pub(super) job: String,
    pub(super) level: u8,
    pub(super) bytes: u64,
    /// When its job started, from the start of the first.
    pub(super) start_ns: u64,
    /// From the start of its job to the last acknowledgement.
    pub(super) completion_us: f64,
    /// When the last flow of the job ends in the fluid model, from its start.
    pub(super) fluid_us: f64,
    pub(super) goodput_gbps: f64,
}

impl CaseOutcome {
    pub(super) fn last_us(&self) -> f64 {
        self.flows.iter().map(|flow| flow.completion_us).fold(0.0, f64::max)
    }

    pub(super) fn mean_us(&self) -> f64 {
        let sum: f64 = self.flows.iter().map(|flow| flow.completion_us).sum();
        sum / self.flows.len().max(1) as f64
    }

    pub(super) fn last_fluid_us(&self) -> f64 {
        self.flows.iter().map(|flow| flow.fluid_us).fold(0.0, f64::max)
    }
}

/// Readings of a run at equal steps.
#[derive(Default)]
struct CaseTrace {
    /// By step and link.
    queues: Vec<Vec<u64>>,
    /// By step and flow.
    rates: Vec<Vec<f64>>,
}

/// Runs a case once.
///
/// # Errors
/// The fabric or the plan is refused, a connection is lost, or the flows do not end.
pub(super) async fn run_case(
    case: &QueueCase,
    settings: CaseSettings,
) -> Result<CaseOutcome, CommandError> {
    let scenario =
        DemoScenario { fabric: case.fabric.clone(), jobs: case.jobs.clone(), seed: settings.seed };
    let lower_share = case.lower_share.unwrap_or(settings.dcqcn.queues.lower_share);
    let queues = SwitchQueues { seed: settings.seed, lower_share, ..settings.dcqcn.queues };
    let transport = HostTransport::Dcqcn(DcqcnOptions { queues, ..settings.dcqcn });
    // Every level sets headroom aside, so there are no more than the case needs.
    let testbed =
        TestbedOptions { delay_ns: DELAY_NS, levels: case.levels, transport, recovery: None };
    let training = TrainingOptions { scale: TimeScale::REAL, iterations: 1, testbed };
    let stage = ServedTestbed::start_servers(&scenario, training).await?;
    // Levels and paths leave no choice, so nothing is compared.
    let policy = Policy {
        levels: case.levels,
        overrides: case.fixed_levels(),
        search_events: 0,
        ..Policy::default()
    };
    let controller = stage.start_controller_under(policy).await?;
    stage.report_jobs(&controller, JobVisibility::Reported).await?;
    let rollout = controller
        .current_rollout()
        .ok_or_else(|| CommandError::Failed("the controller has made no plan".to_owned()))?;
    let trace = trace_messages(&stage).await?;
    let result = CaseReading { case, plan: &rollout.plan, seed: settings.seed, stage: &stage };
    let result = result.collect(&trace).await;
    controller.shutdown().await;
    stage.close().await;
    result
}

/// Starts all jobs, and lets every flow send one message.
async fn trace_messages(stage: &ServedTestbed<'_>) -> Result<CaseTrace, CommandError> {
    stage.begin_training().await?;
    // Jobs start within their first computation, which lasts a microsecond.
    stage.advance_by(Duration::from_micros(1)).await?;
    let testbed = stage.testbed();
    let hosts = testbed.host_cluster();
    hosts
        .with_endpoint(|cluster: &mut HostCluster, _, _| cluster.stop_new_flows())
        .await
        .map_err(CommandError::failed)?;
    let mut trace = CaseTrace::default();
    for _ in 0..MOST_STEPS {
        let counts = testbed.queue_counts().await.map_err(CommandError::failed)?;
        let deepest = counts.iter().map(|levels| levels.iter().map(|level| level.depth.bytes));
        trace.queues.push(deepest.map(Iterator::sum).collect());
        let read = hosts.with_endpoint(|cluster: &mut HostCluster, now, _| {
            let ended: Vec<bool> =
                cluster.flow_completions().map(|ends| !ends.is_empty()).collect();
            let rates = cluster.allowed_rates(now).into_iter().zip(&ended);
            let rates = rates.map(|(rate, ended)| rate.filter(|_| !ended).unwrap_or(0.0) / 1e9);
            let lost = cluster.lost_connections().first().copied();
            (rates.collect::<Vec<f64>>(), cluster.all_flows_done(), lost)
        });
        let (rates, is_done, lost) = read.await.map_err(CommandError::failed)?;
        trace.rates.push(rates);
        if let Some(lost) = lost {
            let what = format!("flow {} was lost at {} ns", lost.flow, lost.at);
            return Err(CommandError::Failed(what));
        }
        if is_done {
            return Ok(trace);
        }
        stage.advance_by(Duration::from_micros(STEP_US)).await?;
    }
    Err(CommandError::Failed("the flows do not end; look for drops".to_owned()))
}

/// What a run is read from at its end.
struct CaseReading<'a> {
    case: &'a QueueCase,
    plan: &'a Plan,
    seed: u64,
    stage: &'a ServedTestbed<'a>,
}

impl CaseReading<'_> {
    async fn collect(&self, trace: &CaseTrace) -> Result<CaseOutcome, CommandError> {
        let testbed = self.stage.testbed();
        let hosts = testbed.host_congestion().await.map_err(CommandError::failed)?;
        let counts = testbed.queue_counts().await.map_err(CommandError::failed)?;
        let from_switch = |link: &usize| {
            let link = self.case.fabric.link(LinkId::from(*link));
            matches!(link.from.node, FabricNode::Switch(_))
        };
        let switch_links: Vec<usize> = (0..counts.len()).filter(from_switch).collect();
        let levels = || switch_links.iter().flat_map(|link| &counts[*link]);
        let deepest = |link: &&usize| counts[**link].iter().map(|level| level.deepest).max();
        let deepest_link = switch_links.iter().max_by_key(deepest).copied().unwrap_or(0);
        let paused_ns: u64 = levels().map(|level| level.paused_ns).sum();
        let flow_count = trace.rates.first().map_or(0, Vec::len);
        Ok(CaseOutcome {
            seed: self.seed,
            flows: self.flow_results().await?,
            marked: levels().map(|level| level.marked).sum(),
            notifications: hosts.notifications,
            pauses: levels().map(|level| level.pauses).sum::<u64>() + hosts.pauses,
            paused_us: (paused_ns + hosts.paused_ns) as f64 / 1e3,
            deepest_bytes: levels().map(|level| level.deepest).max().unwrap_or(0),
            dropped: testbed.dropped_packets().await.map_err(CommandError::failed)?,
            timeouts: hosts.timeouts,
            step_us: STEP_US,
            queue_link: self.case.fabric.link_name(LinkId::from(deepest_link)),
            queue_bytes: trace.queues.iter().map(|step| step[deepest_link]).collect(),
            rates_gbps: (0..flow_count)
                .map(|flow| trace.rates.iter().map(|step| step[flow]).collect())
                .collect(),
        })
    }

    async fn flow_results(&self) -> Result<Vec<FlowResult>, CommandError> {
        let testbed = self.stage.testbed();
        let starts = testbed.iteration_starts().await.map_err(CommandError::failed)?;
        let ends = testbed
            .host_cluster()
            .with_endpoint(|cluster: &mut HostCluster, _, _| {
                cluster.flow_completions().map(|ends| ends.first().copied()).collect::<Vec<_>>()
            })
            .await
            .map_err(CommandError::failed)?;
        let fluid = fluid_seconds(self.case, self.plan)?;
        let first = starts.iter().filter_map(|starts| starts.first()).min().copied().unwrap_or(0);
        let mut ends = ends.into_iter();
        let mut results = Vec::new();
        for (index, job) in self.case.jobs.iter().enumerate() {
            let start = starts[index].first().copied().unwrap_or(0);
            let level = self.plan.job(&job.id).map_or(0, |(_, planned)| planned.level);
            for flow in &job.flows {
                let end = ends.next().flatten().unwrap_or(start);
                let taken_ns = (end - start).max(1) as f64;
                results.push(FlowResult {
                    job: job.id.to_string(),
                    level,
                    bytes: flow.bytes as u64,
                    start_ns: start.saturating_sub(first),
                    completion_us: taken_ns / 1e3,
                    fluid_us: fluid[index] * 1e6,
                    goodput_gbps: flow.bytes * 8.0 / taken_ns,
                });
            }
        }
        Ok(results)
    }
}

/// When the last flow of each job ends in the fluid model, if all start at once.
fn fluid_seconds(case: &QueueCase, plan: &Plan) -> Result<Vec<f64>, CommandError> {
    let network = planner::fluid_network(&case.fabric).map_err(CommandError::failed)?;
    let mut engine =
        Engine::new(&network, EngineOptions::default()).map_err(CommandError::failed)?;
    let mut places = Vec::new();
    for job in &case.jobs {
        let (position, planned) = plan
            .job(&job.id)
            .ok_or_else(|| CommandError::Failed(format!("the plan has no job {}", job.id)))?;
        let flows = plan.flows_of(position).zip(&job.flows).map(|(planned, flow)| FluidFlow {
            path: planned.links.iter().map(|link| link.0).collect(),
            bytes: flow.bytes * WIRE_BYTES_PER_BYTE,
            overlap_from: flow.overlap_from,
        });
        let model = FluidJob {
            compute_seconds: job.compute_seconds,
            overlap_from: job.overlap_from,
            level: planned.level.into(),
            iterations: Some(1),
            flows: flows.collect(),
            ..FluidJob::default()
        };
        places.push(engine.add_job(&model).map_err(CommandError::failed)?);
    }
    let mut ends = vec![0.0; places.len()];
    while engine.step_until(1e6).map_err(CommandError::failed)? {
        while let Some(finished) = engine.take_finished() {
            let at = places.iter().position(|place| *place == finished);
            at.into_iter().for_each(|job| ends[job] = engine.now_seconds());
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::super::case::{CaseSize, all_cases};
    use super::*;

    /// Short messages: the long ones are the command's.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_incast_loses_nothing_and_two_levels_come_one_after_the_other() {
        let cases = all_cases(CaseSize { bytes: 2e6, nic_gbps: 100.0 }).unwrap();
        let settings = CaseSettings { dcqcn: DcqcnOptions::default(), seed: 1 };
        let run = |name: &str| {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            run_case(case, settings)
        };
        let incast = run("incast-8").await.unwrap();
        assert_eq!((incast.dropped, incast.timeouts, incast.flows.len()), (0, 0, 8));
        assert!(incast.marked > 0 && incast.notifications > 0, "{incast:?}");
        let classes = run("two-classes").await.unwrap();
        let [high, low] = &classes.flows[..] else { panic!("two flows") };
        assert!(high.level > low.level);
        assert!(high.completion_us < 1.1 * high.fluid_us, "{high:?}");
        assert!(low.completion_us > 1.5 * high.completion_us, "{low:?}");
    }
}
