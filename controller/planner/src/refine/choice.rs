//! The choice between candidates, region by region.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use topology::{Finding, LinkId, LinkPath};

use super::candidates::{self, CandidateBuilder, CandidatePaths, LevelOrigin, PathOrigin};
use super::climb::{ClimbBounds, climb};
use super::decisions::Decisions;
use super::drawn_optima::draw_optima;
use super::forecast::IterationForecast;
use super::local_search::SearchFreedom;
use super::objective::{LEAST_GAIN, PlanObjective};
use super::proposals::search_proposals;
use super::region_evaluation::{RegionEvaluation, ValuedCandidate, best_candidate};
use super::regions;
use crate::path_selection;
use crate::plan::Plan;
use crate::plan_context::{PlanContext, PlanRegion};
use crate::policy::Policy;

/// Candidates in which a job starves from which others are made.
const MAX_RAISED: usize = 3;

/// Part of the budget that is left for searches and climbs at least.
const LEAST_PART: u64 = 4;

/// Part of that for the search of paths; climbs may cost the rest.
const SEARCH_PART: u64 = 2;

/// Part of what a climb from the best candidate leaves, for optima from draws, and what is left of it
/// at least for the last climb.
const DRAWN_PART: u64 = 2;
const LAST_PART: u64 = 8;

/// Optima from draws from which a climb begins, and steps that it judges from one place: more starts
/// find more than more steps.
const MAX_OPTIMA: usize = 32;
const FEW_STEPS: usize = 12;

/// Candidates that were not adopted and are tried with start shifts: each costs as much as dozens of
/// simulations.
const MAX_ALTERNATIVES: usize = 3;

/// A candidate that was not adopted.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub(super) candidate: ValuedCandidate,
    /// The longest that a flow of each job waits for service.
    pub(super) wait_seconds: Vec<f64>,
}

/// The best candidates of a region that were not adopted: with start shifts, one of them may be better
/// than what was.
#[derive(Clone, Debug)]
pub(crate) struct Alternatives {
    pub(super) candidates: Vec<Alternative>,
    /// With the floor that all candidates of the region were compared under.
    pub(super) objective: PlanObjective,
}

/// By the digest of the region.
pub(crate) type AlternativesByRegion = BTreeMap<u64, Alternatives>;

/// Candidates of one region and what each was worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionComparison {
    /// Digest of what the decisions depend on.
    pub digest: u64,
    /// Positions in [`Plan::jobs`](crate::Plan::jobs) of the jobs that were decided together.
    pub jobs: Vec<usize>,
    /// What an iteration of each of these jobs is to take under the adopted candidate.
    pub forecasts: Vec<IterationForecast>,
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
    /// was not simulated for this plan, or ends none.
    pub fn forecast(&self, job: usize) -> Option<IterationForecast> {
        let mut regions = self.regions.iter();
        let forecast = regions.find_map(|region| {
            let place = region.jobs.iter().position(|member| *member == job)?;
            region.forecasts.get(place).copied()
        });
        forecast.filter(IterationForecast::ends)
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
        // A region that was compared again has its report already.
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
    decided: &mut Decisions,
) -> (PlanComparison, AlternativesByRegion) {
    let unsearched = decided.clone();
    let mut candidates = CandidateBuilder::new(context, regions, &unsearched);
    let mut comparison = PlanComparison::default();
    let mut alternatives = AlternativesByRegion::new();
    for region in regions {
        let evaluation = RegionEvaluation::new(context, region);
        decided.mark_compared(context.traffic, context.policy, &region.jobs);
        let Some(found) = decide_region(evaluation, &mut candidates) else {
            continue;
        };
        let ValuedCandidate { levels, .. } = &found.adopted;
        let levels = levels.iter().copied();
        decided.adopt(context.traffic, &region.jobs, levels, found.adopted.paths());
        alternatives.insert(region.digest, found.alternatives);
        comparison.regions.push(found.comparison);
    }
    (comparison, alternatives)
}

/// Puts the plan in force into `decided`, for all `regions` and as far as it goes.
pub(crate) fn keep_in_force(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    decided: &mut Decisions,
) {
    if regions.is_empty() {
        return;
    }
    if let Some((paths, levels)) = candidates::decisions_in_force(context, decided) {
        for PlanRegion { jobs, .. } in regions {
            let levels = jobs.iter().map(|job| levels[*job]);
            decided.adopt(context.traffic, jobs, levels, &paths);
            decided.mark_compared(context.traffic, context.policy, jobs);
        }
    }
    keep_shifts(context, regions.iter().copied(), decided);
}

/// Puts the start shifts in force into `decided`, for all `regions`.
pub(crate) fn keep_shifts<'r>(
    context: &PlanContext<'_>,
    regions: impl Iterator<Item = &'r PlanRegion>,
    decided: &mut Decisions,
) {
    for job in regions.flat_map(|region| &region.jobs) {
        let kept = context.previous.start_shift(*job);
        decided.shifts[*job] = kept.filter(|_| context.traffic.jobs[*job].can_wait);
    }
}

/// Puts the paths of what runs into `decided`, with the levels there, where the judge finds that as
/// good, in all `regions`, and for jobs that share no link with another on either paths.
pub(crate) fn keep_paths(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    decided: &mut Decisions,
    comparison: &mut PlanComparison,
) {
    let PlanContext { traffic, previous, .. } = *context;
    let running = path_selection::usable_previous_paths(traffic, previous).into_iter();
    let running = running.zip(&decided.paths);
    let paths: Vec<LinkPath> = running.map(|(had, new)| had.unwrap_or(*new)).collect();
    // On either path such a job runs as if alone, so keeping its path costs nobody and saves a
    // move.
    for job in apart_from_others(context, &[&paths, &decided.paths]) {
        let level = decided.levels[job];
        decided.adopt(traffic, &[job], [level], &paths);
    }
    let mut compared: BTreeMap<u64, &mut RegionComparison> =
        comparison.regions.iter_mut().map(|region| (region.digest, region)).collect();
    for region in regions {
        let moves = |job: &usize| {
            let span = traffic.spans[*job].clone();
            paths[span.clone()] != decided.paths[span]
        };
        // A region that was not compared now has kept its decisions anyway.
        let Some(found) = compared.get_mut(&region.digest) else { continue };
        if !region.jobs.iter().any(moves) {
            continue;
        }
        let mut evaluation = RegionEvaluation::new(context, region);
        if let Some(kept) = value_kept(&mut evaluation, &paths, decided, found) {
            let levels = kept.levels.iter().copied();
            decided.adopt(traffic, &region.jobs, levels, kept.paths());
            found.forecasts = evaluation.forecast_jobs(&kept);
            found.wait_seconds = evaluation.expect_jobs(&kept).iter().map(|of| of.wait).collect();
            found.candidates.insert(0, candidate_outcome(&evaluation, &kept));
        }
    }
}

/// Jobs whose links no other job crosses on any of these paths, each by flow.
fn apart_from_others(context: &PlanContext<'_>, all: &[&[LinkPath]]) -> Vec<usize> {
    let spans = &context.traffic.spans;
    let mut users: BTreeMap<LinkId, BTreeSet<usize>> = BTreeMap::new();
    for (job, span) in spans.iter().enumerate() {
        for link in all.iter().flat_map(|paths| paths[span.clone()].iter().flatten()) {
            users.entry(*link).or_default().insert(job);
        }
    }
    let sharing: BTreeSet<usize> =
        users.into_values().filter(|jobs| jobs.len() > 1).flatten().collect();
    (0..spans.len()).filter(|job| !sharing.contains(job)).collect()
}

/// The running paths with the levels decided, if they are worth as much as what is decided.
fn value_kept(
    evaluation: &mut RegionEvaluation<'_>,
    running: &[LinkPath],
    decided: &Decisions,
    found: &RegionComparison,
) -> Option<ValuedCandidate> {
    let adopted = found.candidates.first().and_then(|adopted| adopted.levels.first().copied());
    let origin = adopted.unwrap_or(LevelOrigin::Searched);
    let mut value = |paths: &[LinkPath]| {
        let levels = vec![(origin, decided.levels.clone())];
        let given = CandidatePaths { origin: PathOrigin::InForce, paths: paths.to_vec(), levels };
        evaluation.value_candidate(&Rc::new(given))
    };
    let (kept, new) = (value(running)?, value(&decided.paths)?);
    // The limit itself may be kept, where the decided plan is far below it.
    let slowest = found.slowdown_limit.unwrap_or(0.0).max(new.value.worst_slowdown);
    let is_as_good = !evaluation.objective().is_better(new.value, kept.value, 0.0)
        && kept.value.worst_slowdown <= slowest * (1.0 + LEAST_GAIN);
    is_as_good.then_some(kept)
}

/// Puts levels into `decided` without a comparison, for all `regions`: those in force where some job
/// runs, which has kept its paths; else the best of those by rank.
pub(crate) fn choose_levels_quickly(
    context: &PlanContext<'_>,
    regions: &[PlanRegion],
    decided: &mut Decisions,
) {
    let PlanContext { traffic, policy, previous, .. } = context;
    let jobs = decided.levels.iter().enumerate();
    let kept =
        context.permit_levels(jobs.map(|(job, new)| previous.job_level(job).unwrap_or(*new)));
    let is_new =
        |region: &&PlanRegion| region.jobs.iter().all(|job| previous.job_level(*job).is_none());
    let new: Vec<&PlanRegion> = regions.iter().filter(is_new).collect();
    let rated = candidates::best_rank(context, &new, &decided.paths);
    for region in regions {
        let levels = rated.as_ref().filter(|_| is_new(&region)).unwrap_or(&kept);
        region.jobs.iter().for_each(|job| decided.levels[*job] = levels[*job]);
        decided.mark_compared(traffic, policy, &region.jobs);
    }
}

/// The result of a region.
struct RegionDecision {
    adopted: ValuedCandidate,
    alternatives: Alternatives,
    comparison: RegionComparison,
}

/// The best candidate for a region; none if the model rejects a job.
fn decide_region(
    mut evaluation: RegionEvaluation<'_>,
    candidates: &mut CandidateBuilder<'_>,
) -> Option<RegionDecision> {
    let present = candidates.present().to_vec();
    // One first: where no job contends, it is optimal and the rest would cost for nothing.
    let mut valued = evaluation.value_candidates(&present[..1]);
    let mut ecmp = None;
    if valued.iter().any(|next| !evaluation.is_optimal(next)) {
        let expected = evaluation.expect_ecmp(candidates.hashed());
        // Before the others are valued: the floor decides which of them stay in a race.
        evaluation.set_floor(&expected);
        ecmp = Some(expected);
        evaluation.take_starving();
        // From the first again, whose levels were chosen without the floor. Its runs are known by
        // now.
        valued = evaluation.value_candidates(candidates.present());
        let starving = evaluation.take_starving();
        if !valued.iter().any(|next| evaluation.is_optimal(next)) {
            // Before the search, which begins at the best so far.
            raise_starving(&mut evaluation, &starving, &mut valued);
            improve_best(&mut evaluation, &starving, &mut valued);
        }
    }
    // A job without contention gets the level of its rank, which is what a report shows; what runs
    // keeps its own.
    for candidate in valued.iter_mut().filter(|next| next.origin() != PathOrigin::InForce) {
        evaluation.rank_alone(candidate, &candidates.unsearched().levels);
    }
    let adopted = choose_adopted(&evaluation, &valued)?;
    let bound_cost = cost_of_bound(&mut evaluation, candidates.present(), &adopted);
    let comparison = RegionComparison {
        digest: evaluation.region().digest,
        jobs: evaluation.region().jobs.clone(),
        forecasts: evaluation.forecast_jobs(&adopted),
        wait_seconds: evaluation.expect_jobs(&adopted).iter().map(|of| of.wait).collect(),
        bound_cost,
        candidates: list_outcomes(&evaluation, &adopted, &valued),
        ecmp_utilization: ecmp.map(|expected| evaluation.utilization(expected.mean_value)),
        slowdown_limit: evaluation.objective().slowdown_limit(),
    };
    let candidates = best_alternatives(&mut evaluation, &adopted, valued);
    let alternatives = Alternatives { candidates, objective: evaluation.objective() };
    Some(RegionDecision { adopted, alternatives, comparison })
}

/// The candidates with other paths that are worth the most, whether or not a job misses its floor.
fn best_alternatives(
    evaluation: &mut RegionEvaluation<'_>,
    adopted: &ValuedCandidate,
    mut valued: Vec<ValuedCandidate>,
) -> Vec<Alternative> {
    let mut found: Vec<Alternative> = Vec::new();
    if !evaluation.can_wait() {
        return found;
    }
    valued.sort_by(|a, b| b.value.value.total_cmp(&a.value.value));
    for candidate in valued {
        let is_known = adopted.paths() == candidate.paths()
            || found.iter().any(|of| of.candidate.paths() == candidate.paths());
        if !is_known && !evaluation.objective().misses_service_bound(candidate.value) {
            let expected = evaluation.expect_jobs(&candidate);
            let wait_seconds = expected.iter().map(|of| of.wait).collect();
            found.push(Alternative { candidate, wait_seconds });
        }
        if found.len() == MAX_ALTERNATIVES {
            break;
        }
    }
    found
}

/// Share of the worth that `adopted` gives up for the service bound, against the best of the
/// candidates that do not depend on it; none if the bound excluded nothing.
fn cost_of_bound(
    evaluation: &mut RegionEvaluation<'_>,
    present: &[Rc<CandidatePaths>],
    adopted: &ValuedCandidate,
) -> Option<f64> {
    let free = evaluation.value_without_bound(present)?;
    Some(evaluation.utilization((free.value - adopted.value.value).max(0.0)))
}

/// Adds candidates that are better than those so far, as far as the budget goes: with other paths
/// and levels, and with other levels alone.
fn improve_best(
    evaluation: &mut RegionEvaluation<'_>,
    starving: &[ValuedCandidate],
    valued: &mut Vec<ValuedCandidate>,
) {
    let whole = evaluation.event_budget();
    // At least a part, although the candidates may have used up the budget.
    let budget = whole.saturating_sub(evaluation.event_cost()).max(whole / LEAST_PART);
    let end = evaluation.event_cost() + budget;
    if evaluation.is_searched()
        && let Some(start) = best_candidate(evaluation.objective(), valued.iter()).cloned()
    {
        let found = search_proposals(evaluation, &start, budget / SEARCH_PART);
        valued.extend(found);
    }
    // After the search, whose result has paths for which nobody has climbed yet; with its own part,
    // should the search have cost more than its.
    let limit = end.max(evaluation.event_cost() + budget / SEARCH_PART);
    climb_best(evaluation, starving, limit, valued);
}

/// Adds candidates in which nobody starves any more, from the best of those in which some job does.
fn raise_starving(
    evaluation: &mut RegionEvaluation<'_>,
    starving: &[ValuedCandidate],
    valued: &mut Vec<ValuedCandidate>,
) {
    let objective = evaluation.objective();
    for start in starving.iter().take(MAX_RAISED) {
        let best = best_candidate(objective, valued.iter());
        // Raising costs the others.
        if best.is_none_or(|best| start.value.value > best.value.value) {
            valued.push(evaluation.raise_starving(start));
        }
    }
}

/// Adds candidates that are better by single steps, until all simulations have cost `limit` events: from
/// the best one, from those in which some job starves, for between both may lie what no ranking has,
/// and from optima that the model finds elsewhere. The plan in force is left as it is, so that
/// planning again from its own result changes nothing.
fn climb_best(
    evaluation: &mut RegionEvaluation<'_>,
    starving: &[ValuedCandidate],
    limit: u64,
    valued: &mut Vec<ValuedCandidate>,
) {
    let objective = evaluation.objective();
    let freedom =
        if evaluation.is_searched() { evaluation.search_freedom() } else { SearchFreedom::Levels };
    let bounds = ClimbBounds { freedom, judged_steps: usize::MAX, limit };
    let is_new = |next: &&ValuedCandidate| next.origin() != PathOrigin::InForce;
    let best_new = |valued: &[ValuedCandidate]| {
        best_candidate(objective, valued.iter().filter(is_new)).cloned()
    };
    for start in best_new(valued).iter().chain(starving.iter().filter(is_new)) {
        if evaluation.event_cost() < limit {
            valued.push(climb(evaluation, start, bounds));
        }
    }
    // After the climb from the best, which is worth more where the budget is short.
    if freedom == SearchFreedom::LevelsAndPaths
        && let Some(best) = best_new(valued)
    {
        let left = limit.saturating_sub(evaluation.event_cost());
        let last = limit - left / LAST_PART;
        let optima = draw_optima(evaluation, &best, left / DRAWN_PART);
        for optimum in optima.into_iter().take(MAX_OPTIMA) {
            if evaluation.event_cost() >= last {
                break;
            }
            let Some(value) = evaluation.value_finely(&optimum) else { break };
            let bounds = ClimbBounds { judged_steps: FEW_STEPS, limit: last, ..bounds };
            valued.push(climb(evaluation, &ValuedCandidate { value, ..optimum }, bounds));
        }
    }
    if let Some(best) = best_new(valued).filter(|_| evaluation.event_cost() < limit) {
        valued.push(climb(evaluation, &best, bounds));
    }
}

/// The candidate to adopt: the best one, but the plan in force unless the best gains the price of
/// the flows that it moves.
fn choose_adopted(
    evaluation: &RegionEvaluation<'_>,
    valued: &[ValuedCandidate],
) -> Option<ValuedCandidate> {
    let first = valued.first()?;
    // In their order, each against the best so far: of equals the earlier one stays, the plan in
    // force first.
    let best = valued.iter().fold(first, |best, next| {
        match is_worth_moving(evaluation, first, next, best) {
            true => next,
            false => best,
        }
    });
    Some(best.clone())
}

/// Whether `next` is better than `best` by more than the price of the flows that it moves away from
/// the plan in force, which is the `first` candidate if there is one.
fn is_worth_moving(
    evaluation: &RegionEvaluation<'_>,
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
    evaluation: &RegionEvaluation<'_>,
    adopted: &ValuedCandidate,
    valued: &[ValuedCandidate],
) -> Vec<CandidateOutcome> {
    let others = valued.iter().filter(|candidate| *candidate != adopted);
    let all = std::iter::once(adopted).chain(others);
    all.map(|candidate| candidate_outcome(evaluation, candidate)).collect()
}

fn candidate_outcome(
    evaluation: &RegionEvaluation<'_>,
    candidate: &ValuedCandidate,
) -> CandidateOutcome {
    CandidateOutcome {
        paths: candidate.origin(),
        levels: candidate.level_origins.clone(),
        gpu_utilization: evaluation.utilization(candidate.value.value),
        worst_slowdown: candidate.value.worst_slowdown,
        worst_wait_seconds: candidate.value.worst_wait,
    }
}

/// `decided` with the best levels that are found for its paths, in all regions.
pub(crate) fn levels_on_paths(context: &PlanContext<'_>, mut decided: Decisions) -> Decisions {
    let PlanContext { traffic, policy, .. } = *context;
    for jobs in regions::comparable_regions(traffic, policy) {
        let region = PlanRegion { jobs, digest: 0 };
        let mut evaluation = RegionEvaluation::new(context, &region);
        let given = CandidatePaths {
            origin: PathOrigin::Selected,
            paths: decided.paths.clone(),
            levels: vec![(LevelOrigin::Ranked(policy.levels), decided.levels.clone())],
        };
        let Some(start) = evaluation.value_candidate(&Rc::new(given)) else { continue };
        let limit = evaluation.event_cost() + evaluation.event_budget();
        let bounds =
            ClimbBounds { freedom: SearchFreedom::Levels, judged_steps: usize::MAX, limit };
        let found = climb(&mut evaluation, &start, bounds);
        let all = [&start, &found].into_iter();
        if let Some(best) = best_candidate(evaluation.objective(), all) {
            let levels = best.levels.iter().copied();
            decided.adopt(traffic, &region.jobs, levels, best.paths());
        }
        decided.mark_compared(traffic, policy, &region.jobs);
    }
    decided
}
