//! Local optima of the model of mean rates from decisions that are drawn.
//!
//! A search from the best candidate ends where no step is better, and in a region of few jobs that
//! is often far from the optimum: several flows and levels would have to change at once. The model
//! is cheap there, so it finds many optima from drawn decisions, and the judge tells which of them
//! are worth a climb.

use std::collections::BTreeMap;

use super::candidates::LevelOrigin;
use super::climb::ModelDecisions;
use super::local_search::{Sampler, SearchFreedom, StepBudget, make_step, search_locally};
use super::mean_rates::VISITS_PER_EVENT;
use super::region_evaluation::{RegionEvaluation, ValuedCandidate};

/// Draws, at most, and at least: fewer seldom find anything.
const MAX_DRAWS: u64 = 256;
const LEAST_DRAWS: u64 = 16;

/// Random steps by which decisions are drawn, and then those that are tried, for each job and bundle.
/// More draws find more than more steps from each.
const STEPS: usize = 2;

/// Optima that are judged at most, the best by the model.
const MAX_JUDGED: usize = 200;

/// Optima from draws, valued by a coarse simulation, the best first. All may cost so many
/// `events`, half of them in the model; none where these are too few for enough draws.
pub(super) fn draw_optima(
    evaluation: &mut RegionEvaluation<'_>,
    start: &ValuedCandidate,
    events: u64,
) -> Vec<ValuedCandidate> {
    let model = evaluation.model();
    let levels = evaluation.plan_levels(start);
    // Not calibrated: what a job met at `start` says nothing about decisions that are far away.
    let rates = evaluation.mean_rates(&model, start.paths(), &levels);
    let visits = events / 2 * VISITS_PER_EVENT;
    let steps = STEPS * (model.jobs.len() + model.bundles.len());
    let budget = StepBudget { tried_steps: steps, kept_steps: steps, visits: visits / LEAST_DRAWS };
    let mut sampler = Sampler::new();
    let mut found: BTreeMap<ModelDecisions, f64> = BTreeMap::new();
    let mut visited = 0;
    let mut drawn = rates.clone();
    for draw in 0..MAX_DRAWS {
        drawn.clone_from(&rates);
        for _ in 0..steps {
            make_step(&model, &mut drawn, SearchFreedom::LevelsAndPaths, &mut sampler);
        }
        drawn.settle();
        search_locally(&model, &mut drawn, SearchFreedom::LevelsAndPaths, budget, &mut sampler);
        visited += drawn.visits - rates.visits;
        found.insert((drawn.counts.clone(), drawn.levels.clone()), drawn.score());
        // The first draw says whether enough of them can be paid for.
        if draw == 0 && visited * LEAST_DRAWS > visits {
            found.clear();
            break;
        }
        if visited > visits {
            break;
        }
    }
    evaluation.charge(visited / VISITS_PER_EVENT);
    let mut found: Vec<(ModelDecisions, f64)> = found.into_iter().collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let limit = evaluation.event_cost() + events / 2;
    let mut judged = Vec::new();
    for ((counts, levels), _) in found.into_iter().take(MAX_JUDGED) {
        if evaluation.event_cost() >= limit {
            break;
        }
        let paths = evaluation.searched_paths(start, &counts);
        let optimum = evaluation.candidate_at(paths, &levels, LevelOrigin::Climbed);
        let Some(value) = evaluation.value_coarsely(&optimum) else { break };
        judged.push(ValuedCandidate { value, ..optimum });
    }
    judged.sort_by(|a, b| b.value.value.total_cmp(&a.value.value));
    // Spines that could be exchanged: the same runs, and the same climb.
    judged.dedup_by(|next, earlier| next.value == earlier.value);
    judged
}
