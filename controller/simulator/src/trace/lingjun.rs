//! Lingjun's `worker.csv`: how many GPUs every job had, as the sum over its workers.
//!
//! A worker that was started again has a row for each start, under one name: the largest request
//! counts, once. What a worker requested is a JSON object in the column `RES`, whose values are
//! numbers or numbers as text.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Deserialize;

use super::csv_rows::CsvRows;
use super::format::parse_gpus;
use super::reader::unknown_header_error;
use super::{SkipReason, SkippedRows, TraceError};

/// The workers of a data set's jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LingjunWorkers {
    /// GPUs of each worker, by job and worker.
    gpus: BTreeMap<String, BTreeMap<String, u32>>,
    /// Rows that were left out.
    pub skipped: SkippedRows,
}

/// Workers that are kept; the published file has 23,743.
const MAX_WORKERS: u64 = 2_000_000;

const COLUMNS: [&str; 3] = ["job_name", "worker_name", "RES"];

/// What a worker requested; everything but GPUs is ignored.
#[derive(Deserialize)]
struct WorkerResources {
    #[serde(default, rename = "nvidia.com/gpu")]
    gpus: Option<ResourceAmount>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ResourceAmount {
    Number(f64),
    Text(String),
}

impl LingjunWorkers {
    /// Reads `worker.csv`.
    ///
    /// # Errors
    /// The first line lacks a column, or the input fails.
    pub fn read_workers<R: BufRead>(input: R) -> Result<Self, TraceError> {
        let mut rows = CsvRows::new(input);
        let (positions, columns) = read_header(&mut rows)?;
        let (mut workers, mut known) = (Self::default(), 0);
        while let Some(row) = rows.next_row()? {
            let added = row.and_then(|fields| {
                if fields.len() != columns {
                    return Err(SkipReason::Columns);
                }
                let [job, worker, resources] = positions.map(|position| fields.get(position));
                let gpus = requested_gpus(resources)?;
                if known == MAX_WORKERS {
                    return Err(SkipReason::TooManyWorkers);
                }
                known += 1;
                let of_job = workers.gpus.entry(job.to_owned()).or_default();
                let most = of_job.entry(worker.to_owned()).or_default();
                *most = gpus.max(*most);
                Ok(())
            });
            if let Err(reason) = added {
                workers.skipped.add_row(reason, rows.line_number());
            }
        }
        Ok(workers)
    }

    /// GPUs of all workers of the job.
    pub(super) fn job_gpus(&self, job: &str) -> Result<u32, SkipReason> {
        let of_job = self.gpus.get(job).ok_or(SkipReason::NoWorkers)?;
        let sum: u64 = of_job.values().map(|gpus| u64::from(*gpus)).sum();
        parse_gpus(&sum.to_string())
    }
}

/// Positions of the columns, and how many columns there are.
fn read_header<R: BufRead>(rows: &mut CsvRows<R>) -> Result<([usize; 3], usize), TraceError> {
    let header = rows.next_row()?;
    if let Some(Ok(fields)) = header {
        let found = COLUMNS.map(|column| fields.iter().position(|name| name == column));
        if let [Some(job), Some(worker), Some(resources)] = found {
            return Ok(([job, worker, resources], fields.len()));
        }
    }
    Err(unknown_header_error(header, COLUMNS.join(",")))
}

/// GPUs of a resource list; 0 if it names no GPU.
fn requested_gpus(resources: &str) -> Result<u32, SkipReason> {
    let resources: WorkerResources =
        serde_json::from_str(resources).map_err(|_| SkipReason::InvalidNumber)?;
    let text = match resources.gpus {
        None => return Ok(0),
        Some(ResourceAmount::Number(number)) => number.to_string(),
        Some(ResourceAmount::Text(text)) => text,
    };
    match parse_gpus(text.trim()) {
        Err(SkipReason::NoGpus) => Ok(0),
        gpus => gpus,
    }
}
