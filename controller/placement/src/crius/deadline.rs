//! Crius with deadlines: a job gets only GPUs on which it ends in time.

use std::collections::BTreeMap;

use crate::allocation::{AllocatedJob, RestartStall};

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
        let Some(deadline) = self.by_job.get(&held.request.job) else {
            return true;
        };
        let left = held.request.remaining_iterations * held.iteration_seconds;
        let stall = RestartStall::PRUNED.stall_seconds(held.shape.gpu_count());
        end_seconds(now_seconds, stall, left) <= *deadline
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
}
