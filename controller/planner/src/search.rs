//! Search: paths and levels of small groups of jobs, judged by the fluid model (scheduling beyond
//! Crux §4; `docs/algorithms/priority.md` is the essay).
//!
//! The phases before it look at jobs one or two at a time. Where few jobs meet it pays to play what
//! they would do to each other: a cheap estimate ranks all combinations of ways, the fluid model
//! judges the best of them, and from the best of those single changes of ways and levels climb
//! until none is better. Effort is counted in events of the fluid model, never in time, and a
//! region's share depends on nothing but its jobs and how many jobs there are, so that the result
//! is a function of the input.
//!
//! Stability: what a search finds from scratch does not depend on the plan in force. It replaces
//! what is in force only for the gain that policy asks, and finding it again gains nothing.

pub mod contention_group;
mod evaluation;
pub mod group_run;
mod hill_climb;
mod level_candidates;
mod refinement;
mod regions;
mod search_space;
mod value_estimate;

use contention_group::ContentionGroup;
use evaluation::{EvaluationPrecision, PositionEvaluator};
use hill_climb::{ClimbFreedom, ClimbResult, ValuedPosition, climb_position};
pub(crate) use refinement::{SearchResult, refine_plan, search_levels, searchable_regions};
use search_space::{SearchPosition, SearchSpace};
use value_estimate::ValueEstimate;

/// Combinations of ways that are estimated at most; with more, so many drawn ones.
const MAX_ESTIMATED: u64 = 16_384;

/// Combinations that the fluid model judges with plausible levels; exchanging all spines gives
/// each one twice.
const MAX_JUDGED: usize = 512;

/// Combinations from which climbs begin.
const MAX_CLIMBS: usize = 16;

/// Of those, combinations whose levels are all looked at.
const MAX_ENUMERATED: usize = 8;

/// Levels of a contest that are judged finely, of all that are judged roughly.
const MAX_FINE: usize = 6;

/// For the many positions at the beginning.
const ROUGH: EvaluationPrecision =
    EvaluationPrecision { starts: 1, warm_up_iterations: 2.0, counted_iterations: 4.0 };

/// For what is decided in the end.
const FINE: EvaluationPrecision =
    EvaluationPrecision { starts: 4, warm_up_iterations: 2.0, counted_iterations: 8.0 };

/// What a budget is divided into. Twice `SETTLE`: what is in force is settled, and what is found.
/// Of its quarters two are for all levels roughly, one for the best of them finely, one for own.
const BUDGET_PARTS: u64 = JUDGE_PARTS + 3 * CLIMB_PARTS + 2 * ENUMERATE_PARTS + 2 * IMPROVE_PARTS;
const JUDGE_PARTS: u64 = 4;
const CLIMB_PARTS: u64 = 2;
const ENUMERATE_PARTS: u64 = 2;
const IMPROVE_PARTS: u64 = 4;

/// A search over one setting within `budget` events.
struct RegionSearch<'a> {
    space: &'a SearchSpace<'a>,
    estimate: ValueEstimate,
    budget: u64,
}

impl<'a> RegionSearch<'a> {
    fn new(setting: &'a SearchSpace<'a>, budget: u64) -> Self {
        Self { space: setting, estimate: ValueEstimate::new(setting), budget }
    }

    /// What no position exceeds, but for the noise of judging: all jobs as if alone.
    fn value_bound(&self) -> f64 {
        self.estimate.upper_bound() * (1.0 - hill_climb::LEAST_GAIN)
    }

    fn budget_parts(&self, parts: u64) -> u64 {
        self.budget / BUDGET_PARTS * parts
    }

    /// The best position found from nothing, settled; none if the budget does not suffice.
    fn search_from_scratch(&mut self) -> Option<ValuedPosition> {
        let mut rough = PositionEvaluator::new(self.space, ROUGH);
        let mut fine = PositionEvaluator::new(self.space, FINE);
        rough.grant_events(self.budget_parts(JUDGE_PARTS));
        let starts = self.climb_starts(&mut rough);
        rough.grant_events(self.budget_parts(CLIMB_PARTS));
        let tops = self.climb_all(starts, &mut rough);
        rough.grant_events(self.budget_parts(ENUMERATE_PARTS));
        fine.grant_events(self.budget_parts(ENUMERATE_PARTS));
        let tops = tops.iter().filter_map(|top| {
            let best = self.best_levels(&top.position.options, &mut rough, &mut fine);
            best.or_else(|| fine.evaluate_position(&top.position))
        });
        let best = sort_best_first(tops.collect()).into_iter().next()?;
        fine.grant_events(self.budget_parts(CLIMB_PARTS));
        let top = climb_position(self.space, &mut fine, best, ClimbFreedom::LevelsAndPaths)
            .into_position();
        self.improve_levels(&top.position)
    }

    /// Combinations of ways that are good by estimate and by a rough judgement, the best first.
    fn climb_starts(&mut self, rough: &mut PositionEvaluator<'_>) -> Vec<ValuedPosition> {
        let mut estimated: Vec<(f64, Vec<usize>)> = path_combinations(self.space)
            .map(|options| (self.estimate.estimate_value(&options), options))
            .collect();
        // A stable sort: of equals the first combination.
        estimated.sort_by(|a, b| b.0.total_cmp(&a.0));
        estimated.truncate(MAX_JUDGED);
        let estimated = estimated.into_iter();
        let judged = estimated.map_while(|(_, options)| self.with_plausible_levels(options, rough));
        let mut starts = sort_best_first(judged.collect());
        starts.truncate(MAX_CLIMBS);
        starts
    }

    /// The best positions that climbs from `starts` end at. Where all combinations of ways were
    /// estimated, these are good already, and only levels change.
    fn climb_all(
        &self,
        starts: Vec<ValuedPosition>,
        rough: &mut PositionEvaluator<'_>,
    ) -> Vec<ValuedPosition> {
        let freedom = match self.space.combination_count() > MAX_ESTIMATED {
            true => ClimbFreedom::LevelsAndPaths,
            false => ClimbFreedom::Levels,
        };
        let climbs = starts.into_iter();
        let climbs =
            climbs.map(|start| climb_position(self.space, rough, start, freedom).into_position());
        let mut tops = sort_best_first(climbs.collect());
        tops.truncate(MAX_ENUMERATED);
        tops
    }

    /// These ways with the better of the plausible levels in each contest.
    fn with_plausible_levels(
        &self,
        options: Vec<usize>,
        arena: &mut PositionEvaluator<'_>,
    ) -> Option<ValuedPosition> {
        let ranked = self.estimate.ranked_jobs();
        self.assemble_position(options, arena, |contest, arena| {
            let members = ranked.iter();
            let members = members.filter_map(|player| contest.members.binary_search(player).ok());
            let members: Vec<usize> = members.collect();
            let candidates = level_candidates::plausible_levels(&members, self.level_count());
            self.best_candidate(contest, candidates.to_vec(), arena)
        })
    }

    /// These ways with the best of all levels, or of as many as the budget allows; none where
    /// there are too many to begin with.
    fn best_levels(
        &self,
        options: &[usize],
        rough: &mut PositionEvaluator<'_>,
        fine: &mut PositionEvaluator<'_>,
    ) -> Option<ValuedPosition> {
        self.assemble_position(options.to_vec(), fine, |contest, fine| {
            let mut judged = Vec::new();
            for levels in level_candidates::all_levels(contest, self.level_count())? {
                let levels = self.clamp_levels(contest, levels);
                let Some(value) = rough.group_value(contest, &levels) else {
                    break;
                };
                judged.push((value, levels));
            }
            judged.sort_by(|a, b| b.0.total_cmp(&a.0));
            let few = judged.into_iter().take(MAX_FINE).map(|(_, levels)| levels);
            self.best_candidate(contest, few.collect(), fine)
        })
    }

    /// The position that has these ways, and in each contest the levels that `choose` finds.
    fn assemble_position(
        &self,
        options: Vec<usize>,
        arena: &mut PositionEvaluator<'_>,
        mut choose: impl FnMut(&ContentionGroup, &mut PositionEvaluator<'_>) -> Option<(f64, Vec<u8>)>,
    ) -> Option<ValuedPosition> {
        let mut levels = vec![0; self.space.jobs.len()];
        let mut value = 0.0;
        for contest in arena.contention_groups(&options) {
            let (worth, chosen) = choose(&contest, arena)?;
            value += worth;
            for (player, level) in contest.members.iter().zip(chosen) {
                levels[*player] = level;
            }
        }
        let position = SearchPosition { options, levels };
        Some(ValuedPosition { position, value })
    }

    /// The best of `candidates` for a contest, as far as the budget goes; of equals the first.
    fn best_candidate(
        &self,
        contest: &ContentionGroup,
        candidates: Vec<Vec<u8>>,
        arena: &mut PositionEvaluator<'_>,
    ) -> Option<(f64, Vec<u8>)> {
        let mut best: Option<(f64, Vec<u8>)> = None;
        for levels in candidates {
            let levels = self.clamp_levels(contest, levels);
            let Some(value) = arena.group_value(contest, &levels) else {
                break;
            };
            if best.as_ref().is_none_or(|(most, _)| value > *most) {
                best = Some((value, levels));
            }
        }
        best
    }

    /// `levels` of the parties of a contest, each within its player's bounds.
    fn clamp_levels(&self, contest: &ContentionGroup, levels: Vec<u8>) -> Vec<u8> {
        let parties = contest.members.iter().zip(levels);
        let fitted = parties.map(|(player, level)| {
            let may = &self.space.jobs[*player].levels;
            level.clamp(*may.start(), *may.end())
        });
        fitted.collect()
    }

    /// Number of levels.
    fn level_count(&self) -> u8 {
        let players = self.space.jobs.iter();
        let highest = players.map(|player| *player.levels.end()).max();
        highest.unwrap_or(0).saturating_add(1)
    }

    /// The position with better levels, if there are: the best of all where those are few, else
    /// what climbs find from its own and from plausible ones. Settling what is settled changes
    /// nothing: what is looked at depends on nothing but ways, or a climb has no change left that
    /// is better. None if not even the position can be judged.
    fn improve_levels(&self, position: &SearchPosition) -> Option<ValuedPosition> {
        let mut rough = PositionEvaluator::new(self.space, ROUGH);
        let mut fine = PositionEvaluator::new(self.space, FINE);
        rough.grant_events(self.budget_parts(IMPROVE_PARTS) / 2);
        fine.grant_events(self.budget_parts(IMPROVE_PARTS) / 4);
        let best = self.best_levels(&position.options, &mut rough, &mut fine);
        fine.grant_events(self.budget_parts(IMPROVE_PARTS) / 4);
        let own = fine.evaluate_position(position)?;
        let tops = best.map_or_else(|| self.level_optima(position), |best| vec![best]);
        // Of equals the first.
        Some(
            tops.into_iter().fold(own, |best, top| if top.value > best.value { top } else { best }),
        )
    }

    /// Where climbs by levels from the position's own and from plausible ones end. Each has a
    /// budget of its own, and one that it cuts short is not counted.
    fn level_optima(&self, position: &SearchPosition) -> Vec<ValuedPosition> {
        let arena = || {
            let mut arena = PositionEvaluator::new(self.space, FINE);
            arena.grant_events(self.budget_parts(IMPROVE_PARTS) / 2);
            arena
        };
        let top = |start: ValuedPosition, mut arena: PositionEvaluator<'_>| match climb_position(
            self.space,
            &mut arena,
            start,
            ClimbFreedom::Levels,
        ) {
            ClimbResult::LocalOptimum(top) => Some(top),
            ClimbResult::BudgetExhausted(_) => None,
        };
        let (mut first, mut second) = (arena(), arena());
        let own = first.evaluate_position(position).and_then(|own| top(own, first));
        let plausible = self.with_plausible_levels(position.options.clone(), &mut second);
        let other = plausible.and_then(|start| top(start, second));
        own.into_iter().chain(other).collect()
    }
}

/// The best first, and of equal values, which is the same with spines exchanged, one.
fn sort_best_first(mut valued: Vec<ValuedPosition>) -> Vec<ValuedPosition> {
    valued.sort_by(|a, b| b.value.total_cmp(&a.value));
    valued.dedup_by(|a, b| a.value.total_cmp(&b.value).is_eq());
    valued
}

/// Every combination of ways, the first choice changing fastest; if there are too many, drawn ones.
fn path_combinations(setting: &SearchSpace<'_>) -> impl Iterator<Item = Vec<usize>> {
    let options: Vec<u64> = setting.choices.iter().map(|of| of.options as u64).collect();
    let all = setting.combination_count();
    let mut draw = LcgSampler(1);
    (0..all.min(MAX_ESTIMATED)).map(move |number| {
        let mut rest = number;
        let digit = |of: &u64| {
            if all > MAX_ESTIMATED {
                return draw.next_below(*of);
            }
            let digit = rest % of;
            rest /= of;
            digit as usize
        };
        options.iter().map(digit).collect()
    })
}

/// Numbers without order, the same every time (Knuth's MMIX generator).
struct LcgSampler(u64);

impl LcgSampler {
    fn next_below(&mut self, bound: u64) -> usize {
        let Self(state) = self;
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 33) % bound) as usize
    }
}
