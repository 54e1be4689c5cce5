//! `crux bench fairness`: what it costs to spare the job that suffers most (Crux §7.2).
//!
//! The cases are those of `crux bench decisions`, and [`simulator::decisions`] says what each
//! weight of fairness comes to on one of them; here many are tried at a time ([`parallel_cases`])
//! and put before people.

mod figure;

use std::fmt;

use serde::Serialize;
use simulator::decisions::{
    FairPlanner, FairnessOutcome, FairnessPoint, generate_case, measure_fairness,
};

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::files;
use command_io::output;

/// Weights on the curve.
const WEIGHTS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0];

const PLANNERS: [FairPlanner; 2] = [FairPlanner::Crux, FairPlanner::WithoutSearch];

/// Weigh GPU utilisation against the slowdown of the job that suffers most.
///
/// The cases are the small clusters of `crux bench decisions`. For each weight of the policy's
/// `fairness`, plan and judgement in the fluid model take eight turns, as plan and telemetry do in
/// a cluster. Slowdown is the iteration time of a case's worst job, in units of that job alone.
/// About three seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench fairness --cases 60
  crux bench fairness --cases 60 --seed 2 --figure fairness.svg --format json > fairness.json")]
pub(crate) struct FairnessArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Also draw the curve to this file (SVG)
    #[arg(long, value_name = "FILE")]
    figure: Option<String>,
}

/// The curve as JSON has it.
#[derive(Serialize)]
struct FairnessCurve {
    cases: usize,
    seed: u64,
    /// By planner, then by weight.
    points: Vec<FairnessPoint>,
}

pub(crate) fn run_fairness(args: &FairnessArgs) -> Result<(), CommandError> {
    let seed = args.cases.seed;
    let outcomes = args.cases.examine(|number| {
        let case = generate_case(seed, number);
        Ok(PLANNERS.map(|planner| measure_fairness(&case, planner, &WEIGHTS)))
    })?;
    args.cases.write_raw(&outcomes)?;
    let curve = FairnessCurve { cases: outcomes.len(), seed, points: collect_points(&outcomes) };
    files::write_requested(args.figure.as_deref(), || figure::draw_fairness(&curve.points))?;
    args.cases.print(&curve)
}

/// The points of all planners and weights; `outcomes` by case, planner and weight.
fn collect_points(outcomes: &[[Vec<FairnessOutcome>; PLANNERS.len()]]) -> Vec<FairnessPoint> {
    let mut points = Vec::new();
    for (place, planner) in PLANNERS.into_iter().enumerate() {
        for (at, weight) in WEIGHTS.into_iter().enumerate() {
            let of_cases: Vec<FairnessOutcome> =
                outcomes.iter().map(|case| case[place][at]).collect();
            points.push(FairnessPoint::new(planner, weight, &of_cases));
        }
    }
    points
}

impl fmt::Display for FairnessCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = output::new_table([
            "planner",
            "fairness",
            "GPU utilisation %",
            "worst slowdown, mean",
            "largest",
        ]);
        for point in &self.points {
            table.add_row([
                planner_name(point.planner).to_owned(),
                point.fairness.to_string(),
                format!("{:.2}", point.utilization * 100.0),
                format!("{:.3}", point.worst_slowdown_mean),
                format!("{:.3}", point.worst_slowdown_largest),
            ]);
        }
        write!(f, "{} cases of seed {}\n{table}", self.cases, self.seed)
    }
}

fn planner_name(planner: FairPlanner) -> &'static str {
    match planner {
        FairPlanner::Crux => "crux",
        FairPlanner::WithoutSearch => "without-search",
    }
}
