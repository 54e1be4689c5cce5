//! Local search over paths and levels in the model of mean rates.
//!
//! A step changes where a job turns (it leaves a spine, enters one, or exchanges two, and its flows
//! are spread evenly over those that it has), moves one flow from the link on which its job waits
//! longest, or changes levels. It is kept if the model finds the decisions better.

use std::collections::BTreeSet;

use super::bundles::RegionModel;
use super::level_moves::LevelMove;
use super::mean_rates::MeanRates;

/// A step is kept if the model gains this share by it.
const LEAST_STEP: f64 = 1e-4;

/// What may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchFreedom {
    Levels,
    LevelsAndPaths,
}

/// Steps that are tried at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    pub(super) tried_steps: usize,
    pub(super) kept_steps: usize,
    /// Links that the model may visit.
    pub(super) visits: u64,
}

/// Tries steps from the decisions of `rates` and keeps those that are better; returns how many.
pub(super) fn search_locally(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    freedom: SearchFreedom,
    budget: StepBudget,
    sampler: &mut Sampler,
) -> usize {
    // One copy that is reused: cloning for each of hundreds of steps would cost more than the step.
    let mut trial = rates.clone();
    let mut kept = 0;
    let last_visit = rates.visits + budget.visits;
    for _ in 0..budget.tried_steps {
        if kept == budget.kept_steps || trial.visits >= last_visit {
            break;
        }
        if !make_step(model, &mut trial, freedom, sampler) {
            continue;
        }
        trial.follow_changes();
        let visits = trial.visits;
        if trial.score() > rates.score() + LEAST_STEP * rates.score().abs() {
            rates.clone_from(&trial);
            kept += 1;
        } else {
            trial.clone_from(rates);
        }
        // The copy brings back an older count, and the work was done all the same.
        trial.visits = visits;
    }
    rates.visits = trial.visits;
    kept
}

/// Draws a step and makes it; false if it changes nothing.
pub(super) fn make_step(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    freedom: SearchFreedom,
    sampler: &mut Sampler,
) -> bool {
    let job = sampler.next_below(model.jobs.len());
    let kind = sampler.next_below(10);
    if freedom == SearchFreedom::Levels || kind < 4 {
        return move_level(model, rates, job, sampler);
    }
    match kind {
        4..7 => move_one_flow(model, rates, job),
        _ => change_turns(model, rates, job, sampler),
    }
}

/// Gives a job another place among the levels, or exchanges those of two.
fn move_level(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    member: usize,
    sampler: &mut Sampler,
) -> bool {
    let jobs = model.jobs.len();
    let step = match sampler.next_below(2) {
        0 => LevelMove::Swap { members: [member, sampler.next_below(jobs)] },
        _ => {
            let places = 2 * jobs.min(model.level_count()) + 1;
            LevelMove::Place { member, place: sampler.next_below(places) }
        }
    };
    change_levels(model, rates, step)
}

/// Makes a step over levels; false if it changes nothing.
pub(super) fn change_levels(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    step: LevelMove,
) -> bool {
    let Some(levels) = step.apply_to(&rates.levels, &model.allowed_levels) else { return false };
    for (job, level) in levels.into_iter().enumerate() {
        if level != rates.levels[job] {
            rates.set_level(job, level);
        }
    }
    true
}

/// Moves one flow of a job away from the link on which it waits longest, to the option on which it
/// would wait least.
fn move_one_flow(model: &RegionModel<'_>, rates: &mut MeanRates<'_>, job: usize) -> bool {
    let Some(busiest) = rates.bottleneck_of(job) else { return false };
    let seconds_of =
        |links: &[u32]| links.iter().map(|link| rates.seconds_on(job, *link)).fold(0.0, f64::max);
    let mut best: Option<(f64, usize, usize)> = None;
    for bundle in &model.bundles[model.jobs[job].bundles.clone()] {
        let from =
            bundle.options.iter().zip(bundle.option_range()).find(|(option, number)| {
                rates.counts[*number] > 0 && option.links.contains(&busiest)
            });
        let Some((_, from)) = from else { continue };
        let others = bundle.options.iter().zip(bundle.option_range());
        for (option, number) in others.filter(|(option, _)| !option.links.contains(&busiest)) {
            let seconds = seconds_of(&option.links);
            if best.is_none_or(|(least, ..)| seconds < least) {
                best = Some((seconds, from, number));
            }
        }
    }
    let Some((_, from, to)) = best else { return false };
    rates.change_counts(job, |counts| {
        counts[from] -= 1;
        counts[to] += 1;
    });
    true
}

/// Has a job leave a switch at which its paths turn, enter one, or exchange one for another.
fn change_turns(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    job: usize,
    sampler: &mut Sampler,
) -> bool {
    let of = &model.jobs[job];
    let mut used = BTreeSet::new();
    for bundle in &model.bundles[of.bundles.clone()] {
        let counts = &rates.counts[bundle.option_range()];
        let taken = bundle.options.iter().zip(counts).filter(|(_, count)| **count > 0);
        used.extend(taken.map(|(option, _)| option.turn));
    }
    let turns = of.turns.len();
    if turns < 2 {
        return false;
    }
    let mut next = used.clone();
    let turn = sampler.next_below(turns);
    if !next.remove(&turn) {
        next.insert(turn);
        if sampler.next_below(2) == 0 {
            let left = used.iter().nth(sampler.next_below(used.len().max(1))).copied();
            left.iter().for_each(|left| {
                next.remove(left);
            });
        }
    }
    // A job has to turn somewhere.
    if next.is_empty() {
        return false;
    }
    spread_over(model, rates, job, &next);
    true
}

/// Spreads the flows of a job over the options that turn at `turns`: each on the one whose links
/// its own job loads least, then all jobs. A bundle without such an option takes all.
pub(super) fn spread_over(
    model: &RegionModel<'_>,
    rates: &mut MeanRates<'_>,
    job: usize,
    turns: &BTreeSet<usize>,
) {
    let of = &model.jobs[job];
    let links = of.links.len() as u32;
    // By link of the job: capacity, own bytes so far, and the share that others take.
    let mut loads: Vec<(f64, f64, f64)> = (0..links)
        .map(|link| {
            let (others, capacity) = rates.others_on(job, link);
            (capacity, rates.own_bytes(job, link), others / capacity)
        })
        .collect();
    let bundles = &model.bundles[of.bundles.clone()];
    for bundle in bundles {
        for (option, number) in bundle.options.iter().zip(bundle.option_range()) {
            let bytes = f64::from(rates.counts[number]) * bundle.bytes;
            // The flows to be spread are taken off first; the fixed flows of the job stay.
            option.links.iter().for_each(|link| loads[*link as usize].1 -= bytes);
        }
    }
    rates.change_counts(job, |counts| {
        for bundle in bundles {
            counts[bundle.option_range()].fill(0);
            let is_open = |turn: usize| turns.contains(&turn);
            let any_open = bundle.options.iter().any(|option| is_open(option.turn));
            for _ in 0..bundle.size() {
                let open = bundle.options.iter().enumerate();
                let open = open.filter(|(_, option)| !any_open || is_open(option.turn));
                let loaded = open.map(|(place, option)| {
                    let of_links = option.links.iter().map(|link| {
                        let (capacity, own, others) = loads[*link as usize];
                        ((own + bundle.bytes) / capacity, others)
                    });
                    let own = of_links.clone().map(|(own, _)| own).fold(0.0, f64::max);
                    let others = of_links.map(|(_, others)| others).fold(0.0, f64::max);
                    // Rounding must not decide between equals.
                    (f64::from(own as f32), others, place)
                });
                let best = loaded.min_by(|a, b| {
                    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
                });
                let Some((.., place)) = best else { break };
                counts[bundle.first_option + place] += 1;
                for link in &bundle.options[place].links {
                    loads[*link as usize].1 += bundle.bytes;
                }
            }
        }
    });
}

/// Pseudo-random numbers from a fixed seed (Knuth's MMIX generator).
#[derive(Debug)]
pub(super) struct Sampler(u64);

impl Sampler {
    pub(super) fn new() -> Self {
        Self(1)
    }

    pub(super) fn next_below(&mut self, bound: usize) -> usize {
        let Self(state) = self;
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 33) % bound as u64) as usize
    }
}
