//! A cluster, replayed for days or weeks: Crux, Figs. 23 and 25 (Crux §6.3 and §6.4), and beyond
//! the papers who gains from whom if job and communication schedulers are combined.
//!
//! The trace of the paper is not public: the jobs are composed from its published facts. How much
//! they send is withheld, and is what the results depend on most; so sweeps show what hangs on it.

mod fig23;
mod fig25;
mod scheduler_pairs;

pub(super) use fig23::reproduce_fig23;
pub(super) use fig25::reproduce_fig25;
pub(super) use scheduler_pairs::reproduce_pairs;

use placement::ModelTable;
use placement::queue::JobFragmentation;
use placement::{GpuCluster, PlacementAlgorithm};
use planner::Policy;
use simulator::Scheduler;
use simulator::replay::{InterferenceModel, ReplayOutcome, ReplaySetup};
use simulator::trace::{TraceComposition, compose_trace};
use topology::document::DocumentFormat;
use topology::{examples, spec};

use super::SeedOptions;
use super::report::percent_change;
use crate::replay::runs::{self, CheckpointArgs};
use command_io::CommandError;

const CLOS: &str = "crux-clos-173x16";
const DOUBLE_SIDED: &str = "crux-double-sided";

/// Factor on every byte, where it is not swept.
const VOLUME: f64 = 8.0;

/// Jobs, and hours over which they come: two weeks as in the paper, and less for what two weeks
/// would take too long.
const TWO_WEEKS: (usize, u32) = (5_000, 14 * 24);
const TWO_DAYS: (usize, u32) = (5_000 / 7, 48);
const HALF_A_DAY: (usize, u32) = (5_000 / 28, 12);

/// Traces that are composed at most: each is replayed many times.
const SEEDS: usize = 3;

/// What is replayed, whoever schedules.
#[derive(Clone, Copy)]
struct ReplayWorkload {
    fabric: &'static str,
    /// Jobs, and hours over which they come.
    length: (usize, u32),
    volume: f64,
}

/// Who schedules, and who can hold up a job.
#[derive(Clone, Copy, PartialEq)]
struct SchedulingScheme {
    placement: PlacementAlgorithm,
    scheduler: Scheduler,
    interference: InterferenceModel,
}

impl SchedulingScheme {
    /// As it is: everyone holds up everyone.
    fn new(placement: PlacementAlgorithm, scheduler: Scheduler) -> Self {
        Self { placement, scheduler, interference: InterferenceModel::AllJobs }
    }
}

impl ReplayWorkload {
    fn build_setup(self, seed: u64) -> Result<ReplaySetup, CommandError> {
        let text = examples::example_text(self.fabric).unwrap_or_default();
        let fabric = spec::parse_fabric(text, DocumentFormat::Toml, self.fabric)
            .map_err(CommandError::document)?;
        let cluster = GpuCluster::from_fabric(&fabric);
        let (jobs, hours) = self.length;
        let composition = TraceComposition {
            jobs,
            hours,
            ..TraceComposition::lingjun_like().limited_to(cluster.total_gpus())
        };
        let composed = compose_trace(&composition, seed).map_err(CommandError::failed)?;
        Ok(ReplaySetup {
            fabric,
            cluster,
            trace: composed.trace,
            models: ModelTable::built_in(),
            volume: self.volume,
            connections: 1,
            policy: Policy { search_events: 0, ..Policy::default() },
            placement: PlacementAlgorithm::SameLeaf,
            fragmentation: JobFragmentation::CALIBRATED,
            scheduler: Scheduler::Crux,
            interference: InterferenceModel::AllJobs,
            seed,
        })
    }

    /// Replays it in all of the ways, for every seed, at once.
    fn replay_schemes(
        self,
        ways: &[SchedulingScheme],
        options: SeedOptions,
    ) -> Result<ReplayRuns, CommandError> {
        let mut setups = Vec::new();
        for seed in options.all_seeds().take(SEEDS) {
            let setup = self.build_setup(seed)?;
            setups.extend(ways.iter().map(|way| ReplaySetup {
                placement: way.placement,
                scheduler: way.scheduler,
                interference: way.interference,
                ..setup.clone()
            }));
        }
        eprintln!(
            "{}: {} replays of {} hours, volume x {}",
            self.fabric,
            setups.len(),
            self.length.1,
            self.volume
        );
        let outcomes = runs::replay_all(&setups, &CheckpointArgs::default())?;
        Ok(ReplayRuns { ways: ways.to_vec(), outcomes })
    }
}

/// What came of a world.
struct ReplayRuns {
    ways: Vec<SchedulingScheme>,
    /// By seed, then by way.
    outcomes: Vec<ReplayOutcome>,
}

impl ReplayRuns {
    /// What came of one way, by seed.
    fn outcomes_of(&self, way: SchedulingScheme) -> Result<Vec<&ReplayOutcome>, CommandError> {
        let place = self.ways.iter().position(|other| *other == way).ok_or_else(|| {
            let (placement, scheduler) = (way.placement, way.scheduler);
            CommandError::Failed(format!("nothing was replayed as {placement}, {scheduler}"))
        })?;
        let outcomes = self.outcomes.iter().skip(place);
        Ok(outcomes.step_by(self.ways.len()).collect())
    }

    /// A measure of one way, by seed.
    fn measure_by_seed(
        &self,
        way: SchedulingScheme,
        measure: fn(&ReplayOutcome) -> f64,
    ) -> Result<Vec<f64>, CommandError> {
        Ok(self.outcomes_of(way)?.into_iter().map(measure).collect())
    }

    /// Points of GPU utilisation by which `way` is above `other`, by seed.
    fn utilisation_points(
        &self,
        way: SchedulingScheme,
        other: SchedulingScheme,
    ) -> Result<Vec<f64>, CommandError> {
        let pairs = self
            .measure_by_seed(way, per_cent)?
            .into_iter()
            .zip(self.measure_by_seed(other, per_cent)?);
        Ok(pairs.map(|(of, other)| of - other).collect())
    }

    /// Per cent of `other`'s GPU utilisation by which `way` is above it, by seed.
    fn utilisation_gains(
        &self,
        way: SchedulingScheme,
        other: SchedulingScheme,
    ) -> Result<Vec<f64>, CommandError> {
        let pairs = self
            .measure_by_seed(way, per_cent)?
            .into_iter()
            .zip(self.measure_by_seed(other, per_cent)?);
        Ok(pairs.map(|(of, other)| percent_change(other, of)).collect())
    }
}

fn per_cent(outcome: &ReplayOutcome) -> f64 {
    outcome.gpu_utilization * 100.0
}

fn list_assumptions(more: &[&str]) -> Vec<String> {
    let all = [
        "The jobs are synthetic: composed from what is published of the Lingjun trace (5,000 jobs \
         in two weeks, 12 % on 128 GPUs or more, at most 512), by seed; at most three seeds.",
        "Models by size of the job, from built-in profiles; a ring for each NIC. Profiles are of \
         fast networks, and the paper withholds volumes, so every byte counts several times.",
        "Jobs are placed in order of arrival, in one host, one leaf, or as few leaves as need be, \
         where no other placement is named.",
        "Utilisation is of the GPU time that jobs hold; a job runs the iterations that take it as \
         long as the trace says when alone.",
    ]
    .iter()
    .chain(more);
    all.map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_was_not_replayed_is_an_error() {
        let asked = SchedulingScheme::new(PlacementAlgorithm::SameLeaf, Scheduler::Crux);
        let runs = ReplayRuns { ways: vec![asked], outcomes: Vec::new() };
        assert!(runs.outcomes_of(asked).is_ok());
        let other = SchedulingScheme::new(PlacementAlgorithm::SameLeaf, Scheduler::Ecmp);
        let error = runs.outcomes_of(other).unwrap_err().to_string();
        assert_eq!(error, "nothing was replayed as same-leaf, ecmp");
    }
}
