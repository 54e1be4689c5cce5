//! Search: paths and levels of small groups of jobs, evaluated by the fluid model (scheduling
//! beyond Crux §4; `docs/algorithms/priority.md` describes it).
//!
//! The phases before it consider one or two jobs at a time. Where few jobs share links it pays to
//! simulate their effect on each other: a cheap estimate ranks all combinations of paths, the fluid
//! model evaluates the best of them, and from the best of those a hill climb changes single paths
//! and levels until no change is better. Effort is counted in events of the fluid model, never in
//! time, and a region's budget depends only on its jobs and the number of all jobs, so the result
//! is a function of the input.
//!
//! Stability: the result of a search from scratch does not depend on the plan in force. It replaces
//! that plan only for the gain that policy asks, and finding it again gains nothing.

pub mod contention_group;
mod evaluation;
pub mod group_run;
mod guided_search;
mod hill_climb;
mod level_candidates;
mod mean_rates;
mod refinement;
mod regions;
mod search_space;
pub(crate) mod stepped_run;
mod value_estimate;

use contention_group::ContentionGroup;
use evaluation::{EvaluationPrecision, PositionEvaluator};
pub(crate) use guided_search::{GuidedSearch, ProposalOutcome, SimulatedJobs};
use hill_climb::{ClimbFreedom, ClimbResult, ValuedPosition, climb_position};
pub(crate) use refinement::{
    MAX_JOBS, SearchResult, budget_per_job, comparable_regions, is_oversized, search_levels,
    search_region,
};
pub(crate) use regions::find_regions;
use search_space::{SearchPosition, SearchSpace};
use value_estimate::ValueEstimate;

/// A decision is better if it gains this share; less is noise of the evaluation.
pub(crate) const LEAST_GAIN: f64 = 1e-3;

/// Combinations of paths that are estimated at most; if there are more, this many sampled ones, and
/// fewer where they choose for so many flows that these choices are more than
/// `MAX_ESTIMATED_CHOICES`.
const MAX_ESTIMATED: u64 = 16_384;
const MAX_ESTIMATED_CHOICES: u64 = 256 * MAX_ESTIMATED;

/// Combinations that the fluid model evaluates with plausible levels; exchanging all spines gives
/// each one twice.
const MAX_EVALUATED: usize = 512;

/// Combinations from which climbs begin.
const MAX_CLIMBS: usize = 16;

/// Of those, combinations whose levels are enumerated.
const MAX_ENUMERATED: usize = 8;

/// Levels of a contention group that are evaluated finely, of all that are evaluated coarsely.
const MAX_FINE: usize = 6;

/// For the many positions at the beginning.
const COARSE: EvaluationPrecision =
    EvaluationPrecision { starts: 1, warm_up_iterations: 2.0, counted_iterations: 4.0 };

/// For the final decision.
const FINE: EvaluationPrecision =
    EvaluationPrecision { starts: 4, warm_up_iterations: 2.0, counted_iterations: 8.0 };

/// Parts of a budget. `IMPROVE_PARTS` twice: for the position in force and for the one found. Of
/// its quarters two are for all levels coarsely, one for the best of them finely, one for the
/// position's own levels.
const BUDGET_PARTS: u64 =
    EVALUATE_PARTS + 3 * CLIMB_PARTS + 2 * ENUMERATE_PARTS + 2 * IMPROVE_PARTS;
const EVALUATE_PARTS: u64 = 4;
const CLIMB_PARTS: u64 = 2;
const ENUMERATE_PARTS: u64 = 2;
const IMPROVE_PARTS: u64 = 4;

/// Value of a contention group, and the levels of its members.
type BestLevels = (f64, Vec<u8>);

/// A search over one search space within `budget` events.
struct RegionSearch<'a> {
    space: &'a SearchSpace<'a>,
    estimate: ValueEstimate,
    budget: u64,
}

impl<'a> RegionSearch<'a> {
    fn new(space: &'a SearchSpace<'a>, budget: u64) -> Self {
        Self { space, estimate: ValueEstimate::new(space), budget }
    }

    fn budget_parts(&self, parts: u64) -> u64 {
        self.budget / BUDGET_PARTS * parts
    }

    /// The best position found from scratch; none if the budget does not suffice.
    fn search_from_scratch(&mut self) -> Option<ValuedPosition> {
        let mut coarse = PositionEvaluator::new(self.space, COARSE);
        let mut fine = PositionEvaluator::new(self.space, FINE);
        coarse.grant_events(self.budget_parts(EVALUATE_PARTS));
        let starts = self.climb_starts(&mut coarse);
        coarse.grant_events(self.budget_parts(CLIMB_PARTS));
        let climbed = self.climb_all(starts, &mut coarse);
        coarse.grant_events(self.budget_parts(ENUMERATE_PARTS));
        fine.grant_events(self.budget_parts(ENUMERATE_PARTS));
        let enumerated = climbed.iter().filter_map(|climbed| {
            let best = self.best_levels(&climbed.position.options, &mut coarse, &mut fine);
            best.or_else(|| fine.evaluate_position(&climbed.position))
        });
        let best = sort_best_first(enumerated.collect()).into_iter().next()?;
        fine.grant_events(self.budget_parts(CLIMB_PARTS));
        let optimum = climb_position(self.space, &mut fine, best, ClimbFreedom::LevelsAndPaths)
            .into_position();
        self.improve_levels(&optimum.position)
    }

    /// Combinations of paths that are good by estimate and by a coarse evaluation, the best first.
    fn climb_starts(&mut self, coarse: &mut PositionEvaluator<'_>) -> Vec<ValuedPosition> {
        let mut estimated: Vec<(f64, Vec<usize>)> = path_combinations(self.space)
            .map(|options| (self.estimate.estimate_value(&options), options))
            .collect();
        // A stable sort: of equals the first combination.
        estimated.sort_by(|a, b| b.0.total_cmp(&a.0));
        estimated.truncate(MAX_EVALUATED);
        let evaluated = estimated
            .into_iter()
            .map_while(|(_, options)| self.with_plausible_levels(options, coarse));
        let mut starts = sort_best_first(evaluated.collect());
        starts.truncate(MAX_CLIMBS);
        starts
    }

    /// The best positions that climbs from `starts` end at. Where all combinations of paths were
    /// estimated, these are good already, and only levels change.
    fn climb_all(
        &self,
        starts: Vec<ValuedPosition>,
        coarse: &mut PositionEvaluator<'_>,
    ) -> Vec<ValuedPosition> {
        let freedom = match self.space.combination_count() > MAX_ESTIMATED {
            true => ClimbFreedom::LevelsAndPaths,
            false => ClimbFreedom::Levels,
        };
        let climbed = starts
            .into_iter()
            .map(|start| climb_position(self.space, coarse, start, freedom).into_position());
        let mut best = sort_best_first(climbed.collect());
        best.truncate(MAX_ENUMERATED);
        best
    }

    /// These paths with the better of the plausible levels in each contention group.
    fn with_plausible_levels(
        &self,
        options: Vec<usize>,
        evaluator: &mut PositionEvaluator<'_>,
    ) -> Option<ValuedPosition> {
        let ranked = self.estimate.ranked_jobs();
        self.assemble_position(options, evaluator, |group, evaluator| {
            let members: Vec<usize> =
                ranked.iter().filter_map(|job| group.members.binary_search(job).ok()).collect();
            let candidates = level_candidates::plausible_levels(&members, self.level_count());
            self.best_candidate(group, candidates.to_vec(), evaluator)
        })
    }

    /// These paths with the best of all levels, or of as many as the budget allows; none where
    /// there are too many to begin with.
    fn best_levels(
        &self,
        options: &[usize],
        coarse: &mut PositionEvaluator<'_>,
        fine: &mut PositionEvaluator<'_>,
    ) -> Option<ValuedPosition> {
        self.assemble_position(options.to_vec(), fine, |group, fine| {
            let mut evaluated = Vec::new();
            for levels in level_candidates::all_levels(group, self.level_count())? {
                let levels = self.clamp_levels(group, levels);
                let Some(value) = coarse.group_value(group, &levels) else {
                    break;
                };
                evaluated.push((value, levels));
            }
            evaluated.sort_by(|a, b| b.0.total_cmp(&a.0));
            let few = evaluated.into_iter().take(MAX_FINE).map(|(_, levels)| levels);
            self.best_candidate(group, few.collect(), fine)
        })
    }

    /// The position with these paths and, in each contention group, the levels that `choose` finds.
    fn assemble_position(
        &self,
        options: Vec<usize>,
        evaluator: &mut PositionEvaluator<'_>,
        mut choose: impl FnMut(&ContentionGroup, &mut PositionEvaluator<'_>) -> Option<BestLevels>,
    ) -> Option<ValuedPosition> {
        let mut levels = vec![0; self.space.jobs.len()];
        let mut value = 0.0;
        for group in evaluator.contention_groups(&options) {
            let (worth, chosen) = choose(&group, evaluator)?;
            value += worth;
            for (job, level) in group.members.iter().zip(chosen) {
                levels[*job] = level;
            }
        }
        let position = SearchPosition { options, levels };
        Some(ValuedPosition { position, value })
    }

    /// The best of `candidates` for a group, as far as the budget allows; of equals the first.
    fn best_candidate(
        &self,
        group: &ContentionGroup,
        candidates: Vec<Vec<u8>>,
        evaluator: &mut PositionEvaluator<'_>,
    ) -> Option<BestLevels> {
        let mut best: Option<BestLevels> = None;
        for levels in candidates {
            let levels = self.clamp_levels(group, levels);
            let Some(value) = evaluator.group_value(group, &levels) else {
                break;
            };
            if best.as_ref().is_none_or(|(most, _)| value > *most) {
                best = Some((value, levels));
            }
        }
        best
    }

    /// `levels` of the jobs of a group, each within the bounds of its job.
    fn clamp_levels(&self, group: &ContentionGroup, levels: Vec<u8>) -> Vec<u8> {
        let jobs = group.members.iter().zip(levels);
        let fitted = jobs.map(|(job, level)| {
            let may = &self.space.jobs[*job].levels;
            level.clamp(*may.start(), *may.end())
        });
        fitted.collect()
    }

    /// Number of levels.
    fn level_count(&self) -> u8 {
        let jobs = self.space.jobs.iter();
        let highest = jobs.map(|job| *job.levels.end()).max();
        highest.unwrap_or(0).saturating_add(1)
    }

    /// The position with better levels, if there are any: the best of all levels where those are
    /// few, else the results of climbs from its own and from plausible ones. None if not even the
    /// position can be evaluated.
    ///
    /// Improving an improved position changes nothing: the enumerated levels depend only on the
    /// paths, and a climb from its own optimum has no better change left.
    fn improve_levels(&self, position: &SearchPosition) -> Option<ValuedPosition> {
        let mut coarse = PositionEvaluator::new(self.space, COARSE);
        let mut fine = PositionEvaluator::new(self.space, FINE);
        coarse.grant_events(self.budget_parts(IMPROVE_PARTS) / 2);
        fine.grant_events(self.budget_parts(IMPROVE_PARTS) / 4);
        let best = self.best_levels(&position.options, &mut coarse, &mut fine);
        fine.grant_events(self.budget_parts(IMPROVE_PARTS) / 4);
        let own = fine.evaluate_position(position)?;
        let optima = best.map_or_else(|| self.level_optima(position), |best| vec![best]);
        // Of equals the first, so that a position without a better one stays as it is.
        Some(optima.into_iter().fold(own, |best, next| match next.value > best.value {
            true => next,
            false => best,
        }))
    }

    /// Results of climbs by levels from the position's own and from plausible ones. Each has a
    /// budget of its own; a climb that exhausts it has no result.
    fn level_optima(&self, position: &SearchPosition) -> Vec<ValuedPosition> {
        let mut first = PositionEvaluator::new(self.space, FINE);
        let mut second = PositionEvaluator::new(self.space, FINE);
        first.grant_events(self.budget_parts(IMPROVE_PARTS) / 2);
        second.grant_events(self.budget_parts(IMPROVE_PARTS) / 2);
        let own = first.evaluate_position(position);
        let plausible = self.with_plausible_levels(position.options.clone(), &mut second);
        [(own, first), (plausible, second)]
            .into_iter()
            .filter_map(|(start, evaluator)| self.level_optimum(start?, evaluator))
            .collect()
    }

    fn level_optimum(
        &self,
        start: ValuedPosition,
        mut evaluator: PositionEvaluator<'_>,
    ) -> Option<ValuedPosition> {
        match climb_position(self.space, &mut evaluator, start, ClimbFreedom::Levels) {
            ClimbResult::LocalOptimum(optimum) => Some(optimum),
            ClimbResult::BudgetExhausted(_) => None,
        }
    }
}

/// Sorted by descending value; one of each value, since equal values are exchanges of spines.
fn sort_best_first(mut valued: Vec<ValuedPosition>) -> Vec<ValuedPosition> {
    valued.sort_by(|a, b| b.value.total_cmp(&a.value));
    valued.dedup_by(|a, b| a.value.total_cmp(&b.value).is_eq());
    valued
}

/// Every combination of paths, the first choice changing fastest; if too many, sampled ones.
fn path_combinations(space: &SearchSpace<'_>) -> impl Iterator<Item = Vec<usize>> {
    let options: Vec<u64> = space.choices.iter().map(|of| of.options as u64).collect();
    let all = space.combination_count();
    let most = MAX_ESTIMATED.min(MAX_ESTIMATED_CHOICES / options.len().max(1) as u64);
    let mut sampler = LcgSampler(1);
    (0..all.min(most)).map(move |number| {
        let mut rest = number;
        options
            .iter()
            .map(|of| {
                if all > MAX_ESTIMATED {
                    return sampler.next_below(*of);
                }
                let digit = rest % of;
                rest /= of;
                digit as usize
            })
            .collect()
    })
}

/// Pseudo-random numbers from a fixed seed (Knuth's MMIX generator).
struct LcgSampler(u64);

impl LcgSampler {
    fn next_below(&mut self, bound: u64) -> usize {
        let Self(state) = self;
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 33) % bound) as usize
    }
}

#[cfg(test)]
mod tests {
    use topology::document::DocumentFormat;
    use topology::{LinkId, examples, spec};

    use super::search_space::{SearchedFlow, SearchedJob};
    use super::*;

    /// How many combinations are listed for a job with so many flows, each with two paths.
    fn listed_combinations(flows: usize) -> usize {
        let text = examples::example_text("lab").unwrap();
        let fabric = spec::parse_fabric(text, DocumentFormat::Toml, "lab").unwrap();
        let segments = [vec![LinkId::from(0)], vec![LinkId::from(1)]];
        let flow = SearchedFlow { bytes: 1.0, ends: Default::default(), segments: &segments };
        let job = SearchedJob {
            compute_seconds: 1.0,
            overlap_from: 1.0,
            worth: 1.0,
            levels: 0..=7,
            flows: vec![flow; flows],
        };
        path_combinations(&SearchSpace::new(&fabric, vec![job])).count()
    }

    #[test]
    fn many_flows_have_fewer_combinations_sampled() {
        assert_eq!(listed_combinations(0), 1);
        assert_eq!(listed_combinations(10), 1_024);
        assert_eq!(listed_combinations(100), 16_384);
        // They took half a gigabyte and a second before any was simulated.
        assert_eq!(listed_combinations(4_096), 1_024);
    }
}
