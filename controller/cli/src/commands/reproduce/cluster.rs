//! A cluster, replayed for days or weeks: Crux, Figs. 23 and 25 (Crux §6.3 and §6.4), and beyond
//! the papers who gains from whom if job and communication schedulers are combined.
//!
//! The trace of the paper is not public: the jobs are composed from its published facts. How much
//! they send is withheld, and is what the results depend on most; so sweeps show what hangs on it.

mod fig23;
mod fig25;
mod pairs;

pub(super) use fig23::fig23;
pub(super) use fig25::fig25;
pub(super) use pairs::pairs;

use planner::Policy;
use simulator::Scheduler;
use simulator::placement::{Cluster, Placement};
use simulator::replay::{Hindrance, ReplayOutcome, Setup};
use simulator::trace::{Composition, compose};
use simulator::workload::Models;
use topology::document::Format;
use topology::{examples, spec};

use super::Options;
use super::report::change;
use crate::commands::replay::runs::{self, Checkpoints};
use crate::failure::Failure;

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
struct World {
    fabric: &'static str,
    /// Jobs, and hours over which they come.
    length: (usize, u32),
    volume: f64,
}

/// Who schedules, and who can hold up a job.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    placement: Placement,
    scheduler: Scheduler,
    hindrance: Hindrance,
}

impl Way {
    /// As it is: everyone holds up everyone.
    fn new(placement: Placement, scheduler: Scheduler) -> Self {
        Self {
            placement,
            scheduler,
            hindrance: Hindrance::Everyone,
        }
    }
}

impl World {
    fn setup(self, seed: u64) -> Result<Setup, Failure> {
        let text = examples::example(self.fabric).unwrap_or_default();
        let fabric = spec::parse(text, Format::Toml, self.fabric).map_err(Failure::document)?;
        let cluster = Cluster::of(&fabric);
        let (jobs, hours) = self.length;
        let composition = Composition {
            jobs,
            hours,
            ..Composition::lingjun().within(cluster.gpus())
        };
        let composed = compose(&composition, seed).map_err(|error| Failure::work(&error))?;
        Ok(Setup {
            fabric,
            cluster,
            trace: composed.trace,
            models: Models::built_in(),
            volume: self.volume,
            policy: Policy {
                search_events: 0,
                ..Policy::default()
            },
            placement: Placement::SameLeaf,
            scheduler: Scheduler::Crux,
            hindrance: Hindrance::Everyone,
            seed,
        })
    }

    /// Replays it in all of the ways, for every seed, at once.
    fn replay(self, ways: &[Way], options: Options) -> Result<Runs, Failure> {
        let mut setups = Vec::new();
        for seed in options.all().take(SEEDS) {
            let setup = self.setup(seed)?;
            setups.extend(ways.iter().map(|way| Setup {
                placement: way.placement,
                scheduler: way.scheduler,
                hindrance: way.hindrance,
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
        let outcomes = runs::replay_all(&setups, &Checkpoints::default())?;
        Ok(Runs {
            ways: ways.to_vec(),
            outcomes,
        })
    }
}

/// What came of a world.
struct Runs {
    ways: Vec<Way>,
    /// By seed, then by way.
    outcomes: Vec<ReplayOutcome>,
}

impl Runs {
    /// What came of one way, by seed.
    fn of(&self, way: Way) -> Result<Vec<&ReplayOutcome>, Failure> {
        let place = self.ways.iter().position(|other| *other == way);
        let place = place.ok_or_else(|| {
            let (placement, scheduler) = (way.placement, way.scheduler);
            Failure::Work(format!("nothing was replayed as {placement}, {scheduler}"))
        })?;
        let outcomes = self.outcomes.iter().skip(place);
        Ok(outcomes.step_by(self.ways.len()).collect())
    }

    /// A measure of one way, by seed.
    fn each(&self, way: Way, measure: fn(&ReplayOutcome) -> f64) -> Result<Vec<f64>, Failure> {
        Ok(self.of(way)?.into_iter().map(measure).collect())
    }

    /// Points of GPU utilisation by which `way` is above `other`, by seed.
    fn points(&self, way: Way, other: Way) -> Result<Vec<f64>, Failure> {
        let pairs = self.each(way, per_cent)?.into_iter();
        let pairs = pairs.zip(self.each(other, per_cent)?);
        Ok(pairs.map(|(of, other)| of - other).collect())
    }

    /// Per cent of `other`'s GPU utilisation by which `way` is above it, by seed.
    fn gains(&self, way: Way, other: Way) -> Result<Vec<f64>, Failure> {
        let pairs = self.each(way, per_cent)?.into_iter();
        let pairs = pairs.zip(self.each(other, per_cent)?);
        Ok(pairs.map(|(of, other)| change(other, of)).collect())
    }
}

fn per_cent(outcome: &ReplayOutcome) -> f64 {
    outcome.gpu_utilization * 100.0
}

fn assumptions(more: &[&str]) -> Vec<String> {
    let all = [
        "The jobs are synthetic: composed from what is published of the Lingjun trace (5,000 jobs \
         in two weeks, 12 % on 128 GPUs or more, at most 512), by seed; at most three seeds.",
        "Models by size of the job, from built-in profiles; a ring for each NIC. Profiles are of \
         fast networks, and the paper withholds volumes, so every byte counts several times.",
        "Jobs are placed in order of arrival, in one host, one leaf, or as few leaves as need be, \
         where no other placement is named.",
        "Utilisation is of the GPU time that jobs hold; a job runs the iterations that take it as \
         long as the trace says when alone.",
    ];
    let all = all.iter().chain(more);
    all.map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_replayed_is_an_error_and_not_somebody_else() {
        let asked = Way::new(Placement::SameLeaf, Scheduler::Crux);
        let runs = Runs {
            ways: vec![asked],
            outcomes: Vec::new(),
        };
        assert!(runs.of(asked).is_ok());
        let other = Way::new(Placement::SameLeaf, Scheduler::Ecmp);
        let error = runs.of(other).unwrap_err().to_string();
        assert_eq!(error, "nothing was replayed as same-leaf, ecmp");
    }
}
