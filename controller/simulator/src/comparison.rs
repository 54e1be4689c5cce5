//! The Comparison document: several schedulers on one experiment, and each job by itself.

use planner::Job;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::SimulationOutcome;
use crate::simulation::{SimulationError, SimulationExperiment, alone_seconds};

/// Several outcomes of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerComparison {
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// Each job by itself on the fabric, in the order of the input.
    pub alone: Vec<IsolatedJob>,
    /// What came of each scheduler, in the order asked for.
    pub outcomes: Vec<SimulationOutcome>,
    /// Utilisation over several draws of UDP source ports, on which hashed paths depend; empty if
    /// there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draws: Vec<SchedulerDraws>,
}

/// One scheduler over several draws of UDP source ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerDraws {
    /// The scheduler, by name.
    pub scheduler: String,
    /// Number of draws; the first has the ports of the jobs document.
    pub count: u32,
    /// Share of the jobs' GPU time in which they computed.
    pub gpu_utilization: ValueSpread,
    /// Its difference from that of the first scheduler with equal ports.
    pub gain: ValueSpread,
}

/// What several draws have in common.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueSpread {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of a sample; 0 for a single one.
    pub standard_deviation: f64,
    /// The least of them.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl ValueSpread {
    /// Of values of which there is at least one.
    pub fn new(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            standard_deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl SchedulerDraws {
    /// Of each scheduler; `draws` has its outcomes in the same order for every draw.
    pub fn of_outcomes(draws: &[&[SimulationOutcome]]) -> Vec<Self> {
        let schedulers = draws.first().map_or(0, |outcomes| outcomes.len());
        let of_scheduler = |place: usize| {
            let utilisation = draws.iter().map(|outcomes| outcomes[place].gpu_utilization);
            let gain = draws
                .iter()
                .map(|outcomes| outcomes[place].gpu_utilization - outcomes[0].gpu_utilization);
            Self {
                scheduler: draws[0][place].scheduler.clone(),
                count: u32::try_from(draws.len()).unwrap_or(u32::MAX),
                gpu_utilization: ValueSpread::new(&utilisation.collect::<Vec<_>>()),
                gain: ValueSpread::new(&gain.collect::<Vec<_>>()),
            }
        };
        (0..schedulers).map(of_scheduler).collect()
    }
}

/// Gives every flow of `jobs` a UDP source port that a host might choose, drawn from `seed`.
pub fn draw_ports(jobs: &mut [Job], seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for flow in jobs.iter_mut().flat_map(|job| &mut job.flows) {
        flow.udp_src_port = Some(random.random_range(0xC000..=0xFFFF));
    }
}

/// A job by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IsolatedJob {
    /// Name of the job.
    pub id: String,
    /// Number of its GPUs.
    pub gpus: u32,
    /// Duration of an iteration; null if it has no path or nothing to do.
    pub iteration_seconds: Option<f64>,
}

impl IsolatedJob {
    /// Every job of the experiment by itself.
    ///
    /// # Errors
    /// A number of a job that makes no sense.
    pub fn for_experiment(experiment: &SimulationExperiment) -> Result<Vec<Self>, SimulationError> {
        let jobs = experiment.input.jobs.iter();
        jobs.map(|job| {
            let fabric = &experiment.input.fabric;
            Ok(Self {
                id: job.id.to_string(),
                gpus: job.gpu_count(),
                iteration_seconds: alone_seconds(fabric, job, &experiment.policy)?,
            })
        })
        .collect()
    }
}

impl SchedulerComparison {
    /// Iteration time of each job under an outcome, in units of that alone; none where either is
    /// unknown.
    pub fn job_slowdowns(&self, outcome: &SimulationOutcome) -> Vec<Option<f64>> {
        let jobs = outcome.jobs.iter().zip(&self.alone);
        jobs.map(|(job, alone)| Some(job.mean_iteration_seconds? / alone.iteration_seconds?))
            .collect()
    }

    /// The largest of them with the job; a job that never ended an iteration is not counted.
    pub fn worst_slowdown(&self, outcome: &SimulationOutcome) -> Option<(&IsolatedJob, f64)> {
        let slowdowns = self.alone.iter().zip(self.job_slowdowns(outcome));
        let known = slowdowns.filter_map(|(job, slowdown)| Some((job, slowdown?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::test_input::TestInput;

    #[test]
    fn a_spread_is_that_of_a_sample() {
        let ValueSpread { mean, standard_deviation, least, most } =
            ValueSpread::new(&[2.0, 4.0, 9.0]);
        assert_eq!([mean, least, most], [5.0, 2.0, 9.0]);
        assert!((standard_deviation - 13.0_f64.sqrt()).abs() < 1e-12, "{standard_deviation}");
        assert_eq!(ValueSpread::new(&[3.0]).standard_deviation, 0.0);
    }

    #[test]
    fn ports_depend_on_the_seed_alone() {
        let ports = |seed| {
            let mut input = TestInput::on_lab_fabric().with_job("a", &[("h1", "h4"), ("h2", "h5")]);
            draw_ports(&mut input.jobs, seed);
            input.jobs[0].flows.iter().map(|flow| flow.udp_src_port).collect::<Vec<_>>()
        };
        assert_eq!(ports(1), ports(1));
        assert_ne!(ports(1), ports(2));
        assert!(ports(1).iter().all(|port| *port >= Some(0xC000)));
    }
}
