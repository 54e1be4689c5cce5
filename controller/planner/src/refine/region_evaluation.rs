//! The candidates of one region: their values, and levels that are better.

use std::rc::Rc;

use topology::LinkPath;

use super::bundles::RegionModel;
use super::candidates::{CandidatePaths, LevelOrigin, PathOrigin};
use super::contention_group::ContentionGroup;
use super::ecmp_expectation::EcmpExpectation;
use super::forecast::{IterationForecast, forecast_iterations};
use super::horizon::{COARSE_START, FIRST_START};
use super::judge::{DecisionValue, Judge, MemberExpectation};
use super::level_race::{RaceWinner, race_levels};
use super::local_search::SearchFreedom;
use super::mean_rates::MeanRates;
use super::objective::{LEAST_GAIN, PlanObjective};
use super::regions;
use crate::plan_context::{PlanContext, PlanRegion};
use crate::policy::{PathMethod, to_level};

/// A region of more flows is not searched: all paths of its flows are listed for that.
const MAX_SEARCHED_FLOWS: usize = 20_000;

/// Share of the largest slowdown under the floor that the model is asked for: a job that it finds
/// at the limit is beyond it half of the time.
const WANTED_SLOWDOWN: f64 = 0.6;

/// Part of the budget that the first simulations of all levels of a candidate may cost.
const TRIAL_PART: u64 = 8;

/// Levels that are simulated beyond these, one after the other, where a job starves under all of them
/// but those that give up all order.
const MAX_FURTHER: usize = 3;

/// A candidate with its best levels and their value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValuedCandidate {
    pub(super) candidate: Rc<CandidatePaths>,
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

    /// The levels of the members of a group.
    fn member_levels(&self, group: &ContentionGroup) -> Vec<u8> {
        group.members.iter().map(|member| self.levels[*member]).collect()
    }
}

/// Levels of a candidate, in the order in which they are simulated.
struct LevelsInOrder {
    levels: Vec<(LevelOrigin, Vec<u8>)>,
    /// How many are simulated in any case.
    tried: usize,
}

/// The evaluation of one region.
pub(super) struct RegionEvaluation<'a> {
    context: &'a PlanContext<'a>,
    region: &'a PlanRegion,
    judge: Judge<'a>,
    /// Made when it is first needed.
    model: Option<Rc<RegionModel<'a>>>,
    objective: PlanObjective,
    /// Whether the service bound has excluded anything.
    excluded_by_bound: bool,
    /// Candidates with levels that would be worth more if no job starved, valued from the first
    /// start.
    starving: Vec<ValuedCandidate>,
}

impl<'a> RegionEvaluation<'a> {
    /// An evaluation that does not know of ECMP yet.
    pub(super) fn new(context: &'a PlanContext<'a>, region: &'a PlanRegion) -> Self {
        Self {
            context,
            region,
            judge: Judge::new(context.traffic, context.policy, &region.jobs),
            model: None,
            objective: PlanObjective::new(context.policy, None),
            excluded_by_bound: false,
            starving: Vec::new(),
        }
    }

    /// Candidates with levels that would be worth more if no job starved, the best first.
    pub(super) fn take_starving(&mut self) -> Vec<ValuedCandidate> {
        let mut starving = std::mem::take(&mut self.starving);
        // The most valuable first: raising is tried for the first few only.
        starving.sort_by(|a, b| b.value.value.total_cmp(&a.value.value));
        starving
    }

    /// The jobs of the region with all their paths.
    pub(super) fn model(&mut self) -> Rc<RegionModel<'a>> {
        let PlanContext { traffic, policy, .. } = *self.context;
        let jobs = &self.region.jobs;
        let model =
            self.model.get_or_insert_with(|| Rc::new(RegionModel::new(traffic, policy, jobs)));
        Rc::clone(model)
    }

    pub(super) fn region(&self) -> &'a PlanRegion {
        self.region
    }

    pub(super) fn objective(&self) -> PlanObjective {
        self.objective
    }

    /// Whether all jobs begin their iterations when they are asked to.
    pub(super) fn can_wait(&self) -> bool {
        self.region.jobs.iter().all(|job| self.context.traffic.jobs[*job].can_wait)
    }

    /// Whether the paths of the region are searched.
    pub(super) fn is_searched(&self) -> bool {
        self.context.traffic.count_flows(&self.region.jobs) <= MAX_SEARCHED_FLOWS
    }

    /// What searches may change.
    pub(super) fn search_freedom(&self) -> SearchFreedom {
        match self.context.policy.paths {
            PathMethod::Greedy => SearchFreedom::Levels,
            PathMethod::Improved => SearchFreedom::LevelsAndPaths,
        }
    }

    /// Events that searches and climbs in this region may cost.
    pub(super) fn event_budget(&self) -> u64 {
        let PlanContext { traffic, policy, .. } = *self.context;
        regions::budget_per_job(traffic, policy) * self.region.jobs.len() as u64
    }

    /// Simulations that so many events are enough for.
    pub(super) fn simulations_for(&self, events: u64) -> usize {
        (events as f64 / self.judge.cost_of_run()) as usize
    }

    /// What all simulations so far cost, in events, and what else was charged.
    pub(super) fn event_cost(&self) -> u64 {
        self.judge.event_cost()
    }

    /// Counts the cost of asking the model, in events.
    pub(super) fn charge(&mut self, events: u64) {
        self.judge.charge(events);
    }

    /// From here on, no job may be slower than policy allows against the slowest under ECMP.
    pub(super) fn set_floor(&mut self, ecmp: &EcmpExpectation) {
        self.objective = PlanObjective::new(self.context.policy, Some(ecmp.worst_slowdown));
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
        // Nearly all of these runs are known, as only the choice between them changes.
        let valued = self.value_candidates(candidates);
        let objective = std::mem::replace(&mut self.objective, bounded);
        best_candidate(objective, valued.iter()).map(|best| best.value)
    }

    /// Whether every job is as fast as alone.
    pub(super) fn is_optimal(&self, candidate: &ValuedCandidate) -> bool {
        candidate.value.value >= self.judge.upper_bound() * (1.0 - LEAST_GAIN)
            && !self.objective.misses_service_bound(candidate.value)
    }

    /// A value as a share of the region's worth.
    pub(super) fn utilization(&self, value: f64) -> f64 {
        let total: f64 = self.judge.job_worth().iter().sum();
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
        let ordered = self.order_levels(candidate);
        let mut starving: Option<ValuedCandidate> = None;
        for group in &*self.judge.contention_groups(&candidate.paths) {
            let winner = self.best_levels(group, &ordered)?;
            let RaceWinner { origin, levels, value, .. } = winner;
            if winner.starving.is_some() {
                // From the groups before, in which both have the same levels.
                starving.get_or_insert_with(|| valued.clone());
            }
            if let Some(starving) = &mut starving {
                let (levels, value) = winner.starving.unwrap_or((levels.clone(), value));
                starving.value = starving.value.combine(value);
                for (position, level) in group.members.iter().zip(levels) {
                    starving.levels[*position] = level;
                }
            }
            valued.value = valued.value.combine(value);
            for (position, level) in group.members.iter().zip(levels) {
                valued.levels[*position] = level;
            }
            if group.members.len() > 1 && !valued.level_origins.contains(&origin) {
                valued.level_origins.push(origin);
            }
        }
        let worth_more = starving.filter(|starving| starving.value.value > valued.value.value);
        self.starving.extend(worth_more);
        Some(valued)
    }

    /// The best levels for a group of those that are tried. Averages expect the most of levels under
    /// which a flow waits too long, so where only levels remain that give up all order, the next
    /// ones are tried.
    fn best_levels(
        &mut self,
        group: &ContentionGroup,
        ordered: &LevelsInOrder,
    ) -> Option<RaceWinner> {
        let all = ordered.levels.iter();
        let all: Vec<(LevelOrigin, Vec<u8>)> =
            all.map(|(origin, levels)| (*origin, self.member_levels(group, levels))).collect();
        let most = all.len().min(ordered.tried + MAX_FURTHER);
        let mut tried = ordered.tried;
        loop {
            let winner =
                race_levels(&mut self.judge, self.objective, group, all[..tried].to_vec())?;
            self.excluded_by_bound |= winner.excluded_by_bound;
            let gives_up = winner.starving.is_some() && winner.origin.has_no_order();
            if !gives_up || tried >= most {
                return Some(winner);
            }
            tried += 1;
        }
    }

    /// The levels of a candidate: all are tried where simulations are cheap, else those that a plan is
    /// never to be worse than, and the best of the others by mean rates.
    fn order_levels(&mut self, candidate: &CandidatePaths) -> LevelsInOrder {
        let most = self.simulations_for(self.event_budget() / TRIAL_PART);
        if candidate.levels.len() <= most {
            return LevelsInOrder {
                levels: candidate.levels.clone(),
                tried: candidate.levels.len(),
            };
        }
        // Where one start has to do, every simulation counts.
        let is_cheap = self.judge.horizon.samples().len() > 1;
        let model = self.model();
        let mut rates = self.mean_rates(&model, &candidate.paths, &candidate.levels[0].1);
        // Averages know nothing of phases. One level is simulated in any case, and says how long
        // communication takes beside that of the others.
        let one_level = candidate.levels.iter().find(|(of, _)| of.has_no_order());
        if let Some((_, levels)) = one_level
            && let Some(seconds) = self.seconds_from(FIRST_START, &candidate.paths, levels)
        {
            rates.set_levels(&model.level_indices(levels));
            rates.calibrate(&seconds);
        }
        // Whether a plan is never to be worse, what the model expects, and their place.
        let mut rated: Vec<(bool, f64, usize)> = Vec::new();
        for (place, (origin, levels)) in candidate.levels.iter().enumerate() {
            rates.set_levels(&model.level_indices(levels));
            rated.push((origin.is_essential(is_cheap), rates.score(), place));
        }
        rated.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
        let essential = rated.iter().filter(|(is_essential, ..)| *is_essential).count();
        let levels = rated.into_iter().map(|(.., place)| candidate.levels[place].clone());
        // One that is not essential at least, or the rating would have been for nothing.
        let tried = most.max(essential + 1).min(candidate.levels.len());
        LevelsInOrder { levels: levels.collect(), tried }
    }

    /// The model of mean rates at these decisions, by flow and job of the plan.
    pub(super) fn mean_rates<'m>(
        &self,
        model: &'m RegionModel<'m>,
        paths: &[LinkPath],
        levels: &[u8],
    ) -> MeanRates<'m> {
        let limit = self.objective.slowdown_limit().unwrap_or(f64::INFINITY);
        let routes = &self.context.traffic.routes;
        let jobs = self.region.jobs.iter().zip(self.judge.guaranteed());
        let longest = jobs.map(|(job, guaranteed)| {
            let slowdown = limit.min(1.0 / guaranteed) * WANTED_SLOWDOWN;
            slowdown.max(1.0) * routes[*job].demand.iteration_seconds
        });
        let longest = longest.collect();
        MeanRates::new(model, model.counts_of(paths), model.level_indices(levels), longest)
    }

    /// What becomes of each job of the region under a candidate; one that the model rejects stands
    /// still.
    pub(super) fn expect_jobs(&mut self, candidate: &ValuedCandidate) -> Vec<MemberExpectation> {
        let still = MemberExpectation { slowdown: f64::INFINITY, wait: 0.0 };
        let mut jobs = vec![still; self.region.jobs.len()];
        for group in &*self.judge.contention_groups(candidate.paths()) {
            let levels = candidate.member_levels(group);
            let expected = self.judge.expect_members(group, &levels).unwrap_or_default();
            group.members.iter().zip(expected).for_each(|(member, of)| jobs[*member] = of);
        }
        jobs
    }

    /// Seconds of an iteration of each job of the region under a candidate.
    pub(super) fn iteration_seconds(&mut self, candidate: &ValuedCandidate) -> Vec<f64> {
        let expected = self.expect_jobs(candidate);
        (0..).zip(expected).map(|(position, of)| self.seconds_of(position, of)).collect()
    }

    fn seconds_of(&self, position: usize, expected: MemberExpectation) -> f64 {
        let routes = &self.context.traffic.routes[self.region.jobs[position]];
        expected.slowdown * routes.demand.iteration_seconds
    }

    /// What an iteration of each job of the region is to take under a candidate.
    pub(super) fn forecast_jobs(&self, candidate: &ValuedCandidate) -> Vec<IterationForecast> {
        let levels = self.plan_levels(candidate);
        let (traffic, jobs) = (self.context.traffic, &self.region.jobs);
        forecast_iterations(traffic, jobs, candidate.paths(), (&levels, &[]))
    }

    /// Seconds of an iteration of each job of the region from one start, with levels by job of the plan;
    /// none if the model rejects a job.
    fn seconds_from(&mut self, start: u32, paths: &[LinkPath], levels: &[u8]) -> Option<Vec<f64>> {
        let mut seconds = vec![f64::INFINITY; self.region.jobs.len()];
        for group in &*self.judge.contention_groups(paths) {
            let levels = self.member_levels(group, levels);
            let expected = self.judge.expect_from(group, &levels, [start])?;
            for (member, expected) in group.members.iter().zip(expected) {
                seconds[*member] = self.seconds_of(*member, expected);
            }
        }
        Some(seconds)
    }

    /// Seconds of an iteration of each job in the coarse simulation of a candidate; none if the model
    /// rejects a job.
    pub(super) fn coarse_seconds(&mut self, candidate: &ValuedCandidate) -> Option<Vec<f64>> {
        let levels = self.plan_levels(candidate);
        self.seconds_from(COARSE_START, candidate.paths(), &levels)
    }

    /// What a candidate is worth in a coarse simulation; none if the model rejects a job.
    pub(super) fn value_coarsely(&mut self, candidate: &ValuedCandidate) -> Option<DecisionValue> {
        self.value_groups(candidate, |judge, group, levels| {
            judge.evaluate_levels(group, levels, COARSE_START)
        })
    }

    /// What a candidate is worth from all starts; none if the model rejects a job.
    pub(super) fn value_finely(&mut self, candidate: &ValuedCandidate) -> Option<DecisionValue> {
        self.value_groups(candidate, |judge, group, levels| {
            let samples = judge.horizon.samples();
            judge.simulate_ahead(group, samples.map(|sample| (levels, sample)));
            judge.mean_value(group, levels)
        })
    }

    fn value_groups(
        &mut self,
        candidate: &ValuedCandidate,
        value: impl Fn(&mut Judge<'_>, &ContentionGroup, &[u8]) -> Option<DecisionValue>,
    ) -> Option<DecisionValue> {
        let mut sum = DecisionValue::NOTHING;
        for group in &*self.judge.contention_groups(candidate.paths()) {
            let levels = candidate.member_levels(group);
            sum = sum.combine(value(&mut self.judge, group, &levels)?);
        }
        Some(sum)
    }

    /// Paths with so many flows on each option of the model; flows stay where they are under `from` as
    /// far as they can.
    pub(super) fn searched_paths(
        &mut self,
        from: &ValuedCandidate,
        counts: &[u32],
    ) -> Rc<CandidatePaths> {
        let paths = self.model().paths_of(counts, from.paths());
        Rc::new(CandidatePaths { origin: PathOrigin::Searched, paths, levels: Vec::new() })
    }

    /// A candidate with levels of the model, which has no value yet.
    pub(super) fn candidate_at(
        &mut self,
        candidate: Rc<CandidatePaths>,
        levels: &[u8],
        origin: LevelOrigin,
    ) -> ValuedCandidate {
        let model = self.model();
        ValuedCandidate {
            candidate,
            levels: levels.iter().map(|level| model.level_at(*level)).collect(),
            level_origins: vec![origin],
            value: DecisionValue::NOTHING,
        }
    }

    fn member_levels(&self, group: &ContentionGroup, levels: &[u8]) -> Vec<u8> {
        group.members.iter().map(|position| levels[self.region.jobs[*position]]).collect()
    }

    /// What ECMP would give, by mean rates: all on one level, on so many draws of paths. Paths at
    /// random have no symmetry, so they cost far more to simulate than any candidate, and averages
    /// over many flows are near: the value is within 3 % of simulations, the slowdown of the slowest
    /// job within 15 %.
    pub(super) fn expect_ecmp(&mut self, draws: &[Vec<LinkPath>]) -> EcmpExpectation {
        let model = self.model();
        let levels = vec![0; self.context.traffic.jobs.len()];
        let values = draws.iter().map(|paths| {
            let rates = self.mean_rates(&model, paths, &levels);
            self.judge.value_of_seconds(&rates.seconds)
        });
        EcmpExpectation::from_draws(&values.collect::<Vec<_>>())
    }

    /// The candidate with higher levels for the jobs that miss the floor: half of what is left to
    /// the highest at a time, until none does.
    pub(super) fn raise_starving(&mut self, start: &ValuedCandidate) -> ValuedCandidate {
        let policy = self.context.policy;
        let job_levels = policy.job_levels();
        let mut raised = ValuedCandidate {
            level_origins: vec![LevelOrigin::Raised],
            value: DecisionValue::NOTHING,
            ..start.clone()
        };
        for group in &*self.judge.contention_groups(start.paths()) {
            let members = group.members.iter();
            let mut levels: Vec<u8> = members
                .clone()
                .map(|position| index_of_level(&job_levels, start.levels[*position]))
                .collect();
            let highest = members.map(|position| {
                let job = self.context.traffic.jobs[self.region.jobs[*position]];
                *policy.allowed_levels(job, &job_levels).end()
            });
            let highest: Vec<u8> = highest.collect();
            // An interrupted group keeps its levels; the value of the others still counts.
            let Some(value) = self.raise_members(group, &highest, &mut levels) else { continue };
            raised.value = raised.value.combine(value);
            for (position, index) in group.members.iter().zip(levels) {
                raised.levels[*position] = job_levels[usize::from(index)];
            }
        }
        raised
    }

    /// Raises `levels`, as positions among those that jobs may have, and values them.
    fn raise_members(
        &mut self,
        group: &ContentionGroup,
        highest: &[u8],
        levels: &mut [u8],
    ) -> Option<DecisionValue> {
        let steps = self.context.policy.job_levels().len().ilog2();
        for _ in 0..=steps {
            let expected = self.judge.expect_from(group, levels, [COARSE_START])?;
            let mut is_raised = false;
            for ((level, highest), of) in levels.iter_mut().zip(highest).zip(expected) {
                if self.objective.is_starving(of.slowdown, of.wait) && *level < *highest {
                    // Halfway up each time, so that as many jobs as possible keep different levels.
                    *level += (*highest - *level).div_ceil(2);
                    is_raised = true;
                }
            }
            if !is_raised {
                break;
            }
        }
        self.judge.mean_value(group, levels)
    }

    /// The levels of a candidate by job of the plan; those of other jobs are the lowest.
    pub(super) fn plan_levels(&self, candidate: &ValuedCandidate) -> Vec<u8> {
        let mut levels = vec![0; self.context.traffic.jobs.len()];
        let jobs = self.region.jobs.iter().zip(&candidate.levels);
        jobs.for_each(|(job, level)| levels[*job] = *level);
        levels
    }

    /// Gives jobs that share no link with others the levels by rank, of all jobs of the plan: what
    /// the model does not know of, such as acknowledgements on any path, has an order then, too.
    pub(super) fn rank_alone(&mut self, candidate: &mut ValuedCandidate, ranked: &[u8]) {
        for group in &*self.judge.contention_groups(candidate.paths()) {
            if let [member] = group.members[..] {
                candidate.levels[member] = ranked[self.region.jobs[member]];
            }
        }
    }

    /// What moving from the running paths to others must gain.
    pub(super) fn moving_price(&self, running: &[LinkPath], paths: &[LinkPath]) -> f64 {
        moving_price(self.context, self.region, self.judge.job_worth(), [running, paths])
    }
}

/// What moving jobs of `region` from the running paths to others must gain: a share of the worth of
/// the jobs whose flows move.
pub(super) fn moving_price(
    context: &PlanContext<'_>,
    region: &PlanRegion,
    worth: &[f64],
    [running, paths]: [&[LinkPath]; 2],
) -> f64 {
    let PlanContext { traffic, policy, previous, .. } = *context;
    let moved = region.jobs.iter().zip(worth).filter(|(job, _)| {
        let span = traffic.spans[**job].clone();
        previous.job_level(**job).is_some() && running[span.clone()] != paths[span]
    });
    policy.move_gain_min * moved.map(|(_, worth)| worth).sum::<f64>()
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
