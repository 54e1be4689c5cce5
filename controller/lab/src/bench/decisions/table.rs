//! The figures of a run as tables for people.

use std::fmt;

use comfy_table::Table;
use serde::Serialize;
use simulator::decisions::{DecisionSummary, PLANNING_STEPS, PlanningStep, ShareDistribution};

use command_io::output;

/// Errors from the optimum, in thousandths, of which a table says how many cases stay within.
const WITHIN: [usize; 4] = [1, 10, 20, 50];

/// The run, then a table for each step.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct SummaryTables<'a>(pub(super) &'a DecisionSummary);

impl fmt::Display for SummaryTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", describe_run(self.0))?;
        for step in &PLANNING_STEPS {
            writeln!(f, "\n{}\n{}", step.name, step_table(step, self.0))?;
        }
        write!(
            f,
            "\nShares of the optimal GPU utilisation in %, each step with the optimum of the \
             others; paper: Crux §4.4."
        )
    }
}

fn describe_run(summary: &DecisionSummary) -> String {
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

fn step_table(step: &PlanningStep, summary: &DecisionSummary) -> Table {
    let mut table = output::new_table([""; 0]);
    let within = WITHIN.map(|permille| format!("within {} %", permille as f64 / 10.0));
    let fixed = ["", "mean", "paper", "worst", "case", "below 95 %"].map(str::to_owned);
    table.set_header(fixed.into_iter().chain(within));
    for variant in step.variants {
        if let Some(reached) = summary.steps.get(step.name).and_then(|of| of.get(*variant)) {
            table.add_row(variant_row(step, variant, reached));
        }
    }
    table
}

fn variant_row(step: &PlanningStep, variant: &str, reached: &ShareDistribution) -> Vec<String> {
    let paper = step.paper.filter(|(theirs, _)| *theirs == variant);
    let within = WITHIN.iter().map(|permille| {
        let share = reached.cdf_by_error_permille.get(*permille);
        share.map_or_else(String::new, |share| format_percent(*share, 1))
    });
    let fixed = [
        variant.to_owned(),
        format_percent(reached.mean, 2),
        paper.map_or_else(String::new, |(_, mean)| format_percent(mean, 2)),
        format_percent(reached.worst, 2),
        reached.worst_case.to_string(),
        reached.below_95_percent.to_string(),
    ];
    fixed.into_iter().chain(within).collect()
}

fn format_percent(share: f64, digits: usize) -> String {
    format!("{:.digits$}", share * 100.0)
}
