//! The distributions of errors from the optimum, a panel for each step, as Crux Fig. 16 has them.

use std::collections::BTreeMap;

use simulator::decisions::{DecisionSummary, PLANNING_STEPS, PlanningStep, ShareDistribution};

use crate::figure::svg_file::{self, HEAD};
use crate::figure::theme::SERIES;
use crate::figure::{FigureAxes, PixelSize, StepSeries, draw_lines};

/// A panel's plot.
const PANEL: PixelSize = (440, 260);

/// Panels side by side.
const COLUMNS: usize = 2;

/// Thousandths of error that are shown.
const SHOWN: usize = 100;

/// The figure.
pub(super) fn draw_errors(summary: &DecisionSummary) -> String {
    let rows = PLANNING_STEPS.len().div_ceil(COLUMNS) as u32;
    let panels = PLANNING_STEPS.iter().enumerate().filter_map(|(number, step)| {
        let (row, column) = ((number / COLUMNS) as u32, (number % COLUMNS) as u32);
        let reached = summary.steps.get(step.name)?;
        let legend = step.variants.iter().copied().zip(SERIES);
        let plot = svg_file::translate_group(0, HEAD, &draw_step(step, reached));
        let panel = svg_file::draw_heading(step.name, legend) + &plot;
        Some(svg_file::translate_group(column * PANEL.0, row * (PANEL.1 + HEAD), &panel))
    });
    let size = (PANEL.0 * COLUMNS as u32, (PANEL.1 + HEAD) * rows);
    svg_file::wrap_file(size, &panels.collect::<String>())
}

fn draw_step(step: &PlanningStep, reached: &BTreeMap<String, ShareDistribution>) -> String {
    let axes = FigureAxes {
        x: "error from the optimum, % of GPU utilisation",
        y: "cases, %",
        x_range: 0.0..SHOWN as f64 / 10.0,
        y_range: 0.0..100.0,
    };
    let series: Vec<StepSeries> = step
        .variants
        .iter()
        .zip(SERIES)
        .filter_map(|(variant, shade)| {
            let cdf = &reached.get(*variant)?.cdf_by_error_permille;
            let shown = cdf.iter().take(SHOWN);
            Some(StepSeries { values: shown.map(|share| share * 100.0).collect(), shade })
        })
        .collect();
    draw_lines(&axes, PANEL, &series)
}

#[cfg(test)]
mod tests {
    use simulator::decisions::{DecisionReport, examine_case, generate_case};

    use super::*;

    #[test]
    fn every_step_has_a_panel_and_every_variant_a_line() {
        let report =
            DecisionReport::new(1, &[examine_case(&generate_case(1, 0))]).expect("one case");
        let figure = draw_errors(&report.summary);
        let variants: usize = PLANNING_STEPS.iter().map(|step| step.variants.len()).sum();
        assert_eq!(figure.matches("</svg>").count(), 1 + PLANNING_STEPS.len());
        assert_eq!(figure.matches("<rect x=").count(), variants);
        assert!(figure.contains("single-reference"));
    }
}
