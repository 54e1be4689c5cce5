//! Figures like those of the papers: the same panels, groups and series, with error bars of our
//! seeds and with the paper's own figures where it prints them.
//!
//! A [`PaperFigure`] says which rows of a reproduction stand where; [`paper_figures`] has one for
//! each experiment whose paper has a figure. The decision: figures are drawn from rows and curves
//! alone, so stored results look like a fresh run, and a reader finds every bar in the table.
//!
//! [`paper_figures`]: super::paper_figures

use serde::Deserialize;

use super::report::{MeasureCurve, MeasureRow, PaperReproduction};
use crate::figure::svg_file::{self, HEAD};
use crate::figure::theme::{INK, QUIET, SERIES, ThemeShade};
use crate::figure::{
    self, FigureAxes, GroupForm, GroupPlot, Mark, PixelSize, SpreadGroup, SpreadValue, WIDE,
    draw_marks, wrap_text,
};
use command_io::html::escape_html;

/// The colour of what the paper says.
pub(super) const PAPER: ThemeShade = SERIES[1];

/// A figure: panels in rows of so many, and a note below.
#[derive(Debug, Deserialize)]
pub(super) struct PaperFigure {
    /// The experiments that repeat it.
    pub(super) experiments: Vec<String>,
    title: String,
    columns: u32,
    #[serde(rename = "panel")]
    panels: Vec<FigurePanel>,
    /// What error bars and marks of the paper are.
    note: String,
}

/// Groups or curves on common axes.
#[derive(Debug, Deserialize)]
struct FigurePanel {
    title: String,
    #[serde(default)]
    form: PanelForm,
    /// What x is, and y.
    #[serde(default)]
    axes: [String; 2],
    /// The part of the reproduction that the rows are in.
    #[serde(default)]
    part: String,
    /// The measure of a row or curve, in which `{group}` and `{series}` stand for their keys.
    measure: String,
    /// Each group as it is labelled, and its key; none for curves.
    #[serde(default)]
    groups: Vec<(String, String)>,
    series: Vec<FigureSeries>,
    /// Where the paper has values by what it says of other values.
    #[serde(default)]
    paper: Vec<RelativeValue>,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum PanelForm {
    /// Rows, by group and series.
    #[default]
    Bars,
    Lines,
    /// Curves by series as far as `x_end`, and where along the axis the paper has a mean.
    Curves {
        x_end: f64,
        y_range: Option<[f64; 2]>,
        paper_mean: Option<f64>,
    },
}

/// One series; its colour by number.
#[derive(Debug, Deserialize)]
struct FigureSeries {
    name: String,
    key: String,
    colour: usize,
}

impl FigureSeries {
    fn shade(&self) -> ThemeShade {
        SERIES[self.colour]
    }
}

/// Where a value is, if the paper gives it in relation to another value.
#[derive(Debug, Deserialize)]
struct RelativeValue {
    at: ValuePlace,
    over: ValuePlace,
    #[serde(flatten)]
    change: PaperChange,
}

/// A value by the keys of its group and its series; every group if that of the group is empty, and
/// of what a value is compared with, its own group.
#[derive(Debug, Deserialize)]
struct ValuePlace {
    group: String,
    series: String,
}

/// How far a value is from another.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PaperChange {
    /// Per cent of the other.
    Percent([f64; 2]),
    /// Added to the other.
    Points([f64; 2]),
}

impl PaperChange {
    /// The least and the most that are so far from `value`.
    fn apply_to(self, value: f64) -> [f64; 2] {
        let [one, other] = match self {
            Self::Percent(changes) => changes.map(|change| value * (1.0 + change / 100.0)),
            Self::Points(changes) => changes.map(|change| value + change),
        };
        [one.min(other), one.max(other)]
    }
}

/// A figure of one reproduction.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawnFigure {
    pub(super) size: PixelSize,
    /// Elements of an SVG file.
    pub(super) body: String,
    /// Parts and measures of the rows that are in it.
    pub(super) rows: Vec<[String; 2]>,
}

impl DrawnFigure {
    pub(super) fn has_row(&self, row: &MeasureRow) -> bool {
        self.rows.iter().any(|[part, measure]| *part == row.part && *measure == row.measure)
    }

    /// Figures under each other, as a file.
    pub(super) fn write_file<'a>(figures: impl Iterator<Item = &'a Self>) -> String {
        let (mut bottom, mut body) = (0, String::new());
        for figure in figures {
            body += &svg_file::translate_group(0, bottom, &figure.body);
            bottom += figure.size.1;
        }
        svg_file::wrap_file((WIDE, bottom), &body)
    }
}

/// Height of a panel, of the line over it, and of a line of the note.
const PANEL: u32 = 250;
const PANEL_TITLE: u32 = 22;
const NOTE_LINE: u32 = 16;

/// Letters in a line of the note.
const NOTE_LETTERS: usize = 130;

impl PaperFigure {
    /// The figure with what was found.
    pub(super) fn draw(&self, found: &PaperReproduction) -> DrawnFigure {
        let panels: Vec<&FigurePanel> =
            self.panels.iter().filter(|panel| panel.is_measured(found)).collect();
        let width = WIDE / self.columns;
        let pitch = PANEL + PANEL_TITLE;
        let mut body = svg_file::draw_heading(&self.title, list_series(&panels).into_iter());
        for (number, panel) in (0..).zip(&panels) {
            let (x, y) = (number % self.columns * width, HEAD + number / self.columns * pitch);
            let title = format!(
                "<text x=\"62\" y=\"15\" fill=\"{}\">{}</text>",
                INK.css_colour(),
                escape_html(&panel.title)
            );
            let plot = svg_file::translate_group(0, PANEL_TITLE, &panel.draw(found, width));
            body += &svg_file::translate_group(x, y, &(title + &plot));
        }
        let bottom = HEAD + (panels.len() as u32).div_ceil(self.columns) * pitch;
        let note = wrap_text(&self.note, NOTE_LETTERS);
        let height = bottom + NOTE_LINE * note.len() as u32 + 12;
        for (line, y) in note.iter().zip((bottom + 14..).step_by(NOTE_LINE as usize)) {
            body += &format!(
                "<text x=\"62\" y=\"{y}\" fill=\"{}\" font-size=\"11\">{}</text>\n",
                QUIET.css_colour(),
                escape_html(line)
            );
        }
        DrawnFigure { size: (WIDE, height), body, rows: self.row_names() }
    }

    fn row_names(&self) -> Vec<[String; 2]> {
        let panels = self.panels.iter();
        panels
            .flat_map(|panel| panel.all_measures().map(|name| [panel.part.clone(), name]))
            .collect()
    }
}

/// Every series once, and the paper.
fn list_series<'a>(panels: &[&'a FigurePanel]) -> Vec<(&'a str, ThemeShade)> {
    let mut entries: Vec<(&str, ThemeShade)> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        let entry = (series.name.as_str(), series.shade());
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.push(("the paper", PAPER));
    entries
}

impl FigurePanel {
    /// Whether there is anything to draw: results that were stored before their curves were have
    /// none.
    fn is_measured(&self, found: &PaperReproduction) -> bool {
        !matches!(self.form, PanelForm::Curves { .. })
            || self.series.iter().any(|series| self.find_curve(found, series).is_some())
    }

    fn find_curve<'a>(
        &self,
        found: &'a PaperReproduction,
        series: &FigureSeries,
    ) -> Option<&'a MeasureCurve> {
        let measure = self.measure_of("", &series.key);
        found.curves.iter().find(|curve| curve.measure == measure)
    }

    fn measure_of(&self, group: &str, series: &str) -> String {
        self.measure.replace("{group}", group).replace("{series}", series)
    }

    fn all_measures(&self) -> impl Iterator<Item = String> + '_ {
        let series = self.series.iter();
        series.flat_map(|series| {
            let groups = self.groups.iter();
            groups.map(|(_, group)| self.measure_of(group, &series.key))
        })
    }

    fn draw(&self, found: &PaperReproduction, width: u32) -> String {
        let size = (width, PANEL);
        match self.form {
            PanelForm::Bars => self.draw_groups(GroupForm::Bars, found, size),
            PanelForm::Lines => self.draw_groups(GroupForm::Lines, found, size),
            PanelForm::Curves { x_end, y_range, paper_mean } => {
                let curves = self
                    .series
                    .iter()
                    .filter_map(|series| Some((self.find_curve(found, series)?, series.shade())));
                let tops = curves.clone().flat_map(|(curve, _)| {
                    let within =
                        curve.x.iter().zip(&curve.ours_range).filter(|(x, _)| **x <= x_end);
                    within.map(|(_, [_, most])| *most)
                });
                let y_range = match y_range {
                    Some([least, most]) => least..most,
                    None => figure::round_range(tops),
                };
                let mut marks = Vec::new();
                for (curve, shade) in curves.collect::<Vec<_>>().into_iter().rev() {
                    marks.extend(curve_marks(curve, shade, x_end));
                }
                let across = |x| Mark::line(vec![(x, y_range.start), (x, y_range.end)], 2, PAPER);
                marks.extend(paper_mean.map(across));
                draw_marks(&self.axes_within(0.0..x_end, y_range), size, &marks)
            }
        }
    }

    fn draw_groups(&self, form: GroupForm, found: &PaperReproduction, size: PixelSize) -> String {
        let groups: Vec<SpreadGroup> = self
            .groups
            .iter()
            .map(|(name, group)| {
                let values = self.series.iter().map(|series| self.find_value(found, group, series));
                SpreadGroup { name: name.clone(), values: values.collect() }
            })
            .collect();
        let values = groups.iter().flat_map(|group| &group.values).flatten();
        let ends = values.flat_map(|value| {
            let reference = value.reference.into_iter().flatten();
            reference.chain(value.range).chain([value.value])
        });
        let y_range = figure::round_range(ends);
        let shades: Vec<ThemeShade> = self.series.iter().map(FigureSeries::shade).collect();
        let plot = GroupPlot { form, groups: &groups, shades: &shades, reference_shade: PAPER };
        plot.draw(&self.axes_within(0.0..1.0, y_range), size)
    }

    fn axes_within(
        &self,
        x_range: std::ops::Range<f64>,
        y_range: std::ops::Range<f64>,
    ) -> FigureAxes<'_> {
        let [x, y] = &self.axes;
        FigureAxes { x, y, x_range, y_range }
    }

    fn find_row<'a>(
        &self,
        found: &'a PaperReproduction,
        group: &str,
        series: &str,
    ) -> Option<&'a MeasureRow> {
        let measure = self.measure_of(group, series);
        found.rows.iter().find(|row| row.part == self.part && row.measure == measure)
    }

    fn find_value(
        &self,
        found: &PaperReproduction,
        group: &str,
        series: &FigureSeries,
    ) -> Option<SpreadValue> {
        let row = self.find_row(found, group, &series.key)?;
        let relative = self.paper.iter().find(|value| {
            value.at.series == series.key && ["", group].contains(&value.at.group.as_str())
        });
        let relative = relative.and_then(|value| {
            let over = if value.over.group.is_empty() { group } else { &value.over.group };
            let over = self.find_row(found, over, &value.over.series)?;
            Some(value.change.apply_to(over.ours))
        });
        let printed = row.paper.map(|paper| [paper; 2]);
        Some(SpreadValue {
            value: row.ours,
            range: row.ours_range,
            reference: printed.or(relative),
        })
    }
}

/// A curve up to `x_end`, over a faint band from its least to its most.
fn curve_marks(curve: &MeasureCurve, shade: ThemeShade, x_end: f64) -> [Mark; 2] {
    let within = curve.x.iter().take_while(|x| **x <= x_end).count();
    let x = &curve.x[..within];
    let end = |end: usize| x.iter().zip(&curve.ours_range).map(move |(x, range)| (*x, range[end]));
    let means = x.iter().copied().zip(curve.ours.iter().copied()).collect();
    [Mark::band(end(0).collect(), end(1), 0.18, shade), Mark::line(means, 2, shade)]
}
