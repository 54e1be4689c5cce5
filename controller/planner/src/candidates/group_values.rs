//! What decisions are worth to the jobs of a contention group, by the fluid model.
//!
//! Start times of jobs are unknown, and contention depends on them: a group is simulated from
//! several starts, the first of which is that of reports (all at once), and the mean counts. Values
//! are comparable between all candidates, budgets and reports because the simulated time depends
//! only on the jobs of the region.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use topology::{LinkId, LinkPath};

use crate::input::Job;
use crate::policy::Policy;
use crate::search::contention_group::{ContentionGroup, LinkService, RoutedJob, contention_groups};
use crate::search::group_run::{GroupRun, MeasureWindow, compute_share, spread_starts};
use crate::search::stepped_run::SteppedRun;
use crate::traffic::{IndexedTraffic, RoutableFlow};

/// Starts from which a group is simulated, and a group of a large region.
const SAMPLES: u32 = 4;
const STEPPED_SAMPLES: u32 = 2;

/// Iterations of the slowest job that are simulated at most and at least,
const MAX_ITERATIONS: f64 = 20.0;
const MIN_ITERATIONS: f64 = 4.0;

/// and between them as many as cost so many events, by estimate, for all jobs of a region.
const SIMULATION_COST: f64 = 24_000.0;

/// A region whose fewest iterations cost more than that by this factor is simulated in steps.
const MAX_EXCESS: f64 = 2.0;

/// A sample that stands for the first start in fewer steps, to tell cheaply which proposals of a
/// search are not worth more. Where a region is simulated by events, it equals the first start.
pub(super) const COARSE_SAMPLE: u32 = u32::MAX;

/// Steps of a simulation at most, and of a coarse one.
const FINE_STEPS: f64 = 500.0;
const COARSE_STEPS: f64 = 200.0;

/// Nothing shorter is simulated: some of the shortest iterations of the fluid model.
const MIN_SECONDS: f64 = 1e-4;

/// Part of the simulated time that passes before anything counts.
const SETTLING_SHARE: f64 = 0.2;

/// Flows of a region for which an event costs another one in rates.
const FLOWS_PER_EVENT_COST: f64 = 16.0;

/// Rates in steps that cost as much as an event of the exact model.
const STEPPED_RATES_PER_EVENT: u64 = 12;

/// The slowdown of a job that gets nothing: more is not told apart in the simulated time.
const MAX_SLOWDOWN: f64 = 1_000.0;

/// The order of the levels of the members of a group, and a start.
type RunKey = (Vec<Ordering>, u32);

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

/// What became of a job in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MemberOutcome {
    /// Share of time that it computed.
    busy: f64,
    /// The longest that a flow of it waited for service, seconds.
    wait: f64,
    /// Whether only steps tell that, which they do roughly.
    is_wait_rough: bool,
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
        sample: u32,
    ) -> Option<DecisionValue> {
        let outcomes = self.member_outcomes(group, levels, sample)?;
        Some(self.value_of(&group.members, &outcomes))
    }

    /// What becomes of each member.
    fn member_outcomes(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: u32,
    ) -> Option<Rc<[MemberOutcome]>> {
        if let [job] = group.members[..] {
            // Flows of one level share every link, so none waits.
            let seconds = group.alone_seconds()[0];
            let busy = compute_share(self.job_at(job).compute_seconds, seconds);
            return Some([MemberOutcome { busy, wait: 0.0, is_wait_rough: false }].into());
        }
        let sample = if sample == COARSE_SAMPLE && !self.is_stepped() { 0 } else { sample };
        let key = (group.level_relations(levels), sample);
        let runs = self.known.get(group.signature());
        if let Some(known) = runs.and_then(|runs| runs.get(&key)) {
            return Some(Rc::clone(known));
        }
        let outcomes: Rc<[MemberOutcome]> = self.simulate_group(group, levels, sample)?.into();
        let runs = self.known.entry(group.signature().to_vec()).or_default();
        runs.insert(key, Rc::clone(&outcomes));
        Some(outcomes)
    }

    /// The mean over all starts, and the longest wait from any.
    pub(super) fn mean_value(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<DecisionValue> {
        let mut mean = DecisionValue::default();
        let (first, samples) = self.horizon.starts;
        for sample in first..first + samples {
            let of = self.evaluate_levels(group, levels, sample)?;
            mean.value += of.value / f64::from(samples);
            mean.worst_slowdown += of.worst_slowdown / f64::from(samples);
            mean.worst_guarantee += of.worst_guarantee / f64::from(samples);
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
        if !self.is_stepped() || is_one_level(levels) {
            return true;
        }
        let (first, count) = self.horizon.starts;
        self.can_judge(most)
            && (first..first + count)
                .all(|sample| self.judge_from_start(group, levels, sample, most).is_some())
    }

    /// Whether waits can be told event by event for so many events from each start, by estimate.
    pub(super) fn can_judge(&self, most: u64) -> bool {
        self.horizon.estimated_cost <= most as f64
    }

    fn judge_from_start(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: u32,
        most: u64,
    ) -> Option<()> {
        let starts = self.starts_of(group, sample);
        let exact = self.simulate_events(group, levels, &starts, most)?;
        let stepped = self.member_outcomes(group, levels, sample)?;
        let busy = stepped.iter().map(|outcome| outcome.busy).collect();
        let waits = exact.iter().map(|outcome| outcome.wait).collect();
        let runs = self.known.entry(group.signature().to_vec()).or_default();
        let outcomes = join_outcomes(busy, waits, false).into();
        runs.insert((group.level_relations(levels), sample), outcomes);
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
        let (first, count) = self.horizon.starts;
        self.expect_from_starts(group, levels, first..=first + count - 1)
    }

    /// What becomes of each member in a coarse simulation ([`COARSE_SAMPLE`]).
    pub(super) fn expect_coarsely(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<Vec<MemberExpectation>> {
        self.expect_from_starts(group, levels, COARSE_SAMPLE..=COARSE_SAMPLE)
    }

    fn expect_from_starts(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        samples: RangeInclusive<u32>,
    ) -> Option<Vec<MemberExpectation>> {
        let count = f64::from(samples.end() - samples.start() + 1);
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
    fn starts_of(&self, group: &ContentionGroup, sample: u32) -> Vec<f64> {
        let numbers = group.members.iter().map(|member| self.jobs[*member]);
        spread_starts(numbers.zip(&group.alone_seconds()), sample)
    }

    fn job_at(&self, position: usize) -> &'a Job {
        self.traffic.jobs[self.jobs[position]]
    }

    fn simulate_group(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        sample: u32,
    ) -> Option<Vec<MemberOutcome>> {
        let (sample, most_steps) = match sample {
            COARSE_SAMPLE => (0, COARSE_STEPS),
            _ => (sample, FINE_STEPS),
        };
        let starts = self.starts_of(group, sample);
        if self.is_stepped() {
            let mut run = SteppedRun::new(group, &starts, self.horizon.window, most_steps);
            let busy = run.busy_shares(levels);
            let waits = match is_one_level(levels) {
                true => vec![0.0; busy.len()],
                false => run.longest_waits(),
            };
            self.cost += run.rates_computed() / STEPPED_RATES_PER_EVENT;
            return Some(join_outcomes(busy, waits, !is_one_level(levels)));
        }
        self.simulate_events(group, levels, &starts, u64::MAX)
    }

    /// What becomes of each member, event by event; none if that costs more than `most` events.
    /// What the fluid model rejects has no value: the caller keeps what it has.
    fn simulate_events(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        starts: &[f64],
        most: u64,
    ) -> Option<Vec<MemberOutcome>> {
        let mut run = GroupRun::new(group, starts).ok()?;
        let busy = run.busy_shares(levels, self.horizon.window, most).ok()?;
        let waits = busy.as_ref().and_then(|_| run.longest_waits(self.wait_limit).ok());
        self.cost += run.event_cost();
        Some(join_outcomes(busy?, waits?, false))
    }
}

/// Whether all flows share every link, so that none waits.
fn is_one_level(levels: &[u8]) -> bool {
    levels.iter().all(|level| *level == levels[0])
}

fn join_outcomes(busy: Vec<f64>, waits: Vec<f64>, is_wait_rough: bool) -> Vec<MemberOutcome> {
    let members = busy.into_iter().zip(waits);
    members.map(|(busy, wait)| MemberOutcome { busy, wait, is_wait_rough }).collect()
}

/// How a region is simulated. It depends on the jobs alone, so that values are comparable whatever
/// the paths, levels and budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedHorizon {
    pub(super) window: MeasureWindow,
    pub(super) model: EvaluationModel,
    /// Events of a simulation event by event, with their rates.
    pub(super) estimated_cost: f64,
    /// First start, and how many.
    pub(super) starts: (u32, u32),
}

/// How a contention group is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationModel {
    /// In the fluid model, event by event.
    Events,
    /// In steps of equal length, an approximation for large groups.
    Steps,
}

impl SimulatedHorizon {
    /// Some iterations of the slowest job, or fewer where many flows or much faster jobs make them
    /// expensive; if even the fewest are too expensive, those in steps.
    fn of_region(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Self {
        let iterations = contended_iterations(traffic, jobs);
        let slowest = iterations.iter().copied().fold(0.0, f64::max);
        let flow_counts = jobs.iter().map(|job| traffic.spans[*job].len() as f64);
        // A phase of computation, and each flow begins and ends.
        let per_second: f64 = iterations
            .iter()
            .zip(flow_counts.clone())
            .filter(|(seconds, _)| **seconds > 0.0)
            .map(|(seconds, flows)| (2.0 + flows) / seconds)
            .sum();
        let event_cost = 1.0 + flow_counts.sum::<f64>() / FLOWS_PER_EVENT_COST;
        let affordable = SIMULATION_COST / (per_second * event_cost);
        let [fewest, most] = [MIN_ITERATIONS, MAX_ITERATIONS].map(|count| count * slowest);
        let seconds = affordable.clamp(fewest, most).max(MIN_SECONDS);
        let model = match affordable * MAX_EXCESS < fewest {
            true => EvaluationModel::Steps,
            false => EvaluationModel::Events,
        };
        Self {
            window: MeasureWindow { from: SETTLING_SHARE * seconds, until: seconds },
            model,
            estimated_cost: seconds * per_second * event_cost,
            starts: match model {
                EvaluationModel::Events => (0, SAMPLES),
                EvaluationModel::Steps => (0, STEPPED_SAMPLES),
            },
        }
    }
}

/// Seconds of an iteration of each job where its NICs are shared fairly: as if alone, times the
/// share of time that all jobs together would keep the busiest of them busy.
fn contended_iterations(traffic: &IndexedTraffic<'_>, jobs: &[usize]) -> Vec<f64> {
    let alone = |job: usize| traffic.routes[job].demand.iteration_seconds;
    let flows_of = |job: usize| traffic.flows[traffic.spans[job].clone()].iter();
    let host_links = |flow: &RoutableFlow<'_>| {
        [flow.up, flow.down].into_iter().chain(flow.flow.intra_host_links(traffic.fabric))
    };
    let mut loads: BTreeMap<LinkId, f64> = BTreeMap::new();
    for job in jobs.iter().copied().filter(|job| alone(*job) > 0.0) {
        for flow in flows_of(job) {
            for link in host_links(flow) {
                let seconds = flow.flow.bytes / traffic.tables.link_capacity(link);
                *loads.entry(link).or_default() += seconds / alone(job);
            }
        }
    }
    let load = |link: &LinkId| loads.get(link).copied().unwrap_or(0.0);
    let busiest =
        |job: usize| flows_of(job).flat_map(host_links).map(|link| load(&link)).fold(1.0, f64::max);
    jobs.iter().map(|job| alone(*job) * busiest(*job)).collect()
}
