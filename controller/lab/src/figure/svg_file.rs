//! One SVG file that needs no page around it: it brings headings, legends, and the colours of a
//! dark page.

use std::fmt::Write;

use super::PixelSize;
use super::theme::{self, INK, QUIET, ThemeShade};

/// Height of a [`draw_heading`].
pub(crate) const HEAD: u32 = 44;

/// Pixels that a letter of a legend takes, generously.
const LETTER: usize = 6;

/// A file of this size with `body` in it.
pub(crate) fn wrap_file(size: PixelSize, body: &str) -> String {
    let (width, height) = size;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>@media (prefers-color-scheme: dark) {{\n{}}}</style>\n{body}</svg>\n",
        theme::dark_rules()
    )
}

/// Moves a drawing from the corner to this place.
pub(crate) fn translate_group(x: u32, y: u32, drawn: &str) -> String {
    format!("<g transform=\"translate({x},{y})\">{drawn}</g>\n")
}

/// A heading and a legend over a plot.
pub(crate) fn draw_heading<'a>(
    title: &str,
    entries: impl Iterator<Item = (&'a str, ThemeShade)>,
) -> String {
    let (ink, quiet) = (INK.css_colour(), QUIET.css_colour());
    let mut text =
        format!("<text x=\"62\" y=\"16\" fill=\"{ink}\" font-weight=\"bold\">{title}</text>\n");
    let mut x = 62;
    for (name, shade) in entries {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"26\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"35\" fill=\"{quiet}\" font-size=\"10\">{name}</text>",
            shade.css_colour(),
            x + 14,
        );
        x += 14 + LETTER * name.len() + 8;
    }
    text
}
