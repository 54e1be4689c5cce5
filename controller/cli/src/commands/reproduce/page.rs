//! Reproductions as one HTML page: for each a table, dots for the paper's figures and ours, and
//! what was assumed.

use super::report::{Reproduction, Row, figure as digits, parts};
use crate::commands::compare::page::{chip, entry, escaped, full, html, section};
use crate::figure::theme::{SERIES, Shade};
use crate::figure::{self, Axes, dots};

/// Ours, and the paper's.
const OURS: Shade = SERIES[0];
const PAPER: Shade = SERIES[1];

/// The page.
pub(super) fn page(reproductions: &[Reproduction]) -> String {
    let title = match reproductions {
        [one] => format!("Reproduction of {}", one.experiment),
        _ => "Reproductions".to_owned(),
    };
    let body: String = reproductions.iter().map(one).collect();
    html(&title, &format!("<h1>{title}</h1>\n{body}"))
}

fn one(reproduction: &Reproduction) -> String {
    let assumed = reproduction.assumptions.iter();
    let assumed: String = assumed
        .map(|text| format!("<li>{}</li>\n", escaped(text)))
        .collect();
    let parts: String = parts(&reproduction.rows).map(part).collect();
    let body = format!(
        "{parts}<h3>Assumed</h3>\n<ul>\n{assumed}</ul>\n{}",
        reproduction.figures,
    );
    let about = format!("{} {}", reproduction.about, reproduction.source);
    section(&reproduction.experiment, &escaped(&about), &body)
}

fn part((name, rows): (&str, &[Row])) -> String {
    let heading = match name {
        "" => String::new(),
        name => format!("<h3>{}</h3>\n", escaped(name)),
    };
    format!("{heading}{}{}", table(rows), plots(rows))
}

fn table(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let [least, most] = row.ours_range;
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{} to {}</td>\
             <td>{}</td></tr>\n",
            escaped(&row.measure),
            row.paper.map_or_else(|| "-".to_owned(), digits),
            digits(row.ours),
            digits(least),
            digits(most),
            row.unit,
        )
    };
    let rows: String = rows.iter().map(cells).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr><th>measure</th><th>{}paper</th><th>{}ours</th>\
         <th>least to most</th><th>unit</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n",
        chip(PAPER),
        chip(OURS),
    )
}

/// A plot for each unit, in the order in which they first appear.
fn plots(rows: &[Row]) -> String {
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit) {
            units.push(row.unit);
        }
    }
    let legend = format!(
        "<p class=\"legend\">{}{}</p>",
        entry("ours", OURS),
        entry("paper", PAPER)
    );
    let plot = |unit: &str| {
        let rows = rows.iter().filter(|row| row.unit == unit);
        full(&plot(unit, &rows.collect::<Vec<_>>()), &legend)
    };
    units.into_iter().map(plot).collect()
}

fn plot(unit: &str, rows: &[&Row]) -> String {
    let drawn = |row: &&Row| {
        let paper = row.paper.map(|paper| (paper, PAPER));
        let values = std::iter::once((row.ours, OURS)).chain(paper);
        figure::Row {
            name: row.measure.clone(),
            values: values.collect(),
            note: String::new(),
        }
    };
    let drawn: Vec<figure::Row> = rows.iter().map(drawn).collect();
    let values = drawn.iter().flat_map(|row| &row.values);
    let axes = Axes {
        x: unit,
        y: "",
        x_range: figure::round_range(values.map(|(value, _)| *value)),
        y_range: 0.0..1.0,
    };
    dots(&axes, &drawn)
}
