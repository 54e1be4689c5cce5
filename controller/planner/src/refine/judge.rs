//! The judge: what decisions are worth to the jobs of a contention group, by the fluid model.
//!
//! Start times of jobs are unknown, and contention depends on them: a group is simulated from
//! several starts, the first of which is that of reports (all at once), and the mean counts. Values
//! are comparable between all candidates, budgets and reports because the simulated time depends
//! only on the jobs of the region. What the judge says of the plan that is adopted is the forecast.

use std::collections::BTreeMap;
use std::rc::Rc;

use topology::LinkPath;

use super::contention_group::{
    ContentionGroup, FlowOnLinks, LinkService, RoutedJob, contention_groups,
};
use super::group_run::{GroupRun, MeasureWindow, compute_share, spread_starts};
use super::horizon::{COARSE_START, FIRST_START, SimulatedHorizon};
use crate::input::Job;
use crate::input_digest::digest_list;
use crate::interrupt::Interrupt;
use crate::parallel::map_in_threads;
use crate::policy::Policy;
use crate::traffic::IndexedTraffic;

/// A group is simulated in several threads at once if a simulation costs so many events, by
/// estimate: less does not pay for a thread.
const MIN_THREAD_COST: f64 = 4_000.0;

/// The slowdown of a job that gets nothing: more is not told apart in the simulated time.
const MAX_SLOWDOWN: f64 = 1_000.0;

/// Digest of a group and of the order of its members' levels, and a start.
type RunKey = (u64, u64, u32);

/// Evaluates decisions on the jobs of one region.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    traffic: &'a IndexedTraffic<'a>,
    /// The jobs, ascending; groups have positions among these.
    jobs: &'a [usize],
    /// Value of all GPUs of each of them computing.
    worth: Vec<f64>,
    /// Throughput that each of them is guaranteed, as a share of that alone.
    guaranteed: Vec<f64>,
    pub(super) horizon: SimulatedHorizon,
    /// Cost of all simulations so far, in events, and their number.
    cost: u64,
    runs: u64,
    /// What the model of mean rates cost, in events.
    charged: u64,
    /// The longest wait that is followed, seconds.
    pub(super) wait_limit: f64,
    /// Raised where nothing more needs to be simulated.
    interrupt: Interrupt,
    /// What became of the members.
    known: BTreeMap<RunKey, Rc<[MemberOutcome]>>,
    /// The paths of the jobs that were asked for last, and the groups on them.
    grouped: (Vec<LinkPath>, Rc<[ContentionGroup]>),
}

/// What became of a job in a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemberOutcome {
    /// Share of time that it computed.
    busy: f64,
    /// The longest that a flow of it waited for service, seconds.
    wait: f64,
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

    /// The mean over one more start, and the longest wait from any, after so many starts.
    pub(super) fn joined_with(self, next: Self, starts: u32) -> Self {
        let share = 1.0 / f64::from(starts + 1);
        let mean = |so_far: f64, next: f64| so_far + (next - so_far) * share;
        Self {
            value: mean(self.value, next.value),
            worst_slowdown: mean(self.worst_slowdown, next.worst_slowdown),
            worst_guarantee: mean(self.worst_guarantee, next.worst_guarantee),
            worst_wait: self.worst_wait.max(next.worst_wait),
        }
    }

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

impl<'a> Judge<'a> {
    /// A judge of decisions on `jobs`, all of a region.
    pub(super) fn new(traffic: &'a IndexedTraffic<'a>, policy: &Policy, jobs: &'a [usize]) -> Self {
        let of_jobs = |value: &dyn Fn(&Job) -> f64| -> Vec<f64> {
            jobs.iter().map(|job| value(traffic.jobs[*job])).collect()
        };
        Self {
            traffic,
            jobs,
            worth: of_jobs(&|job| policy.job_worth(job)),
            guaranteed: of_jobs(&|job| policy.guaranteed_throughput(job)),
            horizon: SimulatedHorizon::of_region(traffic, jobs),
            cost: 0,
            runs: 0,
            charged: 0,
            wait_limit: policy.service_bound().min(policy.connection.timeout_seconds()),
            interrupt: policy.interrupt.clone(),
            known: BTreeMap::new(),
            grouped: (Vec::new(), Rc::new([])),
        }
    }

    /// What all simulations so far cost, in events, and what else was charged; more than any budget
    /// once nothing more needs to be simulated.
    pub(super) fn event_cost(&self) -> u64 {
        let spent = self.cost + self.charged;
        // As if everything were spent, which every loop checks; half, so that sums do not overflow.
        if self.interrupt.is_raised() { spent.max(u64::MAX / 2) } else { spent }
    }

    /// Counts the cost of asking a model, in events.
    pub(super) fn charge(&mut self, events: u64) {
        self.charged += events;
    }

    /// What a simulation costs: the mean so far, or by estimate.
    pub(super) fn cost_of_run(&self) -> f64 {
        match self.runs {
            0 => self.horizon.estimated_cost,
            runs => self.cost as f64 / runs as f64,
        }
    }

    /// The contention groups of the jobs on `paths`, by flow of the plan.
    pub(super) fn contention_groups(&mut self, paths: &[LinkPath]) -> Rc<[ContentionGroup]> {
        let of_jobs = self.jobs.iter().flat_map(|job| &paths[self.traffic.spans[*job].clone()]);
        let of_jobs: Vec<LinkPath> = of_jobs.copied().collect();
        // A climb tries dozens of levels on the same paths.
        if of_jobs != self.grouped.0 {
            let groups = groups_on_paths(self.traffic, self.jobs, paths, 1.0);
            self.grouped = (of_jobs, groups.into());
        }
        Rc::clone(&self.grouped.1)
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

    /// Throughput that each job is guaranteed, as a share of that alone, by position.
    pub(super) fn guaranteed(&self) -> &[f64] {
        &self.guaranteed
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
            return Some([MemberOutcome { busy, wait: 0.0 }].into());
        }
        // By what decides the result: other paths with the same effect, and other levels in the
        // same order, are known.
        let key = run_key(group, levels, sample);
        if let Some(known) = self.known.get(&key) {
            return Some(Rc::clone(known));
        }
        // Only for runs that are not known, so that a result that exists is still found.
        if self.interrupt.is_raised() {
            return None;
        }
        let run = self.simulation(group, levels, sample).run();
        self.keep_run(key, run)
    }

    /// What came of a simulation, which is known from here on.
    fn keep_run(&mut self, key: RunKey, run: SimulatedGroup) -> Option<Rc<[MemberOutcome]>> {
        self.cost += run.cost;
        self.runs += 1;
        let outcomes: Rc<[MemberOutcome]> = run.outcomes?.into();
        self.known.insert(key, Rc::clone(&outcomes));
        Some(outcomes)
    }

    /// Simulates in threads what is not known yet of `cases`, levels by member and a start. They
    /// all are evaluated next, so that this changes nothing but the time that it takes.
    pub(super) fn simulate_ahead<'l>(
        &mut self,
        group: &ContentionGroup,
        cases: impl Iterator<Item = (&'l [u8], u32)>,
    ) {
        let share = group.members.len() as f64 / self.jobs.len() as f64;
        if group.members.len() < 2 || share * self.horizon.estimated_cost < MIN_THREAD_COST {
            return;
        }
        let mut unknown = BTreeMap::new();
        for (levels, sample) in cases {
            let key = run_key(group, levels, sample);
            if !self.known.contains_key(&key) {
                // A map, because two candidates may ask for the same run, and its order makes the
                // cost the same in every run.
                unknown.entry(key).or_insert_with(|| self.simulation(group, levels, sample));
            }
        }
        let unknown: Vec<_> = unknown.into_iter().collect();
        let interrupt = self.interrupt.clone();
        let runs = map_in_threads(&unknown, |(_, simulation)| {
            (!interrupt.is_raised()).then(|| simulation.run())
        });
        for ((key, _), run) in unknown.into_iter().zip(runs) {
            run.and_then(|run| self.keep_run(key, run));
        }
    }

    fn simulation<'g>(
        &self,
        group: &'g ContentionGroup,
        levels: &'g [u8],
        sample: u32,
    ) -> GroupSimulation<'g> {
        let numbers = group.members.iter().map(|member| self.jobs[*member]);
        // A coarse run begins as the first start does, and is only shorter.
        let start = if sample == COARSE_START { FIRST_START } else { sample };
        GroupSimulation {
            group,
            levels,
            starts: spread_starts(numbers.zip(&group.alone_seconds()), start),
            window: self.horizon.window_of(sample),
            wait_limit: self.wait_limit,
        }
    }

    /// The mean over all starts, and the longest wait from any.
    pub(super) fn mean_value(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<DecisionValue> {
        let mut mean = DecisionValue::default();
        for (starts, sample) in (0..).zip(self.horizon.samples()) {
            let next = self.evaluate_levels(group, levels, sample)?;
            // A running mean, so that the value of one start is exactly that of its run.
            mean = if starts == 0 { next } else { mean.joined_with(next, starts) };
        }
        Some(mean)
    }

    /// What becomes of each member over all starts; none if the model rejects a job.
    pub(super) fn expect_members(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> Option<Vec<MemberExpectation>> {
        self.expect_from(group, levels, self.horizon.samples())
    }

    /// What becomes of each member over some starts; none if the model rejects a job.
    pub(super) fn expect_from(
        &mut self,
        group: &ContentionGroup,
        levels: &[u8],
        samples: impl IntoIterator<IntoIter: ExactSizeIterator<Item = u32>>,
    ) -> Option<Vec<MemberExpectation>> {
        let samples = samples.into_iter();
        let count = samples.len() as f64;
        let mut expected = vec![MemberExpectation::default(); group.members.len()];
        for sample in samples {
            let outcomes = self.member_outcomes(group, levels, sample)?;
            for ((of, member), outcome) in expected.iter_mut().zip(&group.members).zip(&*outcomes) {
                of.slowdown += self.slowdown_of(*member, outcome.busy) / count;
                of.wait = of.wait.max(outcome.wait);
            }
        }
        Some(expected)
    }

    /// How many times longer than alone an iteration of a job takes that computes for this share of
    /// time. A job that computes nothing has no slowdown to measure in computation.
    fn slowdown_of(&self, job: usize, busy: f64) -> f64 {
        let alone = self.busy_share_alone(job);
        // Bounded, or a job that gets nothing would make all means infinite.
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
            sum.worst_wait = sum.worst_wait.max(outcome.wait);
        }
        sum
    }

    /// The value of iterations of so many seconds, by position.
    pub(super) fn value_of_seconds(&self, seconds: &[f64]) -> DecisionValue {
        let all: Vec<usize> = (0..self.jobs.len()).collect();
        let outcome = |(job, seconds): (&usize, &f64)| MemberOutcome {
            busy: compute_share(self.job_at(*job).compute_seconds, *seconds),
            wait: 0.0,
        };
        let outcomes: Vec<MemberOutcome> = all.iter().zip(seconds).map(outcome).collect();
        self.value_of(&all, &outcomes)
    }

    /// The value of these shares of time in which `members` compute.
    pub(super) fn value_of_shares(&self, members: &[usize], busy: &[f64]) -> DecisionValue {
        let outcomes: Vec<MemberOutcome> =
            busy.iter().map(|busy| MemberOutcome { busy: *busy, wait: 0.0 }).collect();
        self.value_of(members, &outcomes)
    }

    fn busy_share_alone(&self, job: usize) -> f64 {
        let seconds = self.traffic.routes[self.jobs[job]].demand.iteration_seconds;
        compute_share(self.job_at(job).compute_seconds, seconds)
    }

    fn job_at(&self, position: usize) -> &'a Job {
        self.traffic.jobs[self.jobs[position]]
    }
}

/// The contention groups of `jobs` on `paths`, by flow of the plan; members are positions among
/// these jobs. Links carry so many bytes for each byte of a job.
pub(super) fn groups_on_paths(
    traffic: &IndexedTraffic<'_>,
    jobs: &[usize],
    paths: &[LinkPath],
    bytes_on_wire: f64,
) -> Vec<ContentionGroup> {
    let routed = jobs.iter().map(|job| {
        let of = traffic.jobs[*job];
        let flows = of.flows.iter().zip(&paths[traffic.spans[*job].clone()]);
        let flows = flows.map(|(flow, path)| FlowOnLinks {
            bytes: flow.bytes * bytes_on_wire,
            overlap_from: flow.overlap_from,
            links: flow.crossed_links(traffic.fabric, path),
        });
        RoutedJob {
            compute_seconds: of.compute_seconds,
            overlap_from: of.overlap_from,
            flows: flows.collect(),
        }
    });
    let routed: Vec<RoutedJob<'_>> = routed.collect();
    contention_groups(&routed, |link| LinkService::of_link(traffic.fabric, link))
}

fn run_key(group: &ContentionGroup, levels: &[u8], sample: u32) -> RunKey {
    (digest_list(group.signature()), digest_list(&group.level_relations(levels)), sample)
}

/// A simulation of a group.
#[derive(Clone, Debug)]
struct GroupSimulation<'g> {
    group: &'g ContentionGroup,
    /// By member.
    levels: &'g [u8],
    /// By member, seconds.
    starts: Vec<f64>,
    window: MeasureWindow,
    /// The longest wait that is followed, seconds.
    wait_limit: f64,
}

/// What came of a simulation.
#[derive(Debug)]
struct SimulatedGroup {
    /// By member; none if the model rejects a job.
    outcomes: Option<Vec<MemberOutcome>>,
    /// In events.
    cost: u64,
}

impl GroupSimulation<'_> {
    /// What the fluid model rejects has no value: the caller keeps what it has.
    fn run(&self) -> SimulatedGroup {
        let Ok(mut run) = GroupRun::new(self.group, &self.starts) else {
            return SimulatedGroup { outcomes: None, cost: 0 };
        };
        let busy = run.busy_shares(self.levels, self.window).ok();
        // After the shares, because it runs on beyond the window until open waits end.
        let waits = busy.as_ref().and_then(|_| run.longest_waits(self.wait_limit).ok());
        let members = busy.zip(waits).map(|(busy, waits)| busy.into_iter().zip(waits));
        let outcomes =
            members.map(|of| of.map(|(busy, wait)| MemberOutcome { busy, wait }).collect());
        SimulatedGroup { outcomes, cost: run.event_cost() }
    }
}
