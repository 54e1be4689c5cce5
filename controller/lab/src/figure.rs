//! Figures as SVG text: lines, areas, dots and bars on two axes, of which one may have names.
//!
//! A figure is a list of [`Mark`]s in units of its axes, which [`draw_marks`] draws. It is drawn once,
//! for a light page; `theme` says what its colours become on a dark one. Legends and headings belong
//! to the page around it. The decision: a figure never fills its background, so it looks at home on
//! whatever surface it lies on.

mod group_plot;
pub(crate) mod heat_map;
pub(crate) mod svg_file;
pub(crate) mod theme;

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::theme::{GRID, INK, QUIET, ThemeShade};

pub(crate) use group_plot::{GroupForm, GroupPlot, SpreadGroup, SpreadValue, wrap_text};

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

/// Something in a figure, in units of its axes.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    shape: MarkShape,
    shade: ThemeShade,
}

type Point = (f64, f64);

#[derive(Clone, Debug)]
enum MarkShape {
    Line(Vec<Point>, u32),
    /// Its outline and its opacity.
    Area(Vec<Point>, f64),
    Dot(Point),
    /// Behind a point.
    Note(Point, String),
}

impl Mark {
    /// A line through points, so many pixels wide.
    pub(crate) fn line(points: Vec<Point>, width: u32, shade: ThemeShade) -> Self {
        Self { shape: MarkShape::Line(points, width), shade }
    }

    /// A line of steps: `values` in equal parts of the x axis.
    pub(crate) fn steps(axes: &FigureAxes<'_>, values: &[f64], shade: ThemeShade) -> Self {
        Self::line(step_points(&axes.x_range, values), 2, shade)
    }

    /// What lies between two curves.
    pub(crate) fn band(
        top: Vec<Point>,
        bottom: impl DoubleEndedIterator<Item = Point>,
        opacity: f64,
        shade: ThemeShade,
    ) -> Self {
        let outline = top.into_iter().chain(bottom.rev()).collect();
        Self { shape: MarkShape::Area(outline, opacity), shade }
    }

    /// A rectangle between two corners.
    fn bar(
        [left, bottom]: [f64; 2],
        [right, top]: [f64; 2],
        opacity: f64,
        shade: ThemeShade,
    ) -> Self {
        let ends = [(right, bottom), (left, bottom)].into_iter();
        Self::band(vec![(left, top), (right, top)], ends.rev(), opacity, shade)
    }

    pub(crate) fn dot(at: Point, shade: ThemeShade) -> Self {
        Self { shape: MarkShape::Dot(at), shade }
    }
}

/// Names along one axis, each in the middle of one unit.
#[derive(Clone, Copy, Debug, Default)]
enum AxisNames<'a> {
    #[default]
    Numbers,
    Below(&'a [&'a str]),
    /// From the top.
    Left(&'a [&'a str]),
}

/// Draws marks, each over those before it.
pub(crate) fn draw_marks(axes: &FigureAxes<'_>, size: PixelSize, marks: &[Mark]) -> String {
    draw_figure(axes, AxisNames::Numbers, size, marks)
}

/// Lines of steps, the first on top: values in equal parts of x.
pub(crate) fn draw_lines(axes: &FigureAxes<'_>, size: PixelSize, lines: &[StepSeries]) -> String {
    let marks = lines.iter().rev().map(|line| Mark::steps(axes, &line.values, line.shade));
    draw_marks(axes, size, &marks.collect::<Vec<_>>())
}

/// Layers on each other, the first at the bottom.
pub(crate) fn stack_layers(axes: &FigureAxes<'_>, layers: &[StepSeries]) -> Vec<Mark> {
    let bins = layers.iter().map(|layer| layer.values.len()).max();
    let mut floor = vec![0.0; bins.unwrap_or(0)];
    let mut marks = Vec::new();
    for StepSeries { values, shade } in layers {
        let top: Vec<f64> = floor.iter().zip(values).map(|(a, b)| a + b).collect();
        if values.iter().any(|value| *value > 0.0) {
            let [above, below] = [&top, &floor].map(|values| step_points(&axes.x_range, values));
            marks.push(Mark::band(above, below.into_iter(), 1.0, *shade));
        }
        floor = top;
    }
    marks
}

/// Values in equal steps of x: a line of its own, or what it adds to a stack.
#[derive(Clone, Debug)]
pub(crate) struct StepSeries {
    pub(crate) values: Vec<f64>,
    pub(crate) shade: ThemeShade,
}

/// A name at the left, and a bar or dots at values.
#[derive(Clone, Debug)]
pub(crate) struct FigureRow {
    pub(crate) name: String,
    /// Values with their colours; a bar shows the first.
    pub(crate) values: Vec<(f64, ThemeShade)>,
    /// Text behind them.
    pub(crate) note: String,
}

/// Pixels from row to row, and what surrounds them.
const ROW: u32 = 30;
const ROWS_BORDER: u32 = 54;

/// A bar for each row, from the left end of the axis. The range of y in `axes` is not read.
pub(crate) fn draw_bars(axes: &FigureAxes<'_>, rows: &[FigureRow]) -> String {
    draw_rows(axes, rows, |row, y| {
        let Some((value, shade)) = row.values.first() else {
            return Vec::new();
        };
        let end = within(&axes.x_range, *value);
        let bar = Mark::bar([axes.x_range.start, y - 0.3], [end, y + 0.3], 1.0, *shade);
        let note = MarkShape::Note((end, y), row.note.clone());
        vec![bar, Mark { shape: note, shade: INK }]
    })
}

/// Dots for each row, joined by a thin line. The range of y in `axes` is not read.
pub(crate) fn draw_dots(axes: &FigureAxes<'_>, rows: &[FigureRow]) -> String {
    draw_rows(axes, rows, |row, y| {
        let places = row.values.iter().map(|(value, _)| within(&axes.x_range, *value));
        let (Some(first), Some(last)) = (places.clone().reduce(f64::min), places.reduce(f64::max))
        else {
            return Vec::new();
        };
        let mut marks = vec![Mark::line(vec![(first, y), (last, y)], 3, GRID)];
        // Equal values lie a little above each other; the first matters most and is drawn last.
        let middle = (row.values.len() as f64 - 1.0) / 2.0;
        for (place, (value, shade)) in row.values.iter().enumerate().rev() {
            let above = (place as f64 - middle) * 2.0 / f64::from(ROW);
            marks.push(Mark::dot((within(&axes.x_range, *value), y + above), *shade));
        }
        marks.push(Mark { shape: MarkShape::Note((last, y), row.note.clone()), shade: QUIET });
        marks
    })
}

fn draw_rows(
    axes: &FigureAxes<'_>,
    rows: &[FigureRow],
    marks_of: impl Fn(&FigureRow, f64) -> Vec<Mark>,
) -> String {
    let y_range = 0.0..rows.len().max(1) as f64;
    let ys = (0..rows.len()).map(|place| rows.len() as f64 - place as f64 - 0.5);
    let marks: Vec<Mark> = rows.iter().zip(ys).flat_map(|(row, y)| marks_of(row, y)).collect();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let size = (WIDE, ROW * rows.len() as u32 + ROWS_BORDER);
    draw_figure(&FigureAxes { y_range, ..axes.clone() }, AxisNames::Left(&names), size, &marks)
}

/// A value, or the end of the axis nearest to it.
fn within(range: &Range<f64>, value: f64) -> f64 {
    value.clamp(range.start, range.end)
}

/// Room for names of rows, at least and at most, and for one character of them.
const NAMES: (usize, usize) = (150, 320);
const CHARACTER: usize = 7;
/// Most characters of a row's name.
const NAME_MAX: usize = 42;
/// Pixels that a letter of a group's name takes, generously, and those from line to line.
const LETTER: u32 = 6;
const LINE: i32 = 13;

/// Draws into SVG text. Drawing into memory fails only for coordinates that are no numbers, and
/// then the figure is empty.
fn draw_figure(
    axes: &FigureAxes<'_>,
    names: AxisNames<'_>,
    size: PixelSize,
    marks: &[Mark],
) -> String {
    let mut text = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw_on(&root, axes, names, marks).and_then(|()| root.present())
    };
    if drawn.is_err() {
        text.clear();
    }
    text
}

type SvgCanvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_on(
    canvas: &SvgCanvas<'_>,
    axes: &FigureAxes<'_>,
    names: AxisNames<'_>,
    marks: &[Mark],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let (left, right, [x_labels, y_labels]) = match names {
        AxisNames::Numbers => (58, 16, [8, 6]),
        AxisNames::Below(_) => (58, 16, [0, 6]),
        AxisNames::Left(names) => {
            let longest = names.iter().map(|name| name.chars().count().min(NAME_MAX)).max();
            (((longest.unwrap_or(0)) * CHARACTER + 20).clamp(NAMES.0, NAMES.1), 120, [6, 0])
        }
    };
    let label = |h, v| text_style(QUIET, Pos::new(h, v));
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(8)
        .margin_right(right)
        .margin_left(6)
        .margin_bottom(4)
        .x_label_area_size(42)
        .y_label_area_size(left as u32)
        .build_cartesian_2d(axes.x_range.clone(), axes.y_range.clone())?;
    let mut mesh = chart.configure_mesh();
    if y_labels > 0 {
        mesh.disable_x_mesh()
    } else {
        mesh.disable_y_mesh()
    };
    mesh.bold_line_style(GRID.light.stroke_width(1))
        .light_line_style(TRANSPARENT)
        .axis_style(GRID.light.stroke_width(1))
        .x_labels(x_labels)
        .y_labels(y_labels)
        .x_label_formatter(&tick_label)
        .y_label_formatter(&tick_label)
        .x_label_style(label(HPos::Center, VPos::Top))
        .y_label_style(label(HPos::Right, VPos::Center))
        .axis_desc_style(text_style(QUIET, Pos::default()))
        .x_desc(axes.x)
        .y_desc(axes.y)
        .draw()?;
    let pixel = |x: f64, y: f64| chart.backend_coord(&(x, y));
    match names {
        AxisNames::Numbers => {}
        AxisNames::Below(names) => {
            let bottom = axes.y_range.start;
            let room = pixel(1.0, bottom).0 - pixel(0.0, bottom).0;
            let letters = (room.unsigned_abs() / LETTER).max(1) as usize;
            for (place, name) in names.iter().enumerate() {
                let (x, y) = pixel(place as f64 + 0.5, bottom);
                for (number, line) in (0..).zip(wrap_text(name, letters)) {
                    let at = (x, y + 7 + LINE * number);
                    canvas.draw(&Text::new(line, at, label(HPos::Center, VPos::Top)))?;
                }
            }
        }
        AxisNames::Left(names) => {
            for (place, name) in names.iter().enumerate() {
                let (x, y) = pixel(axes.x_range.start, axes.y_range.end - place as f64 - 0.5);
                let style = text_style(INK, Pos::new(HPos::Right, VPos::Center));
                canvas.draw(&Text::new(shorten_name(name), (x - 10, y), style))?;
            }
        }
    }
    for Mark { shape, shade } in marks {
        let colour = shade.light;
        match shape {
            MarkShape::Line(points, width) => {
                let line = PathElement::new(points.clone(), colour.stroke_width(*width));
                chart.draw_series([line])?;
            }
            MarkShape::Area(outline, opacity) => {
                let area = Polygon::new(outline.clone(), colour.mix(*opacity).filled());
                chart.draw_series([area])?;
            }
            MarkShape::Dot(at) => {
                chart.draw_series([Circle::new(*at, 4, colour.filled())])?;
            }
            MarkShape::Note(at, text) => {
                let style = text_style(*shade, Pos::new(HPos::Left, VPos::Center));
                let note = EmptyElement::at(*at) + Text::new(text.clone(), (12, 0), style);
                chart.draw_series([note])?;
            }
        }
    }
    Ok(())
}

/// The style of text in a colour, anchored as given.
fn text_style(shade: ThemeShade, anchor: Pos) -> TextStyle<'static> {
    TextStyle {
        color: shade.light.to_backend_color(),
        ..TextStyle::from(("sans-serif", 12).into_font()).pos(anchor)
    }
}

fn shorten_name(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_MAX - 1).collect();
    format!("{start}…")
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
