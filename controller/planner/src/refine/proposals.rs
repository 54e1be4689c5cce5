//! Better paths and levels for a region: the model of mean rates proposes, the judge disposes.
//!
//! Single changes are tried in the model, hundreds in the time of one simulation. A proposal is what
//! came of some that the model found better. The judge simulates it, and the model learns from the
//! result, whatever it is: how much longer each job communicates than the averages say. If the
//! proposal is better, the next one starts there and may make twice as many changes; if not, it
//! starts where this one did and may make half as many, so that a model that promises too much is
//! trusted less far (a trust region, as in optimisation with surrogate models).

use super::candidates::LevelOrigin;
use super::local_search::{Sampler, StepBudget, make_step, search_locally};
use super::mean_rates::VISITS_PER_EVENT;
use super::objective::LEAST_STEP;
use super::region_evaluation::{RegionEvaluation, ValuedCandidate};

/// Changes that the first proposal may make, and the bounds of later ones.
const FIRST_RADIUS: usize = 64;
const LEAST_RADIUS: usize = 1;
const MAX_RADIUS: usize = 1_024;

/// Changes that are tried for a proposal.
const TRIED_STEPS: usize = 512;

/// Weight of the last simulation in what the model has learned, at least.
const LEAST_WEIGHT: f64 = 0.2;

/// A proposal is simulated from all starts if a coarse simulation finds it worth at least this share
/// of the best so far.
const PROMISING_SHARE: f64 = 0.995;

/// Proposals in a row that are not better, after which the search ends.
const MAX_FAILED: u32 = 40;

/// Steps that are made whatever the model says of them, after as many proposals that were not better.
const MAX_BLIND: u32 = 3;

/// The best candidate that is found from `start` for so many `events`; none if no proposal is
/// better.
pub(super) fn search_proposals(
    evaluation: &mut RegionEvaluation<'_>,
    start: &ValuedCandidate,
    events: u64,
) -> Option<ValuedCandidate> {
    let model = evaluation.model();
    let freedom = evaluation.search_freedom();
    let levels = evaluation.plan_levels(start);
    let mut rates = evaluation.mean_rates(&model, start.paths(), &levels);
    rates.calibrate(&evaluation.iteration_seconds(start));
    let mut learned = rates.stretches.clone();
    let mut coarse = evaluation.value_coarsely(start)?.value;
    let objective = evaluation.objective();
    let limit = evaluation.event_cost() + events;
    let (mut sampler, mut radius, mut failed) = (Sampler::new(), FIRST_RADIUS, 0);
    let mut simulations = 1_u32;
    let mut best: Option<ValuedCandidate> = None;
    while failed < MAX_FAILED {
        failed += 1;
        let Some(left) = limit.checked_sub(evaluation.event_cost()) else { break };
        let budget = StepBudget {
            tried_steps: TRIED_STEPS,
            kept_steps: radius,
            visits: left * VISITS_PER_EVENT,
        };
        let mut proposed = rates.clone();
        // What the model would never do may be better all the same.
        for _ in 0..(failed - 1).min(MAX_BLIND) {
            make_step(&model, &mut proposed, freedom, &mut sampler);
        }
        proposed.follow_changes();
        search_locally(&model, &mut proposed, freedom, budget, &mut sampler);
        // The model's work counts in the unit of the judge, so that one budget bounds both.
        evaluation.charge((proposed.visits - rates.visits) / VISITS_PER_EVENT);
        if proposed.counts == rates.counts && proposed.levels == rates.levels {
            continue;
        }
        let paths = evaluation.searched_paths(start, &proposed.counts);
        let next = evaluation.candidate_at(paths, &proposed.levels, LevelOrigin::Searched);
        let next_coarse = evaluation.value_coarsely(&next)?.value;
        let mut better = None;
        // Most proposals end here, after one short run for each group.
        if next_coarse >= PROMISING_SHARE * coarse {
            let value = evaluation.value_finely(&next)?;
            proposed.calibrate(&evaluation.iteration_seconds(&next));
            let so_far = best.as_ref().unwrap_or(start);
            better = objective
                .is_step_up(value, so_far.value, LEAST_STEP)
                .then_some(ValuedCandidate { value, ..next });
        } else {
            // Also where the proposal is worse: that is where the model was wrong.
            proposed.calibrate(&evaluation.coarse_seconds(&next)?);
        }
        simulations += 1;
        let weight = (1.0 / f64::from(simulations)).max(LEAST_WEIGHT);
        for (learned, new) in learned.iter_mut().zip(&proposed.stretches) {
            // A geometric mean, as stretches are factors: twice and half cancel.
            *learned = learned.powf(1.0 - weight) * new.powf(weight);
        }
        match better {
            Some(next) => {
                (coarse, best) = (next_coarse, Some(next));
                rates = proposed;
                // The model was right so far from where it was calibrated, so it is trusted
                // further.
                (radius, failed) = ((radius * 2).min(MAX_RADIUS), 0);
            }
            None => radius = (radius / 2).max(LEAST_RADIUS),
        }
        rates.stretches.copy_from_slice(&learned);
        rates.settle();
    }
    best
}
