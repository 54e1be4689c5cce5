//! Values along an axis: lines, areas stacked on each other, and curves through points.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::{GRID, QUIET, ThemeShade};
use super::{FigureAxes, PixelSize, SvgCanvas, draw_svg, step_points, text_style, tick_label};

/// Values in equal steps of x: a line of its own, or what it adds to a stack.
#[derive(Clone, Debug)]
pub(crate) struct StepSeries {
    pub(crate) values: Vec<f64>,
    pub(crate) shade: ThemeShade,
}

/// Points in the order in which a curve goes through them.
#[derive(Clone, Debug)]
pub(crate) struct PointCurve {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) shade: ThemeShade,
}

/// A curve of means with the least and the most around it.
#[derive(Clone, Debug)]
pub(crate) struct SpreadCurve {
    /// x, and the mean there.
    pub(crate) means: Vec<(f64, f64)>,
    /// The least and the most at each x, in the same order.
    pub(crate) ranges: Vec<[f64; 2]>,
    pub(crate) shade: ThemeShade,
}

pub(super) type SeriesChart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Lines, the first on top.
pub(crate) fn draw_lines(axes: &FigureAxes<'_>, size: PixelSize, lines: &[StepSeries]) -> String {
    draw_svg(size, |canvas| {
        let mut chart = build_chart(canvas, axes)?;
        for line in lines.iter().rev() {
            let points = step_points(&axes.x_range, &line.values);
            chart.draw_series(LineSeries::new(points, line.shade.light.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Curves with a dot at each point, the first on top.
pub(crate) fn draw_curves(axes: &FigureAxes<'_>, size: PixelSize, curves: &[PointCurve]) -> String {
    draw_svg(size, |canvas| {
        let mut chart = build_chart(canvas, axes)?;
        for PointCurve { points, shade } in curves.iter().rev() {
            let color = shade.light;
            chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
            let dots = points.iter();
            chart.draw_series(dots.map(|at| Circle::new(*at, 4, color.filled())))?;
        }
        Ok(())
    })
}

/// Curves without dots, each over a faint band from its least to its most, the first on top; and
/// lines across the figure at some x.
pub(crate) fn draw_spread_curves(
    axes: &FigureAxes<'_>,
    size: PixelSize,
    curves: &[SpreadCurve],
    marks: &[(f64, ThemeShade)],
) -> String {
    draw_svg(size, |canvas| {
        let mut chart = build_chart(canvas, axes)?;
        for SpreadCurve { means, ranges, shade } in curves.iter().rev() {
            let band = |end: usize| means.iter().zip(ranges).map(move |((x, _), at)| (*x, at[end]));
            let outline: Vec<_> = band(0).chain(band(1).rev()).collect();
            chart.draw_series([Polygon::new(outline, shade.light.mix(0.18).filled())])?;
            chart.draw_series(LineSeries::new(means.clone(), shade.light.stroke_width(2)))?;
        }
        for (x, shade) in marks {
            let line = vec![(*x, axes.y_range.start), (*x, axes.y_range.end)];
            chart.draw_series([PathElement::new(line, shade.light.stroke_width(2))])?;
        }
        Ok(())
    })
}

/// Layers on each other, the first at the bottom, and lines over them.
pub(crate) fn draw_stacked(
    axes: &FigureAxes<'_>,
    size: PixelSize,
    layers: &[StepSeries],
    over: &[StepSeries],
) -> String {
    draw_svg(size, |canvas| {
        let mut chart = build_chart(canvas, axes)?;
        let bins = layers.iter().map(|layer| layer.values.len()).max();
        let mut floor = vec![0.0; bins.unwrap_or(0)];
        for layer in layers {
            let sums = floor.iter().zip(&layer.values).map(|(a, b)| a + b);
            let top: Vec<f64> = sums.collect();
            if layer.values.iter().any(|value| *value > 0.0) {
                let (above, below) =
                    (step_points(&axes.x_range, &top), step_points(&axes.x_range, &floor));
                let outline: Vec<_> = above.into_iter().chain(below.into_iter().rev()).collect();
                chart.draw_series([Polygon::new(outline, layer.shade.light.filled())])?;
            }
            floor = top;
        }
        for line in over {
            let points = step_points(&axes.x_range, &line.values);
            chart.draw_series(LineSeries::new(points, line.shade.light.stroke_width(1)))?;
        }
        Ok(())
    })
}

fn build_chart<'a, 'b>(
    canvas: &'a SvgCanvas<'b>,
    axes: &FigureAxes<'_>,
) -> Result<SeriesChart<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
    build_labelled_chart(canvas, axes, 8)
}

/// A chart with about so many numbers on its x axis.
pub(super) fn build_labelled_chart<'a, 'b>(
    canvas: &'a SvgCanvas<'b>,
    axes: &FigureAxes<'_>,
    x_labels: usize,
) -> Result<SeriesChart<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
    let label = |h, v| text_style(QUIET.light, Pos::new(h, v));
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(8)
        .margin_right(16)
        .margin_left(6)
        .margin_bottom(4)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(axes.x_range.clone(), axes.y_range.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID.light.stroke_width(1))
        .light_line_style(TRANSPARENT)
        .axis_style(GRID.light.stroke_width(1))
        .x_labels(x_labels)
        .y_labels(6)
        .x_label_formatter(&tick_label)
        .y_label_formatter(&tick_label)
        .x_label_style(label(HPos::Center, VPos::Top))
        .y_label_style(label(HPos::Right, VPos::Center))
        .axis_desc_style(TextStyle {
            color: QUIET.light.to_backend_color(),
            ..TextStyle::from(("sans-serif", 12).into_font())
        })
        .x_desc(axes.x)
        .y_desc(axes.y)
        .draw()?;
    Ok(chart)
}
