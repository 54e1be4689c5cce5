//! `crux bench service-bound`: whether a flow waits longer for service than policy allows.
//!
//! Cases are those of `crux bench contention`, each planned with the bound and without.

mod packet_waits;

use std::fmt;

use emulator::TimeScale;
use planner::{ConnectionTimeout, PlanValue, Policy};
use serde::Serialize;
use simulator::contention::{PlannedWaits, examine_waits, generate_contended_case};

use self::packet_waits::PacketWaits;
use super::parallel_cases::CaseArgs;
use crate::demo::parse_time_scale;
use command_io::CommandError;

/// Compare the longest waits of flows without service with what policy allows.
///
/// Cases of 2 to 12 jobs that share hosts, NICs and uplinks are drawn from a seed. Each is planned
/// with the service bound and without, and both plans are simulated in the fluid model from the
/// starts that they were chosen by and from four others. A connection times out where a flow waits
/// for the whole timeout. One to three seconds of processor for a case, most of them without the
/// bound.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench service-bound --cases 200
  crux bench service-bound --cases 200 --packets 200 --ib-timeout 14
  crux bench service-bound --cases 10000 --unbounded 500 --search-events 1000 --format json")]
pub(crate) struct ServiceBoundArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Plan only so many of the cases without the bound as well; all if not given
    #[arg(long, value_name = "CASES")]
    unbounded: Option<u32>,
    /// The bound in seconds; a tenth of the timeout of connections if not given
    #[arg(long, value_name = "SECONDS")]
    bound: Option<f64>,
    /// Budget of the search for a plan
    #[arg(long, default_value_t = Policy::default().search_events, value_name = "EVENTS")]
    search_events: u64,
    /// Also send so many of the cases packet by packet, on embedded switches under DCQCN, with the
    /// bound and without
    #[arg(long, default_value_t = 0, value_name = "CASES")]
    packets: u32,
    /// Divide sizes and computation times there; link rates and packets stay real
    #[arg(long, default_value = "1000", value_parser = parse_time_scale)]
    time_scale: TimeScale,
    /// NCCL_IB_TIMEOUT of the jobs: a timeout is 4.096 us times two to this power
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=31))]
    ib_timeout: u8,
}

/// What came of all cases.
#[derive(Serialize)]
struct ServiceBoundSummary {
    cases: usize,
    seed: u64,
    /// The bound, seconds.
    bound_seconds: f64,
    /// After so long without service a connection has failed, seconds.
    timeout_seconds: f64,
    /// Cases in which a flow waits longer than the bound under the plan, from the starts that it
    /// was chosen by.
    late: usize,
    /// Cases in which a flow waits longer than the bound under the plan, from other starts.
    late_unseen: usize,
    /// The longest wait under the plan, seconds, from the starts that it was chosen by.
    longest_wait: f64,
    /// The longest wait under the plan, seconds, from other starts.
    longest_wait_unseen: f64,
    /// Mean GPU utilisation under the plan.
    utilization: f64,
    /// What came of cases without the bound, where any were planned so.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_bound: Option<UnboundedSummary>,
    /// What packets did, where they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<PacketSummary>,
}

/// What came of the cases that were planned without the bound as well.
#[derive(Serialize)]
struct UnboundedSummary {
    cases: usize,
    /// Cases in which a flow waits longer than the bound.
    late: usize,
    /// Cases in which a connection times out.
    timed_out: usize,
    /// Mean GPU utilisation of these cases under the plans with the bound.
    utilization_with_bound: f64,
    /// Mean GPU utilisation of these cases under the plans without it.
    utilization: f64,
}

/// What came of the cases whose packets were sent.
#[derive(Serialize)]
struct PacketSummary {
    cases: usize,
    /// Cases in which a flow waits longer than the bound under the plan.
    late: usize,
    /// The longest wait under the plan, seconds.
    longest_wait: f64,
    /// Cases in which a connection is lost under the plan.
    lost: usize,
    /// Cases in which a flow waits longer than the bound under the plan without a bound.
    late_without_bound: usize,
    /// Cases in which a connection is lost under the plan without a bound.
    lost_without_bound: usize,
    /// Packets dropped in all runs.
    drops: u64,
}

impl PacketSummary {
    fn new(policy: &Policy, cases: &[PacketWaits]) -> Self {
        let bound = policy.service_bound();
        let count = |what: &dyn Fn(&PacketWaits) -> bool| cases.iter().filter(|c| what(c)).count();
        Self {
            cases: cases.len(),
            late: count(&|case| case.bounded.longest_wait > bound),
            longest_wait: cases.iter().map(|case| case.bounded.longest_wait).fold(0.0, f64::max),
            lost: count(&|case| case.bounded.is_lost),
            late_without_bound: count(&|case| case.unbounded.longest_wait > bound),
            lost_without_bound: count(&|case| case.unbounded.is_lost),
            drops: cases.iter().map(|case| case.bounded.drops + case.unbounded.drops).sum(),
        }
    }
}

pub(crate) fn run_service_bound(args: &ServiceBoundArgs) -> Result<(), CommandError> {
    let policy = Policy {
        service_bound_seconds: args.bound,
        search_events: args.search_events,
        connection: ConnectionTimeout { ib_timeout: args.ib_timeout, ..Default::default() },
        ..Policy::default()
    };
    let free = without_bound(&policy);
    let unbounded = args.unbounded.unwrap_or(args.cases.cases);
    let waits = args.cases.examine(|number| {
        let input = generate_contended_case(args.cases.seed, number);
        let is_freed = number - args.cases.first < unbounded;
        Ok(CaseWaits {
            bounded: examine_waits(&input, &policy),
            unbounded: is_freed.then(|| examine_waits(&input, &free)),
        })
    })?;
    args.cases.write_raw(&waits.iter().map(raw_case).collect::<Vec<_>>())?;
    let packets = packet_waits::measure_cases(args, &policy)?;
    let mut summary = ServiceBoundSummary::new(args.cases.seed, &policy, &waits);
    summary.packets = (args.packets > 0).then(|| PacketSummary::new(&policy, &packets));
    args.cases.print(&summary)
}

/// The policy without a service bound.
fn without_bound(policy: &Policy) -> Policy {
    Policy { service_bound_seconds: Some(f64::MAX), ..policy.clone() }
}

/// The longest waits of a case under the plan with the bound, and under that without if there is
/// one.
struct CaseWaits {
    bounded: PlannedWaits,
    unbounded: Option<PlannedWaits>,
}

fn raw_case(case: &CaseWaits) -> serde_json::Value {
    let (bounded, unbounded) = (&case.bounded, case.unbounded.map(|waits| waits.chosen));
    serde_json::json!({
        "bounded": bounded.chosen.worst_wait_seconds,
        "unseen": bounded.unseen.worst_wait_seconds,
        "unbounded": unbounded.map(|value| value.worst_wait_seconds),
        "utilization": bounded.chosen.gpu_utilization,
        "unbounded_utilization": unbounded.map(|value| value.gpu_utilization),
    })
}

fn mean_utilization(values: &[PlanValue]) -> f64 {
    values.iter().map(|value| value.gpu_utilization).sum::<f64>() / values.len().max(1) as f64
}

fn longer_waits(values: &[PlanValue], limit: f64) -> usize {
    values.iter().filter(|value| value.worst_wait_seconds > limit).count()
}

fn longest_wait(values: &[PlanValue]) -> f64 {
    values.iter().map(|value| value.worst_wait_seconds).fold(0.0, f64::max)
}

impl UnboundedSummary {
    fn new(policy: &Policy, cases: &[CaseWaits]) -> Option<Self> {
        let pairs = cases.iter().filter_map(|case| Some((case.bounded.chosen, case.unbounded?)));
        let (with, without): (Vec<_>, Vec<_>) =
            pairs.map(|(with, without)| (with, without.chosen)).unzip();
        (!with.is_empty()).then(|| Self {
            cases: with.len(),
            late: longer_waits(&without, policy.service_bound()),
            timed_out: longer_waits(&without, policy.connection.timeout_seconds()),
            utilization_with_bound: mean_utilization(&with),
            utilization: mean_utilization(&without),
        })
    }
}

impl ServiceBoundSummary {
    fn new(seed: u64, policy: &Policy, waits: &[CaseWaits]) -> Self {
        let bound = policy.service_bound();
        let chosen: Vec<_> = waits.iter().map(|case| case.bounded.chosen).collect();
        let unseen: Vec<_> = waits.iter().map(|case| case.bounded.unseen).collect();
        Self {
            cases: waits.len(),
            seed,
            bound_seconds: bound,
            timeout_seconds: policy.connection.timeout_seconds(),
            late: longer_waits(&chosen, bound),
            late_unseen: longer_waits(&unseen, bound),
            longest_wait: longest_wait(&chosen),
            longest_wait_unseen: longest_wait(&unseen),
            utilization: mean_utilization(&chosen),
            without_bound: UnboundedSummary::new(policy, waits),
            packets: None,
        }
    }
}

impl fmt::Display for ServiceBoundSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases of seed {}; a flow may wait {:.3} s, and a connection fails after {:.1} s\n\
             with the bound: {} cases with a longer wait, {} from other starts; the longest wait \
             is {:.3} s, {:.3} s from other starts; GPU utilisation {:.2} %",
            self.cases,
            self.seed,
            self.bound_seconds,
            self.timeout_seconds,
            self.late,
            self.late_unseen,
            self.longest_wait,
            self.longest_wait_unseen,
            self.utilization * 100.0
        )?;
        if let Some(without) = &self.without_bound {
            write!(
                f,
                "\nwithout, in {} cases: {} with a longer wait, and in {} of them a connection \
                 times out; GPU utilisation {:.2} %, with the bound {:.2} %",
                without.cases,
                without.late,
                without.timed_out,
                without.utilization * 100.0,
                without.utilization_with_bound * 100.0
            )?;
        }
        let Some(packets) = &self.packets else {
            return Ok(());
        };
        write!(
            f,
            "\npackets of {} cases: with the bound {} with a longer wait, the longest {:.3} s, and \
             {} with a lost connection; without, {} with a longer wait and {} with a lost \
             connection; {} packets dropped",
            packets.cases,
            packets.late,
            packets.longest_wait,
            packets.lost,
            packets.late_without_bound,
            packets.lost_without_bound,
            packets.drops
        )
    }
}
