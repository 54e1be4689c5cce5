//! A cluster, replayed for days or weeks: Crux, Figs. 23 and 25 (Crux §6.3 and §6.4), and beyond
//! the papers who gains from whom if job and communication schedulers are combined.
//!
//! The trace of the paper is not public: the jobs are composed from its published facts. What else
//! it withholds is assumed in two ways ([`WithheldFacts`]): by the one calibration, and, as a sweep
//! beside it, by profiles whose volumes are multiplied until the margins of the paper appear.

mod fig23;
mod fig25;
mod scheduler_pairs;

pub(super) use fig23::{reproduce_fig23, reproduce_fig23_causes, reproduce_fig23_profiles};
pub(super) use fig25::{reproduce_fig25, reproduce_fig25_profiles};
pub(super) use scheduler_pairs::{reproduce_pairs, reproduce_pairs_profiles};

use std::collections::BTreeMap;

use placement::ModelTable;
use placement::queue::JobFragmentation;
use placement::{GpuCluster, PlacementAlgorithm};
use planner::Policy;
use simulator::Scheduler;
use simulator::replay::{InterferenceModel, ReplayOutcome, ReplaySetup};
use simulator::trace::{TraceComposition, compose_trace};
use topology::{Fabric, examples};

use super::SeedOptions;
use super::parameter_set::ParameterSet;
use super::report::percent_change;
use crate::replay::runs::{self, CheckpointArgs};
use command_io::CommandError;

const CLOS: &str = "crux-clos-173x16";
const DOUBLE_SIDED: &str = "crux-double-sided";

/// Profiles whose every byte counts 8 times, where the factor is not swept.
const PROFILES: WithheldFacts = WithheldFacts::Profiles { volume: 8.0 };

/// What `crux reproduce calibrate` finds.
const CALIBRATED: WithheldFacts = WithheldFacts::Set(ParameterSet::CALIBRATED);

/// How much of a trace is replayed: two weeks as in the paper, and less for what two weeks would
/// take too long. Scattered jobs with eight connections on every NIC share links in one group of
/// thousands of flows, so that half a day of them takes as long as a week of packed jobs.
#[derive(Clone, Copy)]
struct ReplayLength {
    name: &'static str,
    jobs: usize,
    hours: u32,
}

const TWO_WEEKS: ReplayLength = ReplayLength { name: "two weeks", jobs: 5_000, hours: 14 * 24 };
const TWO_DAYS: ReplayLength = ReplayLength { name: "two days", jobs: 5_000 / 7, hours: 48 };
const HALF_A_DAY: ReplayLength = ReplayLength { name: "half a day", jobs: 5_000 / 28, hours: 12 };

/// What is assumed of all that the paper withholds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WithheldFacts {
    /// The one calibration, or a set beside it in a sweep.
    Set(ParameterSet),
    /// Volumes of profiles of fast networks, of which every byte counts so many times; uplinks as
    /// in the document of the fabric, one connection of a ring on a NIC.
    Profiles { volume: f64 },
}

impl WithheldFacts {
    /// How rows are headed.
    fn label(self) -> String {
        match self {
            Self::Set(set) => set.label(),
            Self::Profiles { volume } => format!("volume x {volume}"),
        }
    }

    fn example_fabric(self, name: &str) -> Result<Fabric, CommandError> {
        match self {
            Self::Set(set) => set.example_fabric(name),
            Self::Profiles { .. } => {
                let document = examples::example_document(name).map_err(CommandError::document)?;
                Fabric::try_from(&document).map_err(CommandError::document)
            }
        }
    }

    fn model_table(self) -> Result<ModelTable, CommandError> {
        match self {
            Self::Set(set) => set.model_table(),
            Self::Profiles { .. } => Ok(ModelTable::built_in()),
        }
    }

    /// Factor on the volumes of the models.
    fn volume(self) -> f64 {
        match self {
            // Its models have it already.
            Self::Set(_) => 1.0,
            Self::Profiles { volume } => volume,
        }
    }

    /// Connections of a ring on a NIC.
    fn connections(self) -> u32 {
        match self {
            Self::Set(set) => u32::from(set.connections),
            Self::Profiles { .. } => 1,
        }
    }

    fn fragmentation(self) -> JobFragmentation {
        match self {
            Self::Set(set) => set.fragmentation,
            Self::Profiles { .. } => JobFragmentation::CALIBRATED,
        }
    }

    /// The policy of replays: Crux as users run it with the calibrated set, and its phases alone,
    /// as in the paper, in the weeks of profiles. Parts of Crux are its phases in any case.
    fn policy(self, scheduler: Scheduler) -> Policy {
        match (self, scheduler) {
            (Self::Set(_), Scheduler::Crux) => Policy::default(),
            _ => Policy { search_events: 0, ..Policy::default() },
        }
    }
}

/// What is replayed under each scheduler.
#[derive(Clone, Copy)]
struct ReplayWorkload {
    fabric: &'static str,
    length: ReplayLength,
    facts: WithheldFacts,
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
        let fabric = self.facts.example_fabric(self.fabric)?;
        let cluster = GpuCluster::from_fabric(&fabric);
        let ReplayLength { jobs, hours, .. } = self.length;
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
            models: self.facts.model_table()?,
            volume: self.facts.volume(),
            connections: self.facts.connections(),
            policy: Policy::default(),
            placement: PlacementAlgorithm::SameLeaf,
            fragmentation: self.facts.fragmentation(),
            quotas: BTreeMap::new(),
            scheduler: Scheduler::Crux,
            alternatives: Vec::new(),
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
        for seed in options.all_seeds() {
            let setup = self.build_setup(seed)?;
            setups.extend(ways.iter().map(|way| ReplaySetup {
                placement: way.placement,
                scheduler: way.scheduler,
                policy: self.facts.policy(way.scheduler),
                interference: way.interference,
                ..setup.clone()
            }));
        }
        let (replays, length) = (setups.len(), self.length.name);
        eprintln!("{}: {replays} replays of {length}, {}", self.fabric, self.facts.label());
        let outcomes = runs::replay_all(&setups, None, &CheckpointArgs::default())?;
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
        self.compare_utilisation([way, other], |of, other| of - other)
    }

    /// Per cent of `other`'s GPU utilisation by which `way` is above it, by seed.
    fn utilisation_gains(
        &self,
        way: SchedulingScheme,
        other: SchedulingScheme,
    ) -> Result<Vec<f64>, CommandError> {
        self.compare_utilisation([way, other], |of, other| percent_change(other, of))
    }

    /// A comparison of the GPU utilisation of two ways, in per cent, by seed.
    fn compare_utilisation(
        &self,
        ways: [SchedulingScheme; 2],
        compare: fn(f64, f64) -> f64,
    ) -> Result<Vec<f64>, CommandError> {
        let [ours, theirs] = ways.map(|way| self.measure_by_seed(way, per_cent));
        Ok(ours?.into_iter().zip(theirs?).map(|(of, other)| compare(of, other)).collect())
    }
}

/// What the paper says of the utilisation of its Clos under each scheduler over two weeks, per cent
/// (notes of the authors' talk).
pub(super) fn paper_utilisation(scheduler: Scheduler) -> Option<f64> {
    match scheduler {
        Scheduler::Sincronia => Some(39.0),
        Scheduler::Cassini => Some(49.0),
        Scheduler::CruxPa => Some(51.0),
        Scheduler::CruxPsPa | Scheduler::Crux => Some(62.0),
        Scheduler::Ecmp
        | Scheduler::Spray
        | Scheduler::Varys
        | Scheduler::VarysMadd
        | Scheduler::Taccl
        | Scheduler::TacclJob
        | Scheduler::Mltcp => None,
    }
}

fn per_cent(outcome: &ReplayOutcome) -> f64 {
    outcome.gpu_utilization * 100.0
}

/// What is assumed in all of these experiments, about the withheld facts, and `more`.
fn list_assumptions(facts: WithheldFacts, more: &[&str]) -> Vec<String> {
    let of_facts: &[&str] = match facts {
        WithheldFacts::Set(_) => &[
            "What the paper withholds is as crux reproduce calibrate finds it: 0.9 times the \
             volumes of crux-fig7, uplinks of the Clos of 400 Gb/s, eight connections of a ring \
             on a NIC; fragmented placement packs jobs, but for 30 % of them that it scatters over \
             random hosts by twos.",
            "A job uses all NICs of its hosts, also of those that it shares.",
            "crux is as by default, with the search of better plans; crux-pa and crux-ps-pa are \
             the plain phases of the paper.",
        ],
        WithheldFacts::Profiles { .. } => &[
            "crux is the plain phases of the paper, without the search of better plans.",
            "A ring for each NIC with one connection. Volumes are of profiles of fast networks, \
             and the paper withholds them, so every byte counts several times.",
            "Jobs are placed in order of arrival, in one host, one leaf, or as few leaves as need \
             be, where no other placement is named.",
        ],
    };
    let all = [
        "The jobs are synthetic: composed from what is published of the Lingjun trace (5,000 jobs \
         in two weeks, 12 % on 128 GPUs or more, at most 512), by seed. Models by size of the job, \
         from built-in profiles.",
        "Utilisation is of the GPU time that jobs hold; a job runs the iterations that take it as \
         long as the trace says when alone.",
    ]
    .iter()
    .chain(of_facts)
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
