//! The formats of traces: their columns, and what a row of each means.
//!
//! | format | columns that it is known by | what is taken from it |
//! |---|---|---|
//! | Philly | timestamp, duration, num_gpus, cluster | seconds; the virtual cluster is the tenant |
//! | Philly | a list in JSON (`cluster_job_log`) | GPUs of the first attempt, first start to last end |
//! | Muri | job_id, num_gpu, submit_time, duration, model_name | milliseconds |
//! | Lingjun | job_name, gmt_job_submitted, gmt_job_running, gmt_job_finished | `job.csv`, dates |
//! | plain | submitted_seconds, gpus, duration_seconds or iterations | our own |
//!
//! Columns are found by name, in any order; others are ignored.

use super::csv_rows::RowFields;
use super::{JobLength, LingjunWorkers, SkipReason, TraceJob, date};

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceFormat {
    /// Microsoft Philly (msr-fiddle/philly-traces): its `cluster_job_log`, or one CSV made of it.
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
struct FormatColumn {
    name: &'static str,
    required: bool,
}

const fn required_column(name: &'static str) -> FormatColumn {
    FormatColumn { name, required: true }
}

const fn optional_column(name: &'static str) -> FormatColumn {
    FormatColumn { name, required: false }
}

const PHILLY: [FormatColumn; 4] = [
    required_column("timestamp"),
    required_column("duration"),
    required_column("num_gpus"),
    required_column("cluster"),
];
const MURI: [FormatColumn; 5] = [
    required_column("job_id"),
    required_column("num_gpu"),
    required_column("submit_time"),
    required_column("duration"),
    required_column("model_name"),
];
const LINGJUN: [FormatColumn; 7] = [
    required_column("job_name"),
    required_column("gmt_job_submitted"),
    required_column("gmt_job_running"),
    required_column("gmt_job_finished"),
    optional_column("gmt_job_stopped"),
    optional_column("model"),
    optional_column("uid"),
];
const PLAIN: [FormatColumn; 7] = [
    required_column("submitted_seconds"),
    required_column("gpus"),
    optional_column("duration_seconds"),
    optional_column("iterations"),
    optional_column("id"),
    optional_column("model"),
    optional_column("tenant"),
];

impl TraceFormat {
    /// All values, in order.
    pub const ALL: [Self; 4] = [Self::Philly, Self::Muri, Self::Lingjun, Self::Plain];

    fn columns(self) -> &'static [FormatColumn] {
        match self {
            Self::Philly => &PHILLY,
            Self::Muri => &MURI,
            Self::Lingjun => &LINGJUN,
            Self::Plain => &PLAIN,
        }
    }

    /// The columns that a file of this format has, for messages.
    pub(super) fn header_line(self) -> String {
        let needed = self.columns().iter().filter(|column| column.required);
        let names: Vec<&str> = needed.map(|column| column.name).collect();
        match self {
            Self::Plain => names.join(",") + ",duration_seconds|iterations",
            _ => names.join(","),
        }
    }

    /// Where this format's columns are under `header`, in the order of its table; none if one that
    /// it needs is missing.
    pub(super) fn column_positions(self, header: &RowFields) -> Option<Vec<Option<usize>>> {
        let positions: Vec<Option<usize>> = self
            .columns()
            .iter()
            .map(|column| header.iter().position(|name| name == column.name))
            .collect();
        let columns = self.columns().iter().zip(&positions);
        let complete =
            columns.into_iter().all(|(column, position)| position.is_some() || !column.required);
        // A plain trace needs one of its two lengths.
        let measured = self != Self::Plain || positions[2].is_some() || positions[3].is_some();
        (complete && measured).then_some(positions)
    }

    /// What a reader of results should know of such a trace.
    pub(super) fn trace_notes(self) -> Vec<String> {
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
    pub(super) fn parse_job(self, row: &TraceRow<'_>, line: u64) -> Result<TraceJob, SkipReason> {
        match self {
            Self::Philly => row.parse_philly(line),
            Self::Muri => row.parse_muri(),
            Self::Lingjun => row.parse_lingjun(),
            Self::Plain => row.parse_plain(line),
        }
    }
}

/// A row under its header.
pub(super) struct TraceRow<'a> {
    pub(super) fields: &'a RowFields,
    pub(super) positions: &'a [Option<usize>],
    pub(super) workers: &'a LingjunWorkers,
}

impl TraceRow<'_> {
    fn parse_philly(&self, line: u64) -> Result<TraceJob, SkipReason> {
        Ok(TraceJob {
            id: line.to_string(),
            submitted_seconds: parse_instant(self.field_text(0))?,
            length: JobLength::Seconds(parse_duration(self.field_text(1), 1.0)?),
            gpus: parse_gpus(self.field_text(2))?,
            model: None,
            tenant: self.optional_text(3),
        })
    }

    fn parse_muri(&self) -> Result<TraceJob, SkipReason> {
        const MILLISECOND: f64 = 1e-3;
        Ok(TraceJob {
            id: self.field_text(0).to_owned(),
            gpus: parse_gpus(self.field_text(1))?,
            submitted_seconds: parse_time(self.field_text(2), MILLISECOND)?,
            length: JobLength::Seconds(parse_duration(self.field_text(3), MILLISECOND)?),
            model: self.optional_text(4),
            tenant: None,
        })
    }

    fn parse_lingjun(&self) -> Result<TraceJob, SkipReason> {
        let submitted_seconds = parse_instant(self.field_text(1))?;
        if is_absent(self.field_text(2)) {
            return Err(SkipReason::NeverRan);
        }
        let began = parse_instant(self.field_text(2))?;
        let ends = [self.field_text(3), self.field_text(4)];
        let end = ends.into_iter().find(|text| !is_absent(text));
        let ended = parse_instant(end.ok_or(SkipReason::StillRunning)?)?;
        if began < submitted_seconds || ended < began {
            return Err(SkipReason::TimesOutOfOrder);
        }
        Ok(TraceJob {
            id: self.field_text(0).to_owned(),
            submitted_seconds,
            length: JobLength::Seconds(check_duration(ended - began)?),
            gpus: self.workers.job_gpus(self.field_text(0))?,
            model: self.optional_text(5),
            tenant: self.optional_text(6),
        })
    }

    fn parse_plain(&self, line: u64) -> Result<TraceJob, SkipReason> {
        let length = match self.field_text(3) {
            "" => JobLength::Seconds(parse_duration(self.field_text(2), 1.0)?),
            iterations => JobLength::Iterations(parse_count(iterations)?),
        };
        Ok(TraceJob {
            id: self.optional_text(4).unwrap_or_else(|| line.to_string()),
            submitted_seconds: parse_time(self.field_text(0), 1.0)?,
            gpus: parse_gpus(self.field_text(1))?,
            length,
            model: self.optional_text(5),
            tenant: self.optional_text(6),
        })
    }

    /// The value in the format's `column`; empty if the file has no such column.
    fn field_text(&self, column: usize) -> &str {
        self.positions[column].map_or("", |position| self.fields.get(position))
    }

    fn optional_text(&self, column: usize) -> Option<String> {
        Some(self.field_text(column)).filter(|text| !is_absent(text)).map(str::to_owned)
    }
}

/// Beyond this time (a hundred years) a unit was mistaken.
const MAX_SECONDS: f64 = 100.0 * 365.25 * 86_400.0;

/// Beyond this many GPUs of one job a column was mistaken.
const MAX_GPUS: u32 = 1_000_000;

/// How data sets write that a value is missing.
pub(super) fn is_absent(text: &str) -> bool {
    ["", "null", "NULL", "None", "nan", "NaN", "\\N", "-"].contains(&text)
}

pub(super) fn parse_instant(text: &str) -> Result<f64, SkipReason> {
    date::parse_date(text).ok_or(SkipReason::InvalidDate)
}

/// A time on a clock that starts at zero, in seconds.
fn parse_time(text: &str, unit_seconds: f64) -> Result<f64, SkipReason> {
    let value: f64 = text.parse().map_err(|_| SkipReason::InvalidNumber)?;
    match value * unit_seconds {
        seconds if seconds.is_nan() => Err(SkipReason::InvalidNumber),
        seconds if seconds < 0.0 => Err(SkipReason::Negative),
        // Adding 0 turns -0 into 0, which sorts as what it is.
        seconds if seconds <= 2.0 * MAX_SECONDS => Ok(seconds + 0.0),
        _ => Err(SkipReason::Huge),
    }
}

/// A duration in seconds, more than none.
fn parse_duration(text: &str, unit_seconds: f64) -> Result<f64, SkipReason> {
    check_duration(parse_time(text, unit_seconds)?)
}

pub(super) fn check_duration(seconds: f64) -> Result<f64, SkipReason> {
    match seconds {
        0.0 => Err(SkipReason::NoLength),
        seconds if seconds > MAX_SECONDS => Err(SkipReason::Huge),
        seconds => Ok(seconds),
    }
}

fn parse_count(text: &str) -> Result<u64, SkipReason> {
    match text.parse::<i128>() {
        Err(_) => Err(SkipReason::InvalidNumber),
        Ok(0) => Err(SkipReason::NoLength),
        Ok(value) if value < 0 => Err(SkipReason::Negative),
        Ok(value) => u64::try_from(value).map_err(|_| SkipReason::Huge),
    }
}

pub(super) fn parse_gpus(text: &str) -> Result<u32, SkipReason> {
    // Some spreadsheets write 8 as 8.0.
    let text = text.strip_suffix(".0").unwrap_or(text);
    match text.parse::<i128>() {
        Err(_) => Err(SkipReason::InvalidNumber),
        Ok(0) => Err(SkipReason::NoGpus),
        Ok(value) if value < 0 => Err(SkipReason::Negative),
        Ok(value) => {
            u32::try_from(value).ok().filter(|gpus| *gpus <= MAX_GPUS).ok_or(SkipReason::Huge)
        }
    }
}
