//! The reader of a trace: an iterator of jobs over an input, in the memory of one line.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufRead;

use super::format::Row;
use super::rows::{Fields, Rows};
use super::{Format, SkipReason, Skipped, TraceError, TraceJob, Workers};

/// Reads a trace; yields its jobs in the order of the file, or the error that ends it.
#[derive(Debug)]
pub struct Reader<R> {
    rows: Rows<R>,
    format: Format,
    positions: Vec<Option<usize>>,
    columns: usize,
    workers: Workers,
    seen: Seen,
    skipped: Skipped,
    failed: bool,
}

/// Characters of a foreign header that an error repeats.
const SHOWN: usize = 120;

impl<R: BufRead> Reader<R> {
    /// A reader of whatever format the first line of `input` has. Lingjun's jobs need
    /// [`Reader::with_workers`].
    ///
    /// # Errors
    /// The first line is the header of no format, or cannot be read.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let reader = Self::with_workers(input, Workers::default())?;
        match reader.format {
            Format::Lingjun => Err(TraceError::NoWorkers),
            _ => Ok(reader),
        }
    }

    /// The same, with the GPUs of Lingjun's workers.
    ///
    /// # Errors
    /// The first line is the header of no format, or cannot be read.
    pub fn with_workers(input: R, workers: Workers) -> Result<Self, TraceError> {
        let mut rows = Rows::new(input);
        let header = rows.next()?;
        let known = header.as_ref().and_then(|header| {
            let header = header.as_ref().ok()?;
            let positions = |format: Format| Some((format, format.positions(header)?));
            Format::ALL.into_iter().find_map(positions)
        });
        let columns = match &header {
            Some(Ok(header)) => header.len(),
            _ => 0,
        };
        let Some((format, positions)) = known else {
            let headers = Format::ALL.map(Format::header).join(", or ");
            return Err(foreign(header, headers));
        };
        Ok(Self {
            rows,
            format,
            positions,
            columns,
            workers,
            seen: Seen::default(),
            skipped: Skipped::default(),
            failed: false,
        })
    }

    /// The format that the header told.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The line of the latest row, from 1.
    pub fn line(&self) -> u64 {
        self.rows.line()
    }

    /// What was skipped so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// What was skipped, at the end.
    pub fn into_skipped(self) -> Skipped {
        self.skipped
    }

    /// What a reader of results should know of the trace.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.format.notes();
        if self.seen.is_full() {
            notes.push(format!(
                "duplicates were looked for among the first {MAX_SEEN} rows only"
            ));
        }
        notes
    }

    /// The job of the next row; `None` at the end.
    fn read(&mut self) -> Result<Option<Result<TraceJob, SkipReason>>, TraceError> {
        let line = self.rows.line() + 1;
        let Some(fields) = self.rows.next()? else {
            return Ok(None);
        };
        let (format, seen) = (self.format, &mut self.seen);
        let (positions, columns, workers) = (&self.positions[..], self.columns, &self.workers);
        Ok(Some(fields.and_then(|fields| {
            if fields.len() != columns {
                return Err(SkipReason::Columns);
            }
            let row = Row {
                fields,
                positions,
                workers,
            };
            let job = format.job(&row, line)?;
            match seen.is_new(fields) {
                true => Ok(job),
                false => Err(SkipReason::Duplicate),
            }
        })))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<TraceJob, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.read() {
                Ok(None) => return None,
                Ok(Some(Ok(job))) => return Some(Ok(job)),
                Ok(Some(Err(reason))) => self.skipped.add(reason, self.rows.line()),
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
pub(super) fn foreign(header: Option<Result<&Fields, SkipReason>>, expected: String) -> TraceError {
    let found = match header {
        None => "nothing".to_owned(),
        Some(Err(reason)) => reason.to_string(),
        Some(Ok(fields)) => fields.iter().collect::<Vec<_>>().join(","),
    };
    let found = found.chars().take(SHOWN).collect();
    TraceError::Header { expected, found }
}

/// Rows that are remembered to tell duplicates; eight bytes each, with the tree some 16 MB.
const MAX_SEEN: usize = 1 << 20;

/// Fingerprints of the rows so far. Two rows of a million share one by accident with a probability
/// of 2^-25.
#[derive(Debug, Default)]
struct Seen {
    fingerprints: BTreeSet<u64>,
}

impl Seen {
    fn is_full(&self) -> bool {
        self.fingerprints.len() >= MAX_SEEN
    }

    fn is_new(&mut self, row: &Fields) -> bool {
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
