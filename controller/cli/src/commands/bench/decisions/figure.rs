//! The distributions of errors from the optimum, a panel for each step, as Crux Fig. 16 has them.
//!
//! One SVG file that needs no page around it: it brings headings, legends, and the colours of a
//! dark page.

use std::collections::BTreeMap;
use std::fmt::Write;

use simulator::decisions::{Distribution, STEPS, Step, Summary};

use crate::figure::theme::{self, INK, QUIET, SERIES};
use crate::figure::{Axes, Size, Steps, lines};

/// A panel's plot.
const PANEL: Size = (440, 260);

/// Above a panel's plot: its heading and its legend.
const HEAD: u32 = 44;

/// Panels side by side.
const COLUMNS: usize = 2;

/// Thousandths of error that are shown.
const SHOWN: usize = 100;

/// The figure.
pub(super) fn svg(summary: &Summary) -> String {
    let rows = STEPS.len().div_ceil(COLUMNS) as u32;
    let (width, height) = (PANEL.0 * COLUMNS as u32, (PANEL.1 + HEAD) * rows);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>@media (prefers-color-scheme: dark) {{\n{}}}</style>\n",
        theme::dark_rules()
    );
    for (number, step) in STEPS.iter().enumerate() {
        let (row, column) = ((number / COLUMNS) as u32, (number % COLUMNS) as u32);
        let Some(reached) = summary.steps.get(step.name) else {
            continue;
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<g transform=\"translate({},{})\">\n{}<g transform=\"translate(0,{HEAD})\">{}</g></g>",
            column * PANEL.0,
            row * (PANEL.1 + HEAD),
            head(step),
            plot(step, reached),
        );
    }
    text.push_str("</svg>\n");
    text
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

/// Heading and legend, the first line in the strongest colour as in the plot.
fn head(step: &Step) -> String {
    let (ink, quiet) = (INK.css(), QUIET.css());
    let mut text = format!(
        "<text x=\"62\" y=\"16\" fill=\"{ink}\" font-weight=\"bold\">{}</text>\n",
        step.name
    );
    let mut x = 62;
    for (variant, shade) in step.variants.iter().zip(SERIES) {
        let color = shade.css();
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"26\" width=\"10\" height=\"10\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"35\" fill=\"{quiet}\">{variant}</text>",
            x + 14,
        );
        x += 14 + LETTER * variant.len() + 12;
    }
    text
}

/// Pixels that a letter of a legend takes, generously.
const LETTER: usize = 6;

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
