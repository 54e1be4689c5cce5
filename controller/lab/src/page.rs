//! Results as one HTML page that needs nothing else: tables, SVG figures, one style sheet for light
//! and dark. Texts are HTML: callers escape what others wrote.

use std::fmt::Display;

use crate::figure::theme::{self, ThemeShade};

const STYLE: &str = include_str!("page/style.css");

/// A page with the style that all have.
pub(crate) fn render_html(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\
         @media (prefers-color-scheme: dark) {{\n{}}}\n</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n",
        theme::dark_rules(),
    )
}

pub(crate) fn render_section(heading: &str, about: &str, body: &str) -> String {
    format!("<section>\n<h2>{heading}</h2>\n<p class=\"about\">{about}</p>\n{body}</section>\n")
}

/// A table whose rows begin with their heading.
pub(crate) fn render_table<H: Display, C: Display, R: IntoIterator<Item = C>>(
    headings: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let headings: String =
        headings.into_iter().map(|heading| format!("<th>{heading}</th>")).collect();
    let render_row = |cells: R| {
        let cells = cells.into_iter().enumerate().map(|(place, cell)| match place {
            0 => format!("<th scope=\"row\">{cell}</th>"),
            _ => format!("<td>{cell}</td>"),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.into_iter().map(render_row).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n"
    )
}

/// A figure over the width of the page, under its legend.
pub(crate) fn full_figure(svg: &str, legend: &str) -> String {
    format!("<figure class=\"full\">{legend}{svg}</figure>\n")
}

/// Names with their colours.
pub(crate) fn render_legend<N: Display>(
    entries: impl IntoIterator<Item = (N, ThemeShade)>,
) -> String {
    let entries = entries.into_iter().map(|(name, shade)| legend_entry(name, shade));
    format!("<p class=\"legend\">{}</p>", entries.collect::<String>())
}

pub(crate) fn legend_entry(name: impl Display, shade: ThemeShade) -> String {
    format!("<span>{}{name}</span> ", colour_chip(shade))
}

pub(crate) fn colour_chip(shade: ThemeShade) -> String {
    let light = shade.css_colour();
    format!("<i class=\"chip\" data-c=\"{light}\" style=\"--c:{light}\"></i>")
}
