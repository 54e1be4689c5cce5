//! Where the jobs of a replay come from, and what they train.

use std::fs::File;
use std::io::BufReader;

use placement::ModelTable;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use simulator::trace::{
    JobTrace, LingjunWorkers, SkippedRows, TraceComposition, TraceError, TraceFormat, TraceReader,
    TraceSelection, compose_trace, draw_model,
};
use topology::count_noun;

use crate::models::read_models;
use command_io::{CommandError, error_chain};

/// The name of the workload that is composed.
const COMPOSED: &str = "lingjun-like";

/// What to replay.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TraceArgs {
    /// Trace (Philly, Muri, Lingjun or our own CSV), or lingjun-like for two weeks composed from
    /// published facts
    #[arg(long, value_name = "FILE")]
    trace: String,
    /// worker.csv of a Lingjun trace
    #[arg(long, value_name = "FILE")]
    workers: Option<String>,
    /// Only the jobs of this tenant (a virtual cluster, a user)
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only the jobs that are submitted in the first days of the trace
    #[arg(long, value_name = "DAYS")]
    days: Option<f64>,
    /// More jobs than this are refused
    #[arg(long, default_value_t = 1_000_000)]
    max_jobs: usize,
    /// More models, or others in place of the built-in ones (TOML)
    #[arg(long, value_name = "FILE")]
    models: Option<String>,
    /// Draws what a trace leaves open: its jobs, their models, random placement
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

impl TraceArgs {
    pub(super) fn read_models(&self) -> Result<ModelTable, CommandError> {
        read_models(self.models.as_deref())
    }

    /// The jobs, each with a model of `models`.
    pub(super) fn load_trace(
        &self,
        models: &ModelTable,
        cluster_gpus: u32,
    ) -> Result<JobTrace, CommandError> {
        let mut trace = self.load_all(models, cluster_gpus)?;
        if trace.jobs.len() > self.max_jobs {
            let what = format!("the trace has {} jobs, more than that", trace.jobs.len());
            return Err(CommandError::input(format_args!("--max-jobs {}", self.max_jobs), what));
        }
        let Some(days) = self.days else {
            return Ok(trace);
        };
        let first = trace.jobs.first().map_or(0.0, |job| job.submitted_seconds);
        trace.jobs.retain(|job| job.submitted_seconds - first <= days * 86_400.0);
        if trace.jobs.is_empty() {
            let what = format!("no job is submitted in the first {days} days; give more");
            return Err(CommandError::input("--days", what));
        }
        trace.notes.push(format!("the jobs of the first {days} days alone"));
        Ok(trace)
    }

    fn load_all(&self, models: &ModelTable, cluster_gpus: u32) -> Result<JobTrace, CommandError> {
        if self.trace == COMPOSED {
            let composition = TraceComposition::lingjun_like().limited_to(cluster_gpus);
            let composed = compose_trace(&composition, self.seed);
            return Ok(composed.map_err(|error| CommandError::input("--trace", error))?.trace);
        }
        let (mut trace, format) = self.read_trace()?;
        self.draw_models(&mut trace, format, models);
        Ok(trace)
    }

    fn read_trace(&self) -> Result<(JobTrace, TraceFormat), CommandError> {
        let workers = match &self.workers {
            Some(file) => {
                let workers = LingjunWorkers::read_workers(open_file(file)?)
                    .map_err(|error| CommandError::input(file, error_chain(&error)))?;
                report_skipped(file, &workers.skipped, "");
                workers
            }
            None => LingjunWorkers::default(),
        };
        let input = open_file(&self.trace)?;
        let reader = match self.workers {
            Some(_) => TraceReader::with_workers(input, workers),
            None => TraceReader::new(input),
        };
        let reader = reader.map_err(|error| self.trace_error(&error))?;
        let format = reader.format();
        let selection = TraceSelection {
            tenant: self.tenant.clone(),
            max_jobs: self.max_jobs,
            ..TraceSelection::default()
        };
        let trace = JobTrace::read_jobs(reader, &selection);
        let trace = trace.map_err(|error| self.trace_error(&error))?;
        let left = format!("; {} left", count_noun(trace.jobs.len() as u64, "job"));
        report_skipped(&self.trace, &trace.skipped, &left);
        Ok((trace, format))
    }

    fn trace_error(&self, error: &TraceError) -> CommandError {
        CommandError::input(&self.trace, error_chain(error))
    }

    /// Names that the trace drew at random are drawn again; so are those it does not tell.
    fn draw_models(&self, trace: &mut JobTrace, format: TraceFormat, models: &ModelTable) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let is_random = matches!(format, TraceFormat::Philly | TraceFormat::Muri);
        let mut drawn = 0;
        for job in &mut trace.jobs {
            let known = job.model.as_deref().and_then(|name| models.by_name(name));
            if is_random || known.is_none() {
                job.model = Some(draw_model(job.gpus, &mut random));
                drawn += 1;
            }
        }
        if drawn > 0 {
            trace.notes.push(format!(
                "models of {drawn} jobs drawn from an assumed mix by size, seed {}",
                self.seed
            ));
        }
    }
}

/// Beside the results, of which a reader may look at the figures alone.
fn report_skipped(file: &str, skipped: &SkippedRows, what_is_left: &str) {
    if skipped.total_rows() > 0 {
        eprintln!("warning: {file}: skipped {skipped}{what_is_left}");
    }
}

fn open_file(file: &str) -> Result<BufReader<File>, CommandError> {
    let opened = File::open(file).map_err(|error| CommandError::input(file, error))?;
    Ok(BufReader::new(opened))
}
