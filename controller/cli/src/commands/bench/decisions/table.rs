//! The figures of a run as tables for people.

use comfy_table::Table;
use simulator::decisions::{Distribution, STEPS, Step, Summary};

use crate::failure::Failure;
use crate::output;

/// Errors from the optimum, in thousandths, of which a table says how many cases stay within.
const WITHIN: [usize; 4] = [1, 10, 20, 50];

/// Prints the run, then a table for each step.
pub(super) fn print(summary: &Summary) -> Result<(), Failure> {
    output::print(about(summary))?;
    for step in &STEPS {
        output::print(format_args!("\n{}\n{}", step.name, of(step, summary)))?;
    }
    output::print(
        "\nShares of the optimal GPU utilisation in %, each step with the optimum of the others; \
         paper: Crux §4.4.",
    )
}

fn about(summary: &Summary) -> String {
    format!(
        "{} cases of seed {}: mean GPU utilisation {:.2} % at the optimum, {:.2} % if all \
         jobs were alone.\nThe enumeration left out paths in {} cases; better than it was found \
         in {}, by {:.2} % at most.",
        summary.cases,
        summary.seed,
        summary.mean_optimum * 100.0,
        summary.mean_alone * 100.0,
        summary.bounded,
        summary.enumeration_beaten,
        summary.enumeration_short_by_at_most * 100.0,
    )
}

fn of(step: &Step, summary: &Summary) -> Table {
    let mut table = output::table([""; 0]);
    let within = WITHIN.map(|permille| format!("within {} %", permille as f64 / 10.0));
    let fixed = ["", "mean", "paper", "worst", "case", "below 95 %"].map(str::to_owned);
    table.set_header(fixed.into_iter().chain(within));
    for variant in step.variants {
        if let Some(reached) = summary.steps.get(step.name).and_then(|of| of.get(*variant)) {
            table.add_row(row(step, variant, reached));
        }
    }
    table
}

fn row(step: &Step, variant: &str, reached: &Distribution) -> Vec<String> {
    let paper = step.paper.filter(|(theirs, _)| *theirs == variant);
    let within = WITHIN.iter().map(|permille| {
        let share = reached.cdf_by_error_permille.get(*permille);
        share.map_or_else(String::new, |share| percent(*share, 1))
    });
    let fixed = [
        variant.to_owned(),
        percent(reached.mean, 2),
        paper.map_or_else(String::new, |(_, mean)| percent(mean, 2)),
        percent(reached.worst, 2),
        reached.worst_case.to_string(),
        reached.below_95_percent.to_string(),
    ];
    fixed.into_iter().chain(within).collect()
}

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$}", share * 100.0)
}
