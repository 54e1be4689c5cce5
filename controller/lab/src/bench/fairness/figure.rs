//! Utilisation against the worst job's slowdown: a curve for each planner, a dot for each weight.

use std::ops::Range;

use simulator::decisions::FairnessPoint;

use super::{PLANNERS, planner_name};
use crate::figure::svg_file::{self, HEAD};
use crate::figure::theme::SERIES;
use crate::figure::{FigureAxes, Mark, PixelSize, draw_marks};

const PLOT: PixelSize = (560, 320);

/// The figure.
pub(super) fn draw_fairness(points: &[FairnessPoint]) -> String {
    let axes = FigureAxes {
        x: "slowdown of the worst job, mean over cases",
        y: "GPU utilisation, %",
        x_range: rounded_range(points.iter().map(|point| point.worst_slowdown_mean), 0.1),
        y_range: rounded_range(points.iter().map(|point| point.utilization * 100.0), 1.0),
    };
    let mut marks = Vec::new();
    for (planner, shade) in PLANNERS.iter().zip(&SERIES[..PLANNERS.len()]).rev() {
        let points = points.iter().filter(|point| point.planner == *planner);
        let points = points.map(|point| (point.worst_slowdown_mean, point.utilization * 100.0));
        let points: Vec<_> = points.collect();
        marks.push(Mark::line(points.clone(), 2, *shade));
        marks.extend(points.into_iter().map(|at| Mark::dot(at, *shade)));
    }
    let legend = PLANNERS.into_iter().map(planner_name).zip(SERIES);
    let head = svg_file::draw_heading("fairness: each dot a weight, 0 at the top right", legend);
    let plot = svg_file::translate_group(0, HEAD, &draw_marks(&axes, PLOT, &marks));
    svg_file::wrap_file((PLOT.0, PLOT.1 + HEAD), &(head + &plot))
}

/// The least range between whole `steps` that has room for all values.
fn rounded_range(values: impl Iterator<Item = f64>, step: f64) -> Range<f64> {
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    (least / step).floor() * step..(most / step).floor() * step + step
}
