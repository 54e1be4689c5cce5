//! Ours beside ns-3: a table of means over seeds, the flows of every run, and queues in one figure.

use comfy_table::Table;

use super::CaseRuns;
use super::case_run::{CaseOutcome, STEP_US};
use super::ns3::Ns3Outcome;
use crate::figure::svg_file::{self, HEAD};
use crate::figure::theme::SERIES;
use crate::figure::{FigureAxes, PixelSize, StepSeries, draw_lines, round_end};
use command_io::output;

/// A panel of the figure.
const PANEL: PixelSize = (440, 200);
const COLUMNS: usize = 2;

/// A run of ours and theirs of the same seed.
type RunPair<'a> = (&'a CaseOutcome, &'a Ns3Outcome);

/// What is compared: its name and its value on either side.
type ComparedValue = (&'static str, fn(&CaseOutcome) -> f64, fn(&Ns3Outcome) -> f64);

const COMPARED: [ComparedValue; 5] = [
    ("last flow, us", CaseOutcome::last_us, Ns3Outcome::last_us),
    ("mean flow, us", CaseOutcome::mean_us, Ns3Outcome::mean_us),
    ("pauses", |run| run.pauses as f64, |run| run.pauses as f64),
    ("paused us", |run| run.paused_us, |run| run.paused_us),
    ("deepest kB", |run| deepest_bytes(run) as f64 / 1e3, |run| run.deepest_bytes as f64 / 1e3),
];

/// All levels of a port together, as theirs are.
fn deepest_bytes(run: &CaseOutcome) -> u64 {
    run.queue_bytes.iter().copied().max().unwrap_or(0)
}

fn pairs(case: &CaseRuns) -> Vec<RunPair<'_>> {
    let theirs = |run: &&CaseOutcome| case.ns3.iter().find(|other| other.seed == run.seed);
    case.runs.iter().filter_map(|run| Some((run, theirs(&run)?))).collect()
}

/// Means over the seeds that both have.
pub(super) fn comparison_table(measured: &[CaseRuns]) -> Table {
    let mut header = vec!["case".to_owned(), "seeds".to_owned()];
    for (name, ..) in COMPARED {
        header.extend([name.to_owned(), "ns-3".to_owned(), "differs".to_owned()]);
    }
    let mut table = output::new_table(header);
    for case in measured {
        let pairs = pairs(case);
        if pairs.is_empty() {
            continue;
        }
        let mut row = vec![case.case.clone(), pairs.len().to_string()];
        for (_, ours, theirs) in COMPARED {
            let count = pairs.len() as f64;
            let mean_ours = pairs.iter().map(|(run, _)| ours(run)).sum::<f64>() / count;
            let mean_theirs = pairs.iter().map(|(_, run)| theirs(run)).sum::<f64>() / count;
            let differs = match mean_theirs == 0.0 {
                true => "-".to_owned(),
                false => format!("{:+.1} %", (mean_ours / mean_theirs - 1.0) * 100.0),
            };
            row.extend([format!("{mean_ours:.1}"), format!("{mean_theirs:.1}"), differs]);
        }
        table.add_row(row);
    }
    table
}

/// Every flow of every run that both have.
pub(super) fn comparison_csv(measured: &[CaseRuns]) -> String {
    let mut text = "case,seed,job,bytes,completion_us,ns3_completion_us,pauses,ns3_pauses,\
                    paused_us,ns3_paused_us,deepest_bytes,ns3_deepest_bytes\n"
        .to_owned();
    for case in measured {
        for (run, other) in pairs(case) {
            for (flow, completion) in run.flows.iter().zip(&other.completion_us) {
                text += &format!(
                    "{},{},{},{},{:.3},{completion:.3},{},{},{:.3},{:.3},{},{}\n",
                    case.case,
                    run.seed,
                    flow.job,
                    flow.bytes,
                    flow.completion_us,
                    run.pauses,
                    other.pauses,
                    run.paused_us,
                    other.paused_us,
                    deepest_bytes(run),
                    other.deepest_bytes
                );
            }
        }
    }
    text
}

/// The deepest queue of the first seed of each case over time, ours and theirs.
pub(super) fn queue_figure(measured: &[CaseRuns]) -> String {
    let drawn: Vec<(&CaseRuns, RunPair<'_>)> =
        measured.iter().filter_map(|case| Some((case, pairs(case).into_iter().next()?))).collect();
    let rows = drawn.len().div_ceil(COLUMNS).max(1) as u32;
    let panels = drawn.iter().enumerate().map(|(place, (case, pair))| {
        let legend = ["crux", "ns-3"].into_iter().zip(SERIES);
        let title = format!("{}: deepest queue", case.case);
        let panel = svg_file::draw_heading(&title, legend)
            + &svg_file::translate_group(0, HEAD, &draw_queues(*pair));
        let (column, row) = ((place % COLUMNS) as u32, (place / COLUMNS) as u32);
        svg_file::translate_group(column * PANEL.0, row * (PANEL.1 + HEAD), &panel)
    });
    let size = (COLUMNS as u32 * PANEL.0, rows * (PANEL.1 + HEAD));
    svg_file::wrap_file(size, &panels.collect::<String>())
}

fn draw_queues((ours, theirs): RunPair<'_>) -> String {
    let steps = ours.queue_bytes.len().max(theirs.queue_bytes.len()).max(1);
    let series = [&ours.queue_bytes, &theirs.queue_bytes].into_iter().zip(SERIES);
    let lines: Vec<StepSeries> = series
        .map(|(bytes, shade)| {
            let mut values: Vec<f64> = bytes.iter().map(|bytes| *bytes as f64 / 1e3).collect();
            values.resize(steps, 0.0);
            StepSeries { values, shade }
        })
        .collect();
    let most = lines.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
    let axes = FigureAxes {
        x: "microseconds",
        y: "kB",
        x_range: 0.0..(steps as u64 * STEP_US) as f64,
        y_range: 0.0..round_end(most),
    };
    draw_lines(&axes, PANEL, &lines)
}
