//! Where a job would go in a fabric that runs others, and what that would do to it and to them.
//!
//! A policy is asked as in a replay, on a [`Board`] that holds the jobs that run; then the
//! scheduler is, with the job and without it, and `steady` says how long all iterations take.

use std::collections::BTreeMap;

use planner::{Input, Job, JobsDocument, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Fabric;

use super::meeting::{self, Hindrance, Scheduled};
use super::{ReplayError, steady};
use crate::placement::{Beliefs, Board, Cluster, Decision, Gpus, Placement, Request, Start};
use crate::scheduler::Scheduler;
use crate::workload::{Model, Models};

/// A job that looks for GPUs, and the fabric as it is.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Fabric and the jobs that run.
    pub input: &'a Input,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// Who schedules communication.
    pub scheduler: Scheduler,
    /// GPUs that the job wants.
    pub gpus: u32,
    /// What it trains.
    pub model: &'a Model,
    /// What policies know of the models of the others.
    pub models: &'a Models,
    /// Where chance comes from.
    pub seed: u64,
}

/// Where one placement policy would put the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// The policy, by name.
    pub placement: String,
    /// GPUs by host; empty if it does not start the job now.
    pub gpus: BTreeMap<String, u32>,
    /// Leaves that those hosts are on.
    pub leaves: usize,
    /// Seconds of an iteration there; null if it does not start.
    pub iteration_seconds: Option<f64>,
    /// Seconds of an iteration there if nobody else ran.
    pub alone_seconds: Option<f64>,
    /// Jobs whose iterations take longer then.
    pub delayed: Vec<Delayed>,
    /// Jobs that the policy would suspend or move for it.
    pub moved: Vec<String>,
    /// Why it does not start.
    pub refusal: Option<String>,
}

/// A job that the new one delays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delayed {
    /// Its name.
    pub job: String,
    /// Seconds of an iteration before.
    pub before_seconds: f64,
    /// Seconds of an iteration with the new job.
    pub after_seconds: f64,
}

/// The name under which the new job is planned.
const NEW: &str = "new";

/// Longer iterations than before by less than this part are no delay.
const NOTICED: f64 = 1e-3;

impl Question<'_> {
    /// What `placement` would do.
    ///
    /// # Errors
    /// The jobs that run do not fit the fabric, or the policy does not work on it.
    pub fn ask(&self, placement: Placement) -> Result<Advice, ReplayError> {
        let cluster = Cluster::of(&self.input.fabric);
        let beliefs = Beliefs::of(&self.input.fabric, self.models, self.seed);
        let mut policy = placement.policy(&cluster, &beliefs)?;
        let mut board = Board::new(cluster);
        for (number, job) in (0..).zip(&self.input.jobs) {
            board.submit(request(number, job.gpu_count(), job.model.clone()))?;
            board.apply(&Start::new(number, job.gpus.clone()).into())?;
        }
        let number = u32::try_from(self.input.jobs.len()).unwrap_or(u32::MAX);
        board.submit(request(number, self.gpus, Some(self.model.name.clone())))?;
        let decisions = policy.decide(&board.state(0.0));
        self.advice(placement, number, &decisions)
    }

    fn advice(
        &self,
        placement: Placement,
        number: u32,
        decisions: &[Decision],
    ) -> Result<Advice, ReplayError> {
        let mut advice = Advice {
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
                Decision::Start(start) if start.job == number => {
                    advice.refusal = None;
                    self.judge(&start.gpus, &mut advice)?;
                }
                Decision::Refuse { job, reason } if *job == number => {
                    advice.refusal = Some(reason.clone());
                }
                Decision::Suspend { job } => {
                    let moved = self.input.jobs.get(*job as usize);
                    advice.moved.extend(moved.map(|job| job.id.to_string()));
                }
                Decision::Start(_) | Decision::Refuse { .. } => {}
            }
        }
        Ok(advice)
    }

    /// What it would be like there.
    fn judge(&self, gpus: &Gpus, advice: &mut Advice) -> Result<(), ReplayError> {
        let fabric = &self.input.fabric;
        let document = self.model.document(NEW, gpus, fabric);
        let jobs = vec![document];
        let new = JobsDocument { jobs }.resolve(fabric, "new job")?.jobs;
        let hosts = Cluster::of(fabric).hosts;
        let leaves = gpus.keys().map(|host| hosts[host.index()].leaf);
        advice.leaves = leaves.collect::<std::collections::BTreeSet<_>>().len();
        let named =
            |(host, gpus): (&topology::HostId, &u32)| (fabric.host(*host).name.clone(), *gpus);
        advice.gpus = gpus.iter().map(named).collect();

        let before = self.iterations(self.input.jobs.clone())?;
        let after = self.iterations([&self.input.jobs[..], &new].concat())?;
        advice.alone_seconds = self.iterations(new)?.last().copied();
        advice.iteration_seconds = after.last().copied();
        let jobs = self.input.jobs.iter().zip(before.iter().zip(&after));
        let delayed = jobs.filter(|(_, (before, after))| **after > *before * (1.0 + NOTICED));
        advice.delayed = delayed
            .map(|(job, (before, after))| Delayed {
                job: job.id.to_string(),
                before_seconds: *before,
                after_seconds: *after,
            })
            .collect();
        Ok(())
    }

    /// Seconds of an iteration of each job, once they have settled; infinite without a path.
    fn iterations(&self, jobs: Vec<Job>) -> Result<Vec<f64>, ReplayError> {
        let fabric: &Fabric = &self.input.fabric;
        let input = Input {
            fabric: fabric.clone(),
            jobs,
        };
        let schedule = self.scheduler.schedule(&input, self.policy, None);
        let scheduled = Scheduled::all((0..).zip(&input.jobs), &schedule);
        let mut seconds = vec![f64::INFINITY; input.jobs.len()];
        for members in meeting::neighbourhoods(fabric, &scheduled, Hindrance::Everyone) {
            for (member, steady) in members.iter().zip(steady::settle(fabric, &members)?) {
                seconds[member.job as usize] = steady.seconds;
            }
        }
        Ok(seconds)
    }
}

/// How long jobs that run have still to go is not known; an hour for all alike.
const REMAINING_SECONDS: f64 = 3600.0;

fn request(job: u32, gpus: u32, model: Option<String>) -> Request {
    Request {
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
    fn ask(placement: Placement, taken: &[u32], gpus: u32) -> Advice {
        let fabric = clos::build("lab", &ClosSpec::default()).unwrap();
        let models = Models::built_in();
        let model = models.named("bert-large-seq512/A100").unwrap();
        let hosts: Gpus = taken
            .iter()
            .map(|host| (topology::HostId(*host), 8))
            .collect();
        let documents = match taken {
            [] => Vec::new(),
            _ => vec![model.document("old", &hosts, &fabric)],
        };
        let jobs = JobsDocument { jobs: documents }
            .resolve(&fabric, "jobs")
            .unwrap()
            .jobs;
        let question = Question {
            input: &Input { fabric, jobs },
            policy: &Policy::default(),
            scheduler: Scheduler::Crux,
            gpus,
            model,
            models: &models,
            seed: 1,
        };
        question.ask(placement).unwrap()
    }

    #[test]
    fn a_job_goes_where_the_policy_says_and_runs_as_alone_on_an_idle_leaf() {
        let advice = ask(Placement::SameLeaf, &[0, 3], 16);
        let hosts: Vec<&str> = advice.gpus.keys().map(String::as_str).collect();
        assert_eq!((hosts, advice.leaves), (vec!["h2", "h3"], 1));
        assert_eq!(advice.iteration_seconds, advice.alone_seconds);
        assert!(advice.delayed.is_empty() && advice.refusal.is_none());
    }

    #[test]
    fn what_cannot_be_is_told() {
        let waits = ask(Placement::FirstFit, &(0..11).collect::<Vec<_>>(), 16);
        assert!(waits.refusal.unwrap().starts_with("it waits"));
        let never = ask(Placement::FirstFit, &[], 97);
        assert_eq!(never.refusal.unwrap(), "it wants 97 GPUs of 96");
    }
}
