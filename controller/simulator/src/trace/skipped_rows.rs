//! Rows that were left out of a trace, by reason, so that a user can check the file.

use std::collections::BTreeMap;
use std::fmt;

/// Why a row is no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// Fewer or more values than the header has.
    Columns,
    /// A quote that does not close on its line.
    Quote,
    /// A line longer than any row of a trace.
    LongLine,
    /// Bytes that are no UTF-8.
    NotText,
    /// A value that is not the number or the resource list that its column has.
    InvalidNumber,
    /// A date that does not exist or is written otherwise.
    InvalidDate,
    /// A record of JSON without the fields of a job.
    NoJob,
    /// A time or a duration below zero.
    Negative,
    /// A count or a time beyond anything a cluster has.
    Huge,
    /// No GPU at all.
    NoGpus,
    /// It ended in the moment it began.
    NoLength,
    /// The job never started to run.
    NeverRan,
    /// It was still running when the trace was taken, so its length is unknown.
    StillRunning,
    /// It ran before it was submitted, or ended before it ran.
    TimesOutOfOrder,
    /// None of its workers is in the file of workers.
    NoWorkers,
    /// A repetition of an earlier row.
    Duplicate,
    /// A worker beyond the number that is kept in memory.
    TooManyWorkers,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Columns => "another number of columns than the header",
            Self::Quote => "a quote that does not close",
            Self::LongLine => "a line that is too long",
            Self::NotText => "bytes that are no text",
            Self::InvalidNumber => "a value that is not a number",
            Self::InvalidDate => "a date of another form than 2017-10-09 07:01:55, with or without a zone, or RFC 3339",
            Self::NoJob => "a record without the fields of a job",
            Self::Negative => "a time below zero",
            Self::Huge => "a number beyond reason",
            Self::NoGpus => "no GPU",
            Self::NoLength => "no duration",
            Self::NeverRan => "never ran",
            Self::StillRunning => "still running",
            Self::TimesOutOfOrder => "times in the wrong order",
            Self::NoWorkers => "no workers",
            Self::Duplicate => "the same as an earlier row",
            Self::TooManyWorkers => "more workers than are kept",
        })
    }
}

/// Rows that were skipped for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipCount {
    /// Number of rows skipped.
    pub rows: u64,
    /// The line of the first, or its record in JSON, from 1.
    pub first_line: u64,
}

/// What a trace consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowUnit {
    /// Rows, each on its line.
    #[default]
    Line,
    /// Records of a list.
    Record,
}

/// Rows that were skipped, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRows {
    /// What the file consists of.
    pub unit: RowUnit,
    /// The counts; reasons that did not occur are absent.
    pub by_reason: BTreeMap<SkipReason, SkipCount>,
}

impl SkippedRows {
    /// All values, in order.
    pub fn total_rows(&self) -> u64 {
        self.by_reason.values().map(|count| count.rows).sum()
    }

    pub(super) fn add_row(&mut self, reason: SkipReason, line: u64) {
        let first = SkipCount { rows: 0, first_line: line };
        self.by_reason.entry(reason).or_insert(first).rows += 1;
    }
}

impl fmt::Display for SkippedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_reason.is_empty() {
            return f.write_str("nothing");
        }
        for (position, (reason, count)) in self.by_reason.iter().enumerate() {
            let SkipCount { rows, first_line } = count;
            let separator = if position == 0 { "" } else { "; " };
            let (noun, place) = match self.unit {
                RowUnit::Line => (if *rows == 1 { "row" } else { "rows" }, "in line"),
                RowUnit::Record => (if *rows == 1 { "record" } else { "records" }, "record"),
            };
            write!(f, "{separator}{rows} {noun} ({reason}), first {place} {first_line}")?;
        }
        Ok(())
    }
}
