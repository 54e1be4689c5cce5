//! The distributions of errors from the optimum, a panel for each step, as Crux Fig. 16 has them.

use std::collections::BTreeMap;

use simulator::decisions::{Distribution, STEPS, Step, Summary};

use crate::figure::sheet::{self, HEAD};
use crate::figure::theme::SERIES;
use crate::figure::{Axes, Size, Steps, lines};

/// A panel's plot.
const PANEL: Size = (440, 260);

/// Panels side by side.
const COLUMNS: usize = 2;

/// Thousandths of error that are shown.
const SHOWN: usize = 100;

/// The figure.
pub(super) fn svg(summary: &Summary) -> String {
    let rows = STEPS.len().div_ceil(COLUMNS) as u32;
    let panels = STEPS.iter().enumerate().filter_map(|(number, step)| {
        let (row, column) = ((number / COLUMNS) as u32, (number % COLUMNS) as u32);
        let reached = summary.steps.get(step.name)?;
        let legend = step.variants.iter().copied().zip(SERIES);
        let plot = sheet::at((0, HEAD), &plot(step, reached));
        let panel = sheet::head(step.name, legend) + &plot;
        Some(sheet::at(
            (column * PANEL.0, row * (PANEL.1 + HEAD)),
            &panel,
        ))
    });
    let size = (PANEL.0 * COLUMNS as u32, (PANEL.1 + HEAD) * rows);
    sheet::sheet(size, &panels.collect::<String>())
}

fn plot(step: &Step, reached: &BTreeMap<String, Distribution>) -> String {
    let axes = Axes {
        x: "error from the optimum, % of GPU utilisation",
        y: "cases, %",
        x_range: 0.0..SHOWN as f64 / 10.0,
        y_range: 0.0..100.0,
    };
    let of = |(variant, shade): (&&str, _)| {
        let cdf = &reached.get(*variant)?.cdf_by_error_permille;
        let shown = cdf.iter().take(SHOWN);
        Some(Steps {
            values: shown.map(|share| share * 100.0).collect(),
            shade,
        })
    };
    let series: Vec<Steps> = step.variants.iter().zip(SERIES).filter_map(of).collect();
    lines(&axes, PANEL, &series)
}

#[cfg(test)]
mod tests {
    use simulator::decisions::{Report, case, examine};

    use super::*;

    #[test]
    fn every_step_has_a_panel_and_every_variant_a_line() {
        let report = Report::new(1, &[examine(&case(1, 0))]).expect("one case");
        let figure = svg(&report.summary);
        let variants: usize = STEPS.iter().map(|step| step.variants.len()).sum();
        assert_eq!(figure.matches("</svg>").count(), 1 + STEPS.len());
        assert_eq!(figure.matches("<rect x=").count(), variants);
        assert!(figure.contains("single-reference"));
    }
}
