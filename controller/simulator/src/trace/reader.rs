//! The reader of a trace: an iterator of jobs over an input, in the memory of one line.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;

use super::csv_rows::{CsvRows, RowFields};
use super::format::TraceRow;
use super::philly_json::{self, Records};
use super::{LingjunWorkers, RowUnit, SkipReason, SkippedRows, TraceError, TraceFormat, TraceJob};

/// Reads a trace; yields its jobs in the order of the file, or the error that ends it.
#[derive(Debug)]
pub struct TraceReader<R> {
    rows: CsvRows<R>,
    /// The records of a list in JSON, in place of rows.
    records: Option<Records>,
    /// Records that were read.
    records_read: u64,
    format: TraceFormat,
    positions: Vec<Option<usize>>,
    columns: usize,
    /// Columns that are not read.
    unused_columns: Vec<String>,
    workers: LingjunWorkers,
    seen: SeenRows,
    skipped: SkippedRows,
    failed: bool,
}

/// Characters of a foreign header that an error repeats.
const SHOWN_CHARACTERS: usize = 120;

impl<R: BufRead> TraceReader<R> {
    /// A reader of whatever format the first line of `input` has. Lingjun's jobs need
    /// [`TraceReader::with_workers`].
    ///
    /// # Errors
    /// The first line is the header of no format, or cannot be read.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let reader = Self::with_workers(input, LingjunWorkers::default())?;
        match reader.format {
            TraceFormat::Lingjun => Err(TraceError::NoWorkers),
            _ => Ok(reader),
        }
    }

    /// Reads a trace, with the GPUs of Lingjun's workers.
    ///
    /// # Errors
    /// The first line is the header of no format, or cannot be read.
    pub fn with_workers(mut input: R, workers: LingjunWorkers) -> Result<Self, TraceError> {
        let start = input.fill_buf().unwrap_or_default();
        let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
        if start.starts_with(b"[") {
            return Self::of_list(input, workers);
        }
        let mut rows = CsvRows::new(input);
        let header = rows.next_row()?;
        let known = header.as_ref().and_then(|header| {
            let header = header.as_ref().ok()?;
            TraceFormat::ALL
                .into_iter()
                .find_map(|format| Some((format, format.column_positions(header)?)))
        });
        let names: Vec<String> = match &header {
            Some(Ok(header)) => header.iter().map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let Some((format, positions)) = known else {
            let headers = TraceFormat::ALL.map(TraceFormat::header_line).join(", or ");
            let list = ", or Philly's list in JSON (cluster_job_log)";
            return Err(unknown_header_error(header, headers + list));
        };
        let columns = names.len();
        let named = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
        let unused = named.filter(|(at, _)| !positions.contains(&Some(*at)));
        let unused_columns = unused.map(|(_, name)| name).collect();
        Ok(Self {
            rows,
            records: None,
            records_read: 0,
            format,
            positions,
            unused_columns,
            columns,
            workers,
            seen: SeenRows::default(),
            skipped: SkippedRows::default(),
            failed: false,
        })
    }

    /// A reader of Philly's list in JSON.
    fn of_list(mut input: R, workers: LingjunWorkers) -> Result<Self, TraceError> {
        let mark = b"\xef\xbb\xbf";
        if input.fill_buf().is_ok_and(|start| start.starts_with(mark)) {
            input.consume(mark.len());
        }
        let records = philly_json::read_records(&mut input)?;
        Ok(Self {
            rows: CsvRows::new(input),
            records: Some(records),
            records_read: 0,
            format: TraceFormat::Philly,
            positions: Vec::new(),
            unused_columns: Vec::new(),
            columns: 0,
            workers,
            seen: SeenRows::default(),
            skipped: SkippedRows { unit: RowUnit::Record, ..SkippedRows::default() },
            failed: false,
        })
    }

    /// The format, according to the header.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// The line of the latest row, from 1, or the number of the latest record of a list.
    pub fn line_number(&self) -> u64 {
        match self.records {
            Some(_) => self.records_read,
            None => self.rows.line_number(),
        }
    }

    /// What was skipped so far.
    pub fn skipped_rows(&self) -> &SkippedRows {
        &self.skipped
    }

    /// What was skipped, at the end.
    pub fn into_skipped(self) -> SkippedRows {
        self.skipped
    }

    /// What a reader of results should know of the trace.
    pub fn trace_notes(&self) -> Vec<String> {
        let mut notes = self.format.trace_notes();
        if !self.unused_columns.is_empty() {
            notes.push(format!("columns that are not read: {}", self.unused_columns.join(", ")));
        }
        if let Some(records) = &self.records {
            if !records.unused_fields.is_empty() {
                let names: Vec<&str> = records.unused_fields.iter().map(String::as_str).collect();
                notes.push(format!("fields that are not read: {}", names.join(", ")));
            }
            let note = "GPUs are those of a job's first attempt, and its length is from the start \
                        of the first to the end of the last";
            notes.push(note.to_owned());
        }
        if self.seen.is_full() {
            notes.push(format!("duplicates were looked for among the first {MAX_SEEN} rows only"));
        }
        notes
    }

    /// The job of the next row; `None` at the end.
    fn read_job(&mut self) -> Result<Option<Result<TraceJob, SkipReason>>, TraceError> {
        if let Some(records) = &mut self.records {
            let record = records.jobs.pop_front();
            self.records_read += u64::from(record.is_some());
            return Ok(record);
        }
        let line = self.rows.line_number() + 1;
        let Some(fields) = self.rows.next_row()? else {
            return Ok(None);
        };
        let (format, seen) = (self.format, &mut self.seen);
        let (positions, columns, workers) = (&self.positions[..], self.columns, &self.workers);
        Ok(Some(fields.and_then(|fields| {
            if fields.len() != columns {
                return Err(SkipReason::Columns);
            }
            let row = TraceRow { fields, positions, workers };
            let job = format.parse_job(&row, line)?;
            match seen.insert_new(fields) {
                true => Ok(job),
                false => Err(SkipReason::Duplicate),
            }
        })))
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceJob, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.read_job() {
                Ok(None) => return None,
                Ok(Some(Ok(job))) => return Some(Ok(job)),
                Ok(Some(Err(reason))) => self.skipped.add_row(reason, self.line_number()),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// The error of a file whose first line is no header of ours.
pub(super) fn unknown_header_error(
    header: Option<Result<&RowFields, SkipReason>>,
    expected: String,
) -> TraceError {
    let found = match header {
        None => "nothing".to_owned(),
        Some(Err(reason)) => reason.to_string(),
        Some(Ok(fields)) => fields.iter().collect::<Vec<_>>().join(","),
    };
    let found = found.chars().take(SHOWN_CHARACTERS).collect();
    TraceError::Header { expected, found }
}

/// Rows that are remembered to detect duplicates; eight bytes each, with the tree some 16 MB.
const MAX_SEEN: usize = 1 << 20;

/// Fingerprints of the rows so far. Two rows of a million share one by accident with a probability
/// of 2^-25.
#[derive(Debug, Default)]
struct SeenRows {
    fingerprints: BTreeSet<u64>,
}

impl SeenRows {
    fn is_full(&self) -> bool {
        self.fingerprints.len() >= MAX_SEEN
    }

    fn insert_new(&mut self, row: &RowFields) -> bool {
        let mut hasher = DefaultHasher::new();
        for field in row.iter() {
            field.hash(&mut hasher);
        }
        let fingerprint = hasher.finish();
        if self.is_full() {
            return !self.fingerprints.contains(&fingerprint);
        }
        self.fingerprints.insert(fingerprint)
    }
}
