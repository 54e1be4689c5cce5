//! What jobs get done in a round.
//!
//! Two ways of counting, because the simulator of Crius' authors differs from what it describes:
//! there a stall of up to a round costs no iteration, and whenever a job's speed changes, all that
//! it ran before counts at the new speed ([`ProgressCount::AtPresentSpeed`]). Results of that
//! simulator can only be compared with this count.

use std::collections::BTreeMap;

use placement::{PlacementDecision, PlacementRequest};

/// How the iterations of a job are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressCount {
    /// At the speed that the job had when it ran them, after its stall.
    #[default]
    AsRun,
    /// As scheduler.py of sjtu-epcc/arena does: whole iterations, at the present speed for all
    /// rounds in which the job ran, also for those before it was suspended, which then count twice.
    /// A stall costs a round for each that it lasts beyond the first, and nothing else.
    AtPresentSpeed,
}

/// What a job did in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundProgress {
    /// Iterations; below zero where a slower speed counts for earlier rounds too.
    pub(super) iterations: f64,
    /// Seconds into the round at which the last of them was over.
    pub(super) last_seconds: f64,
}

/// What all jobs have done and how long they still stand still.
#[derive(Clone, Debug)]
pub(super) struct JobProgress {
    count: ProgressCount,
    round_seconds: f64,
    stalls: BTreeMap<u32, f64>,
    ran: BTreeMap<u32, RanRounds>,
}

/// A job in [`ProgressCount::AtPresentSpeed`].
#[derive(Clone, Copy, Debug)]
struct RanRounds {
    /// Iterations of which what it ran is subtracted.
    iterations: f64,
    seconds: f64,
}

impl JobProgress {
    pub(super) fn new(count: ProgressCount, round_seconds: f64) -> Self {
        Self { count, round_seconds, stalls: BTreeMap::new(), ran: BTreeMap::new() }
    }

    pub(super) fn record_decision(&mut self, decision: &PlacementDecision) {
        if let PlacementDecision::Start(start) = decision {
            self.stalls.insert(start.job, start.stall_seconds);
        }
    }

    /// Takes note of the jobs that wait after the decisions of a round.
    pub(super) fn record_waiting(&mut self, waiting: &[PlacementRequest]) {
        for request in waiting {
            if let Some(ran) = self.ran.get_mut(&request.job) {
                ran.iterations = request.remaining_iterations;
            }
        }
    }

    /// Runs a job for a round at so many iterations per second.
    pub(super) fn run_job(&mut self, request: &PlacementRequest, rate: f64) -> RoundProgress {
        match self.count {
            ProgressCount::AsRun => self.run_after_stall(request, rate),
            ProgressCount::AtPresentSpeed => self.recount_rounds(request, rate),
        }
    }

    fn run_after_stall(&mut self, request: &PlacementRequest, rate: f64) -> RoundProgress {
        let stall = self.stalls.entry(request.job).or_default();
        let stands = stall.min(self.round_seconds);
        *stall -= stands;
        let seconds = self.round_seconds - stands;
        let iterations = (rate * seconds).min(request.remaining_iterations);
        RoundProgress { iterations, last_seconds: stands + iterations / rate }
    }

    fn recount_rounds(&mut self, request: &PlacementRequest, rate: f64) -> RoundProgress {
        let last_seconds = self.round_seconds;
        let stall = self.stalls.entry(request.job).or_default();
        if *stall > self.round_seconds {
            *stall -= self.round_seconds;
            return RoundProgress { iterations: 0.0, last_seconds };
        }
        let begins = RanRounds { iterations: request.remaining_iterations, seconds: 0.0 };
        let ran = self.ran.entry(request.job).or_insert(begins);
        ran.seconds += self.round_seconds;
        let left = (ran.iterations - (ran.seconds * rate).floor()).max(0.0);
        RoundProgress { iterations: request.remaining_iterations - left, last_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::{GpusByHost, StartDecision};

    fn request(remaining_iterations: f64) -> PlacementRequest {
        PlacementRequest {
            job: 1,
            gpus: 1,
            kind: None,
            submitted_seconds: 0.0,
            remaining_seconds: 60.0,
            remaining_iterations,
            model: None,
            tenant: None,
        }
    }

    /// A job of 1,000 iterations that stalls and runs a round at each of these rates: what is left.
    fn check(count: ProgressCount, stall_seconds: f64, rates: &[f64], expect: &[f64]) {
        let mut progress = JobProgress::new(count, 300.0);
        let start = StartDecision { stall_seconds, ..StartDecision::new(1, GpusByHost::new()) };
        progress.record_decision(&PlacementDecision::Start(start));
        let mut left = 1_000.0;
        let all = rates.iter().map(|rate| {
            left -= progress.run_job(&request(left), *rate).iterations;
            left
        });
        assert_eq!(all.collect::<Vec<f64>>(), expect);
    }

    #[test]
    fn a_stall_costs_iterations_only_where_they_count_as_they_were_run() {
        check(ProgressCount::AsRun, 100.0, &[1.0, 1.0], &[800.0, 500.0]);
        check(ProgressCount::AsRun, 400.0, &[1.0, 1.0], &[1_000.0, 800.0]);
        check(ProgressCount::AtPresentSpeed, 100.0, &[1.0, 1.0], &[700.0, 400.0]);
        check(ProgressCount::AtPresentSpeed, 400.0, &[1.0, 1.0], &[1_000.0, 700.0]);
    }

    #[test]
    fn another_speed_counts_for_earlier_rounds_only_at_present_speed() {
        check(ProgressCount::AsRun, 0.0, &[1.0, 2.0], &[700.0, 100.0]);
        check(ProgressCount::AtPresentSpeed, 0.0, &[1.0, 1.5], &[700.0, 100.0]);
        check(ProgressCount::AtPresentSpeed, 0.0, &[1.0, 0.25], &[700.0, 850.0]);
    }

    #[test]
    fn what_a_suspended_job_ran_counts_twice_at_present_speed() {
        let mut progress = JobProgress::new(ProgressCount::AtPresentSpeed, 300.0);
        assert_eq!(progress.run_job(&request(1_000.0), 1.0).iterations, 300.0);
        progress.record_waiting(&[request(700.0)]);
        assert_eq!(progress.run_job(&request(700.0), 1.0).iterations, 600.0);
    }
}
