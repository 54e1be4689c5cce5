//! Fields in rows and columns, each with a colour and a short text. Rows and columns have three
//! names each; names that repeat from one to the next are written once.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::theme::{GRID, INK, LEVELS, QUIET, SERIES, ThemeShade};
use super::{PixelSize, WIDE};
use command_io::html::escape_html;

/// The names of a row from the left, or of a column from the top.
pub(crate) type HeatNames = [String; 3];

/// What stands in one place.
#[derive(Clone, Debug)]
pub(crate) struct HeatField {
    pub(crate) text: String,
    pub(crate) shade: ThemeShade,
}

/// Fields that are added one by one; rows and columns stand in the order of their first field.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeatMap {
    title: String,
    rows: Vec<HeatNames>,
    columns: Vec<HeatNames>,
    /// With their rows and columns by number.
    fields: Vec<(usize, usize, HeatField)>,
}

/// A drawing and how much room it takes below each other.
pub(crate) struct DrawnMap {
    pub(crate) body: String,
    pub(crate) height: u32,
}

/// Width of each name of a row; heights of the title, of a line of names, and of a field.
const NAMES: [u32; 3] = [78, 66, 56];
const TITLE: u32 = 22;
const LINE: u32 = 14;
const FIELD: u32 = 15;
const BORDER: u32 = 10;

impl HeatMap {
    /// A map without fields.
    pub(crate) fn new(title: String) -> Self {
        Self { title, ..Self::default() }
    }

    pub(crate) fn add_field(&mut self, row: HeatNames, column: HeatNames, field: HeatField) {
        let row = place_of(&mut self.rows, row);
        let column = place_of(&mut self.columns, column);
        self.fields.push((row, column, field));
    }

    /// Draws the map, as wide as a page.
    pub(crate) fn draw(&self) -> DrawnMap {
        let left: u32 = NAMES.iter().sum();
        let width = (WIDE - left - BORDER) / (self.columns.len() as u32).max(1);
        let top = TITLE + LINE * 3;
        let order = self.row_order();
        let mut body = text_at((8, 15), "start", INK, &self.title);
        for (level, line) in (0..).zip([0, 1, 2]) {
            let spans = name_spans(self.columns.iter().map(|names| &names[..=line]));
            for (first, count) in spans {
                let x = left + width * first as u32 + width * count as u32 / 2;
                let name = &self.columns[first][line];
                body += &text_at((x, TITLE + LINE * level + 11), "middle", QUIET, name);
            }
        }
        let rows: Vec<&HeatNames> = order.iter().map(|row| &self.rows[*row]).collect();
        for line in 0..3 {
            let x = NAMES[..line].iter().sum::<u32>() + 8;
            for (first, _) in name_spans(rows.iter().map(|names| &names[..=line])) {
                let y = top + FIELD * first as u32 + 11;
                body += &text_at((x, y), "start", QUIET, &rows[first][line]);
            }
        }
        let height = top + FIELD * rows.len() as u32 + BORDER;
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, row)| places[*row] = place as u32);
        let corner =
            |row: usize, column: usize| (left + width * column as u32, top + FIELD * places[row]);
        body += &self.draw_fields((width, FIELD), corner);
        DrawnMap { body, height }
    }

    /// All fields of a colour as one shape, and all texts of a colour in one group: a map has more
    /// fields than other figures have marks.
    fn draw_fields(
        &self,
        (width, height): PixelSize,
        corner: impl Fn(usize, usize) -> (u32, u32),
    ) -> String {
        let mut shapes: BTreeMap<String, String> = BTreeMap::new();
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for (row, column, field) in &self.fields {
            let (x, y) = corner(*row, *column);
            let (right, down) = (width - 1, height - 1);
            let shape = shapes.entry(field.shade.css_colour()).or_default();
            // Writing to a string cannot fail.
            let _ = write!(shape, "M{x} {y}h{right}v{down}h-{right}z");
            let text = texts.entry(ink_on(field.shade).css_colour()).or_default();
            let (x, y) = (x + width / 2, y + height - 4);
            let _ = write!(text, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape_html(&field.text));
        }
        let shapes = shapes.iter().map(|(fill, d)| format!("<path fill=\"{fill}\" d=\"{d}\"/>\n"));
        let texts = texts.iter().map(|(fill, texts)| {
            format!("<g fill=\"{fill}\" font-size=\"10\" text-anchor=\"middle\">{texts}</g>\n")
        });
        shapes.chain(texts).collect()
    }

    /// Rows with the same first names together.
    fn row_order(&self) -> Vec<usize> {
        let mut firsts: Vec<&String> = Vec::new();
        for [first, ..] in &self.rows {
            if !firsts.contains(&first) {
                firsts.push(first);
            }
        }
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|row| firsts.iter().position(|first| **first == self.rows[*row][0]));
        order
    }
}

fn place_of(known: &mut Vec<HeatNames>, names: HeatNames) -> usize {
    let found = known.iter().position(|other| *other == names);
    found.unwrap_or_else(|| {
        known.push(names);
        known.len() - 1
    })
}

/// The first of each run of equal names, and how many there are.
fn name_spans<'a>(names: impl Iterator<Item = &'a [String]>) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut before: Option<&[String]> = None;
    for (place, name) in names.enumerate() {
        match spans.last_mut().filter(|_| before == Some(name)) {
            Some((_, count)) => *count += 1,
            None => spans.push((place, 1)),
        }
        before = Some(name);
    }
    spans
}

/// Strong colours are dark on a light page and light on a dark one, and so is what is faint.
fn ink_on(shade: ThemeShade) -> ThemeShade {
    let is_strong = LEVELS[..5].contains(&shade) || [SERIES[5], SERIES[8]].contains(&shade);
    if is_strong { GRID } else { INK }
}

fn text_at((x, y): (u32, u32), anchor: &str, shade: ThemeShade, text: &str) -> String {
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{}\" font-size=\"10\">{}</text>\n",
        shade.css_colour(),
        escape_html(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_repeat_are_written_once_and_every_field_is_drawn() {
        let mut map = HeatMap::new("t".to_owned());
        let names =
            |first: &str, last: usize| [first, "same", &last.to_string()].map(str::to_owned);
        for column in 0..2 {
            for (row, first) in [(0, "even"), (1, "odd"), (2, "even")] {
                let text = format!("f{row}{column}");
                let field = HeatField { text, shade: GRID };
                map.add_field(names(first, row), names("all", column), field);
            }
        }
        let DrawnMap { body, height } = map.draw();
        let count = |text: &str| body.matches(&format!(">{text}<")).count();
        assert_eq!([count("all"), count("even"), count("odd")], [1, 1, 1], "{body}");
        let of_row = |row: usize| (0..2).map(move |column| format!("f{row}{column}"));
        assert!((0..3).flat_map(of_row).all(|field| count(&field) == 1));
        assert_eq!(height, TITLE + 3 * LINE + 3 * FIELD + BORDER);
        // Rows of one name stand together.
        let line = |field: &str| {
            let end = body.find(&format!("\">{field}<")).unwrap();
            let start = body[..end].rfind("y=\"").unwrap() + 3;
            (body[start..end].parse::<u32>().unwrap() - TITLE - 3 * LINE) / FIELD
        };
        assert_eq!(["f00", "f20", "f10"].map(line), [0, 1, 2], "{body}");
    }
}
