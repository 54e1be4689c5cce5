//! Groups of values on a common axis, as bars side by side or as points that lines join: each
//! value with the range it was found in, and with the range that somebody else gives for it.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::series_figure::{SeriesChart, build_labelled_chart};
use super::theme::{INK, QUIET, ThemeShade};
use super::{DrawResult, FigureAxes, PixelSize, SvgCanvas, draw_svg, text_style};

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

/// Pixels that a letter of a group's name takes, generously.
const LETTER: u32 = 6;

/// Pixels from line to line of a name.
const LINE: i32 = 13;

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
        let axes = FigureAxes { x_range, ..axes.clone() };
        draw_svg(size, |canvas| {
            let mut chart = build_labelled_chart(canvas, &axes, 0)?;
            if self.form == GroupForm::Lines {
                self.draw_lines(&mut chart)?;
            }
            let pixel = |x: f64| chart.backend_coord(&(x, axes.y_range.start));
            let room = pixel(1.0).0 - pixel(0.0).0;
            for (number, group) in self.groups.iter().enumerate() {
                draw_name(canvas, &group.name, pixel(number as f64 + 0.5), room)?;
            }
            for (number, group) in self.groups.iter().enumerate() {
                for (series, value) in group.values.iter().enumerate() {
                    if let Some(value) = value {
                        self.draw_value(&mut chart, (number, series), value)?;
                    }
                }
            }
            Ok(())
        })
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

    fn draw_value(
        &self,
        chart: &mut SeriesChart<'_, '_>,
        place: (usize, usize),
        value: &SpreadValue,
    ) -> DrawResult {
        let [left, right] = self.value_span(place);
        let (middle, gap) = (f64::midpoint(left, right), (right - left) * 0.06);
        let shade = self.shades[place.1].light;
        match self.form {
            GroupForm::Bars => {
                let bar = [(left + gap, 0.0), (right - gap, value.value)];
                chart.draw_series([Rectangle::new(bar, shade.filled())])?;
            }
            GroupForm::Lines => {
                chart.draw_series([Circle::new((middle, value.value), 4, shade.filled())])?;
            }
        }
        if let Some(reference) = value.reference {
            self.draw_reference(chart, [left, right], reference)?;
        }
        let [least, most] = value.range;
        if most > least {
            let cap = (right - left) * 0.14;
            let whisker = |points: Vec<(f64, f64)>| PathElement::new(points, INK.light);
            let ends = [least, most].map(|y| vec![(middle - cap, y), (middle + cap, y)]);
            let strokes = ends.into_iter().chain([vec![(middle, least), (middle, most)]]);
            chart.draw_series(strokes.map(whisker))?;
        }
        Ok(())
    }

    fn draw_reference(
        &self,
        chart: &mut SeriesChart<'_, '_>,
        [left, right]: [f64; 2],
        [low, high]: [f64; 2],
    ) -> DrawResult {
        let shade = self.reference_shade.light;
        if low < high {
            let band = [(left, low), (right, high)];
            chart.draw_series([Rectangle::new(band, shade.mix(0.3).filled())])?;
        }
        let edges = [low, high].map(|y| vec![(left, y), (right, y)]);
        let edges = edges.map(|edge| PathElement::new(edge, shade.stroke_width(2)));
        chart.draw_series(edges)?;
        Ok(())
    }

    /// A line for each series through its values, and one through their references.
    fn draw_lines(&self, chart: &mut SeriesChart<'_, '_>) -> DrawResult {
        for (series, shade) in self.shades.iter().enumerate() {
            let points = |of: fn(&SpreadValue) -> Option<f64>| -> Vec<(f64, f64)> {
                let groups = self.groups.iter().enumerate();
                let values = groups.filter_map(|(number, group)| {
                    Some((number as f64 + 0.5, of(group.values[series].as_ref()?)?))
                });
                values.collect()
            };
            let references = points(|value| value.reference.map(|[low, high]| low.midpoint(high)));
            let line = self.reference_shade.light.stroke_width(1);
            chart.draw_series(LineSeries::new(references, line))?;
            let means = points(|value| Some(value.value));
            chart.draw_series(LineSeries::new(means, shade.light.stroke_width(2)))?;
        }
        Ok(())
    }
}

/// Writes the name of a group under it, in several lines where it is too wide for its room.
fn draw_name(canvas: &SvgCanvas<'_>, name: &str, (x, y): (i32, i32), room: i32) -> DrawResult {
    let letters = (room.unsigned_abs() / LETTER).max(1) as usize;
    for (number, line) in (0..).zip(wrap_text(name, letters)) {
        let style = text_style(QUIET.light, Pos::new(HPos::Center, VPos::Top));
        canvas.draw(&Text::new(line, (x, y + 7 + LINE * number), style))?;
    }
    Ok(())
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
