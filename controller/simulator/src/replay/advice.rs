//! Where a policy would place a new job in a fabric with running jobs, and the effect on all of
//! them.
//!
//! The policy decides as in a replay, on a [`ClusterJobs`] with the running jobs. Then the
//! scheduler decides with the new job and without it, and `steady_state` computes the iteration
//! times of both.

use std::collections::BTreeMap;

use planner::{Job, JobsDocument, PlanInput, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Fabric;

use super::TraceReplayError;
use super::interference_groups::InterferenceModel;
use super::network_update::SettledNetwork;
use crate::scheduler::Scheduler;
use placement::{
    ClusterJobs, GpuCluster, GpusByHost, PlacementAlgorithm, PlacementContext, PlacementDecision,
    PlacementRequest, StartDecision,
};
use placement::{ModelTable, TrainingModel};

/// A job that looks for GPUs, and the fabric as it is.
#[derive(Clone, Debug)]
pub struct PlacementQuery<'a> {
    /// Fabric and the jobs that run.
    pub input: &'a PlanInput,
    /// The policy of the operator.
    pub policy: &'a Policy,
    /// The communication scheduler to use.
    pub scheduler: Scheduler,
    /// GPUs that the job requests.
    pub gpus: u32,
    /// The model that it trains.
    pub model: &'a TrainingModel,
    /// Model data of the other jobs for the policies.
    pub models: &'a ModelTable,
    /// Where chance comes from.
    pub seed: u64,
}

/// Where one placement policy would put the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementAdvice {
    /// The policy, by name.
    pub placement: String,
    /// GPUs by host; empty if it does not start the job now.
    pub gpus: BTreeMap<String, u32>,
    /// Leaves that those hosts are on.
    pub leaves: usize,
    /// Seconds of an iteration there; null if it does not start.
    pub iteration_seconds: Option<f64>,
    /// Seconds of an iteration there without other jobs.
    pub alone_seconds: Option<f64>,
    /// Jobs whose iterations take longer then.
    pub delayed: Vec<DelayedJob>,
    /// Jobs that the policy would suspend or move for it.
    pub moved: Vec<String>,
    /// Why it does not start.
    pub refusal: Option<String>,
}

/// A job that the new one delays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayedJob {
    /// Name of the job.
    pub job: String,
    /// Seconds of an iteration before.
    pub before_seconds: f64,
    /// Seconds of an iteration with the new job.
    pub after_seconds: f64,
}

/// The name under which the new job is planned.
const NEW_JOB: &str = "new";

/// Longer iterations than before by less than this part are no delay.
const NOTICEABLE: f64 = 1e-3;

impl PlacementQuery<'_> {
    /// What `placement` would do.
    ///
    /// # Errors
    /// The jobs that run do not fit the fabric, or the policy does not work on it.
    pub fn evaluate_policy(
        &self,
        placement: PlacementAlgorithm,
    ) -> Result<PlacementAdvice, TraceReplayError> {
        let cluster = GpuCluster::from_fabric(&self.input.fabric);
        let context = PlacementContext::from_fabric(&self.input.fabric, self.models, self.seed);
        let mut policy = placement.create_policy(&cluster, &context)?;
        let mut cluster_jobs = ClusterJobs::new(cluster);
        for (number, job) in (0..).zip(&self.input.jobs) {
            cluster_jobs.submit_job(placement_request(
                number,
                job.gpu_count(),
                job.model.clone(),
            ))?;
            cluster_jobs.apply_decision(&StartDecision::new(number, job.gpus.clone()).into())?;
        }
        let number = u32::try_from(self.input.jobs.len()).unwrap_or(u32::MAX);
        cluster_jobs.submit_job(placement_request(
            number,
            self.gpus,
            Some(self.model.name.clone()),
        ))?;
        let decisions = policy.make_decisions(&cluster_jobs.state_at(0.0));
        self.build_advice(placement, number, &decisions)
    }

    fn build_advice(
        &self,
        placement: PlacementAlgorithm,
        number: u32,
        decisions: &[PlacementDecision],
    ) -> Result<PlacementAdvice, TraceReplayError> {
        let mut advice = PlacementAdvice {
            placement: placement.name().to_owned(),
            gpus: BTreeMap::new(),
            leaves: 0,
            iteration_seconds: None,
            alone_seconds: None,
            delayed: Vec::new(),
            moved: Vec::new(),
            refusal: Some("it waits: too few GPUs that this policy would give are free".to_owned()),
        };
        for decision in decisions {
            match decision {
                PlacementDecision::Start(start) if start.job == number => {
                    advice.refusal = None;
                    self.estimate_effects(&start.gpus, &mut advice)?;
                }
                PlacementDecision::Refuse { job, reason } if *job == number => {
                    advice.refusal = Some(reason.clone());
                }
                PlacementDecision::Suspend { job } => {
                    let moved = self.input.jobs.get(*job as usize);
                    advice.moved.extend(moved.map(|job| job.id.to_string()));
                }
                PlacementDecision::Start(_) | PlacementDecision::Refuse { .. } => {}
            }
        }
        Ok(advice)
    }

    /// What it would be like there.
    fn estimate_effects(
        &self,
        gpus: &GpusByHost,
        advice: &mut PlacementAdvice,
    ) -> Result<(), TraceReplayError> {
        let fabric = &self.input.fabric;
        let document = self.model.job_document(NEW_JOB, gpus, fabric);
        let jobs = vec![document];
        let new = JobsDocument { jobs }.resolve_jobs(fabric, "new job")?.jobs;
        let hosts = GpuCluster::from_fabric(fabric).hosts;
        let leaves = gpus.keys().map(|host| hosts[host.index()].leaf);
        advice.leaves = leaves.collect::<std::collections::BTreeSet<_>>().len();
        advice.gpus =
            gpus.iter().map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus)).collect();

        let before = self.iteration_seconds(self.input.jobs.clone())?;
        let after = self.iteration_seconds([&self.input.jobs[..], &new].concat())?;
        advice.alone_seconds = self.iteration_seconds(new)?.last().copied();
        advice.iteration_seconds = after.last().copied();
        let jobs = self.input.jobs.iter().zip(before.iter().zip(&after));
        let delayed = jobs.filter(|(_, (before, after))| **after > *before * (1.0 + NOTICEABLE));
        advice.delayed = delayed
            .map(|(job, (before, after))| DelayedJob {
                job: job.id.to_string(),
                before_seconds: *before,
                after_seconds: *after,
            })
            .collect();
        Ok(())
    }

    /// Seconds of an iteration of each job, once they have settled; infinite without a path.
    fn iteration_seconds(&self, mut jobs: Vec<Job>) -> Result<Vec<f64>, TraceReplayError> {
        let fabric: &Fabric = &self.input.fabric;
        self.scheduler.adapt_jobs(fabric, &mut jobs);
        let input = PlanInput { fabric: fabric.clone(), jobs };
        let schedule = self.scheduler.schedule_jobs(&input, self.policy, None);
        let jobs = (0..).zip(&input.jobs);
        let everybody = InterferenceModel::AllJobs;
        let settled = SettledNetwork::default().settle(fabric, everybody, jobs, &schedule)?;
        Ok(settled.into_values().map(|steady| steady.seconds).collect())
    }
}

/// How long jobs that run have still to go is not known; an hour for all alike.
const REMAINING_SECONDS: f64 = 3600.0;

fn placement_request(job: u32, gpus: u32, model: Option<String>) -> PlacementRequest {
    PlacementRequest {
        job,
        gpus,
        kind: None,
        submitted_seconds: f64::from(job),
        remaining_seconds: REMAINING_SECONDS,
        remaining_iterations: REMAINING_SECONDS,
        model,
        tenant: None,
    }
}

#[cfg(test)]
mod tests {
    use topology::clos::{self, ClosSpec};

    use super::*;

    /// A BERT of two hosts on an idle lab, and then one more.
    fn ask(placement: PlacementAlgorithm, taken: &[u32], gpus: u32) -> PlacementAdvice {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let models = ModelTable::built_in();
        let model = models.by_name("bert-large-seq512/A100").unwrap();
        let hosts: GpusByHost = taken.iter().map(|host| (topology::HostId(*host), 8)).collect();
        let documents = match taken {
            [] => Vec::new(),
            _ => vec![model.job_document("old", &hosts, &fabric)],
        };
        let jobs = JobsDocument { jobs: documents }.resolve_jobs(&fabric, "jobs").unwrap().jobs;
        let question = PlacementQuery {
            input: &PlanInput { fabric, jobs },
            policy: &Policy::default(),
            scheduler: Scheduler::Crux,
            gpus,
            model,
            models: &models,
            seed: 1,
        };
        question.evaluate_policy(placement).unwrap()
    }

    #[test]
    fn a_job_goes_where_the_policy_says_and_runs_as_alone_on_an_idle_leaf() {
        let advice = ask(PlacementAlgorithm::SameLeaf, &[0, 3], 16);
        let hosts: Vec<&str> = advice.gpus.keys().map(String::as_str).collect();
        assert_eq!((hosts, advice.leaves), (vec!["h2", "h3"], 1));
        assert_eq!(advice.iteration_seconds, advice.alone_seconds);
        assert!(advice.delayed.is_empty() && advice.refusal.is_none());
    }

    #[test]
    fn refusals_are_reported() {
        let waits = ask(PlacementAlgorithm::FirstFit, &(0..11).collect::<Vec<_>>(), 16);
        assert!(waits.refusal.unwrap().starts_with("it waits"));
        let never = ask(PlacementAlgorithm::FirstFit, &[], 97);
        assert_eq!(never.refusal.unwrap(), "it requests 97 GPUs of 96");
    }
}
