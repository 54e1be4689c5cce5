//! The scheduler of Crius, in rounds: gather spread jobs, fit waiting jobs in order of arrival,
//! then use idle GPUs to speed up running jobs.
//!
//! A job that fits while an earlier one waits runs *opportunistically*: the earlier job may take
//! its GPUs as soon as they suffice. This needs no state, because an opportunistic job is one that
//! arrived later than a waiting job.

use std::collections::BTreeSet;

use super::search::{MOST_GPUS, ScheduleSearch};
use crate::allocation::{self, AllocatedJob, ClusterAllocation, RestartStall};
use crate::deadline::{self, JobDeadlines, ROUND_SECONDS};
use crate::throughput::{GpuShape, ThroughputTable};
use crate::{
    ClusterState, GpuCluster, PlacementDecision, PlacementPolicy, PlacementRequest, fcfs, queue,
};

/// Which of its means the scheduler uses; all but in an ablation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriusAbilities {
    /// Jobs may get other numbers of GPUs than they requested.
    pub scaling: bool,
    /// Jobs may get other kinds of GPU than they requested.
    pub moving: bool,
    /// Jobs may run while earlier ones wait for the same kind.
    pub opportunism: bool,
    /// Small jobs may move together to make room.
    pub merging: bool,
}

impl CriusAbilities {
    /// All values, in order.
    pub const ALL: Self = Self { scaling: true, moving: true, opportunism: true, merging: true };
}

/// Crius with the speeds that it assumes.
#[derive(Clone, Debug)]
pub struct CriusPolicy {
    /// The assumed speeds of models.
    pub table: ThroughputTable,
    /// What a start or other GPUs cost.
    pub stall: RestartStall,
    /// Which of its means it uses.
    pub abilities: CriusAbilities,
    /// When jobs must be over.
    pub deadlines: JobDeadlines,
}

impl CriusPolicy {
    /// The scheduler with all its means, and no deadlines.
    pub fn new(table: ThroughputTable) -> Self {
        Self {
            table,
            stall: RestartStall::PRUNED,
            abilities: CriusAbilities::ALL,
            deadlines: JobDeadlines::default(),
        }
    }

    /// The refusal of a job that could not run on anything that it may be given, or whose deadline
    /// passed while it waited.
    fn refuse_impossible(
        &self,
        cluster: &GpuCluster,
        request: &PlacementRequest,
        now_seconds: f64,
    ) -> Option<PlacementDecision> {
        let too_large = queue::refuse_oversized(cluster, request.job, request.gpus);
        too_large
            .or_else(|| self.deadlines.refuse_late(request, now_seconds))
            .or_else(|| (!self.can_ever_run(request)).then(|| fcfs::refuse_unrunnable(request)))
    }

    fn can_ever_run(&self, request: &PlacementRequest) -> bool {
        self.possible_shapes(request).next().is_some()
    }

    /// Whether the job ends in time on any GPUs that it may be given, if it begins now.
    fn can_end_in_time(&self, request: &PlacementRequest, now_seconds: f64) -> bool {
        self.possible_shapes(request).any(|(shape, speed)| {
            let seconds = request.remaining_iterations * self.table.job_batch(request) / speed;
            let stall = RestartStall::PRUNED.stall_seconds(shape.gpu_count());
            let end = deadline::end_seconds(now_seconds, stall, seconds);
            self.deadlines.allow_end(request.job, end)
        })
    }

    /// The numbers and kinds of GPUs on which a job runs, and its speed there.
    fn possible_shapes(&self, request: &PlacementRequest) -> impl Iterator<Item = (GpuShape, f64)> {
        let most = MOST_GPUS.max(request.gpus);
        let powers = (0..u32::BITS).map(|power| 1 << power);
        let counts = powers.take_while(move |gpus| *gpus <= most);
        let shapes = counts.flat_map(move |gpus| {
            (0..self.table.kind_count()).filter_map(move |kind| self.table.best_shape(kind, gpus))
        });
        shapes.filter_map(move |shape| Some((shape, self.table.job_speed(request, shape)?)))
    }

    /// The schedule with a waiting job in it: beside all others, or instead of some that came
    /// later.
    fn fit_waiting<'l>(
        &self,
        search: ScheduleSearch<'_>,
        allocation: &ClusterAllocation<'l>,
        request: &PlacementRequest,
    ) -> Option<ClusterAllocation<'l>> {
        if let Some(fitted) = search.fit_job(allocation, request) {
            return Some(fitted);
        }
        let later: Vec<AllocatedJob> = allocation
            .allocated_jobs()
            .filter(|held| arrival_key(&held.request) > arrival_key(request))
            .cloned()
            .collect();
        if later.is_empty() {
            return None;
        }
        let mut without = allocation.clone();
        for held in &later {
            without.release_job(held.request.job);
        }
        let mut fitted = search.fit_job(&without, request)?;
        for held in later {
            fitted.restore_job(held);
        }
        Some(fitted)
    }

    /// Fits waiting jobs, the earliest first; a job like one that found no room is not tried. A job
    /// that would be late on all GPUs waits, and says nothing about others like it.
    fn fit_all_waiting<'l>(
        &self,
        search: ScheduleSearch<'_>,
        mut allocation: ClusterAllocation<'l>,
        waiting: &[&PlacementRequest],
    ) -> ClusterAllocation<'l> {
        let mut in_vain: BTreeSet<(Option<&str>, u32, u32)> = BTreeSet::new();
        let mut blocked = BTreeSet::new();
        for request in waiting {
            let kind = allocation::requested_kind(request);
            let like = (request.model.as_deref(), kind, request.gpus);
            let held_back = !self.abilities.opportunism && blocked.contains(&kind);
            let late = || !self.can_end_in_time(request, search.now_seconds);
            if held_back || in_vain.contains(&like) || late() {
                continue;
            }
            match self.fit_waiting(search, &allocation, request) {
                Some(fitted) => allocation = fitted,
                None => {
                    in_vain.insert(like);
                    blocked.insert(kind);
                }
            }
        }
        allocation
    }
}

/// The order of arrival.
fn arrival_key(request: &PlacementRequest) -> (u64, u32) {
    // Times are not negative, so that their bits are ordered as they are.
    (request.submitted_seconds.max(0.0).to_bits(), request.job)
}

impl PlacementPolicy for CriusPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let search = ScheduleSearch {
            abilities: self.abilities,
            deadlines: &self.deadlines,
            now_seconds: state.now_seconds,
        };
        let refused = |request: &&PlacementRequest| {
            self.refuse_impossible(state.cluster, request, state.now_seconds)
        };
        let (never, possible): (Vec<&PlacementRequest>, Vec<&PlacementRequest>) =
            state.waiting.iter().partition(|request| refused(request).is_some());
        let mut allocation = ClusterAllocation::from_state(state, &self.table);
        search.gather_spread_jobs(&mut allocation);
        let mut allocation = self.fit_all_waiting(search, allocation, &possible);
        search.upgrade_jobs(&mut allocation);
        let refused = never.iter().filter_map(refused);
        refused.chain(allocation.to_decisions(state, self.stall)).collect()
    }

    fn round_seconds(&self) -> Option<f64> {
        Some(ROUND_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::allocation::tests::{TestCluster, request};
    use crate::{ClusterJobs, GpusByHost};

    /// Two hosts of two GPUs, and a model that gains from all of them.
    fn lab() -> TestCluster {
        let mut lab = TestCluster::new(&[(2, 2)]);
        lab.set_speeds("m", &[(1, 10.0), (2, 19.0), (4, 35.0)]);
        lab.set_speeds("whole", &[(4, 100.0)]);
        lab
    }

    fn decide(cluster_jobs: &mut ClusterJobs, policy: &mut CriusPolicy) {
        let decisions = policy.make_decisions(&cluster_jobs.state_at(0.0));
        for decision in decisions {
            cluster_jobs.apply_decision(&decision).unwrap();
        }
    }

    fn running(cluster_jobs: &ClusterJobs) -> Vec<(u32, u32)> {
        let running = cluster_jobs.state_at(0.0).running.iter();
        let count = |gpus: &GpusByHost| gpus.values().sum();
        running.map(|running| (running.request.job, count(&running.gpus))).collect()
    }

    #[test]
    fn jobs_grow_while_gpus_are_idle_and_shrink_for_others() {
        let lab = lab();
        let (mut cluster_jobs, mut crius) = (lab.empty_jobs(), CriusPolicy::new(lab.table.clone()));
        cluster_jobs.submit_job(request(1, 1, "m")).unwrap();
        decide(&mut cluster_jobs, &mut crius);
        assert_eq!(running(&cluster_jobs), [(1, 4)]);
        cluster_jobs.submit_job(request(2, 2, "m")).unwrap();
        decide(&mut cluster_jobs, &mut crius);
        assert_eq!(running(&cluster_jobs), [(1, 2), (2, 2)]);
        assert!(crius.make_decisions(&cluster_jobs.state_at(0.0)).is_empty());
    }

    #[test]
    fn later_jobs_give_way_to_earlier_ones() {
        let lab = lab();
        let (mut cluster_jobs, mut crius) = (lab.empty_jobs(), CriusPolicy::new(lab.table.clone()));
        cluster_jobs.submit_job(request(3, 4, "m")).unwrap();
        decide(&mut cluster_jobs, &mut crius);
        // It came first, and asks for all; no change of the other makes room.
        cluster_jobs.submit_job(request(2, 4, "whole")).unwrap();
        decide(&mut cluster_jobs, &mut crius);
        assert_eq!(running(&cluster_jobs), [(2, 4)]);
        // The other waits, and cannot do the same to it.
        assert!(crius.make_decisions(&cluster_jobs.state_at(0.0)).is_empty());
    }

    #[test]
    fn a_job_that_never_fits_is_refused() {
        let lab = lab();
        let (mut cluster_jobs, mut crius) = (lab.empty_jobs(), CriusPolicy::new(lab.table.clone()));
        cluster_jobs.submit_job(request(1, 1, "unknown")).unwrap();
        let decisions = crius.make_decisions(&cluster_jobs.state_at(0.0));
        let [PlacementDecision::Refuse { job: 1, reason }] = &decisions[..] else {
            panic!("{decisions:?}");
        };
        assert_eq!(reason, "unknown cannot run on the GPUs that it may have");
    }

    #[test]
    fn a_job_that_would_be_late_waits_until_it_is_dropped() {
        let lab = lab();
        let (mut cluster_jobs, mut crius) = (lab.empty_jobs(), CriusPolicy::new(lab.table.clone()));
        // 3,500 iterations: 100 s on four GPUs, with a stall of 40 s and a round of 300 s.
        for job in [1, 2, 3] {
            let remaining_iterations = 3_500.0;
            let like = PlacementRequest { remaining_iterations, ..request(job, 4, "m") };
            cluster_jobs.submit_job(like).unwrap();
        }
        crius.deadlines.by_job = BTreeMap::from([(1, 439.0), (2, 440.0)]);
        decide(&mut cluster_jobs, &mut crius);
        // The first says nothing about the second; the third has all the time.
        assert_eq!(running(&cluster_jobs), [(2, 4)]);
        let refused = |crius: &mut CriusPolicy, now| {
            let decisions = crius.make_decisions(&cluster_jobs.state_at(now));
            let refusals = decisions.into_iter().filter_map(|decision| match decision {
                PlacementDecision::Refuse { job, .. } => Some(job),
                _ => None,
            });
            refusals.collect::<Vec<u32>>()
        };
        assert!(refused(&mut crius, 438.0).is_empty());
        // The second runs on, though it is late by now.
        assert_eq!(refused(&mut crius, 441.0), [1]);
    }
}
