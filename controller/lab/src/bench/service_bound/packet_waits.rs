//! The longest waits of flows in packets, under the plan with the service bound and without.
//!
//! Jobs train on embedded switches under DCQCN until each has completed some iterations, all from
//! one start, which is one of those that plans are compared by. Buffers and ramps shrink with the
//! sizes of messages: at a scale of 100, 32 MiB would hold packets up for longer than the bound.
//! The decision: a run ends with the first lost connection, as its job does, and after twice the
//! time in which a connection is lost, as a flow that starves by then starves for ever.

use std::time::Duration;

use emulator::job::TrainingJob;
use emulator::{
    DcqcnOptions, HostCluster, HostTransport, RetrySettings, SwitchQueues, TestbedOptions,
};
use planner::{PlanInput, Policy};
use simulator::contention::generate_contended_case;

use super::ServiceBoundArgs;
use crate::bench::parallel_cases;
use crate::demo::{DemoScenario, JobVisibility, ServedTestbed, TrainingOptions};
use command_io::CommandError;

/// Iterations that every job completes.
const ITERATIONS: usize = 3;
/// Virtual time between two looks.
const STEP: Duration = Duration::from_micros(200);

/// A case under the plan with the bound and under that without.
pub(super) struct PacketWaits {
    pub(super) bounded: PacketRun,
    pub(super) unbounded: PacketRun,
}

/// One run of a case.
#[derive(Debug)]
pub(super) struct PacketRun {
    /// The longest wait of a flow, at the scale of the jobs, seconds.
    pub(super) longest_wait: f64,
    /// Whether a connection was lost.
    pub(super) is_lost: bool,
    pub(super) drops: u64,
}

/// Sends the packets of the first cases.
pub(super) fn measure_cases(
    args: &ServiceBoundArgs,
    policy: &Policy,
) -> Result<Vec<PacketWaits>, CommandError> {
    let free = super::without_bound(policy);
    let measured = parallel_cases::run_cases(args.packets, |number| {
        let number = args.cases.first.saturating_add(number);
        let input = generate_contended_case(args.cases.seed, number);
        let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
        let run = |policy| {
            let seed = args.cases.seed.wrapping_add(number.into());
            runtime.block_on(run_case(&input, seed, policy, args))
        };
        Ok(PacketWaits { bounded: run(policy)?, unbounded: run(&free)? })
    })?;
    measured.into_iter().collect()
}

async fn run_case(
    input: &PlanInput,
    seed: u64,
    policy: &Policy,
    args: &ServiceBoundArgs,
) -> Result<PacketRun, CommandError> {
    let scenario = DemoScenario { fabric: input.fabric.clone(), jobs: input.jobs.clone(), seed };
    let connection = policy.connection;
    let retries = RetrySettings {
        ib_timeout: connection.ib_timeout,
        retry_count: connection.ib_retry_count.into(),
    };
    let queues = SwitchQueues { depth_scale: args.time_scale, ..SwitchQueues::default() };
    let dcqcn = DcqcnOptions { retries, queues, ..DcqcnOptions::default() };
    let transport = HostTransport::Dcqcn(dcqcn);
    let testbed = TestbedOptions { levels: policy.levels, transport, ..TestbedOptions::default() };
    let training = TrainingOptions { scale: args.time_scale, iterations: ITERATIONS, testbed };
    let stage = ServedTestbed::start_servers(&scenario, training).await?;
    let controller = stage.start_controller_under(policy.clone()).await?;
    stage.report_jobs(&controller, JobVisibility::Reported).await?;
    if let Some(rollout) = controller.current_rollout() {
        stage.mark_packets(&rollout.plan).await?;
    }
    let scale = args.time_scale.factor();
    let end = Duration::from_secs_f64(2.0 * connection.timeout_seconds() / scale);
    let mut now = stage.begin_at_once().await?;
    let (longest_ns, is_lost) = loop {
        let seen = read_waits(&stage).await?;
        if seen.is_lost || seen.are_done || now >= end {
            break (seen.longest_ns, seen.is_lost);
        }
        now = stage.advance_to(now + STEP).await?;
    };
    let drops = stage.testbed().dropped_packets().await.map_err(CommandError::failed)?;
    controller.shutdown().await;
    stage.close().await;
    Ok(PacketRun { longest_wait: longest_ns as f64 * scale / 1e9, is_lost, drops })
}

/// What is seen of a run at one instant.
struct WaitReading {
    longest_ns: u64,
    is_lost: bool,
    are_done: bool,
}

async fn read_waits(stage: &ServedTestbed<'_>) -> Result<WaitReading, CommandError> {
    let hosts = stage.testbed().host_cluster();
    let read = hosts.with_endpoint(|cluster: &mut HostCluster, now, _| {
        let completed = cluster.training_jobs().map(TrainingJob::completed_iterations);
        WaitReading {
            longest_ns: cluster.longest_waits(now).max().unwrap_or(0),
            is_lost: !cluster.lost_connections().is_empty(),
            are_done: completed.min().unwrap_or(0) >= ITERATIONS,
        }
    });
    read.await.map_err(CommandError::failed)
}
