//! Where the jobs of a replay come from, and what they train.

use std::fs::File;
use std::io::BufReader;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use simulator::trace::{
    Composition, Format, Reader, Selection, Trace, TraceError, Workers, compose,
};
use simulator::workload::{Mix, Models};

use crate::failure::{Failure, chain};
use crate::files;

/// The name of the workload that is composed.
const COMPOSED: &str = "lingjun-like";

/// What to replay.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct SourceArgs {
    /// Trace (CSV of Philly, Muri, Lingjun or our own), or lingjun-like for two weeks composed from
    /// published facts
    #[arg(long, value_name = "FILE")]
    trace: String,
    /// worker.csv of a Lingjun trace
    #[arg(long, value_name = "FILE")]
    workers: Option<String>,
    /// Only the jobs of this tenant (a virtual cluster, a user)
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
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

impl SourceArgs {
    pub(super) fn models(&self) -> Result<Models, Failure> {
        files::models(self.models.as_deref())
    }

    /// The jobs, each with a model of `models`.
    pub(super) fn trace(&self, models: &Models, cluster_gpus: u32) -> Result<Trace, Failure> {
        if self.trace == COMPOSED {
            let composition = Composition::lingjun().within(cluster_gpus);
            let composed = compose(&composition, self.seed);
            return Ok(composed
                .map_err(|error| Failure::input("--trace", error))?
                .trace);
        }
        let (mut trace, format) = self.read()?;
        self.draw_models(&mut trace, format, models);
        Ok(trace)
    }

    fn read(&self) -> Result<(Trace, Format), Failure> {
        let about = |error: TraceError| Failure::input(&self.trace, chain(&error));
        let workers = match &self.workers {
            Some(file) => {
                Workers::read(open(file)?).map_err(|error| Failure::input(file, chain(&error)))?
            }
            None => Workers::default(),
        };
        let input = open(&self.trace)?;
        let reader = match self.workers {
            Some(_) => Reader::with_workers(input, workers),
            None => Reader::new(input),
        };
        let reader = reader.map_err(about)?;
        let format = reader.format();
        let selection = Selection {
            tenant: self.tenant.clone(),
            max_jobs: self.max_jobs,
            ..Selection::default()
        };
        Ok((Trace::read(reader, &selection).map_err(about)?, format))
    }

    /// Names that the trace drew at random are drawn again; so are those it does not tell.
    fn draw_models(&self, trace: &mut Trace, format: Format, models: &Models) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mix = Mix::by_size();
        let is_random = matches!(format, Format::Philly | Format::Muri);
        let mut drawn = 0;
        for job in &mut trace.jobs {
            let known = job.model.as_deref().and_then(|name| models.named(name));
            if is_random || known.is_none() {
                job.model = mix.draw(job.gpus, &mut random);
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

fn open(file: &str) -> Result<BufReader<File>, Failure> {
    let opened = File::open(file).map_err(|error| Failure::input(file, error))?;
    Ok(BufReader::new(opened))
}
