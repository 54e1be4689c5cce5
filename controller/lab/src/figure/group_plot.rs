//! Groups of values on a common axis, as bars side by side or as points that lines join: each
//! value with the range it was found in, and with the range that somebody else gives for it.

use super::theme::{INK, ThemeShade};
use super::{AxisNames, FigureAxes, Mark, PixelSize, draw_figure};

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpreadValue {
    pub(crate) value: f64,
    /// The least and the most: an error bar.
    pub(crate) range: [f64; 2],
    /// What it is compared with: a band, or a line where both ends are equal.
    pub(crate) reference: Option<[f64; 2]>,
}

/// Values that stand together, one of each series; a series may have none here.
#[derive(Clone, Debug)]
pub(crate) struct SpreadGroup {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<SpreadValue>>,
}

/// How the values of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupForm {
    /// A bar in each group.
    Bars,
    /// A dot in each group, and a line through the dots.
    Lines,
}

/// Share of the width of a group that its bars take.
const FILLED: f64 = 0.76;

/// Groups from left to right, and how they are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPlot<'a> {
    pub(crate) form: GroupForm,
    pub(crate) groups: &'a [SpreadGroup],
    /// A colour for each series.
    pub(crate) shades: &'a [ThemeShade],
    /// The colour of references.
    pub(crate) reference_shade: ThemeShade,
}

impl GroupPlot<'_> {
    /// Draws the plot. The range of x in `axes` is not read: each group has one unit of it.
    pub(crate) fn draw(&self, axes: &FigureAxes<'_>, size: PixelSize) -> String {
        let x_range = 0.0..self.groups.len() as f64;
        let mut marks = match self.form {
            GroupForm::Bars => Vec::new(),
            GroupForm::Lines => self.lines(),
        };
        for (number, group) in self.groups.iter().enumerate() {
            for (series, value) in group.values.iter().enumerate() {
                if let Some(value) = value {
                    self.add_value(&mut marks, (number, series), value);
                }
            }
        }
        let names: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
        let axes = FigureAxes { x_range, ..axes.clone() };
        draw_figure(&axes, AxisNames::Below(&names), size, &marks)
    }

    /// The left and the right end of a value on the x axis.
    fn value_span(&self, (group, series): (usize, usize)) -> [f64; 2] {
        let width = match self.form {
            // A single bar need not fill its group.
            GroupForm::Bars => FILLED / self.shades.len().max(2) as f64,
            GroupForm::Lines => 0.2,
        };
        let shift = match self.form {
            GroupForm::Bars => series as f64 - self.shades.len() as f64 / 2.0,
            GroupForm::Lines => -0.5,
        };
        let left = group as f64 + 0.5 + shift * width;
        [left, left + width]
    }

    fn add_value(&self, marks: &mut Vec<Mark>, place: (usize, usize), value: &SpreadValue) {
        let [left, right] = self.value_span(place);
        let (middle, gap) = (f64::midpoint(left, right), (right - left) * 0.06);
        let shade = self.shades[place.1];
        marks.push(match self.form {
            GroupForm::Bars => Mark::bar([left + gap, 0.0], [right - gap, value.value], 1.0, shade),
            GroupForm::Lines => Mark::dot((middle, value.value), shade),
        });
        if let Some([low, high]) = value.reference {
            let shade = self.reference_shade;
            marks.extend((low < high).then(|| Mark::bar([left, low], [right, high], 0.3, shade)));
            marks.extend([low, high].map(|y| Mark::line(vec![(left, y), (right, y)], 2, shade)));
        }
        let [least, most] = value.range;
        if most > least {
            let cap = (right - left) * 0.14;
            let ends = [least, most].map(|y| vec![(middle - cap, y), (middle + cap, y)]);
            let strokes = ends.into_iter().chain([vec![(middle, least), (middle, most)]]);
            marks.extend(strokes.map(|stroke| Mark::line(stroke, 1, INK)));
        }
    }

    /// A line for each series through its values, and one through their references.
    fn lines(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        for (series, shade) in self.shades.iter().enumerate() {
            let points = |of: fn(&SpreadValue) -> Option<f64>| -> Vec<(f64, f64)> {
                let groups = self.groups.iter().enumerate();
                let values = groups.filter_map(|(number, group)| {
                    Some((number as f64 + 0.5, of(group.values[series].as_ref()?)?))
                });
                values.collect()
            };
            let references = points(|value| value.reference.map(|[low, high]| low.midpoint(high)));
            marks.push(Mark::line(references, 1, self.reference_shade));
            marks.push(Mark::line(points(|value| Some(value.value)), 2, *shade));
        }
        marks
    }
}

/// Lines of at most so many letters, of whole words.
pub(crate) fn wrap_text(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::theme::SERIES;
    use super::*;

    #[test]
    fn lines_have_whole_words() {
        assert_eq!(wrap_text("at risk of contention", 10), ["at risk of", "contention"]);
        assert_eq!(wrap_text("contention", 4), ["contention"]);
        assert_eq!(wrap_text("", 4), [""; 0]);
    }

    #[test]
    fn a_value_has_a_bar_an_error_bar_and_a_reference() {
        let value = |range, reference| Some(SpreadValue { value: 2.0, range, reference });
        let draw = |value| {
            let axes = FigureAxes { x: "", y: "", x_range: 0.0..1.0, y_range: 0.0..5.0 };
            let groups = [SpreadGroup { name: "a".to_owned(), values: vec![value] }];
            let plot = GroupPlot {
                form: GroupForm::Bars,
                groups: &groups,
                shades: &SERIES[..1],
                reference_shade: SERIES[1],
            };
            plot.draw(&axes, (300, 200))
        };
        let count = |drawn: &str, what: &str| drawn.matches(what).count();
        let (fill, whisker) = (SERIES[0].css_colour(), INK.css_colour());
        let reference = SERIES[1].css_colour();
        for (value, expect) in [
            (value([1.0, 3.0], Some([2.0, 4.0])), [1, 3, 3]),
            (value([2.0, 2.0], Some([4.0, 4.0])), [1, 0, 2]),
            (value([2.0, 2.0], None), [1, 0, 0]),
            (None, [0, 0, 0]),
        ] {
            let drawn = draw(value);
            let found = [&fill, &whisker, &reference].map(|shade| count(&drawn, shade));
            assert_eq!(found, expect, "{drawn}");
        }
    }
}
