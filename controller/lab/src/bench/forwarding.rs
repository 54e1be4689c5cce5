//! `crux bench forwarding`: what a fabric that can pin and spray gains from the choice between them.
//!
//! [`simulator::contention`] draws the cases. The plan for each way of forwarding is followed for ten
//! times the time of a forecast, from starts that no plan was chosen by.

use std::fmt;

use planner::{PlanInput, Policy, forecast_ecmp, forecast_independently};
use serde::Serialize;
use simulator::contention::generate_mode_case;
use topology::Forwarding;

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::output;

/// Compare pins, spraying and the choice between them (`forwarding` of a fabric) with ECMP.
///
/// Cases of 2 to 8 jobs that share hosts, NICs and 2 to 8 spines are drawn from a seed, with 1 to 8
/// connections of a NIC pair. Each way has its own plan, whose levels count for spraying too. Values
/// are GPU utilisation, the mean over 32 starts.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench forwarding --cases 100
  crux bench forwarding --cases 1 --seed 1 --first 17
  crux bench forwarding --cases 1000 --seed 1 --raw forwarding.json")]
pub(crate) struct ForwardingArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Budget of the search for the plan of a case
    #[arg(long, default_value_t = 20_000, value_name = "EVENTS")]
    search_events: u64,
}

/// The ways, in the order of the table.
const WAYS: [&str; 4] = ["pin", "spray", "ecmp", "auto"];

/// A loss that counts as none.
const TOLERATED: f64 = 0.003;

/// A case and what each way is worth, as a share of its GPUs.
#[derive(Serialize)]
struct ForwardingCase {
    number: u32,
    jobs: usize,
    values: [f64; 4],
}

/// What came of all cases.
#[derive(Serialize)]
struct ForwardingSummary {
    cases: usize,
    seed: u64,
    ways: Vec<WaySummary>,
}

/// One way over all cases.
#[derive(Serialize)]
struct WaySummary {
    name: &'static str,
    /// Mean GPU utilisation.
    mean: f64,
    /// Cases in which no other is better by more than 0.3 points.
    best: usize,
    /// The largest lead of another, and the case of that number.
    largest_loss: f64,
    worst_case: u32,
}

pub(crate) fn run_forwarding(args: &ForwardingArgs) -> Result<(), CommandError> {
    let policy = Policy { search_events: args.search_events, ..Policy::default() };
    let cases = args.cases.examine(|number| {
        let (input, _) = generate_mode_case(args.cases.seed, number);
        Ok(examine_case(number, &input, &policy))
    })?;
    args.cases.write_raw(&cases)?;
    args.cases.print(&ForwardingSummary::new(args.cases.seed, &cases))
}

fn examine_case(number: u32, input: &PlanInput, policy: &Policy) -> ForwardingCase {
    let planned = |forwarding| {
        let fabric = input.fabric.with_forwarding(forwarding);
        let given = PlanInput { fabric, jobs: input.jobs.clone() };
        let (plan, _) = planner::plan(&given, policy, None);
        forecast_independently(&given.fabric, &given.jobs, &plan).gpu_utilization
    };
    let ecmp = forecast_ecmp(&input.fabric, &input.jobs, 1.0).gpu_utilization;
    let [pin, spray, auto] = [Forwarding::Pin, Forwarding::Spray, Forwarding::Auto].map(planned);
    ForwardingCase { number, jobs: input.jobs.len(), values: [pin, spray, ecmp, auto] }
}

impl ForwardingCase {
    fn loss(&self, way: usize) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max) - self.values[way]
    }
}

impl ForwardingSummary {
    fn new(seed: u64, cases: &[ForwardingCase]) -> Self {
        let ways = WAYS.into_iter().enumerate().map(|(way, name)| {
            let worst = cases.iter().max_by(|a, b| a.loss(way).total_cmp(&b.loss(way)));
            let sum: f64 = cases.iter().map(|case| case.values[way]).sum();
            WaySummary {
                name,
                mean: sum / cases.len().max(1) as f64,
                best: cases.iter().filter(|case| case.loss(way) <= TOLERATED).count(),
                largest_loss: worst.map_or(0.0, |case| case.loss(way)),
                worst_case: worst.map_or(0, |case| case.number),
            }
        });
        Self { cases: cases.len(), seed, ways: ways.collect() }
    }
}

impl fmt::Display for ForwardingSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings =
            ["forwarding", "GPU utilisation %", "best in % of cases", "largest loss, points"];
        let mut table = output::new_table(headings);
        for way in &self.ways {
            table.add_row([
                way.name.to_owned(),
                format!("{:.2}", way.mean * 100.0),
                format!("{:.1}", way.best as f64 * 100.0 / self.cases.max(1) as f64),
                format!("{:.2} (case {})", way.largest_loss * 100.0, way.worst_case),
            ]);
        }
        write!(
            f,
            "{} cases of seed {}\n{table}\nBest: no other is better by more than {} points.",
            self.cases,
            self.seed,
            TOLERATED * 100.0
        )
    }
}
