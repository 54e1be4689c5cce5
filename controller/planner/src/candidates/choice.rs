//! The choice between candidates, region by region.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use topology::Finding;

use super::ecmp_expectation::EcmpExpectation;
use super::group_values::GroupEvaluator;
use super::guided_choice::search_guided;
use super::origins::{self, CandidateBuilder, CandidatePaths, DrawUse, LevelOrigin, PathOrigin};
use super::region_evaluation::{RegionEvaluation, ValuedCandidate, best_candidate};
use crate::decision::{PlanContext, PlanRegion};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::search::SearchResult;

/// Draws of paths by hash that stand for what ECMP may do, and fewer of them in a large region.
const ECMP_DRAWS: u32 = 10;
const STEPPED_DRAWS: u32 = 4;

/// Candidates of a large region that are judged by the waits of their flows and then replaced by
/// others on the same paths.
const MAX_JUDGED: usize = 16;

/// Candidates of one region and what each was worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionComparison {
    /// Digest of what the decisions depend on.
    pub digest: u64,
    /// Positions in [`Plan::jobs`](crate::Plan::jobs) of the jobs that were decided together.
    pub jobs: Vec<usize>,
    /// Seconds of an iteration of each of these jobs under the adopted candidate, the mean over all
    /// starts that were simulated; infinite for a job that gets nothing.
    pub iteration_seconds: Vec<f64>,
    /// The longest that a flow of each of these jobs waits for service under the adopted candidate,
    /// seconds.
    pub wait_seconds: Vec<f64>,
    /// What was compared, the adopted one first.
    pub candidates: Vec<CandidateOutcome>,
    /// Share of the GPU worth that the adopted candidate gives up for the service bound; none if
    /// the bound excluded nothing.
    pub bound_cost: Option<f64>,
    /// Mean utilisation under ECMP, over draws of its hash; none if it was not needed.
    pub ecmp_utilization: Option<f64>,
    /// No job may be slower than alone by more than this factor; none if no job came near it.
    pub slowdown_limit: Option<f64>,
}

/// A candidate of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateOutcome {
    /// Where its paths come from.
    pub paths: PathOrigin,
    /// Where the levels of its contention groups come from, each once.
    pub levels: Vec<LevelOrigin>,
    /// Share of the region's GPU worth that computes.
    pub gpu_utilization: f64,
    /// How many times longer than alone an iteration of the worst job takes.
    pub worst_slowdown: f64,
    /// The longest that a flow waits for service, seconds, as far as it was followed: what is
    /// longer than the service bound may be longer still.
    pub worst_wait_seconds: f64,
}

/// What was compared for a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanComparison {
    /// Regions with several jobs, whose candidates were compared.
    pub regions: Vec<RegionComparison>,
    /// Digests of the regions that were compared for an earlier plan, with the same inputs.
    pub compared: Vec<u64>,
    /// Whether there are regions that were not compared yet: a plan of full depth may be better.
    pub is_provisional: bool,
    /// Cycles of waiting buffers that the decisions would have had, and whose flows went elsewhere.
    pub refused_cycles: Vec<Finding>,
}

impl PlanComparison {
    /// What an iteration of the job at this position of the plan is expected to take; none if it
    /// was not simulated for this plan.
    pub fn forecast_seconds(&self, job: usize) -> Option<f64> {
        let mut regions = self.regions.iter();
        regions.find_map(|region| {
            let place = region.jobs.iter().position(|member| *member == job)?;
            region.iteration_seconds.get(place).copied()
        })
    }

    /// A finding for each job whose flows may wait longer for service than `policy` allows, of the
    /// regions from that position on.
    pub(crate) fn wait_findings(
        &self,
        plan: &Plan,
        policy: &Policy,
        first_region: usize,
    ) -> Vec<Finding> {
        let bound = policy.service_bound();
        let regions = self.regions[first_region..].iter();
        let waits = regions.flat_map(|region| region.jobs.iter().zip(&region.wait_seconds));
        let late = waits.filter(|(_, wait)| **wait > bound);
        late.map(|(job, wait)| {
            let text = format!(
                "its flows may wait {wait:.1} s or longer without service, and policy allows \
                 {bound:.1} s; no plan that was compared holds that: let the planner choose more \
                 levels, or give the connections more time (NCCL_IB_TIMEOUT, `ib_timeout`)"
            );
            Finding::warning(format!("job {}", plan.jobs[*job].id), text)
        })
        .collect()
    }

    /// Of all regions that were compared, now or earlier.
    pub(crate) fn digests(&self) -> impl Iterator<Item = u64> + '_ {
        self.compared.iter().copied().chain(self.regions.iter().map(|region| region.digest))
    }

    /// Adds what was compared for regions of an earlier plan that `plan` keeps as they were.
    pub fn keep_earlier(&mut self, plan: &Plan, earlier_plan: &Plan, earlier: &Self) {
        let new: BTreeSet<u64> = self.regions.iter().map(|region| region.digest).collect();
        let kept = earlier.regions.iter().filter(|region| {
            plan.compared_inputs.0.contains(&region.digest) && !new.contains(&region.digest)
        });
        self.regions.extend(kept.filter_map(|region| {
            let ids = region.jobs.iter().map(|job| &earlier_plan.jobs[*job].id);
            let jobs = ids.map(|id| plan.job(id).map(|(position, _)| position));
            Some(RegionComparison { jobs: jobs.collect::<Option<_>>()?, ..region.clone() })
        }));
    }
}

/// Puts the best candidate of each of the `regions` into `decided`, which has the decisions of path
/// selection and ranking, and says what was compared.
pub(crate) fn adopt_best(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    decided: &mut SearchResult,
) -> PlanComparison {
    let compared: Vec<usize> = regions.iter().flat_map(|region| &region.jobs).copied().collect();
    let unsearched = decided.clone();
    let mut candidates = CandidateBuilder::new(context, &compared, &unsearched);
    let mut comparison = PlanComparison::default();
    for region in regions {
        let mut evaluator = GroupEvaluator::new(context.traffic, context.policy, &region.jobs);
        let evaluation = RegionEvaluation::new(context, region, &mut evaluator);
        decided.mark_searched(context.traffic, context.policy, &region.jobs);
        let Some(found) = decide_region(evaluation, &mut candidates) else {
            continue;
        };
        let ValuedCandidate { levels, .. } = &found.adopted;
        let levels = levels.iter().copied();
        decided.adopt_decisions(context.traffic, &region.jobs, levels, found.adopted.paths());
        comparison.regions.push(found.comparison);
    }
    comparison
}

/// Puts the plan in force into `decided`, for all `regions` and as far as it goes.
pub(crate) fn keep_in_force(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    decided: &mut SearchResult,
) {
    if regions.is_empty() {
        return;
    }
    if let Some((paths, levels)) = origins::decisions_in_force(context, decided) {
        for PlanRegion { jobs, .. } in regions {
            let levels = jobs.iter().map(|job| levels[*job]);
            decided.adopt_decisions(context.traffic, jobs, levels, &paths);
            decided.mark_searched(context.traffic, context.policy, jobs);
        }
    }
}

/// Puts the levels in force into `decided`, for all `regions`: what runs has kept its paths.
pub(crate) fn keep_levels_in_force(
    context: &PlanContext<'_>,
    regions: &[PlanRegion],
    decided: &mut SearchResult,
) {
    let PlanContext { traffic, policy, previous, .. } = context;
    let jobs = decided.levels.iter().enumerate();
    let levels =
        context.permit_levels(jobs.map(|(job, new)| previous.job_level(job).unwrap_or(*new)));
    for PlanRegion { jobs, .. } in regions {
        jobs.iter().for_each(|job| decided.levels[*job] = levels[*job]);
        decided.mark_searched(traffic, policy, jobs);
    }
}

/// The result of a region.
struct RegionDecision {
    adopted: ValuedCandidate,
    comparison: RegionComparison,
}

/// The best candidate for a region; none if the model rejects a job.
fn decide_region(
    mut evaluation: RegionEvaluation<'_, '_>,
    candidates: &mut CandidateBuilder<'_>,
) -> Option<RegionDecision> {
    let mut valued = evaluation.value_candidates(candidates.present());
    let mut ecmp = None;
    if !valued.is_empty() && !valued.iter().any(|next| evaluation.is_optimal(next)) {
        let searched =
            candidates.search_region(&evaluation.region().jobs, evaluation.search_budget());
        valued.extend(evaluation.value_candidates(&searched));
        let unbounded = valued;
        let draws = if evaluation.is_stepped() { STEPPED_DRAWS } else { ECMP_DRAWS };
        ecmp = evaluation.expect_ecmp(candidates.hashed(draws));
        valued = value_under_floor(&mut evaluation, candidates, &searched, ecmp);
        raise_starving(&mut evaluation, &unbounded, &mut valued);
        improve_best(&mut evaluation, candidates, &unbounded, &mut valued);
    }
    let served = choose_served(&mut evaluation, &mut valued)?;
    let (adopted, wait_seconds) = improve_served(&mut evaluation, &mut valued, served)?;
    let bound_cost = cost_of_bound(&mut evaluation, candidates.present(), &adopted);
    let comparison = RegionComparison {
        digest: evaluation.region().digest,
        jobs: evaluation.region().jobs.clone(),
        iteration_seconds: evaluation.iteration_seconds(&adopted),
        wait_seconds,
        bound_cost,
        candidates: list_outcomes(&evaluation, &adopted, &valued),
        ecmp_utilization: ecmp.map(|expected| evaluation.utilization(expected.mean_value)),
        slowdown_limit: evaluation.objective().slowdown_limit(),
    };
    Some(RegionDecision { adopted, comparison })
}

/// Share of the worth that `adopted` gives up for the service bound, against the best of the
/// candidates that do not depend on it; none if the bound excluded nothing.
fn cost_of_bound(
    evaluation: &mut RegionEvaluation<'_, '_>,
    present: &[Rc<CandidatePaths>],
    adopted: &ValuedCandidate,
) -> Option<f64> {
    let free = evaluation.value_without_bound(present)?;
    Some(evaluation.utilization((free.value - adopted.value.value).max(0.0)))
}

/// Values all candidates, those drawn by hash among them, under the floor that ECMP sets: other
/// levels may be better than without it.
fn value_under_floor(
    evaluation: &mut RegionEvaluation<'_, '_>,
    candidates: &mut CandidateBuilder<'_>,
    searched: &[Rc<CandidatePaths>],
    ecmp: Option<EcmpExpectation>,
) -> Vec<ValuedCandidate> {
    let mut all = candidates.present().to_vec();
    if let Some(ecmp) = ecmp {
        evaluation.set_floor(&ecmp);
        let improves = if evaluation.is_stepped() { DrawUse::AsIs } else { DrawUse::Improved };
        all.extend(candidates.best_draw(ecmp.best_draw, improves));
    }
    all.extend_from_slice(searched);
    evaluation.value_candidates(&all)
}

/// Adds candidates that are better than those so far, as far as the budget goes: with other levels,
/// and in a large region with other paths and levels.
fn improve_best(
    evaluation: &mut RegionEvaluation<'_, '_>,
    candidates: &CandidateBuilder<'_>,
    unbounded: &[ValuedCandidate],
    valued: &mut Vec<ValuedCandidate>,
) {
    let budget = evaluation.event_budget();
    let climbs = evaluation.climb_budget();
    let start = best_candidate(evaluation.objective(), valued.iter()).cloned();
    if climbs > 0 {
        climb_best(evaluation, unbounded, climbs, valued);
    }
    if let Some(start) = start.filter(|_| evaluation.is_guided()) {
        valued.extend(search_guided(evaluation, candidates, &start, budget - climbs));
    }
}

/// Adds candidates in which nobody starves any more: from those of each origin of paths that miss
/// the floor, or in a large region from the best of them.
fn raise_starving(
    evaluation: &mut RegionEvaluation<'_, '_>,
    unbounded: &[ValuedCandidate],
    valued: &mut Vec<ValuedCandidate>,
) {
    let objective = evaluation.objective();
    let misses = |next: &&ValuedCandidate| objective.misses_floor(next.value);
    if evaluation.is_stepped() && !valued.iter().all(|next| misses(&next)) {
        return;
    }
    let mut starving: Vec<&ValuedCandidate> = unbounded.iter().filter(misses).collect();
    starving.sort_by(|a, b| b.value.value.total_cmp(&a.value.value));
    starving.truncate(if evaluation.is_stepped() { 1 } else { usize::MAX });
    for start in starving {
        valued.push(evaluation.raise_starving(start));
    }
}

/// Adds candidates with better levels, as far as the budget of `events` goes: from the best one,
/// and from the best without the floor on each paths, for between both may lie what no ranking has.
///
/// What does not depend on the budget comes before the results of the search, and of these the
/// cheapest first, so that a larger budget goes on where a smaller one ends. The plan in force is
/// left as it is, so that planning again from its own result changes nothing.
fn climb_best(
    evaluation: &mut RegionEvaluation<'_, '_>,
    unbounded: &[ValuedCandidate],
    events: u64,
    valued: &mut Vec<ValuedCandidate>,
) {
    let objective = evaluation.objective();
    let limit = evaluation.event_cost() + events;
    let of_origin = |is_searched: bool| {
        move |next: &&ValuedCandidate| match next.origin() {
            PathOrigin::InForce => false,
            PathOrigin::Searched => is_searched,
            _ => !is_searched,
        }
    };
    let starving = |next: &&ValuedCandidate| objective.misses_floor(next.value);
    let plain = valued.iter().filter(of_origin(false));
    let best = best_candidate(objective, plain);
    let mut starts: Vec<ValuedCandidate> = best.into_iter().cloned().collect();
    starts.extend(unbounded.iter().filter(of_origin(false)).filter(starving).cloned());
    starts.extend(valued.iter().filter(of_origin(true)).cloned());
    starts.extend(unbounded.iter().filter(of_origin(true)).filter(starving).cloned());
    for start in starts {
        if evaluation.event_cost() < limit {
            valued.push(evaluation.climb_candidate(&start, limit));
        }
    }
}

/// The candidate to adopt, with the longest wait of each job. Values in a large region have waits
/// as far as steps tell: there whatever would be adopted is judged by them event by event, until
/// one stays. For one whose flows wait too long, others on the same paths are tried, which until
/// then were worth less.
fn choose_served(
    evaluation: &mut RegionEvaluation<'_, '_>,
    valued: &mut Vec<ValuedCandidate>,
) -> Option<(ValuedCandidate, Vec<f64>)> {
    let mut judged = BTreeMap::new();
    loop {
        let place = choose_adopted(evaluation, valued)?;
        if let Some(waits) = judged.remove(&place) {
            return Some((valued[place].clone(), waits));
        }
        let waits = evaluation.judge_waits(&mut valued[place])?;
        judged.insert(place, waits);
        let late = valued[place].clone();
        let is_late = evaluation.objective().misses_service_bound(late.value);
        if is_late && evaluation.is_stepped() && judged.len() < MAX_JUDGED {
            let others = evaluation.other_levels(&late);
            for other in others {
                if !valued.iter().any(|known| known.has_decisions_of(&other)) {
                    valued.push(other);
                }
            }
        }
    }
}

/// A candidate that is better than the `served` one and that only the waits of steps exclude: such
/// ones are judged event by event, the best first, until none is left that would be better.
fn improve_served(
    evaluation: &mut RegionEvaluation<'_, '_>,
    valued: &mut Vec<ValuedCandidate>,
    mut served: (ValuedCandidate, Vec<f64>),
) -> Option<(ValuedCandidate, Vec<f64>)> {
    for _ in 0..MAX_JUDGED {
        let Some(mut next) = evaluation.best_despite_steps(valued) else { break };
        if !is_worth_moving(evaluation, valued.first()?, &next, &served.0) {
            break;
        }
        let waits = evaluation.judge_waits(&mut next)?;
        match valued.iter_mut().find(|known| known.has_decisions_of(&next)) {
            Some(known) => *known = next.clone(),
            None => valued.push(next.clone()),
        }
        if !evaluation.objective().misses_service_bound(next.value) {
            served = (next, waits);
        }
    }
    Some(served)
}

/// Position of the candidate to adopt: the best one, but the plan in force unless the best gains
/// the price of the flows that it moves.
fn choose_adopted(
    evaluation: &RegionEvaluation<'_, '_>,
    valued: &[ValuedCandidate],
) -> Option<usize> {
    let first = valued.first()?;
    let is_better =
        |next: usize, best: usize| is_worth_moving(evaluation, first, &valued[next], &valued[best]);
    Some((1..valued.len()).fold(0, |best, next| if is_better(next, best) { next } else { best }))
}

/// Whether `next` is better than `best` by more than the price of the flows that it moves away from
/// the plan in force, which is the `first` candidate if there is one.
fn is_worth_moving(
    evaluation: &RegionEvaluation<'_, '_>,
    first: &ValuedCandidate,
    next: &ValuedCandidate,
    best: &ValuedCandidate,
) -> bool {
    let price = match first.origin() {
        PathOrigin::InForce => evaluation.moving_price(first.paths(), next.paths()),
        _ => 0.0,
    };
    evaluation.objective().is_better(next.value, best.value, price)
}

fn list_outcomes(
    evaluation: &RegionEvaluation<'_, '_>,
    adopted: &ValuedCandidate,
    valued: &[ValuedCandidate],
) -> Vec<CandidateOutcome> {
    let outcome = |candidate: &ValuedCandidate| CandidateOutcome {
        paths: candidate.origin(),
        levels: candidate.level_origins.clone(),
        gpu_utilization: evaluation.utilization(candidate.value.value),
        worst_slowdown: candidate.value.worst_slowdown,
        worst_wait_seconds: candidate.value.worst_wait,
    };
    let others = valued.iter().filter(|candidate| *candidate != adopted);
    std::iter::once(adopted).chain(others).map(outcome).collect()
}
