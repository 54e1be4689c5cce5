//! What a reproduction found: rows of the paper beside ours, curves, and the assumptions.
//!
//! The same is stored of it, so whatever is drawn from a run can be drawn from a file.

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use super::paper_figure::DrawnFigure;
use command_io::CommandError;
use command_io::output;

/// One experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PaperReproduction {
    /// Its name.
    pub(super) experiment: String,
    /// What it shows, in a sentence.
    pub(super) about: String,
    /// The paper and the figure.
    pub(super) source: String,
    /// What was measured.
    pub(super) rows: Vec<MeasureRow>,
    /// What was measured along an axis.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) curves: Vec<MeasureCurve>,
    /// What the paper leaves open and how it was closed here.
    pub(super) assumptions: Vec<String>,
    /// More for the page, as HTML.
    #[serde(skip)]
    pub(super) figures: String,
    /// A figure like the paper's.
    #[serde(skip)]
    pub(super) drawing: Option<DrawnFigure>,
}

/// One measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MeasureRow {
    /// The part of the experiment, where it has several; a heading over its rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) part: String,
    /// What is measured.
    pub(super) measure: String,
    /// Unit of both figures.
    pub(super) unit: String,
    /// The paper's figure; null where it gives none.
    pub(super) paper: Option<f64>,
    /// Ours: the mean over the seeds.
    pub(super) ours: f64,
    /// The least and the most over the seeds.
    pub(super) ours_range: [f64; 2],
}

impl MeasureRow {
    /// A row of what the paper gives as `paper` and the seeds gave as `values`, of which there is
    /// at least one.
    pub(super) fn new(
        measure: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        values: &[f64],
    ) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            part: String::new(),
            measure: measure.into(),
            unit: unit.to_owned(),
            paper,
            ours: mean_value(values),
            ours_range: [least, most],
        }
    }

    /// A row of one value of each run.
    pub(super) fn of_runs<R>(
        measure: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        (runs, value): (&[R], impl Fn(&R) -> f64),
    ) -> Self {
        Self::new(measure, unit, paper, &runs.iter().map(value).collect::<Vec<f64>>())
    }

    /// Whether it has the figures of another run, up to rounding.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let ranges = self.ours_range.into_iter().zip(other.ours_range);
        (&self.part, &self.measure) == (&other.part, &other.measure)
            && std::iter::once((self.ours, other.ours))
                .chain(ranges)
                .all(|(one, other)| (one - other).abs() < 1e-6)
    }

    /// This row under the heading of a part.
    pub(super) fn in_part(self, part: &str) -> Self {
        let part = part.to_owned();
        Self { part, ..self }
    }
}

/// One measure along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MeasureCurve {
    /// What is measured.
    pub(super) measure: String,
    /// Where it was measured.
    pub(super) x: Vec<f64>,
    /// The mean over the seeds at each x.
    pub(super) ours: Vec<f64>,
    /// The least and the most over the seeds at each x.
    pub(super) ours_range: Vec<[f64; 2]>,
}

impl MeasureCurve {
    /// A curve at `x` of what each run gave there. Runs that end before the others have nothing
    /// where they ended.
    pub(super) fn new(measure: impl Into<String>, x: Vec<f64>, runs: &[&[f64]]) -> Self {
        let points = 0..x.len();
        let points: Vec<MeasureRow> = points
            .map(|place| {
                let at = runs.iter().map(|run| run.get(place).copied().unwrap_or(0.0));
                MeasureRow::new("", "", None, &at.collect::<Vec<f64>>())
            })
            .collect();
        Self {
            measure: measure.into(),
            x,
            ours: points.iter().map(|point| point.ours).collect(),
            ours_range: points.iter().map(|point| point.ours_range).collect(),
        }
    }
}

/// What is read of a run of type `R`: its name, its value, and the mild and the strong end of the
/// range that the paper prints.
pub(super) type RangedMeasure<R> = (&'static str, fn(&R) -> f64, [f64; 2]);

/// Rows by part, in their order.
pub(super) fn rows_by_part(rows: &[MeasureRow]) -> impl Iterator<Item = (&str, &[MeasureRow])> {
    let parts = rows.chunk_by(|one, other| one.part == other.part);
    parts.map(|rows| (rows[0].part.as_str(), rows))
}

pub(super) fn mean_value(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Per cent by which `now` differs from `before`.
pub(super) fn percent_change(before: f64, now: f64) -> f64 {
    (now / before - 1.0) * 100.0
}

/// Prints one for a person.
pub(super) fn print_reproduction(reproduction: &PaperReproduction) -> Result<(), CommandError> {
    output::print_line(format_args!(
        "{}: {}\n{}\n",
        reproduction.experiment, reproduction.about, reproduction.source
    ))?;
    for (part, rows) in rows_by_part(&reproduction.rows) {
        if !part.is_empty() {
            output::print_line(format_args!("{part}\n"))?;
        }
        output::print_line(measure_table(rows))?;
        output::print_line("")?;
    }
    output::print_line("assumed:")?;
    for assumption in &reproduction.assumptions {
        output::print_line(format_args!("* {assumption}"))?;
    }
    output::print_line("")
}

fn measure_table(rows: &[MeasureRow]) -> Table {
    let mut table = output::new_table(["measure", "paper", "ours", "least to most", "unit"]);
    for row in rows {
        let [least, most] = row.ours_range;
        table.add_row([
            row.measure.clone(),
            row.paper.map_or_else(|| "-".to_owned(), format_figure),
            format_figure(row.ours),
            format!("{} to {}", format_figure(least), format_figure(most)),
            row.unit.clone(),
        ]);
    }
    table
}

/// A page of these reproductions: tables of all measures, and what was assumed.
pub(super) fn render_markdown(reproductions: &[PaperReproduction]) -> String {
    let mut page = String::from(
        "# Measures of all reproductions\n\nWhat papers print, and what came out here: means over \
         seeds, with the least and the most. This page is what `crux reproduce all --stored --format \
         markdown` prints.\n",
    );
    for PaperReproduction { experiment, about, source, rows, assumptions, .. } in reproductions {
        page.push_str(&format!("\n## {experiment}\n\n{about} {source}\n"));
        for (part, rows) in rows_by_part(rows) {
            if !part.is_empty() {
                page.push_str(&format!("\n### {}\n", escape_cell(part)));
            }
            page.push_str(
                "\n| measure | paper | ours | least to most | unit |\n|---|---|---|---|---|\n",
            );
            page.extend(rows.iter().map(markdown_row));
        }
        page.push_str("\nAssumed:\n\n");
        page.extend(assumptions.iter().map(|text| format!("* {text}\n")));
    }
    page
}

fn markdown_row(row: &MeasureRow) -> String {
    let [least, most] = row.ours_range.map(format_figure);
    let paper = row.paper.map_or_else(String::new, format_figure);
    let [measure, unit] = [&row.measure, &row.unit].map(|text| escape_cell(text));
    format!("| {measure} | {paper} | {} | {least} to {most} | {unit} |\n", format_figure(row.ours))
}

/// Text without the marks of a table or of emphasis.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}

/// Four digits that count.
pub(super) fn format_figure(value: f64) -> String {
    let before_point = value.abs().max(1.0).log10().floor() as usize + 1;
    format!("{value:.*}", 4_usize.saturating_sub(before_point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (1.5301, "1.530"),
            (-12.345, "-12.35"),
            (535.0, "535.0"),
            (0.6201, "0.620"),
            (12_345.6, "12346"),
        ] {
            assert_eq!(format_figure(value), text);
        }
    }

    #[test]
    fn a_row_is_mean_and_range() {
        let row = MeasureRow::new("x", "s", None, &[1.0, 2.0, 6.0]);
        assert_eq!((row.ours, row.ours_range), (3.0, [1.0, 6.0]));
        assert!((percent_change(2.0, 1.5) + 25.0).abs() < 1e-12);
    }

    #[test]
    fn a_page_has_a_table_for_each_part() {
        let rows = vec![
            MeasureRow::new("gain of TACCL*", "%", Some(13.0), &[10.0, 12.0]).in_part("Clos"),
            MeasureRow::new("x", "s", None, &[1.5]).in_part("double-sided"),
        ];
        let reproduction = PaperReproduction {
            experiment: "crux-fig0".to_owned(),
            rows,
            assumptions: vec!["Nothing.".to_owned()],
            ..PaperReproduction::default()
        };
        let page = render_markdown(&[reproduction]);
        let expected = "\
### Clos

| measure | paper | ours | least to most | unit |
|---|---|---|---|---|
| gain of TACCL\\* | 13.00 | 11.00 | 10.00 to 12.00 | % |

### double-sided

| measure | paper | ours | least to most | unit |
|---|---|---|---|---|
| x |  | 1.500 | 1.500 to 1.500 | s |

Assumed:

* Nothing.
";
        assert!(page.contains("\n## crux-fig0\n") && page.ends_with(expected), "{page}");
    }

    #[test]
    fn a_run_has_nothing_after_its_end() {
        let curve = MeasureCurve::new("x", vec![0.0, 1.0], &[&[2.0], &[4.0, 3.0]]);
        assert_eq!(curve.ours, [3.0, 1.5]);
        assert_eq!(curve.ours_range, [[2.0, 4.0], [0.0, 3.0]]);
    }
}
