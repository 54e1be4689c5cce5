//! Reproductions as one HTML page: for each the paper's figure with our results, a table, dots for
//! rows that the figure does not have, and what was assumed.

use super::paper_figure::{DrawnFigure, PAPER};
use super::report::{MeasureRow, PaperReproduction, format_figure as digits, rows_by_part};
use crate::figure::theme::{SERIES, ThemeShade};
use crate::figure::{self, FigureAxes, draw_dots};
use crate::page::{
    colour_chip, full_figure, render_html, render_legend, render_section, render_table,
};
use command_io::html::escape_html;

const OURS: ThemeShade = SERIES[0];

/// The page.
pub(super) fn render_page(reproductions: &[PaperReproduction]) -> String {
    let title = match reproductions {
        [one] => format!("Reproduction of {}", one.experiment),
        _ => "Reproductions".to_owned(),
    };
    let body: String = reproductions.iter().map(render_reproduction).collect();
    render_html(&title, &format!("<h1>{title}</h1>\n{body}"))
}

fn render_reproduction(reproduction: &PaperReproduction) -> String {
    let assumed: String = reproduction
        .assumptions
        .iter()
        .map(|text| format!("<li>{}</li>\n", escape_html(text)))
        .collect();
    let drawing = reproduction.drawing.as_ref();
    let parts: String = rows_by_part(&reproduction.rows)
        .map(|(name, rows)| render_part(name, rows, drawing))
        .collect();
    let file = drawing.map(|figure| DrawnFigure::write_file(std::iter::once(figure)));
    let figure = file.map_or_else(String::new, |svg| full_figure(&svg, ""));
    let body =
        format!("{figure}{parts}<h3>Assumed</h3>\n<ul>\n{assumed}</ul>\n{}", reproduction.figures,);
    let about = format!("{} {}", reproduction.about, reproduction.source);
    render_section(&reproduction.experiment, &escape_html(&about), &body)
}

fn render_part(name: &str, rows: &[MeasureRow], drawing: Option<&DrawnFigure>) -> String {
    let is_drawn = |row: &MeasureRow| drawing.is_some_and(|figure| figure.has_row(row));
    let undrawn: Vec<&MeasureRow> = rows.iter().filter(|row| !is_drawn(row)).collect();
    let heading = match name {
        "" => String::new(),
        name => format!("<h3>{}</h3>\n", escape_html(name)),
    };
    format!("{heading}{}{}", render_measures(rows), render_plots(&undrawn))
}

fn render_measures(rows: &[MeasureRow]) -> String {
    let headings = [
        "measure".to_owned(),
        format!("{}paper", colour_chip(PAPER)),
        format!("{}ours", colour_chip(OURS)),
        "least to most".to_owned(),
        "unit".to_owned(),
    ];
    let rows = rows.iter().map(|row| {
        let [least, most] = row.ours_range.map(digits);
        [
            escape_html(&row.measure),
            row.paper.map_or_else(|| "-".to_owned(), digits),
            digits(row.ours),
            format!("{least} to {most}"),
            escape_html(&row.unit),
        ]
    });
    render_table(headings, rows)
}

/// A plot for each unit, in the order in which they first appear.
fn render_plots(rows: &[&MeasureRow]) -> String {
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&&*row.unit) {
            units.push(&row.unit);
        }
    }
    let legend = render_legend([("ours", OURS), ("paper", PAPER)]);
    units
        .into_iter()
        .map(|unit| {
            let rows = rows.iter().copied().filter(|row| row.unit == unit);
            full_figure(&draw_measures(unit, &rows.collect::<Vec<_>>()), &legend)
        })
        .collect()
}

fn draw_measures(unit: &str, rows: &[&MeasureRow]) -> String {
    let drawn: Vec<figure::FigureRow> = rows
        .iter()
        .map(|row| {
            let paper = row.paper.map(|paper| (paper, PAPER));
            figure::FigureRow {
                name: row.measure.clone(),
                values: std::iter::once((row.ours, OURS)).chain(paper).collect(),
                note: String::new(),
            }
        })
        .collect();
    let values = drawn.iter().flat_map(|row| &row.values);
    let axes = FigureAxes {
        x: unit,
        y: "",
        x_range: figure::round_range(values.map(|(value, _)| *value)),
        y_range: 0.0..1.0,
    };
    draw_dots(&axes, &drawn)
}
