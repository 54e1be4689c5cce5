//! Better decisions by single steps, each judged: the model of mean rates orders them, the judge
//! decides.
//!
//! A step gives a job another place among the levels, moves one flow, or has all flows of a job turn
//! at one switch. It is tried coarsely first, and from all starts if that promises anything, so most
//! steps cost one short simulation.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::bundles::RegionModel;
use super::candidates::LevelOrigin;
use super::level_moves::{LevelMove, list_moves};
use super::local_search::{Sampler, SearchFreedom, change_levels, spread_over};
use super::mean_rates::{MeanRates, VISITS_PER_EVENT};
use super::objective::LEAST_STEP;
use super::region_evaluation::{RegionEvaluation, ValuedCandidate};

/// Steps over levels and over paths that are rated before one is tried, at most: a region of hundreds
/// of jobs has tens of thousands. There, proposals find paths.
const MAX_LEVEL_STEPS: usize = 512;
const MAX_PATH_STEPS: usize = 64;

/// One step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Other levels.
    Level(LevelMove),
    /// A flow of the job from one option to another of its bundle.
    Flow { job: usize, from: usize, to: usize },
    /// All flows of a job turn at one switch, by position among its turns.
    Turn { job: usize, turn: usize },
}

/// Decisions in the model: flows by option, and levels by job.
pub(super) type ModelDecisions = (Vec<u32>, Vec<u8>);

/// How far a climb goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClimbBounds {
    /// What may change.
    pub(super) freedom: SearchFreedom,
    /// Steps that are judged from one place, those first of which the model expects most.
    pub(super) judged_steps: usize,
    /// Cost of all simulations of the evaluation, in events, at which it ends.
    pub(super) limit: u64,
}

/// The candidate that none of the steps that are judged makes better, or the best when the limit is
/// reached.
pub(super) fn climb(
    evaluation: &mut RegionEvaluation<'_>,
    start: &ValuedCandidate,
    bounds: ClimbBounds,
) -> ValuedCandidate {
    let (model, objective) = (evaluation.model(), evaluation.objective());
    let mut best = start.clone();
    let Some(mut coarse) = evaluation.value_coarsely(&best) else { return best };
    let mut sampler = Sampler::new();
    let mut tried = BTreeSet::new();
    'improved: loop {
        let levels = evaluation.plan_levels(&best);
        let mut rates = evaluation.mean_rates(&model, best.paths(), &levels);
        rates.calibrate(&evaluation.iteration_seconds(&best));
        let steps = draw_steps(&model, &rates, bounds, &mut sampler);
        let (next, visits) = rate_steps(&model, &rates, steps, &mut tried);
        evaluation.charge(visits / VISITS_PER_EVENT);
        for (counts, levels) in next.into_iter().take(bounds.judged_steps) {
            if evaluation.event_cost() >= bounds.limit {
                return best;
            }
            let paths = if counts == rates.counts {
                Rc::clone(&best.candidate)
            } else {
                evaluation.searched_paths(&best, &counts)
            };
            let next = evaluation.candidate_at(paths, &levels, LevelOrigin::Climbed);
            let Some(quick) = evaluation.value_coarsely(&next) else { return best };
            // A coarse value is compared with the coarse value of the best, as both lack the later
            // starts.
            if !objective.is_step_up(quick, coarse, 0.0) {
                continue;
            }
            let Some(value) = evaluation.value_finely(&next) else { return best };
            if objective.is_step_up(value, best.value, LEAST_STEP) {
                (best, coarse) = (ValuedCandidate { value, ..next }, quick);
                // Steps are listed anew from here: those that were rated began elsewhere.
                continue 'improved;
            }
        }
        return best;
    }
}

/// Steps over levels, and over paths, of each all where they are few, else some of them.
fn draw_steps(
    model: &RegionModel<'_>,
    rates: &MeanRates<'_>,
    bounds: ClimbBounds,
    sampler: &mut Sampler,
) -> Vec<Step> {
    let levels = list_moves(&model.allowed_levels).into_iter().map(Step::Level);
    let mut steps = draw_some(levels.collect(), MAX_LEVEL_STEPS, sampler);
    if bounds.freedom == SearchFreedom::LevelsAndPaths {
        let mut of_paths = Vec::new();
        for (job, of) in model.jobs.iter().enumerate() {
            for bundle in &model.bundles[of.bundles.clone()] {
                let taken = bundle.option_range().filter(|option| rates.counts[*option] > 0);
                of_paths.extend(taken.flat_map(|from| {
                    let others = bundle.option_range().filter(move |to| *to != from);
                    others.map(move |to| Step::Flow { job, from, to })
                }));
            }
            of_paths.extend((0..of.turns.len()).map(|turn| Step::Turn { job, turn }));
        }
        // Apart from levels: paths are many more, and would leave none of those.
        steps.extend(draw_some(of_paths, MAX_PATH_STEPS, sampler));
    }
    steps
}

fn draw_some(steps: Vec<Step>, most: usize, sampler: &mut Sampler) -> Vec<Step> {
    if steps.len() <= most {
        return steps;
    }
    (0..most).map(|_| steps[sampler.next_below(steps.len())]).collect()
}

/// The decisions to which `steps` lead that were not tried before, those first of which the model
/// expects most; and the links that it visited.
fn rate_steps(
    model: &RegionModel<'_>,
    rates: &MeanRates<'_>,
    steps: Vec<Step>,
    tried: &mut BTreeSet<ModelDecisions>,
) -> (Vec<ModelDecisions>, u64) {
    let mut visits = 0;
    let mut next: Vec<(f64, ModelDecisions)> = Vec::new();
    // One copy that is reused: cloning for each of hundreds of steps would cost more than the step.
    let mut trial = rates.clone();
    for step in steps {
        trial.clone_from(rates);
        let is_new = apply_step(model, &mut trial, step)
            && tried.insert((trial.counts.clone(), trial.levels.clone()));
        if !is_new {
            continue;
        }
        trial.follow_changes();
        visits += trial.visits - rates.visits;
        next.push((trial.score(), (trial.counts.clone(), trial.levels.clone())));
    }
    // A stable sort: of equals the first.
    next.sort_by(|a, b| b.0.total_cmp(&a.0));
    (next.into_iter().map(|(_, decisions)| decisions).collect(), visits)
}

/// Makes a step; false if it changes nothing.
fn apply_step(model: &RegionModel<'_>, rates: &mut MeanRates<'_>, step: Step) -> bool {
    match step {
        Step::Level(step) => return change_levels(model, rates, step),
        Step::Flow { job, from, to } => rates.change_counts(job, |counts| {
            counts[from] -= 1;
            counts[to] += 1;
        }),
        Step::Turn { job, turn } => spread_over(model, rates, job, &[turn].into()),
    }
    true
}
