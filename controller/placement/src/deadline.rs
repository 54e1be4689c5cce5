//! Deadlines of jobs: which GPUs end a job in time, and which jobs are dropped.
//!
//! [`super::crius`] and [`super::elastic_flow`] ask here, both as in sjtu-epcc/arena: a job that
//! begins now stalls, may wait for one more round, and then runs without another change. A job that
//! still waits at its deadline is dropped; one that runs then goes on, but does not count. The
//! decision: deadlines are not part of a request, so that a job without one is like every other.

use std::collections::BTreeMap;

use crate::allocation::{AllocatedJob, RestartStall};
use crate::{PlacementDecision, PlacementRequest};

/// The time between decisions, in seconds; a job waits for one at most.
pub const ROUND_SECONDS: f64 = 300.0;

/// When jobs must be over, in seconds; those that are not named have all the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDeadlines {
    /// Deadline by job number, in seconds.
    pub by_job: BTreeMap<u32, f64>,
}

impl JobDeadlines {
    /// Whether a job ends in time on what it holds.
    pub fn are_met_by(&self, held: &AllocatedJob, now_seconds: f64) -> bool {
        let left = held.request.remaining_iterations * held.iteration_seconds;
        let stall = RestartStall::PRUNED.stall_seconds(held.shape.gpu_count());
        self.allow_end(held.request.job, end_seconds(now_seconds, stall, left))
    }

    /// Whether a job that ends at this time, in seconds, ends in time.
    pub fn allow_end(&self, job: u32, end_seconds: f64) -> bool {
        self.by_job.get(&job).is_none_or(|deadline| end_seconds <= *deadline)
    }

    /// The refusal of a waiting job whose deadline is now or was before.
    pub fn refuse_late(
        &self,
        request: &PlacementRequest,
        now_seconds: f64,
    ) -> Option<PlacementDecision> {
        let deadline = *self.by_job.get(&request.job)?;
        let reason = || format!("it did not run before its deadline at {deadline:.0} s");
        let late = deadline <= now_seconds;
        late.then(|| PlacementDecision::Refuse { job: request.job, reason: reason() })
    }
}

/// When a job is over that still runs `left_seconds` after a stall and a round.
pub fn end_seconds(now_seconds: f64, stall_seconds: f64, left_seconds: f64) -> f64 {
    now_seconds + stall_seconds + ROUND_SECONDS + left_seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::{TestCluster, request};

    #[test]
    fn a_deadline_is_met_to_the_second() {
        // 200 iterations of 2.5 s on four GPUs, whose stall is 40 s.
        let mut lab = TestCluster::new(&[(4, 1)]);
        lab.set_speeds("m/100", &[(4, 40.0)]);
        let mut allocation = lab.empty_allocation();
        let mut job = request(1, 4, "m/100");
        job.remaining_iterations = 200.0;
        assert!(allocation.place_compactly(&job, 0, 4));
        let held = allocation.allocated_jobs().next().unwrap();
        for (deadline, meets) in [(1840.0, true), (1839.0, false)] {
            let deadlines = JobDeadlines { by_job: BTreeMap::from([(1, deadline)]) };
            assert_eq!(deadlines.are_met_by(held, 1000.0), meets, "{deadline}");
        }
    }

    #[test]
    fn a_waiting_job_is_dropped_at_its_deadline() {
        let deadlines = JobDeadlines { by_job: BTreeMap::from([(1, 600.0)]) };
        let dropped = |job, now| deadlines.refuse_late(&request(job, 1, "m"), now).is_some();
        assert_eq!([599.0, 600.0, 601.0].map(|now| dropped(1, now)), [false, true, true]);
        assert!(!dropped(2, f64::MAX), "a job without a deadline");
    }
}
