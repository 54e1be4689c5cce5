//! The choice between candidates, region by region.

use std::rc::Rc;

use topology::LinkPath;

use super::group_values::GroupEvaluator;
use super::origins::{self, CandidateBuilder, CandidatePaths, LevelOrigin, PathOrigin};
use super::region_evaluation::{EcmpExpectation, RegionEvaluation, ValuedCandidate};
use crate::decision::{PlanContext, PlanDepth};
use crate::search::SearchResult;

/// Candidates of one region and what each was worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionComparison {
    /// Positions in [`Plan::jobs`](crate::Plan::jobs) of the jobs that were decided together.
    pub jobs: Vec<usize>,
    /// What was compared, the adopted one first.
    pub candidates: Vec<CandidateOutcome>,
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
}

/// What was compared for a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanComparison {
    /// Regions with several jobs.
    pub regions: Vec<RegionComparison>,
    /// Whether there are such regions and nothing was compared yet: a plan of full depth may be
    /// better.
    pub is_provisional: bool,
}

/// What a comparison needs.
#[derive(Clone, Copy)]
pub(crate) struct ComparisonInputs<'a> {
    pub(crate) context: &'a PlanContext<'a>,
    /// Regions to decide; their jobs ascend.
    pub(crate) regions: &'a [Vec<usize>],
    /// Events of the fluid model for each job.
    pub(crate) events_per_job: u64,
}

/// Puts the best candidate of each region into `decided`, which has the decisions of path selection
/// and ranking, and says what was compared.
pub(crate) fn adopt_best(
    inputs: ComparisonInputs<'_>,
    decided: &mut SearchResult,
) -> PlanComparison {
    let ComparisonInputs { context, regions, events_per_job } = inputs;
    let compared = regions.concat();
    let unsearched = decided.clone();
    let mut candidates = CandidateBuilder::new(context, &compared, &unsearched);
    let mut comparison = PlanComparison::default();
    for region in regions {
        let mut evaluator =
            GroupEvaluator::new(context.traffic, context.policy, region, events_per_job);
        let evaluation = RegionEvaluation::new(context, region, &mut evaluator);
        decided.mark_searched(context.traffic, context.policy, region);
        let Some(found) = decide_region(evaluation, &mut candidates) else {
            continue;
        };
        let ValuedCandidate { levels, .. } = &found.adopted;
        let levels = levels.iter().copied();
        decided.adopt_decisions(context.traffic, region, levels, found.adopted.paths());
        comparison.regions.push(found.comparison);
    }
    comparison
}

/// Puts the plan in force into `decided`, for all regions and as far as it goes.
pub(crate) fn keep_in_force(
    inputs: ComparisonInputs<'_>,
    decided: &mut SearchResult,
) -> PlanComparison {
    let ComparisonInputs { context, regions, .. } = inputs;
    if let Some((paths, levels)) = origins::decisions_in_force(context, decided) {
        for region in regions {
            let levels = region.iter().map(|job| levels[*job]);
            decided.adopt_decisions(context.traffic, region, levels, &paths);
            decided.mark_searched(context.traffic, context.policy, region);
        }
    }
    let is_provisional = context.depth == PlanDepth::Quick && !regions.is_empty();
    PlanComparison { regions: Vec::new(), is_provisional }
}

/// The result of a region.
struct RegionDecision {
    adopted: ValuedCandidate,
    comparison: RegionComparison,
}

/// The best candidate for a region; none if the budget does not suffice for the first.
fn decide_region(
    mut evaluation: RegionEvaluation<'_, '_>,
    candidates: &mut CandidateBuilder<'_>,
) -> Option<RegionDecision> {
    let mut present = candidates.present().to_vec();
    let mut valued = evaluation.value_candidates(&present);
    let mut ecmp = None;
    if !valued.is_empty() && !valued.iter().any(|next| evaluation.is_optimal(next)) {
        let searched = candidates.search_region(evaluation.region());
        valued.extend(evaluation.value_candidates(searched.as_slice()));
        present.extend(searched);
        ecmp = compare_with_ecmp(&mut evaluation, candidates, &present, &mut valued);
    }
    let adopted = choose_adopted(&evaluation, &valued)?.clone();
    let comparison = RegionComparison {
        jobs: evaluation.region().to_vec(),
        candidates: list_outcomes(&evaluation, &adopted, &valued),
        ecmp_utilization: ecmp.map(|expected| evaluation.utilization(expected.mean_value)),
        slowdown_limit: evaluation.objective().slowdown_limit(),
    };
    Some(RegionDecision { adopted, comparison })
}

/// Values the `present` candidates again, and those drawn by hash, under the floor that ECMP sets;
/// `valued` are their values without it. None if the budget does not suffice for ECMP.
fn compare_with_ecmp(
    evaluation: &mut RegionEvaluation<'_, '_>,
    candidates: &mut CandidateBuilder<'_>,
    present: &[Rc<CandidatePaths>],
    valued: &mut Vec<ValuedCandidate>,
) -> Option<EcmpExpectation> {
    let expected = evaluation.expect_ecmp(candidates.hashed())?;
    evaluation.set_floor(&expected);
    let drawn = candidates.best_draw(expected.best_draw);
    let all: Vec<_> = present.iter().cloned().chain(drawn).collect();
    // Under the floor, other levels may be better.
    let unbounded = std::mem::replace(valued, evaluation.value_candidates(&all));
    let climbed = climb_best(evaluation, unbounded, valued);
    valued.extend(climbed);
    Some(expected)
}

/// Candidates with better levels: from the best one, and from the best without the floor on each
/// paths, for between both may lie what no ranking has. The plan in force is left as it is, so that
/// planning again from its own result changes nothing.
fn climb_best(
    evaluation: &mut RegionEvaluation<'_, '_>,
    unbounded: Vec<ValuedCandidate>,
    valued: &[ValuedCandidate],
) -> Vec<ValuedCandidate> {
    let objective = evaluation.objective();
    let new = valued.iter().filter(|next| next.origin() != PathOrigin::InForce);
    let best = new.reduce(|best, next| match objective.is_better(next.value, best.value, 0.0) {
        true => next,
        false => best,
    });
    let starving = unbounded
        .into_iter()
        .filter(|next| next.origin() != PathOrigin::InForce && objective.misses_floor(next.value));
    let starts = best.cloned().into_iter().chain(starving);
    starts.map(|start| evaluation.climb_candidate(start)).collect()
}

/// The candidate to adopt: the best one, but the plan in force unless the best gains the price of
/// the flows that it moves.
fn choose_adopted<'v>(
    evaluation: &RegionEvaluation<'_, '_>,
    valued: &'v [ValuedCandidate],
) -> Option<&'v ValuedCandidate> {
    let (first, rest) = valued.split_first()?;
    let in_force = (first.origin() == PathOrigin::InForce).then(|| first.paths());
    let price = |paths: &[LinkPath]| {
        in_force.map_or(0.0, |running| evaluation.moving_price(running, paths))
    };
    Some(rest.iter().fold(first, |best, next| {
        match evaluation.objective().is_better(next.value, best.value, price(next.paths())) {
            true => next,
            false => best,
        }
    }))
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
    };
    let others = valued.iter().filter(|candidate| *candidate != adopted);
    std::iter::once(adopted).chain(others).map(outcome).collect()
}
