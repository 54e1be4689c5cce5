//! The Comparison document: several schedulers on one experiment, and each job by itself.

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
