//! The formats of traces: their columns, and what a row of each means.
//!
//! | format | columns that it is known by | what is taken from it |
//! |---|---|---|
//! | Philly | timestamp, duration, num_gpus, cluster | seconds; the virtual cluster is the tenant |
//! | Muri | job_id, num_gpu, submit_time, duration, model_name | milliseconds |
//! | Lingjun | job_name, gmt_job_submitted, gmt_job_running, gmt_job_finished | `job.csv`, dates |
//! | plain | submitted_seconds, gpus, duration_seconds or iterations | our own |
//!
//! Columns are found by name, in any order; others are ignored.

use super::rows::Fields;
use super::{Length, SkipReason, TraceJob, Workers, date};

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Microsoft Philly, as one CSV (msr-fiddle/philly-traces).
    Philly,
    /// The traces of Muri (SIGCOMM'22): Philly's jobs, with models drawn at random.
    Muri,
    /// `job.csv` of the Alibaba Lingjun data set of 2023, with its `worker.csv`.
    Lingjun,
    /// Our own: `submitted_seconds,gpus` and `duration_seconds` or `iterations`; `id`, `model` and
    /// `tenant` may be there.
    Plain,
}

/// A column, and whether a file without it is of another format.
#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    required: bool,
}

const fn required(name: &'static str) -> Column {
    Column {
        name,
        required: true,
    }
}

const fn optional(name: &'static str) -> Column {
    Column {
        name,
        required: false,
    }
}

const PHILLY: [Column; 4] = [
    required("timestamp"),
    required("duration"),
    required("num_gpus"),
    required("cluster"),
];
const MURI: [Column; 5] = [
    required("job_id"),
    required("num_gpu"),
    required("submit_time"),
    required("duration"),
    required("model_name"),
];
const LINGJUN: [Column; 7] = [
    required("job_name"),
    required("gmt_job_submitted"),
    required("gmt_job_running"),
    required("gmt_job_finished"),
    optional("gmt_job_stopped"),
    optional("model"),
    optional("uid"),
];
const PLAIN: [Column; 7] = [
    required("submitted_seconds"),
    required("gpus"),
    optional("duration_seconds"),
    optional("iterations"),
    optional("id"),
    optional("model"),
    optional("tenant"),
];

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Philly, Self::Muri, Self::Lingjun, Self::Plain];

    fn columns(self) -> &'static [Column] {
        match self {
            Self::Philly => &PHILLY,
            Self::Muri => &MURI,
            Self::Lingjun => &LINGJUN,
            Self::Plain => &PLAIN,
        }
    }

    /// The columns that a file of this format has, for messages.
    pub(super) fn header(self) -> String {
        let needed = self.columns().iter().filter(|column| column.required);
        let names: Vec<&str> = needed.map(|column| column.name).collect();
        match self {
            Self::Plain => names.join(",") + ",duration_seconds|iterations",
            _ => names.join(","),
        }
    }

    /// Where this format's columns are under `header`, in the order of its table; none if one that
    /// it needs is missing.
    pub(super) fn positions(self, header: &Fields) -> Option<Vec<Option<usize>>> {
        let position = |column: &Column| header.iter().position(|name| name == column.name);
        let positions: Vec<Option<usize>> = self.columns().iter().map(position).collect();
        let columns = self.columns().iter().zip(&positions);
        let complete = columns
            .into_iter()
            .all(|(column, position)| position.is_some() || !column.required);
        // A plain trace needs one of its two lengths.
        let measured = self != Self::Plain || positions[2].is_some() || positions[3].is_some();
        (complete && measured).then_some(positions)
    }

    /// What a reader of results should know of such a trace.
    pub(super) fn notes(self) -> Vec<String> {
        let notes: &[&str] = match self {
            Self::Philly => &["the trace names no models; they are drawn from a mix"],
            Self::Muri => &[
                "arrivals, GPUs and durations are Philly's; its model names were drawn at random \
                 by the authors of the trace",
            ],
            Self::Lingjun => &["times are whole minutes; GPUs are the sum over a job's workers"],
            Self::Plain => &[],
        };
        notes.iter().map(|note| (*note).to_owned()).collect()
    }

    /// The job that a row means; `line` names it where the trace does not.
    pub(super) fn job(self, row: &Row<'_>, line: u64) -> Result<TraceJob, SkipReason> {
        match self {
            Self::Philly => row.philly(line),
            Self::Muri => row.muri(),
            Self::Lingjun => row.lingjun(),
            Self::Plain => row.plain(line),
        }
    }
}

/// A row under its header.
pub(super) struct Row<'a> {
    pub(super) fields: &'a Fields,
    pub(super) positions: &'a [Option<usize>],
    pub(super) workers: &'a Workers,
}

impl Row<'_> {
    fn philly(&self, line: u64) -> Result<TraceJob, SkipReason> {
        Ok(TraceJob {
            id: line.to_string(),
            submitted_seconds: instant(self.text(0))?,
            length: Length::Seconds(span(self.text(1), 1.0)?),
            gpus: gpus(self.text(2))?,
            model: None,
            tenant: self.named(3),
        })
    }

    fn muri(&self) -> Result<TraceJob, SkipReason> {
        const MILLISECOND: f64 = 1e-3;
        Ok(TraceJob {
            id: self.text(0).to_owned(),
            gpus: gpus(self.text(1))?,
            submitted_seconds: time(self.text(2), MILLISECOND)?,
            length: Length::Seconds(span(self.text(3), MILLISECOND)?),
            model: self.named(4),
            tenant: None,
        })
    }

    fn lingjun(&self) -> Result<TraceJob, SkipReason> {
        let submitted_seconds = instant(self.text(1))?;
        if absent(self.text(2)) {
            return Err(SkipReason::NeverRan);
        }
        let began = instant(self.text(2))?;
        let ends = [self.text(3), self.text(4)];
        let end = ends.into_iter().find(|text| !absent(text));
        let ended = instant(end.ok_or(SkipReason::StillRunning)?)?;
        if began < submitted_seconds || ended < began {
            return Err(SkipReason::Backwards);
        }
        Ok(TraceJob {
            id: self.text(0).to_owned(),
            submitted_seconds,
            length: Length::Seconds(within_reason(ended - began)?),
            gpus: self.workers.gpus(self.text(0))?,
            model: self.named(5),
            tenant: self.named(6),
        })
    }

    fn plain(&self, line: u64) -> Result<TraceJob, SkipReason> {
        let length = match self.text(3) {
            "" => Length::Seconds(span(self.text(2), 1.0)?),
            iterations => Length::Iterations(count(iterations)?),
        };
        Ok(TraceJob {
            id: self.named(4).unwrap_or_else(|| line.to_string()),
            submitted_seconds: time(self.text(0), 1.0)?,
            gpus: gpus(self.text(1))?,
            length,
            model: self.named(5),
            tenant: self.named(6),
        })
    }

    /// The value in the format's `column`; empty if the file has no such column.
    fn text(&self, column: usize) -> &str {
        self.positions[column].map_or("", |position| self.fields.get(position))
    }

    fn named(&self, column: usize) -> Option<String> {
        Some(self.text(column))
            .filter(|text| !absent(text))
            .map(str::to_owned)
    }
}

/// Beyond this time (a hundred years) a unit was mistaken.
const MAX_SECONDS: f64 = 100.0 * 365.25 * 86_400.0;

/// Beyond this many GPUs of one job a column was mistaken.
const MAX_GPUS: u32 = 1_000_000;

/// How data sets write that a value is missing.
fn absent(text: &str) -> bool {
    ["", "null", "NULL", "None", "nan", "NaN", "\\N", "-"].contains(&text)
}

fn instant(text: &str) -> Result<f64, SkipReason> {
    date::seconds(text).ok_or(SkipReason::Date)
}

/// A time on a clock that starts at zero, in seconds.
fn time(text: &str, unit_seconds: f64) -> Result<f64, SkipReason> {
    let value: f64 = text.parse().map_err(|_| SkipReason::Number)?;
    match value * unit_seconds {
        seconds if seconds.is_nan() => Err(SkipReason::Number),
        seconds if seconds < 0.0 => Err(SkipReason::Negative),
        // Adding 0 turns -0 into 0, which sorts as what it is.
        seconds if seconds <= 2.0 * MAX_SECONDS => Ok(seconds + 0.0),
        _ => Err(SkipReason::Huge),
    }
}

/// A duration in seconds, more than none.
fn span(text: &str, unit_seconds: f64) -> Result<f64, SkipReason> {
    within_reason(time(text, unit_seconds)?)
}

fn within_reason(seconds: f64) -> Result<f64, SkipReason> {
    match seconds {
        0.0 => Err(SkipReason::NoLength),
        seconds if seconds > MAX_SECONDS => Err(SkipReason::Huge),
        seconds => Ok(seconds),
    }
}

fn count(text: &str) -> Result<u64, SkipReason> {
    match text.parse::<i128>() {
        Err(_) => Err(SkipReason::Number),
        Ok(0) => Err(SkipReason::NoLength),
        Ok(value) if value < 0 => Err(SkipReason::Negative),
        Ok(value) => u64::try_from(value).map_err(|_| SkipReason::Huge),
    }
}

pub(super) fn gpus(text: &str) -> Result<u32, SkipReason> {
    // Some spreadsheets write 8 as 8.0.
    let text = text.strip_suffix(".0").unwrap_or(text);
    match text.parse::<i128>() {
        Err(_) => Err(SkipReason::Number),
        Ok(0) => Err(SkipReason::NoGpus),
        Ok(value) if value < 0 => Err(SkipReason::Negative),
        Ok(value) => u32::try_from(value)
            .ok()
            .filter(|gpus| *gpus <= MAX_GPUS)
            .ok_or(SkipReason::Huge),
    }
}
