//! The frame: four panes, all of them where the terminal is large enough, else the selected one.
//!
//! Pure: a snapshot and the screen state go in, a frame comes out. A pane is a table whose rows are
//! built and sorted here.

use std::cmp::Ordering;

use ::controller::event_log::OperatorEvent;
use ::controller::northbound::controller_view::{LinkRow, SwitchRow};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Row, Table};
use topology::Severity;
use topology::count_noun;

use super::controller_poller::{TopSnapshot, UsedJob};
use super::screen::{PANES, PaneView, ScreenState, TopPane};
use crate::commands::local_time::format_clock_time;

/// Columns and rows from which all panes are shown.
const ROOM: (u16, u16) = (100, 22);

/// Cells of the bar of a load.
const BAR: usize = 6;

/// The headings of a pane; it can be sorted by each.
pub(super) fn pane_headings(pane: TopPane) -> &'static [&'static str] {
    match pane {
        TopPane::Jobs => &["rank", "job", "level", "TFLOP/s", "GPUs", "use %", "ECMP"],
        TopPane::Links => &["load", "link", "state", "counted", "", "jobs"],
        TopPane::Switches => &["switch", "state", "mastership", "holds", "drifted"],
        TopPane::Events => &["number", "time", "event"],
    }
}

/// How many rows a pane has.
pub(super) fn row_count(known: &TopSnapshot, pane: TopPane) -> usize {
    match pane {
        TopPane::Jobs => known.jobs.len(),
        TopPane::Links => known.links.len(),
        TopPane::Switches => known.switches.len(),
        TopPane::Events => known.events.len(),
    }
}

/// Draws everything.
pub(super) fn draw_screen(frame: &mut Frame<'_>, known: &TopSnapshot, screen: &ScreenState) {
    let lines = if known.findings.is_empty() { 2 } else { 3 };
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(lines), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    let head_lines = [Some(title_line(known)), Some(worth_line(known)), finding_line(known)];
    frame.render_widget(Text::from_iter(head_lines.into_iter().flatten()), head);
    frame.render_widget(key_help(), foot);
    let is_wide = body.width >= ROOM.0 && body.height >= ROOM.1;
    if !is_wide {
        return draw_pane(frame, body, known, screen, screen.pane);
    }
    let halves = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).split(body);
    // Names of links and texts of events are longer than anything beside them.
    let shares = [Constraint::Fill(9), Constraint::Fill(11)];
    let quarters = halves.iter().flat_map(|half| {
        let sides = Layout::horizontal(shares).split(*half);
        [sides[0], sides[1]]
    });
    for (area, pane) in quarters.zip(PANES) {
        draw_pane(frame, area, known, screen, pane);
    }
}

fn title_line(known: &TopSnapshot) -> Line<'_> {
    let holding = known
        .switches
        .iter()
        .filter_map(|row| row.verified_generation)
        .max()
        .map_or_else(String::new, |latest| {
            let count =
                known.switches.iter().filter(|row| row.verified_generation == Some(latest)).count();
            format!(", {count} of {} switches hold generation {latest}", known.switches.len())
        });
    match &known.trouble {
        Some(trouble) => Line::styled(trouble.as_str(), Style::new().fg(Color::Red)),
        None => Line::from(format!(
            "crux: {}, {}{holding}",
            count_noun(known.jobs.len(), "job"),
            count_noun(known.links.len(), "link"),
        )),
    }
}

/// What the plan is worth now.
fn worth_line(known: &TopSnapshot) -> Line<'static> {
    let [measured, planned, ecmp] = known.worth.total.latest_values().map(percent_text);
    Line::from(format!("GPU use: measured {measured}, planned {planned}, under ECMP {ecmp}"))
}

/// The worst finding, and how many there are.
fn finding_line(known: &TopSnapshot) -> Option<Line<'static>> {
    let worst = known.findings.iter().min_by_key(|found| severity_rank(found.severity))?;
    let more = match known.findings.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more: crux doctor)"),
    };
    let text = format!("{}: {}: {}{more}", worst.severity, worst.about, worst.text);
    Some(Line::styled(text, severity_style(worst.severity)))
}

/// The worst first.
fn severity_rank(severity: Severity) -> u8 {
    match severity {
        Severity::Error => 0,
        Severity::Warning => 1,
        Severity::Info => 2,
    }
}

fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Error => Style::new().fg(Color::Red),
        Severity::Warning => Style::new().fg(Color::Yellow),
        Severity::Info => Style::new(),
    }
}

fn percent_text(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

fn key_help() -> Line<'static> {
    let text = "Tab pane  s sort  r reverse  up/down scroll  q quit";
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn draw_pane(
    frame: &mut Frame<'_>,
    area: Rect,
    known: &TopSnapshot,
    screen: &ScreenState,
    pane: TopPane,
) {
    let way = screen.pane_view(pane);
    let shown = usize::from(area.height.saturating_sub(3));
    let rows = match pane {
        TopPane::Jobs => table_rows(&known.jobs, way, shown, compare_jobs, job_row),
        TopPane::Links => table_rows(&known.links, way, shown, compare_links, link_row),
        TopPane::Switches => table_rows(&known.switches, way, shown, compare_switches, switch_row),
        TopPane::Events => table_rows(&known.events, way, shown, compare_events, event_row),
    };
    let sorted = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let names =
        pane_headings(pane).iter().enumerate().map(|(column, name)| match column == way.column {
            true => Line::styled(*name, sorted),
            false => Line::from(*name),
        });
    let name = format!(" {} {} ", pane as usize + 1, pane.name());
    let block = Block::bordered().title(name);
    let block = match pane == screen.pane {
        true => block.border_style(Style::new().fg(Color::Cyan)),
        false => block.border_style(Style::new().add_modifier(Modifier::DIM)),
    };
    let table = Table::new(rows, column_widths(pane)).header(Row::new(names)).block(block);
    frame.render_widget(table, area);
}

fn column_widths(pane: TopPane) -> Vec<Constraint> {
    use Constraint::{Fill, Length};
    match pane {
        TopPane::Jobs => {
            vec![Length(4), Fill(1), Length(6), Length(9), Length(5), Length(6), Length(5)]
        }
        TopPane::Links => {
            vec![Length(6), Fill(3), Length(7), Length(7), Length(BAR as u16), Fill(1)]
        }
        TopPane::Switches => vec![Fill(1), Length(8), Length(12), Length(6), Length(7)],
        TopPane::Events => vec![Length(6), Length(8), Fill(1)],
    }
}

/// The visible rows, in order.
fn table_rows<T>(
    items: &[T],
    way: PaneView,
    shown: usize,
    compare: fn(&T, &T, usize) -> Ordering,
    row: fn(&T) -> Row<'static>,
) -> Vec<Row<'static>> {
    let mut order: Vec<&T> = items.iter().collect();
    order.sort_by(|a, b| compare(a, b, way.column));
    if way.is_turned {
        order.reverse();
    }
    order.into_iter().skip(way.top).take(shown).map(row).collect()
}

fn compare_jobs(a: &UsedJob, b: &UsedJob, column: usize) -> Ordering {
    let (used, ecmp) = (b.used().total_cmp(&a.used()), b.ecmp().total_cmp(&a.ecmp()));
    let (a, b) = (&a.row, &b.row);
    let by = match column {
        1 => a.id.cmp(&b.id),
        2 => b.level.cmp(&a.level),
        3 => b.intensity.total_cmp(&a.intensity),
        4 => b.gpus.cmp(&a.gpus),
        5 => used,
        6 => ecmp,
        _ => Ordering::Equal,
    };
    by.then(a.rank.cmp(&b.rank))
}

fn compare_links(a: &LinkRow, b: &LinkRow, column: usize) -> Ordering {
    let by = match column {
        1 => Ordering::Equal,
        2 => a.state.cmp(&b.state),
        3 => measured_load(b).total_cmp(&measured_load(a)),
        5 => b.jobs.len().cmp(&a.jobs.len()),
        _ => b.load.total_cmp(&a.load),
    };
    by.then_with(|| a.link.cmp(&b.link))
}

/// The measured load of a link; unmeasured links sort last.
fn measured_load(link: &LinkRow) -> f64 {
    link.measured.unwrap_or(-1.0)
}

fn compare_switches(a: &SwitchRow, b: &SwitchRow, column: usize) -> Ordering {
    let by = match column {
        1 => a.state.cmp(&b.state),
        2 => a.mastership.cmp(&b.mastership),
        3 => a.verified_generation.cmp(&b.verified_generation),
        4 => b.entries_drifted.cmp(&a.entries_drifted),
        _ => Ordering::Equal,
    };
    by.then_with(|| a.name.cmp(&b.name))
}

/// The latest first, or by text.
fn compare_events(a: &OperatorEvent, b: &OperatorEvent, column: usize) -> Ordering {
    let by = match column {
        2 => a.text.cmp(&b.text),
        _ => Ordering::Equal,
    };
    by.then(b.sequence.cmp(&a.sequence))
}

fn job_row(job: &UsedJob) -> Row<'static> {
    let [measured, planned, ecmp] = job.utilization;
    let UsedJob { row: job, .. } = job;
    // A forecast stands where nothing is measured, and says so.
    let used = match (measured, planned) {
        (Some(measured), _) => format!("{:.1}", 100.0 * measured),
        (None, Some(planned)) => format!("~{:.1}", 100.0 * planned),
        (None, None) => "-".to_owned(),
    };
    let mark = if job.profiled { "*" } else { "" };
    Row::new([
        job.rank.to_string(),
        job.id.clone(),
        format!("{}{mark}", job.level),
        format!("{:.1}", job.intensity / 1e12),
        job.gpus.to_string(),
        used,
        ecmp.map_or_else(|| "-".to_owned(), |ecmp| format!("{:.1}", 100.0 * ecmp)),
    ])
}

fn link_row(link: &LinkRow) -> Row<'static> {
    // A bar has BAR cells at most, whatever the load.
    let cells = ((link.load * BAR as f64).round() as usize).min(BAR);
    let colour = match link.load {
        load if load > 1.0 => Color::Magenta,
        load if load > 0.8 => Color::Red,
        load if load > 0.4 => Color::Yellow,
        _ => Color::Blue,
    };
    let bar = Line::styled("█".repeat(cells), Style::new().fg(colour));
    let counted = { link.measured }.map_or_else(|| "-".to_owned(), |load| format!("{load:.3}"));
    Row::new([
        Line::from(format!("{:.3}", link.load)),
        Line::from(link.link.clone()),
        Line::styled(link.state.clone(), state_style(&link.state)),
        Line::from(counted),
        bar,
        Line::from(link.jobs.join(", ")),
    ])
}

fn switch_row(row: &SwitchRow) -> Row<'static> {
    let verified = row.verified_generation.map_or_else(|| "-".to_owned(), |held| held.to_string());
    Row::new([
        Line::from(row.name.clone()),
        Line::styled(row.state.clone(), state_style(&row.state)),
        Line::from(row.mastership.clone()),
        Line::from(verified),
        Line::from(row.entries_drifted.to_string()),
    ])
}

fn event_row(event: &OperatorEvent) -> Row<'static> {
    let style = severity_style(event.severity);
    Row::new([
        Line::from(event.sequence.to_string()),
        Line::from(format_clock_time(event.at_ms)),
        Line::styled(event.text.clone(), style),
    ])
}

fn state_style(state: &str) -> Style {
    match state {
        "up" => Style::new().fg(Color::Green),
        "down" => Style::new().fg(Color::Red),
        _ => Style::new().fg(Color::Yellow),
    }
}
