//! The candidates of one region: their values, and levels that are better.

use std::ops::RangeInclusive;
use std::rc::Rc;

use topology::LinkPath;

use super::ecmp_expectation::EcmpExpectation;
use super::group_simulation::StartSample;
use super::group_values::{DecisionValue, GroupEvaluator, MemberExpectation};
use super::level_climb::{LevelClimb, ValuedLevels, climb_levels};
use super::level_race::{RaceWinner, race_levels};
use super::objective::PlanObjective;
use super::origins::{CandidatePaths, LevelOrigin, PathOrigin};
use crate::decision::{PlanContext, PlanRegion};
use crate::policy::to_level;
use crate::search::contention_group::ContentionGroup;
use crate::search::{self, LEAST_GAIN};

/// Parts of the budget of a region: the largest search gets this part, all searches twice as much,
/// and climbs the rest.
const SEARCH_PART: u64 = 4;
const CLIMB_PART: u64 = 2;

/// A region of more flows is not searched, by events or by the model of mean rates: all paths of
/// its flows are listed for that.
const MAX_SEARCHED_FLOWS: usize = 20_000;
const MAX_GUIDED_FLOWS: usize = 4_000;

/// What it may cost to tell the waits of a group event by event from one start, in events.
const MAX_JUDGING_COST: u64 = 100_000;

/// A candidate with its best levels and their value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValuedCandidate {
    candidate: Rc<CandidatePaths>,
    /// By position in the region.
    pub(super) levels: Vec<u8>,
    /// Where they come from, each once.
    pub(super) level_origins: Vec<LevelOrigin>,
    pub(super) value: DecisionValue,
}

impl ValuedCandidate {
    /// Where its paths come from.
    pub(super) fn origin(&self) -> PathOrigin {
        self.candidate.origin
    }

    /// By flow of the plan.
    pub(super) fn paths(&self) -> &[LinkPath] {
        &self.candidate.paths
    }

    /// Whether both are the same levels on the same paths.
    pub(super) fn has_decisions_of(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.candidate, &other.candidate) && self.levels == other.levels
    }

    /// The levels of the members of a group.
    fn member_levels(&self, group: &ContentionGroup) -> Vec<u8> {
        group.members.iter().map(|member| self.levels[*member]).collect()
    }
}

/// What simulations say of the proposal of a search.
pub(super) struct ValuedProposal {
    /// With its value, a coarse one unless it is promising.
    pub(super) candidate: ValuedCandidate,
    /// Its value in a coarse simulation.
    pub(super) coarse: f64,
    /// Whether that was enough for it to be simulated from all starts.
    pub(super) is_promising: bool,
    /// Seconds of an iteration of each job of the region.
    pub(super) seconds: Vec<f64>,
}

/// The evaluation of one region.
pub(super) struct RegionEvaluation<'a, 'e> {
    context: &'a PlanContext<'a>,
    region: &'a PlanRegion,
    evaluator: &'e mut GroupEvaluator<'a>,
    objective: PlanObjective,
    /// Whether the service bound has excluded anything.
    excluded_by_bound: bool,
}

impl<'a, 'e> RegionEvaluation<'a, 'e> {
    /// An evaluation without a floor yet.
    pub(super) fn new(
        context: &'a PlanContext<'a>,
        region: &'a PlanRegion,
        evaluator: &'e mut GroupEvaluator<'a>,
    ) -> Self {
        let objective = PlanObjective::without_floor(context.policy);
        Self { context, region, evaluator, objective, excluded_by_bound: false }
    }

    pub(super) fn region(&self) -> &'a PlanRegion {
        self.region
    }

    pub(super) fn context(&self) -> &'a PlanContext<'a> {
        self.context
    }

    /// Throughput that each job of the region is guaranteed, as a share of that alone.
    pub(super) fn guaranteed(&self) -> &[f64] {
        self.evaluator.guaranteed()
    }

    pub(super) fn objective(&self) -> PlanObjective {
        self.objective
    }

    /// Whether the region is simulated in steps, because it is large.
    pub(super) fn is_stepped(&self) -> bool {
        self.evaluator.is_stepped()
    }

    /// Whether the model of mean rates searches the region: it has more jobs than the search of
    /// small ones takes, and not so many flows that their paths fill memory.
    pub(super) fn is_guided(&self) -> bool {
        let is_large = self.is_stepped() || self.region.jobs.len() > search::MAX_JOBS;
        is_large && self.flow_count() <= MAX_GUIDED_FLOWS
    }

    fn flow_count(&self) -> usize {
        self.context.traffic.count_flows(&self.region.jobs)
    }

    /// Events that the largest search event by event may cost.
    pub(super) fn search_budget(&self) -> u64 {
        let is_searched = self.flow_count() <= MAX_SEARCHED_FLOWS;
        if is_searched { self.event_budget() / SEARCH_PART } else { 0 }
    }

    /// Events that climbs may cost.
    pub(super) fn climb_budget(&self) -> u64 {
        if self.is_stepped() { 0 } else { self.event_budget() / CLIMB_PART }
    }

    /// Events that searches and climbs in this region may cost.
    pub(super) fn event_budget(&self) -> u64 {
        let PlanContext { traffic, policy, .. } = *self.context;
        search::budget_per_job(traffic, policy) * self.region.jobs.len() as u64
    }

    /// What all simulations so far cost, in events.
    pub(super) fn event_cost(&self) -> u64 {
        self.evaluator.event_cost()
    }

    /// From here on, no job may be much slower than the slowest under ECMP.
    pub(super) fn set_floor(&mut self, ecmp: &EcmpExpectation) {
        self.objective = self.objective.above_ecmp(ecmp.worst_slowdown);
    }

    /// The value of the best of `candidates` if flows could wait for any time; none if the service
    /// bound has excluded nothing. What was simulated is not simulated again.
    pub(super) fn value_without_bound(
        &mut self,
        candidates: &[Rc<CandidatePaths>],
    ) -> Option<DecisionValue> {
        if !self.excluded_by_bound {
            return None;
        }
        let bounded = self.objective;
        self.objective = bounded.without_service_bound();
        let valued = self.value_candidates(candidates);
        let objective = std::mem::replace(&mut self.objective, bounded);
        best_candidate(objective, valued.iter()).map(|best| best.value)
    }

    /// Whether every job is as fast as alone.
    pub(super) fn is_optimal(&self, candidate: &ValuedCandidate) -> bool {
        candidate.value.value >= self.evaluator.upper_bound() * (1.0 - LEAST_GAIN)
            && !self.objective.misses_service_bound(candidate.value)
    }

    /// A value as a share of the region's worth.
    pub(super) fn utilization(&self, value: f64) -> f64 {
        let total: f64 = self.evaluator.job_worth().iter().sum();
        if total > 0.0 { value / total } else { 0.0 }
    }

    /// The candidates in order with their values, to the first that is optimal.
    pub(super) fn value_candidates(
        &mut self,
        candidates: &[Rc<CandidatePaths>],
    ) -> Vec<ValuedCandidate> {
        let mut valued = Vec::new();
        for candidate in candidates {
            let Some(found) = self.value_candidate(candidate) else { break };
            let is_optimal = self.is_optimal(&found);
            valued.push(found);
            if is_optimal {
                break;
            }
        }
        valued
    }

    /// The candidate with the best of its levels in each contention group; none if the model
    /// rejects a job.
    pub(super) fn value_candidate(
        &mut self,
        candidate: &Rc<CandidatePaths>,
    ) -> Option<ValuedCandidate> {
        let mut valued = ValuedCandidate {
            candidate: Rc::clone(candidate),
            levels: vec![0; self.region.jobs.len()],
            level_origins: Vec::new(),
            value: DecisionValue::NOTHING,
        };
        for group in self.evaluator.contention_groups(&candidate.paths) {
            let RaceWinner { origin, levels, value, .. } = self.best_levels(&group, candidate)?;
            valued.value = valued.value.combine(value);
            for (position, level) in group.members.iter().zip(levels) {
                valued.levels[*position] = level;
            }
            if group.members.len() > 1 && !valued.level_origins.contains(&origin) {
                valued.level_origins.push(origin);
            }
        }
        Some(valued)
    }

    /// The best levels of the candidate for a group.
    fn best_levels(
        &mut self,
        group: &ContentionGroup,
        candidate: &CandidatePaths,
    ) -> Option<RaceWinner> {
        let is_large = self.is_stepped();
        let tried =
            candidate.levels.iter().filter(|(origin, _)| !is_large || origin.is_essential());
        let tried: Vec<(LevelOrigin, Vec<u8>)> =
            tried.map(|(origin, levels)| (*origin, self.member_levels(group, levels))).collect();
        let winner = race_levels(self.evaluator, self.objective, group, tried)?;
        self.excluded_by_bound |= winner.excluded_by_bound;
        Some(winner)
    }

    /// Seconds of an iteration of each job of the region under a candidate.
    pub(super) fn iteration_seconds(&mut self, candidate: &ValuedCandidate) -> Vec<f64> {
        let mut seconds = vec![f64::INFINITY; self.region.jobs.len()];
        for group in self.evaluator.contention_groups(candidate.paths()) {
            let expected = self.evaluator.expect_members(&group, &candidate.member_levels(&group));
            self.note_seconds(&group, expected.unwrap_or_default(), &mut seconds);
        }
        seconds
    }

    /// Puts the seconds of an iteration of each member into those of all jobs of the region.
    fn note_seconds(
        &self,
        group: &ContentionGroup,
        expected: Vec<MemberExpectation>,
        seconds: &mut [f64],
    ) {
        for (member, expected) in group.members.iter().zip(expected) {
            let routes = &self.context.traffic.routes[self.region.jobs[*member]];
            seconds[*member] = expected.slowdown * routes.demand.iteration_seconds;
        }
    }

    /// Simulates what a search proposes, only coarsely if that finds less than `least`; none if
    /// the model rejects a job.
    pub(super) fn value_proposal(
        &mut self,
        proposal: &Rc<CandidatePaths>,
        least: f64,
    ) -> Option<ValuedProposal> {
        let (origin, levels) = proposal.levels.first()?;
        let groups = self.evaluator.contention_groups(&proposal.paths);
        let levels_of: Vec<Vec<u8>> =
            groups.iter().map(|group| self.member_levels(group, levels)).collect();
        let coarse = self.coarse_value(&groups, &levels_of)?;
        let is_promising = coarse.value >= least;
        let mut value = if is_promising { DecisionValue::NOTHING } else { coarse };
        let mut seconds = vec![f64::INFINITY; self.region.jobs.len()];
        for (group, levels) in groups.iter().zip(&levels_of) {
            if is_promising {
                value = value.combine(self.evaluator.mean_value(group, levels)?);
            }
            let expected = match is_promising {
                true => self.evaluator.expect_members(group, levels)?,
                false => self.evaluator.expect_coarsely(group, levels)?,
            };
            self.note_seconds(group, expected, &mut seconds);
        }
        let candidate = ValuedCandidate {
            candidate: Rc::clone(proposal),
            levels: self.region.jobs.iter().map(|job| levels[*job]).collect(),
            level_origins: vec![*origin],
            value,
        };
        Some(ValuedProposal { candidate, coarse: coarse.value, is_promising, seconds })
    }

    fn coarse_value(
        &mut self,
        groups: &[ContentionGroup],
        levels: &[Vec<u8>],
    ) -> Option<DecisionValue> {
        let mut sum = DecisionValue::NOTHING;
        for (group, levels) in groups.iter().zip(levels) {
            sum =
                sum.combine(self.evaluator.evaluate_levels(group, levels, StartSample::Coarse)?);
        }
        Some(sum)
    }

    /// What a candidate is worth in a coarse simulation; none if the model rejects a job.
    pub(super) fn value_coarsely(&mut self, candidate: &ValuedCandidate) -> Option<f64> {
        let groups = self.evaluator.contention_groups(candidate.paths());
        let levels: Vec<Vec<u8>> =
            groups.iter().map(|group| candidate.member_levels(group)).collect();
        Some(self.coarse_value(&groups, &levels)?.value)
    }

    /// The longest that a flow of each job of the region waits for service under a candidate,
    /// seconds: event by event, or where that is too expensive as far as steps tell. The longest of
    /// all is in the candidate's value from here on. None if the model rejects a job.
    pub(super) fn judge_waits(&mut self, candidate: &mut ValuedCandidate) -> Option<Vec<f64>> {
        let mut waits = vec![0.0; self.region.jobs.len()];
        for group in self.evaluator.contention_groups(candidate.paths()) {
            let levels = candidate.member_levels(&group);
            self.evaluator.judge_waits(&group, &levels, MAX_JUDGING_COST);
            let expected = self.evaluator.expect_members(&group, &levels)?;
            group.members.iter().zip(expected).for_each(|(member, of)| waits[*member] = of.wait);
        }
        let longest = waits.iter().copied().fold(0.0, f64::max);
        self.excluded_by_bound |= longest > self.context.policy.service_bound();
        candidate.value.worst_wait = longest;
        Some(waits)
    }

    /// The best of the candidates on the paths of `valued` if waits that only steps tell count as
    /// none; none if they have excluded nothing, or cannot be told event by event.
    pub(super) fn best_despite_steps(
        &mut self,
        valued: &[ValuedCandidate],
    ) -> Option<ValuedCandidate> {
        if !(self.excluded_by_bound
            && self.is_stepped()
            && self.evaluator.can_judge(MAX_JUDGING_COST))
        {
            return None;
        }
        let mut paths: Vec<Rc<CandidatePaths>> = Vec::new();
        for ValuedCandidate { candidate, .. } in valued {
            if !paths.iter().any(|known| Rc::ptr_eq(known, candidate)) {
                paths.push(Rc::clone(candidate));
            }
        }
        self.evaluator.doubts_steps = true;
        let despite = self.value_candidates(&paths);
        self.evaluator.doubts_steps = false;
        best_candidate(self.objective, despite.iter()).cloned()
    }

    fn member_levels(&self, group: &ContentionGroup, levels: &[u8]) -> Vec<u8> {
        group.members.iter().map(|position| levels[self.region.jobs[*position]]).collect()
    }

    /// What ECMP would give, each draw from another start; none if the model rejects a job.
    pub(super) fn expect_ecmp(&mut self, draws: &[Rc<CandidatePaths>]) -> Option<EcmpExpectation> {
        let mut values = Vec::with_capacity(draws.len());
        for (number, draw) in (0..).zip(draws) {
            let start = StartSample::Fine(number);
            let mut value = DecisionValue::NOTHING;
            for group in self.evaluator.contention_groups(&draw.paths) {
                let levels = self.member_levels(&group, &draw.levels[0].1);
                let found = self.evaluator.evaluate_levels(&group, &levels, start)?;
                value = value.combine(found);
            }
            values.push(value);
        }
        Some(EcmpExpectation::from_draws(&values))
    }

    /// The candidate with higher levels for the jobs that miss the floor: half of what is left to
    /// the highest at a time, until none does.
    pub(super) fn raise_starving(&mut self, start: &ValuedCandidate) -> ValuedCandidate {
        let (objective, job_levels) = (self.objective, self.context.policy.job_levels());
        self.change_levels(start, LevelOrigin::Raised, |evaluator, group, allowed, levels| {
            let mut levels = levels.to_vec();
            for _ in 0..=job_levels.len().ilog2() {
                let expected = evaluator.expect_members(group, &levels)?;
                let earlier = levels.clone();
                for ((level, allowed), of) in levels.iter_mut().zip(allowed).zip(expected) {
                    if objective.is_starving(of.slowdown, of.wait) && *level < *allowed.end() {
                        *level += (*allowed.end() - *level).div_ceil(2);
                    }
                }
                if levels == earlier {
                    break;
                }
            }
            let value = evaluator.mean_value(group, &levels)?;
            Some(ValuedLevels { levels, value })
        })
    }

    /// The paths of `late`, some flows of which wait too long, with the levels that are now the
    /// best and with higher levels for the jobs of those flows.
    pub(super) fn other_levels(&mut self, late: &ValuedCandidate) -> Vec<ValuedCandidate> {
        let raised = self.raise_starving(late);
        self.value_candidate(&late.candidate).into_iter().chain([raised]).collect()
    }

    /// The candidate with better levels in each contention group, as far as `cost_limit` allows.
    pub(super) fn climb_candidate(
        &mut self,
        start: &ValuedCandidate,
        cost_limit: u64,
    ) -> ValuedCandidate {
        let objective = self.objective;
        self.change_levels(start, LevelOrigin::Climbed, |evaluator, group, allowed, levels| {
            let from = ValuedLevels {
                levels: levels.to_vec(),
                value: evaluator.mean_value(group, levels)?,
            };
            let climb = LevelClimb { objective, group, allowed, cost_limit };
            Some(climb_levels(evaluator, climb, from))
        })
    }

    /// The candidate with other levels in each contention group: `change` gets the range of each
    /// member and its level, as indices into the levels that jobs may have. A group for which it
    /// gives none has no value.
    fn change_levels(
        &mut self,
        start: &ValuedCandidate,
        origin: LevelOrigin,
        change: impl Fn(
            &mut GroupEvaluator<'_>,
            &ContentionGroup,
            &[RangeInclusive<u8>],
            &[u8],
        ) -> Option<ValuedLevels>,
    ) -> ValuedCandidate {
        let policy = self.context.policy;
        let job_levels = policy.job_levels();
        let mut changed = ValuedCandidate {
            level_origins: vec![origin],
            value: DecisionValue::NOTHING,
            ..start.clone()
        };
        for group in self.evaluator.contention_groups(&changed.candidate.paths) {
            let members = group.members.iter();
            let jobs = members.clone().map(|position| self.region.jobs[*position]);
            let jobs = jobs.map(|job| self.context.traffic.jobs[job]);
            let allowed: Vec<_> = jobs.map(|job| policy.allowed_levels(job, &job_levels)).collect();
            let levels: Vec<u8> = members
                .map(|position| index_of_level(&job_levels, changed.levels[*position]))
                .collect();
            let Some(found) = change(self.evaluator, &group, &allowed, &levels) else { continue };
            changed.value = changed.value.combine(found.value);
            for (position, index) in group.members.iter().zip(found.levels) {
                changed.levels[*position] = job_levels[usize::from(index)];
            }
        }
        changed
    }

    /// What moving from the running paths to others must gain: a share of the worth of the jobs
    /// whose flows move.
    pub(super) fn moving_price(&self, running: &[LinkPath], paths: &[LinkPath]) -> f64 {
        let PlanContext { traffic, policy, previous, .. } = *self.context;
        let moved = self.region.jobs.iter().zip(self.evaluator.job_worth()).filter(|(job, _)| {
            let span = traffic.spans[**job].clone();
            previous.job_level(**job).is_some() && running[span.clone()] != paths[span]
        });
        policy.move_gain_min * moved.map(|(_, worth)| worth).sum::<f64>()
    }
}

/// The best of candidates, of equals the first.
pub(super) fn best_candidate<'v>(
    objective: PlanObjective,
    mut valued: impl Iterator<Item = &'v ValuedCandidate>,
) -> Option<&'v ValuedCandidate> {
    let first = valued.next()?;
    Some(valued.fold(first, |best, next| match objective.is_better(next.value, best.value, 0.0) {
        true => next,
        false => best,
    }))
}

/// Position of a level among those that jobs may have.
fn index_of_level(job_levels: &[u8], level: u8) -> u8 {
    to_level(job_levels.partition_point(|given| *given < level).min(job_levels.len() - 1))
}
