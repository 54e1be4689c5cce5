//! Traces of real clusters: which job came when, wanted how many GPUs, and ran how long.
//!
//! Philly, Muri, Lingjun and a plain CSV of our own are read by one [`TraceReader`], an iterator
//! over the lines of a file, so that a trace of any length needs the memory of one line; the JSON in
//! which Philly is published is a list, whose jobs are kept. A row that
//! makes no sense is skipped and counted by reason with its first line ([`SkippedRows`]); only a
//! file that is no trace at all is an error. [`JobTrace::read_jobs`] keeps the jobs of a
//! [`TraceSelection`], in order of arrival. [`compose_trace`] makes a workload from published facts
//! instead, which is synthetic and says so. [`draw_model`] draws models for jobs without one.
//! Placement ([`placement`]) decides where the jobs run.

mod arrival_pattern;
mod composition;
mod csv_rows;
mod date;
mod format;
mod lingjun;
mod model_mix;
mod philly_json;
mod reader;
mod skipped_rows;

pub use composition::{
    ComposedTrace, CompositionError, DemandPeak, TraceComposition, compose_trace, find_peak,
};
pub use format::TraceFormat;
pub use lingjun::LingjunWorkers;
pub use model_mix::draw_model;
pub use reader::TraceReader;
pub use skipped_rows::{RowUnit, SkipCount, SkipReason, SkippedRows};

use std::io::BufRead;
use std::ops::Range;

/// A job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    /// Its name in the trace; the line it stands in where the trace names no jobs.
    pub id: String,
    /// When it was submitted, in seconds; since the epoch, or since the start of the trace.
    pub submitted_seconds: f64,
    /// GPUs that it requests, all at once.
    pub gpus: u32,
    /// How long it is.
    pub length: JobLength,
    /// The model it trains, if the trace says.
    pub model: Option<String>,
    /// Whose it is: a virtual cluster, a user.
    pub tenant: Option<String>,
}

/// How long a job is, in what the trace counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobLength {
    /// Seconds that it ran where the trace was taken.
    Seconds(f64),
    /// Iterations of its model.
    Iterations(u64),
}

/// Why there is no trace at all.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The first line names other columns.
    #[error("line 1: expected the columns {expected}; found {found:?}")]
    Header {
        /// The columns needed, of every format that was tried.
        expected: String,
        /// The first line, shortened.
        found: String,
    },
    /// The text begins as JSON and is no list of jobs.
    #[error("cannot read the JSON; Philly publishes a list of jobs (cluster_job_log)")]
    Json(#[source] serde_json::Error),
    /// A Lingjun job.csv has no GPU counts.
    #[error("a Lingjun job.csv needs its worker.csv, which has the GPUs of the jobs")]
    NoWorkers,
    /// The input ended in an error.
    #[error("line {line}: cannot read the input")]
    Read {
        /// Line number in the input.
        line: u64,
        /// Why the input cannot be read.
        #[source]
        source: std::io::Error,
    },
    /// More jobs than the selection allows.
    #[error("line {line}: more than {limit} jobs; select a tenant or a window of time")]
    TooMany {
        /// The line of the first job too many.
        line: u64,
        /// Most jobs that are allowed.
        limit: usize,
    },
    /// No row was a job of the selection.
    #[error("no job of the selection in the trace; skipped: {0}")]
    NoJobs(SkippedRows),
}

/// Which jobs of a trace to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSelection {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those submitted in this window, in seconds on the clock of the trace.
    pub window: Option<Range<f64>>,
    /// More are refused, which bounds memory: some 150 bytes each.
    pub max_jobs: usize,
}

impl Default for TraceSelection {
    /// Every job, up to a million.
    fn default() -> Self {
        Self { tenant: None, window: None, max_jobs: 1_000_000 }
    }
}

impl TraceSelection {
    fn admits_job(&self, job: &TraceJob) -> bool {
        let of_tenant = self.tenant.is_none() || self.tenant == job.tenant;
        of_tenant
            && self.window.as_ref().is_none_or(|window| window.contains(&job.submitted_seconds))
    }
}

/// The jobs of a trace in order of arrival, the first at 0 seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobTrace {
    /// The jobs, by time of submission, then as they stand in the file.
    pub jobs: Vec<TraceJob>,
    /// Rows left out because they make no sense.
    pub skipped: SkippedRows,
    /// What a reader of results should know of the trace, one sentence each.
    pub notes: Vec<String>,
}

impl JobTrace {
    /// Reads the jobs of `selection`.
    ///
    /// # Errors
    /// The input fails, holds more jobs than the selection allows, or none.
    pub fn read_jobs<R: BufRead>(
        mut reader: TraceReader<R>,
        selection: &TraceSelection,
    ) -> Result<Self, TraceError> {
        let mut jobs = Vec::new();
        while let Some(job) = reader.next() {
            let job = job?;
            if !selection.admits_job(&job) {
                continue;
            }
            if jobs.len() == selection.max_jobs {
                let (line, limit) = (reader.line_number(), selection.max_jobs);
                return Err(TraceError::TooMany { line, limit });
            }
            jobs.push(job);
        }
        let notes = reader.trace_notes();
        if jobs.is_empty() {
            return Err(TraceError::NoJobs(reader.into_skipped()));
        }
        Ok(Self { jobs: sort_from_zero(jobs), skipped: reader.into_skipped(), notes })
    }
}

/// The jobs in order of arrival, on a clock that starts with the first.
fn sort_from_zero(mut jobs: Vec<TraceJob>) -> Vec<TraceJob> {
    jobs.sort_by(|a, b| a.submitted_seconds.total_cmp(&b.submitted_seconds));
    let start = jobs.first().map_or(0.0, |job| job.submitted_seconds);
    for job in &mut jobs {
        job.submitted_seconds -= start;
    }
    jobs
}

#[cfg(test)]
mod tests;
