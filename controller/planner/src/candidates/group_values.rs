//! What decisions are worth to the jobs of a contention group, by the fluid model.
//!
//! Start times of jobs are unknown, and contention depends on them: a group is simulated from
//! several starts, the first of which is that of reports (all at once), and the mean counts. Values
//! are comparable between all candidates, budgets and reports because the simulated time depends
//! only on the jobs of the region.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use topology::LinkPath;

use super::group_simulation::{
    EvaluationModel, GroupSimulation, MemberOutcome, SimulatedGroup, SimulatedHorizon, StartSample,
};
use crate::input::Job;
use crate::parallel::map_in_threads;
use crate::policy::Policy;
use crate::search::contention_group::{ContentionGroup, LinkService, RoutedJob, contention_groups};
use crate::search::group_run::{compute_share, spread_starts};
use crate::traffic::IndexedTraffic;

/// A group is simulated in several threads at once if a simulation costs so many events, by
/// estimate: less does not pay for a thread.
const MIN_THREAD_COST: f64 = 4_000.0;

/// The slowdown of a job that gets nothing: more is not told apart in the simulated time.
const MAX_SLOWDOWN: f64 = 1_000.0;

/// The order of the levels of the members of a group, and a start.
type RunKey = (Vec<Ordering>, StartSample);

/// Evaluates decisions on the jobs of one region.
#[derive(Debug)]
pub(super) struct GroupEvaluator<'a> {
    traffic: &'a IndexedTraffic<'a>,
    /// The jobs, ascending; groups have positions among these.
    jobs: &'a [usize],
    /// Value of all GPUs of each of them computing.
    worth: Vec<f64>,
    /// Throughput that each of them is guaranteed, as a share of that alone.
    guaranteed: Vec<f64>,
    pub(super) horizon: SimulatedHorizon,
    /// Cost of all simulations so far, in events.
    cost: u64,
    /// The longest wait that is followed, seconds.
    pub(super) wait_limit: f64,
    /// Whether waits that only steps tell count as none.
    pub(super) doubts_steps: bool,
    /// What became of the members, by the signature of a group.
    known: BTreeMap<Vec<u32>, BTreeMap<RunKey, Rc<[MemberOutcome]>>>,
}

/// What became of a job over all starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MemberExpectation {
    /// How many times longer than alone an iteration takes, the mean.
    pub(super) slowdown: f64,
    /// The longest that a flow of it waits for service, seconds.
    pub(super) wait: f64,
}

/// What some decisions are worth to some jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DecisionValue {
    /// Mean worth of the GPUs that compute.
    pub(super) value: f64,
    /// How many times longer than alone an iteration of the slowest-running job takes; at least 1.
    pub(super) worst_slowdown: f64,
    /// Of the jobs with a guaranteed throughput, the largest slowdown as a share of the one that
    /// the guarantee allows; 0 without such jobs.
    pub(super) worst_guarantee: f64,
    /// The longest that a flow waits for service while it has bytes to send, seconds.
    pub(super) worst_wait: f64,
}

impl DecisionValue {
    /// No jobs.
    pub(super) const NOTHING: Self =
        Self { value: 0.0, worst_slowdown: 1.0, worst_guarantee: 0.0, worst_wait: 0.0 };

    /// Both together, for jobs that have nothing to do with each other.
    pub(super) fn combine(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            worst_slowdown: self.worst_slowdown.max(other.worst_slowdown),
            worst_guarantee: self.worst_guarantee.max(other.worst_guarantee),
            worst_wait: self.worst_wait.max(other.worst_wait),
        }
    }
}

impl<'a> GroupEvaluator<'a> {
    /// An evaluator for `jobs`, all of a region.
    pub(super) fn new(traffic: &'a IndexedTraffic<'a>, policy: &Policy, jobs: &'a [usize]) -> Self {
        Self {
            traffic,
            jobs,
            worth: jobs.iter().map(|job| policy.job_worth(traffic.jobs[*job])).collect(),
            guaranteed: jobs
                .iter()
                .map(|job| policy.guaranteed_throughput(traffic.jobs[*job]))
                .collect(),
            horizon: SimulatedHorizon::of_region(traffic, jobs),
            cost: 0,
            wait_limit: policy.service_bound().min(policy.connection.timeout_seconds()),
            doubts_steps: false,
            known: BTreeMap::new(),
        }
    }

    /// What all simulations so far cost, in events.
    pub(super) fn event_cost(&self) -> u64 {
        self.cost
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
                    flows: flows
                        .map(|(flow, path)| (flow.bytes, flow.crossed_links(traffic.fabric, path)))
                        .collect(),
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

    /// The value of `levels`, by member, from one start; none if the model rejects a job.
    pub(super) fn evaluate_levels(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: StartSample,
    ) -> Option<DecisionValue> {
        let outcomes = self.member_outcomes(group, levels, sample)?;
        Some(self.value_of(&group.members, &outcomes))
    }

    /// What becomes of each member.
    fn member_outcomes(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: StartSample,
    ) -> Option<Rc<[MemberOutcome]>> {
        if let [job] = group.members[..] {
            // Flows of one level share every link, so none waits.
            let seconds = group.alone_seconds()[0];
            let busy = compute_share(self.job_at(job).compute_seconds, seconds);
            return Some([MemberOutcome { busy, wait: 0.0, is_wait_rough: false }].into());
        }
        let key = self.run_key(group, levels, sample);
        if let Some(known) = self.known_outcomes(group, &key) {
            return Some(Rc::clone(known));
        }
        let starts = self.starts_of(group, sample);
        let run = self.simulation(group, levels).run(&starts, sample);
        self.keep_run(group, key, run)
    }

    /// What came of a simulation, which is known from here on.
    fn keep_run(
        &mut self,
        group: &ContentionGroup,
        key: RunKey,
        run: SimulatedGroup,
    ) -> Option<Rc<[MemberOutcome]>> {
        self.cost += run.cost;
        let outcomes: Rc<[MemberOutcome]> = run.outcomes?.into();
        self.note_outcomes(group, key, Rc::clone(&outcomes));
        Some(outcomes)
    }

    /// Simulates in threads what is not known yet of `cases`, levels by member and a start. They
    /// all are evaluated next, so that this changes nothing but the time that it takes.
    pub(super) fn simulate_ahead<'l>(
        &mut self,
        group: &ContentionGroup,
        cases: impl Iterator<Item = (&'l [u8], StartSample)>,
    ) {
        let share = group.members.len() as f64 / self.jobs.len() as f64;
        if group.members.len() < 2 || share * self.horizon.estimated_cost < MIN_THREAD_COST {
            return;
        }
        let mut unknown = BTreeMap::new();
        for (levels, sample) in cases {
            let key = self.run_key(group, levels, sample);
            if self.known_outcomes(group, &key).is_none() {
                let starts = self.starts_of(group, sample);
                let simulation = self.simulation(group, levels);
                unknown.entry(key).or_insert((simulation, starts, sample));
            }
        }
        let unknown: Vec<_> = unknown.into_iter().collect();
        let runs = map_in_threads(&unknown, |(_, (simulation, starts, sample))| {
            simulation.run(starts, *sample)
        });
        for ((key, _), run) in unknown.into_iter().zip(runs) {
            self.keep_run(group, key, run);
        }
    }

    fn run_key(&self, group: &ContentionGroup, levels: &[u8], sample: StartSample) -> RunKey {
        (group.level_relations(levels), self.horizon.simulated_sample(sample))
    }

    fn known_outcomes(
        &self,
        group: &ContentionGroup,
        key: &RunKey,
    ) -> Option<&Rc<[MemberOutcome]>> {
        self.known.get(group.signature())?.get(key)
    }

    fn note_outcomes(&mut self, group: &ContentionGroup, key: RunKey, of: Rc<[MemberOutcome]>) {
        self.known.entry(group.signature().to_vec()).or_default().insert(key, of);
    }

    fn simulation<'g>(&self, group: &'g ContentionGroup, levels: &'g [u8]) -> GroupSimulation<'g> {
        GroupSimulation { group, levels, horizon: self.horizon, wait_limit: self.wait_limit }
    }

    /// The mean over all starts, and the longest wait from any.
    pub(super) fn mean_value(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<DecisionValue> {
        let mut mean = DecisionValue::default();
        let samples = self.horizon.samples();
        let count = samples.len() as f64;
        for sample in samples {
            let of = self.evaluate_levels(group, levels, sample)?;
            mean.value += of.value / count;
            mean.worst_slowdown += of.worst_slowdown / count;
            mean.worst_guarantee += of.worst_guarantee / count;
            mean.worst_wait = mean.worst_wait.max(of.worst_wait);
        }
        Some(mean)
    }

    /// Has the waits for service of these levels told event by event from here on, where the region
    /// is simulated in steps, which tell them only roughly. False if that costs more than `most`
    /// events from some start, or the model rejects a job.
    pub(super) fn judge_waits(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        most: u64,
    ) -> bool {
        if !self.is_stepped() || self.simulation(group, levels).is_one_level() {
            return true;
        }
        self.can_judge(most) && self.judge_all_starts(group, levels, most).is_some()
    }

    /// Whether waits can be told event by event for so many events from each start, by estimate.
    pub(super) fn can_judge(&self, most: u64) -> bool {
        self.horizon.estimated_cost <= most as f64
    }

    fn judge_all_starts(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        most: u64,
    ) -> Option<()> {
        let starts: Vec<(StartSample, Vec<f64>)> =
            self.horizon.samples().map(|sample| (sample, self.starts_of(group, sample))).collect();
        let simulation = self.simulation(group, levels);
        let runs = map_in_threads(&starts, |(_, starts)| simulation.run_events(starts, most));
        self.cost += runs.iter().map(|run| run.cost).sum::<u64>();
        for ((sample, _), exact) in starts.into_iter().zip(runs) {
            let stepped = self.member_outcomes(group, levels, sample)?;
            let both = stepped.iter().zip(exact.outcomes?);
            let judged = both.map(|(stepped, exact)| MemberOutcome { busy: stepped.busy, ..exact });
            self.note_outcomes(group, self.run_key(group, levels, sample), judged.collect());
        }
        Some(())
    }

    /// Throughput that each job is guaranteed, as a share of that alone, by position.
    pub(super) fn guaranteed(&self) -> &[f64] {
        &self.guaranteed
    }

    /// Whether the region is simulated in steps, because it is large.
    pub(super) fn is_stepped(&self) -> bool {
        self.horizon.model == EvaluationModel::Steps
    }

    /// What becomes of each member over all starts; none if the model rejects a job.
    pub(super) fn expect_members(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<Vec<MemberExpectation>> {
        self.expect_from_samples(group, levels, self.horizon.samples())
    }

    /// What becomes of each member in a coarse simulation ([`StartSample::Coarse`]).
    pub(super) fn expect_coarsely(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<Vec<MemberExpectation>> {
        self.expect_from_samples(group, levels, std::iter::once(StartSample::Coarse))
    }

    fn expect_from_samples(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        samples: impl ExactSizeIterator<Item = StartSample>,
    ) -> Option<Vec<MemberExpectation>> {
        let count = samples.len() as f64;
        let mut expected = vec![MemberExpectation::default(); group.members.len()];
        for sample in samples {
            let outcomes = self.member_outcomes(group, levels, sample)?;
            for ((of, member), outcome) in expected.iter_mut().zip(&group.members).zip(&*outcomes) {
                of.slowdown += self.slowdown_of(*member, outcome.busy) / count;
                of.wait = of.wait.max(self.counted_wait(outcome));
            }
        }
        Some(expected)
    }

    /// How many times longer than alone an iteration of a job takes that computes for this share of
    /// time. A job that computes nothing has no slowdown to measure in computation.
    fn slowdown_of(&self, job: usize, busy: f64) -> f64 {
        let alone = self.busy_share_alone(job);
        if alone > 0.0 { (alone / busy).min(MAX_SLOWDOWN) } else { 1.0 }
    }

    /// The value of what became of `members`.
    fn value_of(&self, members: &[usize], outcomes: &[MemberOutcome]) -> DecisionValue {
        let mut sum = DecisionValue::NOTHING;
        for (job, outcome) in members.iter().zip(outcomes) {
            sum.value += self.worth[*job] * outcome.busy;
            let slowdown = self.slowdown_of(*job, outcome.busy);
            sum.worst_slowdown = sum.worst_slowdown.max(slowdown);
            sum.worst_guarantee = sum.worst_guarantee.max(slowdown * self.guaranteed[*job]);
            sum.worst_wait = sum.worst_wait.max(self.counted_wait(outcome));
        }
        sum
    }

    fn counted_wait(&self, outcome: &MemberOutcome) -> f64 {
        if outcome.is_wait_rough && self.doubts_steps { 0.0 } else { outcome.wait }
    }

    fn busy_share_alone(&self, job: usize) -> f64 {
        let seconds = self.traffic.routes[self.jobs[job]].demand.iteration_seconds;
        compute_share(self.job_at(job).compute_seconds, seconds)
    }

    /// When the members start, in one of the samples.
    fn starts_of(&self, group: &ContentionGroup, sample: StartSample) -> Vec<f64> {
        let numbers = group.members.iter().map(|member| self.jobs[*member]);
        spread_starts(numbers.zip(&group.alone_seconds()), sample.number())
    }

    fn job_at(&self, position: usize) -> &'a Job {
        self.traffic.jobs[self.jobs[position]]
    }
}
