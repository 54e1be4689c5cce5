//! `crux bench service-bound`: whether a flow waits longer for service than policy allows.
//!
//! Cases are those of `crux bench contention`, each planned with the bound and without.

mod packet_waits;

use emulator::TimeScale;
use planner::{ConnectionTimeout, Policy};
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::{PlannedWaits, examine_waits, generate_contended_case};

use self::packet_waits::PacketWaits;
use super::parallel_cases;
use crate::demo::parse_time_scale;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Compare the longest waits of flows without service with what policy allows.
///
/// Cases of 2 to 12 jobs that share hosts, NICs and uplinks are drawn from a seed. Each is planned
/// with the service bound and without, and both plans are simulated in the fluid model from the
/// starts that they were chosen by, and the first from four others. A connection times out where a
/// flow waits for the whole timeout. One to three seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench service-bound --cases 200
  crux bench service-bound --cases 200 --packets 200 --ib-timeout 14
  crux bench service-bound --cases 10000 --search-events 20000 --raw waits.json --format json")]
pub(crate) struct ServiceBoundArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    first: u32,
    /// The bound in seconds; a tenth of the timeout of connections if not given
    #[arg(long, value_name = "SECONDS")]
    bound: Option<f64>,
    /// Budget of the search for a plan
    #[arg(long, default_value_t = 2_000_000, value_name = "EVENTS")]
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
    /// Also write the figures of every single case to this file (JSON)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

/// What came of all cases.
#[derive(Serialize, JsonSchema)]
struct ServiceBoundSummary {
    /// Number of cases.
    cases: usize,
    /// What they were drawn from.
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
    /// Cases in which a flow waits longer than the bound under the plan without a bound.
    late_without_bound: usize,
    /// Cases in which a connection times out under the plan without a bound.
    timed_out_without_bound: usize,
    /// Cases with groups so large that the waits of their flows were not simulated.
    unjudged: usize,
    /// The longest wait under the plan, seconds, from the starts that it was chosen by.
    longest_wait: f64,
    /// The longest wait under the plan, seconds, from other starts.
    longest_wait_unseen: f64,
    /// Mean GPU utilisation under the plan.
    utilization: f64,
    /// Mean GPU utilisation under the plan without a bound.
    utilization_without_bound: f64,
    /// What packets did, where they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<PacketSummary>,
}

/// What came of the cases whose packets were sent.
#[derive(Serialize, JsonSchema)]
struct PacketSummary {
    /// Number of cases.
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
    let waits = parallel_cases::run_cases(args.cases, |number| {
        let input = generate_contended_case(args.seed, args.first.saturating_add(number));
        examine_waits(&input, &policy)
    });
    files::write_requested(args.raw.as_deref(), || raw_json(&waits))?;
    let packets = packet_waits::measure_cases(args, &policy)?;
    let mut summary = ServiceBoundSummary::new(args.seed, &policy, &waits);
    summary.packets = (args.packets > 0).then(|| PacketSummary::new(&policy, &packets));
    match args.output.format {
        OutputFormat::Json => output::print_json(&summary),
        OutputFormat::Table => summary.print_lines(),
    }
}

fn raw_json(waits: &[PlannedWaits]) -> String {
    let cases = waits.iter().map(|case| {
        serde_json::json!({
            "bounded": case.bounded,
            "unseen": case.unseen,
            "unbounded": case.unbounded,
            "judged": case.is_judged,
            "utilization": case.utilization,
        })
    });
    serde_json::Value::Array(cases.collect()).to_string()
}

impl ServiceBoundSummary {
    fn new(seed: u64, policy: &Policy, waits: &[PlannedWaits]) -> Self {
        let (bound, timeout) = (policy.service_bound(), policy.connection.timeout_seconds());
        let count = |wait: fn(&PlannedWaits) -> f64, limit: f64| {
            waits.iter().filter(|case| wait(case) > limit).count()
        };
        let longest = |wait: fn(&PlannedWaits) -> f64| waits.iter().map(wait).fold(0.0, f64::max);
        let mean = |place: usize| {
            let sum: f64 = waits.iter().map(|case| case.utilization[place]).sum();
            sum / waits.len().max(1) as f64
        };
        Self {
            cases: waits.len(),
            seed,
            bound_seconds: bound,
            timeout_seconds: timeout,
            late: count(|case| case.bounded, bound),
            late_unseen: count(|case| case.unseen, bound),
            late_without_bound: count(|case| case.unbounded, bound),
            timed_out_without_bound: count(|case| case.unbounded, timeout),
            unjudged: waits.iter().filter(|case| !case.is_judged).count(),
            longest_wait: longest(|case| case.bounded),
            longest_wait_unseen: longest(|case| case.unseen),
            utilization: mean(0),
            utilization_without_bound: mean(1),
            packets: None,
        }
    }

    fn print_lines(&self) -> Result<(), CommandError> {
        output::print_line(format_args!(
            "{} cases of seed {}; a flow may wait {:.3} s, and a connection fails after {:.1} s",
            self.cases, self.seed, self.bound_seconds, self.timeout_seconds
        ))?;
        output::print_line(format_args!(
            "with the bound: {} cases with a longer wait, {} from other starts; the longest wait \
             is {:.3} s, {:.3} s from other starts; GPU utilisation {:.2} %",
            self.late,
            self.late_unseen,
            self.longest_wait,
            self.longest_wait_unseen,
            self.utilization * 100.0
        ))?;
        output::print_line(format_args!(
            "without: {} cases with a longer wait, and in {} of them a connection times out; GPU \
             utilisation {:.2} %; {} cases are too large to be judged",
            self.late_without_bound,
            self.timed_out_without_bound,
            self.utilization_without_bound * 100.0,
            self.unjudged
        ))?;
        let Some(packets) = &self.packets else {
            return Ok(());
        };
        output::print_line(format_args!(
            "packets of {} cases: with the bound {} with a longer wait, the longest {:.3} s, and \
             {} with a lost connection; without, {} with a longer wait and {} with a lost \
             connection; {} packets dropped",
            packets.cases,
            packets.late,
            packets.longest_wait,
            packets.lost,
            packets.late_without_bound,
            packets.lost_without_bound,
            packets.drops
        ))
    }
}
