//! SJF-BCO for jobs that come over time: the offline search over those that wait, again whenever
//! somebody comes or goes.
//!
//! The paper's jobs are all there at the start. Here the jobs that run keep their GPUs and their
//! load; those that wait are scheduled as in the paper, and what the schedule begins at once
//! begins. Progress is real-valued and a slot is a minute, since a minute has no whole number of
//! iterations.

use topology::HostId;

use super::{Constants, Job, Problem, Progress, Search, schedule};
use crate::placement::queue::refusal;
use crate::placement::{Decision, Gpus, Policy, Request, Running, Start, State};
use crate::workload::{Model, Models};

/// Seconds of a slot.
const SLOT_SECONDS: f64 = 60.0;

/// Jobs that are searched at once, the smallest first; those behind them wait.
const AT_ONCE: usize = 32;

/// The policy.
#[derive(Clone, Debug)]
pub struct SjfBco {
    models: Models,
    constants: Constants,
}

impl SjfBco {
    /// The policy, with what it is to believe of models, and the speed of a NIC in bytes per
    /// second.
    ///
    /// The paper gives no constants; assumed are: within a server ten times the speed of the NIC,
    /// gradients reduced at a hundred times, an overhead of 1 ms for each server of a ring, and
    /// contention felt in full and a fifth worse than fair.
    pub fn new(models: Models, nic_bytes_per_second: f64) -> Self {
        let external = nic_bytes_per_second * SLOT_SECONDS;
        Self {
            models,
            constants: Constants {
                external,
                internal: 10.0 * external,
                reduction: 100.0 * external,
                contention: 1.0,
                overhead: 1e-3 / SLOT_SECONDS,
                degradation: 0.2,
                progress: Progress::Real,
            },
        }
    }

    fn job(&self, request: &Request) -> Job {
        let model = request
            .model
            .as_deref()
            .and_then(|name| self.models.named(name));
        // A job of an unknown model computes for a second and sends nothing.
        let seconds = model.map_or(1.0, |model: &Model| model.compute_seconds);
        Job {
            gpus: request.gpus,
            iterations: request.remaining_iterations.ceil().max(1.0) as u64,
            gradient: model.map_or(0.0, |model| model.gradient_bytes),
            batch: 1.0,
            forward: 0.0,
            backward: seconds / SLOT_SECONDS,
        }
    }

    fn problem(&self, state: &State<'_>, waiting: &[&Request]) -> Problem {
        let hosts = state.cluster.hosts.len();
        let running = |running: &Running| {
            let mut on = vec![0; hosts];
            for (host, gpus) in &running.gpus {
                on[host.index()] = *gpus;
            }
            (self.job(&running.request), on)
        };
        let jobs: Vec<Job> = waiting.iter().map(|request| self.job(request)).collect();
        let running: Vec<_> = state.running.iter().map(running).collect();
        // Everybody after everybody else, each as slow as it can be.
        let most_gpus = state
            .cluster
            .hosts
            .iter()
            .map(|host| host.gpus)
            .max()
            .unwrap_or(1);
        let all = jobs.iter().chain(running.iter().map(|(job, _)| job));
        let worst = |job: &Job| {
            let iteration = self.constants.worst_iteration(job, most_gpus);
            (job.iterations as f64 * iteration).ceil() + 1.0
        };
        Problem {
            servers: state.cluster.hosts.iter().map(|host| host.gpus).collect(),
            horizon: all.map(worst).sum::<f64>() as u64,
            jobs,
            running,
            constants: self.constants,
            estimate_divisor: 1.0,
            server_slack: 1.0,
        }
    }
}

impl Policy for SjfBco {
    fn decide(&mut self, state: &State<'_>) -> Vec<Decision> {
        let refused = |job: &Request| refusal(state.cluster, job.job, job.gpus);
        let mut decisions: Vec<Decision> = state.waiting.iter().filter_map(refused).collect();
        let mut waiting: Vec<&Request> = state
            .waiting
            .iter()
            .filter(|job| refused(job).is_none())
            .collect();
        waiting.sort_by_key(|request| (request.gpus, request.job));
        waiting.truncate(AT_ONCE);
        if waiting.is_empty() || state.free().total() < waiting[0].gpus {
            return decisions;
        }
        let Some(found) = schedule(&self.problem(state, &waiting), Search::Feasible) else {
            return decisions;
        };
        for (request, placed) in waiting.iter().zip(found.jobs) {
            let Some(placed) = placed.filter(|placed| placed.start == 0) else {
                continue;
            };
            let on = placed.on.iter().enumerate().filter(|(_, gpus)| **gpus > 0);
            let gpus: Gpus = on.map(|(host, gpus)| (HostId::from(host), *gpus)).collect();
            decisions.push(Start::new(request.job, gpus).into());
        }
        decisions
    }
}
