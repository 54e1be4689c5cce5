//! A plot of shares over time, as SVG.
//!
//! Pure. Colours are classes of the page's style sheet, so that a plot is right on light and dark.

use std::fmt::Write;

use ::controller::northbound::utilization::UtilizationSeries;

use crate::commands::local_time::format_time;
use command_io::html::escape_html;

/// Width and height of the drawing.
const SIZE: (f64, f64) = (900.0, 260.0);
/// Where its axes are: left, right, top, bottom.
const AXES: (f64, f64, f64, f64) = (48.0, 890.0, 12.0, 232.0);

/// A moment that a plot marks, with its text.
pub(super) struct PlotMark<'a> {
    pub(super) at_ms: u64,
    pub(super) text: &'a str,
}

/// The measured, planned and ECMP utilisation of some jobs.
pub(super) fn draw_series(
    at_ms: &[u64],
    series: &UtilizationSeries,
    marks: &[PlotMark<'_>],
) -> String {
    let (Some(&from), Some(&to)) = (at_ms.first(), at_ms.last()) else {
        return String::new();
    };
    let scale = TimeScale { from, to: to.max(from + 1) };
    let mut svg = format!("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", SIZE.0, SIZE.1);
    svg += &draw_axes(scale);
    for mark in marks.iter().filter(|mark| (from..=to).contains(&mark.at_ms)) {
        let (x, text) = (scale.x(mark.at_ms), escape_html(mark.text));
        let (top, bottom) = (AXES.2, AXES.3);
        let _ = writeln!(
            svg,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\">\
             <title>{text}</title></line>"
        );
    }
    let times = at_ms.get(series.first..).unwrap_or_default();
    for (name, values) in
        [("ecmp", &series.ecmp), ("planned", &series.forecast), ("measured", &series.measured)]
    {
        let path = draw_path(scale, times, values);
        let _ = writeln!(svg, "<path class=\"{name}\" d=\"{path}\"/>");
    }
    svg + "</svg>\n"
}

/// The time that a plot shows, milliseconds of Unix time.
#[derive(Clone, Copy)]
struct TimeScale {
    from: u64,
    to: u64,
}

impl TimeScale {
    fn x(self, at_ms: u64) -> f64 {
        let share = at_ms.saturating_sub(self.from) as f64 / (self.to - self.from) as f64;
        AXES.0 + share * (AXES.1 - AXES.0)
    }
}

fn share_y(share: f64) -> f64 {
    AXES.3 - share * (AXES.3 - AXES.2)
}

fn draw_axes(scale: TimeScale) -> String {
    let mut svg = String::new();
    for percent in [0_u8, 25, 50, 75, 100] {
        let y = share_y(f64::from(percent) / 100.0);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            AXES.0,
            AXES.1,
            AXES.0 - 6.0,
            y + 4.0
        );
    }
    for (at_ms, anchor) in [(scale.from, "start"), (scale.to, "end")] {
        let (x, time) = (scale.x(at_ms), format_time(at_ms));
        let _ =
            writeln!(svg, "<text x=\"{x:.1}\" y=\"252\" text-anchor=\"{anchor}\">{time}</text>");
    }
    svg
}

/// A path through the values that are known; a lone one is a short stroke.
fn draw_path(scale: TimeScale, times: &[u64], values: &[Option<f64>]) -> String {
    let mut path = String::new();
    let mut before = None;
    for (at_ms, value) in times.iter().zip(values) {
        if let Some(value) = value {
            let command = if before.is_some() { 'L' } else { 'M' };
            let _ = write!(path, "{command}{:.1} {:.1}h0.5", scale.x(*at_ms), share_y(*value));
        }
        before = *value;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_gaps_and_shares_are_to_scale() {
        let scale = TimeScale { from: 1_000, to: 3_000 };
        let path = draw_path(scale, &[1_000, 2_000, 3_000], &[Some(0.0), None, Some(1.0)]);
        assert_eq!(path, "M48.0 232.0h0.5M890.0 12.0h0.5");
        let path = draw_path(scale, &[1_000, 2_000], &[Some(0.5), Some(0.5)]);
        assert_eq!(path, "M48.0 122.0h0.5L469.0 122.0h0.5");
    }

    #[test]
    fn marks_outside_the_time_are_left_out_and_names_are_text() {
        let series = UtilizationSeries { measured: vec![Some(0.5)], ..Default::default() };
        let marks = [PlotMark { at_ms: 5, text: "<job>" }, PlotMark { at_ms: 1_000, text: "late" }];
        let svg = draw_series(&[5, 10], &series, &marks);
        assert!(svg.contains("<title>&lt;job&gt;</title>") && !svg.contains("late"), "{svg}");
        assert_eq!(draw_series(&[], &series, &marks), "");
    }
}
