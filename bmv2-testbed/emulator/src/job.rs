//! A training job as the network sees it: compute, communicate, iterate
//! (`docs/algorithms` "the fluid model"; Crux §3.1).
//!
//! Sans-IO: times and finished flows come in, wake-up times and starts of flows go out.
//! Each flow of an iteration may begin once its part of the computation is done; the iteration ends when
//! both computation and the last flow have ended, and the next one begins at that instant. Computation
//! is a timer.
//!
//! The decision: the barrier between the hosts of a job costs nothing. Real frameworks spend
//! microseconds there, which the published compute times include.

use planner::Job;
use switch::Nanos;

/// Computation and communication of one iteration of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationSpec {
    /// Duration of the computation of one iteration; at least 1.
    pub compute_ns: Nanos,
    /// When its flows may begin, ascending.
    pub starts: Vec<FlowStart>,
}

/// Flows of an iteration that may begin together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowStart {
    /// So long after the start of the iteration; at most its computation.
    pub after_ns: Nanos,
    /// How many there are.
    pub flows: u32,
}

impl IterationSpec {
    /// The iterations of a job in the time of `to_nanos`, and for each of its flows the number of the
    /// start with which it begins.
    pub fn of_job(job: &Job, to_nanos: impl Fn(f64) -> Nanos) -> (Self, Vec<usize>) {
        let compute_ns = to_nanos(job.compute_seconds).max(1);
        let start = |flow| to_nanos(job.flow_start_seconds(flow)).min(compute_ns);
        let mut instants: Vec<Nanos> = job.flows.iter().map(start).collect();
        let of_flows = instants.clone();
        instants.sort_unstable();
        let starts: Vec<FlowStart> = instants
            .chunk_by(|a, b| a == b)
            .map(|alike| FlowStart { after_ns: alike[0], flows: alike.len() as u32 })
            .collect();
        let number = |at: Nanos| starts.partition_point(|start| start.after_ns < at);
        let numbers = of_flows.into_iter().map(number).collect();
        (Self { compute_ns, starts }, numbers)
    }

    /// How long after the start of an iteration the first of its flows may begin.
    pub fn first_start_ns(&self) -> Nanos {
        self.starts.first().map_or(self.compute_ns, |start| start.after_ns)
    }
}

/// When iterations of a job that waits begin: a whole number of periods after an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartGrid {
    /// An instant of the grid.
    pub origin: Nanos,
    /// Between two instants; above zero.
    pub period: Nanos,
    /// The longest wait before an iteration, once the job has found the grid.
    pub most_wait: Nanos,
}

/// A job that has just been given a grid, and is late by less than this part of the period, does not
/// wait for the next instant.
const FOUND_PART: Nanos = 50;

impl StartGrid {
    /// How long an iteration that could begin `now` waits: for a new grid at most a period, then at
    /// most `most_wait`, and not at all if it is late, as its instant has passed.
    fn wait_at(&self, now: Nanos, is_new: bool) -> Nanos {
        let period = self.period.max(1);
        let late = (now % period + period - self.origin % period) % period;
        let early = period - late;
        match is_new {
            true if late <= period / FOUND_PART => 0,
            true => early,
            false if early < late => early.min(self.most_wait),
            false => 0,
        }
    }
}

/// An action that the job requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEffect {
    /// Call [`TrainingJob::handle_wake`] at this instant.
    WakeAt(Nanos),
    /// Start the flows of this number among [`IterationSpec::starts`] now.
    StartFlows(usize),
}

/// A job in training.
#[derive(Clone, Debug)]
pub struct TrainingJob {
    spec: IterationSpec,
    /// Starts of the current iteration that were made, and flows of those that have not ended.
    started: usize,
    active: u32,
    /// When each iteration began; the last one is running, or waits until it begins.
    iteration_starts: Vec<Nanos>,
    /// When its iterations begin, if it is to wait, and whether no iteration has begun by that yet.
    grid: Option<(StartGrid, bool)>,
}

impl TrainingJob {
    /// A job that has not started.
    pub fn new(spec: IterationSpec) -> Self {
        Self { spec, started: 0, active: 0, iteration_starts: Vec::new(), grid: None }
    }

    /// Has the next iterations begin on a grid, or as soon as they can.
    pub fn set_grid(&mut self, grid: Option<StartGrid>) {
        if self.grid.map(|(had, _)| had) != grid {
            self.grid = grid.map(|grid| (grid, true));
        }
    }

    /// Advances to `now`: the start of the job, or the time of a [`TrainingEffect::WakeAt`]. A call
    /// at another time changes nothing.
    pub fn handle_wake(&mut self, now: Nanos) -> Vec<TrainingEffect> {
        if self.iteration_starts.is_empty() {
            self.begin_iteration(now);
        }
        self.advance_state(now)
    }

    /// A flow of the current iteration has been sent and acknowledged.
    pub fn handle_flow_done(&mut self, now: Nanos) -> Vec<TrainingEffect> {
        self.active = self.active.saturating_sub(1);
        self.advance_state(now)
    }

    /// Iterations that have ended.
    pub fn completed_iterations(&self) -> usize {
        self.iteration_starts.len().saturating_sub(1)
    }

    /// When each iteration began, the running one included.
    pub fn iteration_starts(&self) -> &[Nanos] {
        &self.iteration_starts
    }

    /// Computation and communication of one iteration.
    pub fn iteration_spec(&self) -> &IterationSpec {
        &self.spec
    }

    /// An iteration could begin now.
    fn begin_iteration(&mut self, now: Nanos) {
        let wait = match &mut self.grid {
            Some((grid, is_new)) => grid.wait_at(now, std::mem::take(is_new)),
            None => 0,
        };
        self.iteration_starts.push(now + wait);
    }

    fn advance_state(&mut self, now: Nanos) -> Vec<TrainingEffect> {
        let mut effects = Vec::new();
        loop {
            let Some(&begun) = self.iteration_starts.last() else {
                return effects;
            };
            let next = self.spec.starts.get(self.started);
            let wake_at = begun + next.map_or(self.spec.compute_ns, |start| start.after_ns);
            match next {
                Some(start) if now >= wake_at => {
                    self.active += start.flows;
                    effects.push(TrainingEffect::StartFlows(self.started));
                    self.started += 1;
                }
                None if now >= wake_at && self.active == 0 => {
                    self.begin_iteration(now);
                    self.started = 0;
                }
                _ => {
                    // One timer after each start, however many flows end before it.
                    let has_timer = self.started > 0 && effects.is_empty();
                    if now < wake_at && !has_timer {
                        effects.push(TrainingEffect::WakeAt(wake_at));
                    }
                    return effects;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(starts: &[(Nanos, u32)]) -> IterationSpec {
        let starts = starts.iter().map(|&(after_ns, flows)| FlowStart { after_ns, flows });
        IterationSpec { compute_ns: 100, starts: starts.collect() }
    }

    fn training() -> TrainingJob {
        TrainingJob::new(spec(&[(40, 2)]))
    }

    #[test]
    fn computation_that_outlasts_communication_sets_the_pace() {
        let mut job = training();
        assert_eq!(job.handle_wake(0), [TrainingEffect::WakeAt(40)]);
        let starts = [TrainingEffect::StartFlows(0), TrainingEffect::WakeAt(100)];
        assert_eq!(job.handle_wake(40), starts);
        assert_eq!(job.handle_flow_done(60), []);
        assert_eq!(job.handle_flow_done(70), []);
        assert_eq!(job.handle_wake(100), [TrainingEffect::WakeAt(140)]);
        assert_eq!(job.iteration_starts(), [0, 100]);
    }

    #[test]
    fn communication_that_outlasts_computation_sets_the_pace() {
        let mut job = training();
        job.handle_wake(5);
        job.handle_wake(45);
        job.handle_flow_done(60);
        assert_eq!(job.handle_wake(105), []);
        assert_eq!(job.handle_flow_done(150), [TrainingEffect::WakeAt(190)]);
        assert_eq!((job.completed_iterations(), job.iteration_starts()), (1, [5, 150].as_slice()));
    }

    #[test]
    fn a_job_with_a_grid_finds_it_and_then_waits_for_little() {
        let mut job = TrainingJob::new(spec(&[]));
        job.set_grid(Some(StartGrid { origin: 30, period: 110, most_wait: 15 }));
        // A whole turn for the first iteration, a few units for the next, none for one that is late.
        for (wake, begins) in [(40, 140), (240, 250), (365, 365), (465, 470)] {
            let running = job.iteration_starts().last().copied();
            running.iter().for_each(|begun| drop(job.handle_wake(begun + 40)));
            job.handle_wake(wake);
            assert_eq!(job.iteration_starts().last(), Some(&begins), "{wake}");
        }
        job.set_grid(None);
        job.handle_wake(510);
        job.handle_wake(570);
        assert_eq!(job.iteration_starts().last(), Some(&570));
    }

    #[test]
    fn a_job_without_flows_only_computes() {
        let mut job = TrainingJob::new(spec(&[]));
        job.handle_wake(0);
        for turn in 1..=3 {
            job.handle_wake(turn * 100 - 60);
            job.handle_wake(turn * 100);
        }
        assert_eq!(job.completed_iterations(), 3);
    }

    #[test]
    fn without_overlap_communication_waits_for_the_computation() {
        let mut job = TrainingJob::new(spec(&[(100, 2)]));
        assert_eq!(job.handle_wake(0), [TrainingEffect::WakeAt(100)]);
        assert_eq!(job.handle_wake(100), [TrainingEffect::StartFlows(0)]);
    }

    #[test]
    fn flows_of_an_iteration_begin_when_each_may() {
        let mut job = TrainingJob::new(spec(&[(10, 2), (60, 1)]));
        assert_eq!(job.handle_wake(0), [TrainingEffect::WakeAt(10)]);
        let starts = [TrainingEffect::StartFlows(0), TrainingEffect::WakeAt(60)];
        assert_eq!(job.handle_wake(10), starts);
        // All that have begun have ended, and the iteration goes on.
        assert_eq!((job.handle_flow_done(20), job.handle_flow_done(30)), (vec![], vec![]));
        let starts = [TrainingEffect::StartFlows(1), TrainingEffect::WakeAt(100)];
        assert_eq!(job.handle_wake(60), starts);
        assert_eq!((job.handle_wake(100), job.completed_iterations()), (vec![], 0));
        assert_eq!(job.handle_flow_done(130), [TrainingEffect::WakeAt(140)]);
        assert_eq!(job.iteration_starts(), [0, 130]);
    }

    #[test]
    fn early_waking_changes_nothing() {
        let mut job = training();
        job.handle_wake(0);
        assert_eq!(job.handle_wake(10), [TrainingEffect::WakeAt(40)]);
        assert_eq!(
            (job.completed_iterations(), job.handle_flow_done(11)),
            (0, vec![TrainingEffect::WakeAt(40)])
        );
    }
}
