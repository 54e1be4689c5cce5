//! `crux bench robustness`: what wrong telemetry costs.

use planner::Policy;
use schemars::JsonSchema;
use serde::Serialize;
use simulator::contention::{RobustnessResult, examine_robustness, generate_contended_case};

use super::parallel_cases;
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Plan from wrong telemetry, and compare with plans that know everything and with ECMP.
///
/// Cases of 2 to 12 jobs that share hosts, NICs and uplinks are drawn from a seed. Each is planned
/// with volumes and computation times that are wrong, without a quarter of the jobs, and with a job
/// that claims ten times its computation; the jobs stay as they are. Points are percentage points
/// of GPU utilisation. About ten seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench robustness --cases 50
  crux bench robustness --cases 200 --error 0.4 --format json")]
pub(crate) struct RobustnessArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,
    /// Draws the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The largest error of volumes and computation times, as a share
    #[arg(long, default_value_t = 0.2)]
    error: f64,
    #[command(flatten)]
    output: FormatArg,
}

/// What came of all cases; utilisations are shares of GPUs.
#[derive(Serialize, JsonSchema)]
struct RobustnessSummary {
    /// Number of cases.
    cases: usize,
    /// What they were drawn from.
    seed: u64,
    /// Mean GPU utilisation where everything is known.
    known: f64,
    /// Mean GPU utilisation under ECMP.
    ecmp: f64,
    /// By what is known badly.
    rows: Vec<RobustnessRow>,
}

/// One way to know badly.
#[derive(Serialize, JsonSchema)]
struct RobustnessRow {
    /// What is wrong.
    name: &'static str,
    /// Mean GPU utilisation.
    mean: f64,
    /// Mean loss against knowing everything.
    mean_loss: f64,
    /// The largest lead of ECMP.
    largest_ecmp_lead: f64,
    /// Cases in which ECMP is better by more than half a point.
    below_ecmp: usize,
}

/// A lead of ECMP that counts as none: half a point of GPU utilisation.
const TOLERATED: f64 = 0.005;

pub(crate) fn run_robustness(args: &RobustnessArgs) -> Result<(), CommandError> {
    if !(0.0..1.0).contains(&args.error) {
        let range = "use a share of at least 0 and below 1, for example 0.2";
        return Err(CommandError::input("--error", format!("{}: {range}", args.error)));
    }
    let results = parallel_cases::run_cases(args.cases, |number| {
        let input = generate_contended_case(args.seed, number);
        examine_robustness(number, &input, &Policy::default(), args.error)
    })?;
    let summary = RobustnessSummary::new(args.seed, &results);
    match args.output.format {
        OutputFormat::Json => output::print_json(&summary),
        OutputFormat::Table => summary.print_table(),
    }
}

impl RobustnessSummary {
    fn new(seed: u64, results: &[RobustnessResult]) -> Self {
        let count = results.len().max(1) as f64;
        let mean = |of: fn(&RobustnessResult) -> f64| results.iter().map(of).sum::<f64>() / count;
        let known = mean(|result| result.known);
        let row = |name, of: fn(&RobustnessResult) -> f64| {
            let leads = results.iter().map(|result| result.ecmp - of(result));
            RobustnessRow {
                name,
                mean: mean(of),
                mean_loss: known - mean(of),
                largest_ecmp_lead: leads.clone().fold(f64::NEG_INFINITY, f64::max),
                below_ecmp: leads.filter(|lead| *lead > TOLERATED).count(),
            }
        };
        Self {
            cases: results.len(),
            seed,
            known,
            ecmp: mean(|result| result.ecmp),
            rows: vec![
                row("wrong volumes and times", |result| result.inexact),
                row("a quarter unknown", |result| result.unknown),
                row("one job lies", |result| result.lying),
            ],
        }
    }

    fn print_table(&self) -> Result<(), CommandError> {
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        let mut table = output::new_table([
            "",
            "GPU utilisation %",
            "mean loss, points",
            "largest lead of ECMP, points",
            "cases below ECMP",
        ]);
        table.add_row(["everything known".to_owned(), percent(self.known)]);
        for row in &self.rows {
            table.add_row([
                row.name.to_owned(),
                percent(row.mean),
                format!("{:+.2}", row.mean_loss * 100.0),
                format!("{:+.2}", row.largest_ecmp_lead * 100.0),
                row.below_ecmp.to_string(),
            ]);
        }
        table.add_row(["ecmp".to_owned(), percent(self.ecmp)]);
        output::print_line(format_args!("{} cases of seed {}\n{table}", self.cases, self.seed))
    }
}
