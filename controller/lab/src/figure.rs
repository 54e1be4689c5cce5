//! Figures as SVG text: lines, stacked areas, groups of bars, and rows of bars or dots.
//!
//! A figure is drawn once, for a light page; `theme` says what its colours become on a dark one.
//! Legends and headings belong to the page around it. The decision: a figure never fills its
//! background, so it looks at home on whatever surface it lies on.

mod group_figure;
mod row_figure;
mod series_figure;
pub(crate) mod svg_file;
pub(crate) mod theme;

use std::ops::Range;

use plotters::prelude::*;

pub(crate) use group_figure::{GroupForm, GroupPlot, SpreadGroup, SpreadValue, wrap_text};
pub(crate) use row_figure::{FigureRow, draw_bars, draw_dots};
pub(crate) use series_figure::{
    PointCurve, SpreadCurve, StepSeries, draw_curves, draw_lines, draw_spread_curves, draw_stacked,
};

/// Width and height in pixels; a page scales them together.
pub(crate) type PixelSize = (u32, u32);

/// The width of a figure that has a page's width to itself.
pub(crate) const WIDE: u32 = 880;

/// Axes of a figure: what they show and how far they go.
#[derive(Clone, Debug)]
pub(crate) struct FigureAxes<'a> {
    /// What x is, with its unit.
    pub(crate) x: &'a str,
    /// What y is, with its unit; empty where rows say it.
    pub(crate) y: &'a str,
    /// From where to where x goes.
    pub(crate) x_range: Range<f64>,
    /// From where to where y goes.
    pub(crate) y_range: Range<f64>,
}

/// Draws into SVG text. Drawing into memory fails only for coordinates that are no numbers, and
/// then the figure is empty.
fn draw_svg(size: PixelSize, draw: impl FnOnce(&SvgCanvas<'_>) -> DrawResult) -> String {
    let mut text = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root).and_then(|()| root.present())
    };
    if drawn.is_err() {
        text.clear();
    }
    text
}

type SvgCanvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The style of text in a colour, anchored as given.
fn text_style(color: RGBColor, anchor: plotters::style::text_anchor::Pos) -> TextStyle<'static> {
    TextStyle {
        color: color.to_backend_color(),
        ..TextStyle::from(("sans-serif", 12).into_font()).pos(anchor)
    }
}

/// A number for a tick, with as few digits as keep ticks distinct.
fn tick_label(value: &f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The points of a line of steps: `values` in equal parts of `range`, without points that lie on
/// the way between two others.
fn step_points(range: &Range<f64>, values: &[f64]) -> Vec<(f64, f64)> {
    let width = (range.end - range.start) / values.len().max(1) as f64;
    let x = |step: usize| range.start + step as f64 * width;
    let mut points = Vec::new();
    for (step, value) in values.iter().enumerate() {
        let is_flat = step > 0 && values[step - 1].total_cmp(value).is_eq();
        if !is_flat {
            points.extend((step > 0).then(|| (x(step), values[step - 1])));
            points.push((x(step), *value));
        }
    }
    points.extend(values.last().map(|last| (range.end, *last)));
    points
}

/// A round end of an axis from 0 that has room for `most`, in five steps.
pub(crate) fn round_end(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let step = most * 1.02 / 5.0;
    let magnitude = 10_f64.powf(step.log10().floor());
    let rounded = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0].map(|factor| factor * magnitude);
    let fits = rounded.into_iter().find(|rounded| *rounded >= step);
    5.0 * fits.unwrap_or(10.0 * magnitude)
}

/// A round range of an axis that has room for 0 and all `values`, in five steps of which one ends
/// at 0.
pub(crate) fn round_range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) =
        values.fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let mut step = round_end(most - least) / 5.0;
    loop {
        let start = (least / step).floor() * step;
        if start + 5.0 * step >= most {
            return start..start + 5.0 * step;
        }
        step = round_end(5.0 * step) / 5.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers() {
        for (most, end) in [(0.93, 1.0), (145.0, 150.0), (2.3e15, 2.5e15), (9.9, 12.5), (0.0, 1.0)]
        {
            let found = round_end(most);
            assert!((found / end - 1.0).abs() < 1e-9, "{most}: {found}");
        }
    }

    #[test]
    fn ranges_have_room_for_zero_and_all_values() {
        for (values, range) in [
            ([3.0, 4.8], 0.0..5.0),
            ([-9.0, -2.0], -10.0..0.0),
            ([-9.0, 4.8], -9.0..6.0),
            ([0.0, 0.0], 0.0..1.0),
        ] {
            let found = round_range(values.into_iter());
            let apart = (found.start - range.start).abs() + (found.end - range.end).abs();
            assert!(apart < 1e-9, "{values:?}: {found:?}");
        }
    }

    #[test]
    fn ticks_are_short() {
        for (value, text) in [(0.0, "0"), (0.25, "0.25"), (120.0, "120"), (0.125, "0.12")] {
            assert_eq!(tick_label(&value), text);
        }
    }

    #[test]
    fn steps_leave_out_what_is_flat() {
        let line = step_points(&(0.0..4.0), &[1.0, 1.0, 2.0, 2.0]);
        assert_eq!(line, [(0.0, 1.0), (2.0, 1.0), (2.0, 2.0), (4.0, 2.0)]);
        assert_eq!(step_points(&(0.0..1.0), &[]), []);
    }
}
