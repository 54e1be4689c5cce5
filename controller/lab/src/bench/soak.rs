//! `crux bench soak`: two controllers on a fabric under traffic, for as long as one likes.
//!
//! [`testbed`] is the fabric and its servers, [`traffic`] what its hosts send, [`controllers`] the
//! pair under test, [`fault`] what is injected; [`losses`] attributes lost packets and
//! [`resource_usage`] samples memory and tasks. The decision: nothing is simulated. Real
//! controllers write real P4Runtime servers over loopback in real time, and every packet is
//! tracked, so each loss has a cause: a failed cable or switch, or a defect of ours.

mod controllers;
mod fault;
mod losses;
mod resource_usage;
mod testbed;
mod traffic;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};
use topology::clos::ClosSpec;
use tracing::{info, warn};

use self::controllers::SoakControllers;
use self::fault::SoakFault;
use self::losses::PacketLosses;
use self::resource_usage::{ResourceUsage, UsageTrend};
use self::testbed::SoakTestbed;
use command_io::CommandError;
use command_io::output;

/// Run two controllers under traffic, changes and faults, and look for losses and leaks.
///
/// Embedded switches over loopback gRPC, in real time. Switches refuse some writes, are slow with
/// others and drop streams all the while; cables are cut, switches restart empty, controllers are
/// killed. Exit status 1 when a packet is lost that no fault explains, when memory or tasks grow
/// after the warm-up (a tenth of the time), or when a switch ends with other tables than planned.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench soak --minutes 1
  crux bench soak --minutes 60 --seed 7 > soak.json
  crux bench soak --minutes 10 --leaves 492 --spines 8")]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seconds between changes of the plan
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    change_every: f64,
    /// Seconds between faults
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    fault_every: f64,
    /// Seed of what goes wrong
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leaves, of three hosts each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(4..=1000))]
    leaves: u32,
    /// Spines
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    spines: u32,
}

/// The duration of a soak and its intervals.
#[derive(Clone, Copy, Debug)]
struct SoakTiming {
    length: Duration,
    change: Duration,
    fault: Duration,
}

/// The result as it is printed.
#[derive(Debug, Serialize)]
struct SoakOutcome {
    switches: usize,
    seconds: f64,
    plan_changes: u64,
    /// Faults by kind.
    faults: BTreeMap<&'static str, u64>,
    packets_sent: u64,
    /// Lost packets by the fault that explains them.
    lost: BTreeMap<&'static str, u64>,
    /// Lost packets that nothing explains.
    lost_unexplained: usize,
    /// Packets that neither arrived nor were counted as dropped.
    vanished: i64,
    /// Packets that arrived after a later one of their flow.
    overtaken: u64,
    /// Packets that arrived damaged, twice or at a wrong place.
    wrong: u64,
    /// Resident memory: after the warm-up, at the end, and the peak.
    memory_kib: UsageTrend,
    tasks: UsageTrend,
    /// Switches whose final tables differ from the plan.
    divergent: Vec<String>,
}

impl SoakOutcome {
    /// The checks that failed.
    fn failed_checks(&self) -> Vec<&'static str> {
        let loses = self.lost_unexplained > 0 || self.vanished != 0 || self.wrong > 0;
        let complaints = [
            (loses, "packets were lost without a reason"),
            (!self.memory_kib.is_flat(), "memory grows"),
            (!self.tasks.is_flat(), "tasks leak"),
            (!self.divergent.is_empty(), "switches differ from the plan"),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so);
        complaints.map(|(_, complaint)| complaint).collect()
    }
}

fn parse_seconds(option: &str, value: f64) -> Result<Duration, CommandError> {
    let valid = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    valid.ok_or_else(|| CommandError::input(option, format!("{value} is not a positive duration")))
}

pub(crate) fn run_soak(args: &SoakArgs) -> Result<(), CommandError> {
    let pace = SoakTiming {
        length: parse_seconds("--minutes", args.minutes * 60.0)?,
        change: parse_seconds("--change-every", args.change_every)?,
        fault: parse_seconds("--fault-every", args.fault_every)?,
    };
    let runtime = tokio::runtime::Runtime::new().map_err(CommandError::failed)?;
    let spec = ClosSpec { leaves: args.leaves, spines: args.spines, ..ClosSpec::default() };
    let outcome = runtime.block_on(soak_controllers(&spec, pace, args.seed))?;
    output::print_json(&outcome)?;
    match outcome.failed_checks().as_slice() {
        [] => Ok(()),
        complaints => Err(CommandError::Failed(complaints.join("; "))),
    }
}

async fn soak_controllers(
    spec: &ClosSpec,
    pace: SoakTiming,
    seed: u64,
) -> Result<SoakOutcome, CommandError> {
    let ground = SoakTestbed::build_testbed(spec, seed).await?;
    let controllers =
        SoakControllers::start_all(ground.fabric.clone(), ground.jobs.clone()).await?;
    ground.start_traffic().await?;
    let mut soak = SoakRun {
        testbed: ground,
        controllers,
        random: ChaCha8Rng::seed_from_u64(seed),
        losses: PacketLosses::default(),
        usage: ResourceUsage::default(),
        faults: BTreeMap::new(),
        changes: 0,
    };
    soak.run_until_end(pace).await?;
    soak.finish_run(pace).await
}

/// A soak in progress.
struct SoakRun {
    testbed: SoakTestbed,
    controllers: SoakControllers,
    random: ChaCha8Rng,
    losses: PacketLosses,
    usage: ResourceUsage,
    faults: BTreeMap<&'static str, u64>,
    changes: u64,
}

impl SoakRun {
    async fn run_until_end(&mut self, pace: SoakTiming) -> Result<(), CommandError> {
        let begun = Instant::now();
        let [mut changes, mut faults, mut reports] =
            [pace.change, pace.fault, Duration::from_secs(10)].map(tick_interval);
        while begun.elapsed() < pace.length {
            tokio::select! {
                biased;
                _ = faults.tick() => self.inject_fault().await?,
                _ = reports.tick() => self.print_progress(begun.elapsed()).await?,
                _ = changes.tick() => self.apply_change().await?,
            }
        }
        Ok(())
    }

    /// One job stops or starts; now and then the operator changes the number of levels.
    async fn apply_change(&mut self) -> Result<(), CommandError> {
        self.changes += 1;
        if self.changes.is_multiple_of(7) {
            let levels = self.random.random_range(2..=8);
            self.controllers.change_levels(levels).await?;
        } else {
            let absent = self.random.random_range(0..self.testbed.jobs.len());
            let mut jobs = self.testbed.jobs.clone();
            jobs.remove(absent);
            self.controllers.change_jobs(jobs).await?;
        }
        self.record_losses().await?;
        self.usage.sample_usage()
    }

    async fn inject_fault(&mut self) -> Result<(), CommandError> {
        let fault = SoakFault::draw_fault(&self.testbed.fabric, &mut self.random);
        info!(?fault, "a fault");
        *self.faults.entry(fault.name()).or_default() += 1;
        let from = self.testbed.current_time().await?;
        fault.inject_fault(&self.testbed, &mut self.controllers).await?;
        if fault.may_lose() {
            let to = self.testbed.current_time().await?;
            self.losses.add_window(fault.name(), from, to);
        }
        // A recovered element must be put into use without a loss.
        fault.repair_fault(&self.testbed, &mut self.controllers).await
    }

    async fn record_losses(&mut self) -> Result<(), CommandError> {
        let (lost, now) = (self.testbed.take_lost().await?, self.testbed.current_time().await?);
        let before = self.losses.unexplained().len();
        self.losses.classify_losses(&lost, now);
        if let [first, .., last] | [first @ last] = &self.losses.unexplained()[before..] {
            warn!(first, last, "packets lost without a reason, sent at these nanoseconds");
        }
        Ok(())
    }

    async fn print_progress(&mut self, elapsed: Duration) -> Result<(), CommandError> {
        let sent = self.testbed.traffic_counts().await?.sent;
        let faults: u64 = self.faults.values().sum();
        let unexplained = self.losses.unexplained().len();
        let (seconds, changes) = (elapsed.as_secs(), self.changes);
        let memory = self.usage.latest_mib();
        eprintln!(
            "{seconds} s: {changes} changes, {faults} faults, {sent} packets, \
             {unexplained} lost without a reason, {memory:.0} MiB"
        );
        Ok(())
    }

    /// Waits until everything has settled, and collects the result.
    async fn finish_run(mut self, pace: SoakTiming) -> Result<SoakOutcome, CommandError> {
        self.controllers.await_verified().await?;
        self.testbed.stop_traffic().await?;
        // Packets in flight arrive or are lost meanwhile.
        tokio::time::sleep(Duration::from_nanos(3 * traffic::LATE)).await;
        self.record_losses().await?;
        let counts = self.testbed.traffic_counts().await?;
        let known = counts.arrived + self.testbed.dropped_packets().await?;
        let outcome = SoakOutcome {
            switches: self.testbed.fabric.switches().len(),
            seconds: pace.length.as_secs_f64(),
            plan_changes: self.changes,
            packets_sent: counts.sent,
            lost: self.losses.explained().clone(),
            lost_unexplained: self.losses.unexplained().len(),
            vanished: counts.sent as i64 - known as i64,
            overtaken: counts.overtaken,
            wrong: counts.wrong,
            memory_kib: self.usage.memory_trend(),
            tasks: self.usage.task_trend(),
            divergent: self.controllers.divergent_switches().await?,
            faults: self.faults,
        };
        self.controllers.shutdown_all().await;
        self.testbed.stop().await;
        Ok(outcome)
    }
}

/// Ticks from one interval after now on; those that are missed are left out.
fn tick_interval(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is that of all tests of this process together, so nothing is asked of it here.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_short_soak_loses_nothing_without_a_reason() {
        let pace = SoakTiming {
            length: Duration::from_secs(12),
            change: Duration::from_millis(250),
            fault: Duration::from_secs(2),
        };
        let outcome = soak_controllers(&ClosSpec::default(), pace, 1).await.unwrap();
        let [lost, wrong] = [outcome.lost_unexplained as u64, outcome.wrong];
        assert_eq!((lost, outcome.vanished, wrong), (0, 0, 0), "{outcome:?}");
        assert_eq!(outcome.divergent, Vec::<String>::new());
        assert!(outcome.packets_sent > 1_000 && outcome.plan_changes > 1, "{outcome:?}");
    }
}
