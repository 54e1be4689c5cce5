//! Rows: a name at the left, and a bar or dots at their values. For things that have names, with
//! as many rows as there are names.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::{GRID, INK, QUIET, ThemeShade};
use super::{DrawResult, FigureAxes, SvgCanvas, WIDE, draw_svg, text_style, tick_label};

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct FigureRow {
    /// Its name.
    pub(crate) name: String,
    /// Values with their colours; a bar shows the first.
    pub(crate) values: Vec<(f64, ThemeShade)>,
    /// Text behind the bar.
    pub(crate) note: String,
}

/// Room for names, at least and at most, and for one character of them.
const LEFT: (i32, i32) = (150, 320);
const CHARACTER: i32 = 7;
const RIGHT: i32 = 120;
const BOTTOM: i32 = 44;
const TOP: i32 = 8;
/// Pixels from bar to bar.
const BAR_PITCH: i32 = 32;

/// A bar for each row, from the left end of the axis.
pub(crate) fn draw_bars(axes: &FigureAxes<'_>, rows: &[FigureRow]) -> String {
    let sheet = RowLayout { axes, rows, pitch: BAR_PITCH };
    sheet.draw_rows(|canvas, row, middle| {
        let Some((value, shade)) = row.values.first() else {
            return Ok(());
        };
        let end = sheet.pixel_x(*value);
        let bar = [(sheet.axis_left(), middle - 9), (end, middle + 9)];
        canvas.draw(&Rectangle::new(bar, shade.light.filled()))?;
        let style = text_style(INK.light, Pos::new(HPos::Left, VPos::Center));
        canvas.draw(&Text::new(row.note.clone(), (end + 8, middle), style))
    })
}

/// Pixels from dot to dot of one row.
const FAN: i32 = 2;

/// Dots for each row, joined by a thin line.
pub(crate) fn draw_dots(axes: &FigureAxes<'_>, rows: &[FigureRow]) -> String {
    let sheet = RowLayout { axes, rows, pitch: 28 };
    sheet.draw_rows(|canvas, row, middle| {
        let places = row.values.iter().map(|(value, _)| sheet.pixel_x(*value));
        let (Some(first), Some(last)) = (places.clone().min(), places.max()) else {
            return Ok(());
        };
        let thread = vec![(first, middle), (last, middle)];
        canvas.draw(&PathElement::new(thread, GRID.light.stroke_width(3)))?;
        // Equal values lie a little above each other; the first matters most and is drawn last.
        let half = FAN * (row.values.len() as i32 - 1) / 2;
        for (place, (value, shade)) in row.values.iter().enumerate().rev() {
            let at = (sheet.pixel_x(*value), middle + half - FAN * place as i32);
            canvas.draw(&Circle::new(at, 4, shade.light.filled()))?;
        }
        let style = text_style(QUIET.light, Pos::new(HPos::Left, VPos::Center));
        canvas.draw(&Text::new(row.note.clone(), (last + 12, middle), style))
    })
}

/// Rows on their axis.
struct RowLayout<'a> {
    axes: &'a FigureAxes<'a>,
    rows: &'a [FigureRow],
    /// Pixels from row to row.
    pitch: i32,
}

/// Lines of the grid over the axis.
const TICKS: i32 = 5;

impl RowLayout<'_> {
    fn axis_bottom(&self) -> i32 {
        TOP + self.pitch * self.rows.len() as i32
    }

    /// Where the axis begins, right of the names.
    fn axis_left(&self) -> i32 {
        let names = self.rows.iter().map(|row| shorten_name(&row.name).chars().count());
        let longest = names.max().unwrap_or(0) as i32;
        (longest * CHARACTER + 20).clamp(LEFT.0, LEFT.1)
    }

    /// The pixel of a value; what is off the axis is at its end.
    fn pixel_x(&self, value: f64) -> i32 {
        let range = &self.axes.x_range;
        let share = (value - range.start) / (range.end - range.start);
        let span = f64::from(WIDE as i32 - self.axis_left() - RIGHT);
        self.axis_left() + (share.clamp(0.0, 1.0) * span).round() as i32
    }

    fn draw_rows(&self, mark: impl Fn(&SvgCanvas<'_>, &FigureRow, i32) -> DrawResult) -> String {
        let height = (self.axis_bottom() + BOTTOM).unsigned_abs();
        draw_svg((WIDE, height), |canvas| {
            self.draw_grid(canvas)?;
            for (index, row) in (0..).zip(self.rows) {
                let middle = TOP + self.pitch * index + self.pitch / 2;
                let style = text_style(INK.light, Pos::new(HPos::Right, VPos::Center));
                canvas.draw(&Text::new(
                    shorten_name(&row.name),
                    (self.axis_left() - 10, middle),
                    style,
                ))?;
                mark(canvas, row, middle)?;
            }
            Ok(())
        })
    }

    fn draw_grid(&self, canvas: &SvgCanvas<'_>) -> DrawResult {
        let range = &self.axes.x_range;
        let style = text_style(QUIET.light, Pos::new(HPos::Center, VPos::Top));
        for index in 0..=TICKS {
            let share = f64::from(index) / f64::from(TICKS);
            let value = range.start + share * (range.end - range.start);
            let x = self.pixel_x(value);
            let line = vec![(x, TOP), (x, self.axis_bottom())];
            canvas.draw(&PathElement::new(line, GRID.light.stroke_width(1)))?;
            let label = Text::new(tick_label(&value), (x, self.axis_bottom() + 6), style.clone());
            canvas.draw(&label)?;
        }
        let middle = (self.axis_left() + WIDE as i32 - RIGHT) / 2;
        canvas.draw(&Text::new(self.axes.x.to_owned(), (middle, self.axis_bottom() + 24), style))
    }
}

/// Most characters of a row's name.
const NAME_MAX: usize = 42;

fn shorten_name(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_MAX - 1).collect();
    format!("{start}…")
}
