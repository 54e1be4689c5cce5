//! What decisions are worth to the jobs of a contention group, by the fluid model.
//!
//! Start times of jobs are unknown, and contention depends on them: a group is simulated from
//! several starts, the first of which is that of reports (all at once), and the mean counts. Values
//! are comparable between all candidates of a plan because the simulated time of a group depends
//! only on its jobs.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use topology::LinkPath;

use crate::input::Job;
use crate::policy::Policy;
use crate::search::contention_group::{ContentionGroup, LinkService, RoutedJob, contention_groups};
use crate::search::group_run::{GroupRun, MeasureWindow, compute_share, spread_starts};
use crate::traffic::IndexedTraffic;

/// Starts from which a group is simulated.
const SAMPLES: u32 = 4;

/// Simulations that the budget of a region should suffice for: candidates by starts.
const SIMULATIONS: u64 = 48;

/// Iterations of the slowest job before anything counts, and in all.
const SETTLING_ITERATIONS: f64 = 4.0;
const ITERATIONS: f64 = 20.0;

/// The slowdown of a job that gets nothing: more is not told apart in the simulated time.
const MAX_SLOWDOWN: f64 = 1_000.0;

/// A group with the order of the levels of its members, and a start.
type GroupKey = (Vec<u32>, Vec<Ordering>, u32);

/// Evaluates decisions on the jobs of one region, within a budget of events.
#[derive(Debug)]
pub(super) struct GroupEvaluator<'a> {
    traffic: &'a IndexedTraffic<'a>,
    /// The jobs, ascending; groups have positions among these.
    jobs: &'a [usize],
    /// Value of all GPUs of each of them computing.
    worth: Vec<f64>,
    /// Events that one simulation of a job may take, at most.
    events_per_job: u64,
    events_left: u64,
    /// Share of time that each member computes.
    known: BTreeMap<GroupKey, Vec<f64>>,
}

/// What some decisions are worth to some jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DecisionValue {
    /// Mean worth of the GPUs that compute.
    pub(super) value: f64,
    /// How many times longer than alone an iteration of the slowest-running job takes; at least 1.
    pub(super) worst_slowdown: f64,
}

/// What a plan is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanValue {
    /// Share of the jobs' GPUs that computes, in the mean over time and starts.
    pub gpu_utilization: f64,
    /// How many times longer than alone an iteration of the worst job takes.
    pub worst_slowdown: f64,
}

/// The value of `paths`, by flow of the plan, with `levels`, by job, if all jobs count alike.
pub(crate) fn evaluate_decisions(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
    levels: &[u8],
) -> PlanValue {
    let jobs: Vec<usize> = (0..traffic.jobs.len()).collect();
    let policy = Policy::default();
    let mut evaluator = GroupEvaluator::new(traffic, &policy, &jobs, u64::MAX >> 16);
    let mut sum = DecisionValue::NOTHING;
    for group in evaluator.contention_groups(paths) {
        let levels: Vec<u8> = group.members.iter().map(|job| levels[*job]).collect();
        // Without a bound of events only a job that the model rejects has no value.
        sum = sum.combine(evaluator.mean_value(&group, &levels).unwrap_or_default());
    }
    let total: f64 = evaluator.job_worth().iter().sum();
    PlanValue {
        gpu_utilization: if total > 0.0 { sum.value / total } else { 0.0 },
        worst_slowdown: sum.worst_slowdown,
    }
}

impl DecisionValue {
    /// No jobs.
    pub(super) const NOTHING: Self = Self { value: 0.0, worst_slowdown: 1.0 };

    /// Both together, for jobs that have nothing to do with each other.
    pub(super) fn combine(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            worst_slowdown: self.worst_slowdown.max(other.worst_slowdown),
        }
    }
}

impl<'a> GroupEvaluator<'a> {
    /// An evaluator with a budget of `events` for each job.
    pub(super) fn new(
        traffic: &'a IndexedTraffic<'a>,
        policy: &Policy,
        jobs: &'a [usize],
        events: u64,
    ) -> Self {
        Self {
            traffic,
            jobs,
            worth: jobs.iter().map(|job| policy.job_worth(traffic.jobs[*job])).collect(),
            events_per_job: events / SIMULATIONS,
            events_left: events * jobs.len() as u64,
            known: BTreeMap::new(),
        }
    }

    /// The contention groups of the jobs on `paths`, by flow of the plan.
    pub(super) fn contention_groups(&self, paths: &[LinkPath]) -> Vec<ContentionGroup> {
        let traffic = self.traffic;
        let routed: Vec<RoutedJob<'_>> = self
            .jobs
            .iter()
            .map(|job| {
                let of = traffic.jobs[*job];
                let span = traffic.spans[*job].clone();
                let flows = of.flows.iter().zip(&paths[span]);
                RoutedJob {
                    compute_seconds: of.compute_seconds,
                    overlap_from: of.overlap_from,
                    flows: flows.map(|(flow, path)| (flow.bytes, &path[..])).collect(),
                }
            })
            .collect();
        contention_groups(&routed, |link| LinkService::of_link(traffic.fabric, link))
    }

    /// The most that the jobs can be worth: each as if alone on the best paths.
    pub(super) fn upper_bound(&self) -> f64 {
        let jobs = self.worth.iter().enumerate();
        jobs.map(|(job, worth)| worth * self.busy_share_alone(job)).sum()
    }

    /// Worth of all GPUs of each job, by position.
    pub(super) fn job_worth(&self) -> &[f64] {
        &self.worth
    }

    /// The value of `levels`, by member, from one start; none if the budget does not suffice.
    pub(super) fn evaluate_levels(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: u32,
    ) -> Option<DecisionValue> {
        if let ([job], [seconds]) = (&group.members[..], &group.alone_seconds()[..]) {
            let busy = compute_share(self.job_at(*job).compute_seconds, *seconds);
            return Some(self.value_of(&group.members, &[busy]));
        }
        let key = (group.signature().to_vec(), group.level_relations(levels), sample);
        if !self.known.contains_key(&key) {
            let busy = self.simulate_group(group, levels, sample)?;
            self.known.insert(key.clone(), busy);
        }
        Some(self.value_of(&group.members, &self.known[&key]))
    }

    /// The mean over all starts.
    pub(super) fn mean_value(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<DecisionValue> {
        let mut mean = DecisionValue::default();
        for sample in 0..SAMPLES {
            let of = self.evaluate_levels(group, levels, sample)?;
            mean.value += of.value / f64::from(SAMPLES);
            mean.worst_slowdown += of.worst_slowdown / f64::from(SAMPLES);
        }
        Some(mean)
    }

    /// The value of shares of time that `members` compute.
    fn value_of(&self, members: &[usize], busy: &[f64]) -> DecisionValue {
        let mut sum = DecisionValue::NOTHING;
        for (job, busy) in members.iter().zip(busy) {
            sum.value += self.worth[*job] * busy;
            let alone = self.busy_share_alone(*job);
            // A job that computes nothing has no slowdown to measure in computation.
            if alone > 0.0 {
                sum.worst_slowdown = sum.worst_slowdown.max((alone / busy).min(MAX_SLOWDOWN));
            }
        }
        sum
    }

    fn busy_share_alone(&self, job: usize) -> f64 {
        let seconds = self.traffic.routes[self.jobs[job]].demand.iteration_seconds;
        compute_share(self.job_at(job).compute_seconds, seconds)
    }

    fn job_at(&self, position: usize) -> &'a Job {
        self.traffic.jobs[self.jobs[position]]
    }

    fn simulate_group(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: u32,
    ) -> Option<Vec<f64>> {
        let alone = group.alone_seconds();
        let numbers = group.members.iter().map(|member| self.jobs[*member]);
        let starts = spread_starts(numbers.zip(&alone), sample);
        // What the fluid model rejects has no value: the caller keeps what it has.
        let mut run = GroupRun::new(group, &starts).ok()?;
        let window = self.measure_window(group, &alone);
        let busy = run.busy_shares(levels, window, self.events_left).ok()??;
        self.events_left -= run.event_count();
        Some(busy)
    }

    /// The simulated time of a group: some iterations of its slowest job, or as many as the budget
    /// of one simulation allows.
    fn measure_window(&self, group: &ContentionGroup, alone: &[f64]) -> MeasureWindow {
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let counts = group.flow_counts();
        // A phase of computation, and each flow begins and ends.
        let per_second: f64 = alone
            .iter()
            .zip(counts)
            .filter(|(seconds, _)| **seconds > 0.0)
            .map(|(seconds, flows)| (2.0 + flows as f64) / seconds)
            .sum();
        let most = self.events_per_job as f64 * group.members.len() as f64;
        let seconds = (ITERATIONS * slowest).min(most / per_second);
        MeasureWindow { from: seconds * SETTLING_ITERATIONS / ITERATIONS, until: seconds }
    }
}
