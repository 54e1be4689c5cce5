//! The best of several levels for a contention group, of which most are simulated only once.

use super::candidates::LevelOrigin;
use super::contention_group::ContentionGroup;
use super::horizon::FIRST_START;
use super::judge::{DecisionValue, Judge};
use super::objective::PlanObjective;

/// The best levels of a race.
pub(super) struct RaceWinner {
    pub(super) origin: LevelOrigin,
    /// By member of the group.
    pub(super) levels: Vec<u8>,
    pub(super) value: DecisionValue,
    /// Whether some levels of the race miss the service bound.
    pub(super) excluded_by_bound: bool,
    /// The levels that are worth most from the first start, if they miss the floor or the bound,
    /// with what they are worth from there.
    pub(super) starving: Option<(Vec<u8>, DecisionValue)>,
}

/// Levels in a race.
struct LevelTrial {
    origin: LevelOrigin,
    levels: Vec<u8>,
    /// From the first start.
    first: DecisionValue,
    /// The mean over the starts that were simulated.
    mean: DecisionValue,
    is_out: bool,
}

/// The best of the levels that were `tried`: all are simulated from one start, and from each further
/// start those that may still be the best. None if the model rejects a job.
pub(super) fn race_levels(
    judge: &mut Judge<'_>,
    objective: PlanObjective,
    group: &ContentionGroup,
    tried: Vec<(LevelOrigin, Vec<u8>)>,
) -> Option<RaceWinner> {
    judge.simulate_ahead(group, tried.iter().map(|(_, levels)| (&levels[..], FIRST_START)));
    let mut trials = Vec::new();
    for (origin, levels) in tried {
        let first = judge.evaluate_levels(group, &levels, FIRST_START)?;
        trials.push(LevelTrial { origin, levels, first, mean: first, is_out: false });
    }
    let samples = judge.horizon.samples();
    for sample in samples.clone().skip(1) {
        // Before each further start, so that a trial which cannot win costs one run.
        drop_worse(objective, &mut trials, sample - samples.start);
        let left = trials.iter().filter(|trial| !trial.is_out);
        judge.simulate_ahead(group, left.map(|trial| (&trial.levels[..], sample)));
        for trial in trials.iter_mut().filter(|trial| !trial.is_out) {
            let value = judge.evaluate_levels(group, &trial.levels, sample)?;
            trial.mean = trial.mean.joined_with(value, sample - samples.start);
        }
    }
    let misses = |trial: &LevelTrial| objective.misses_floor(trial.first);
    let most = trials.iter().max_by(|a, b| a.first.value.total_cmp(&b.first.value));
    let starving = most.filter(|trial| misses(trial));
    let starving = starving.map(|trial| (trial.levels.clone(), trial.first));
    let excluded_by_bound = trials.iter().any(|trial| objective.misses_service_bound(trial.mean));
    let left = trials.into_iter().filter(|trial| !trial.is_out);
    let best = left.reduce(|best, next| match objective.is_better(next.mean, best.mean, 0.0) {
        true => next,
        false => best,
    })?;
    let LevelTrial { origin, levels, mean: value, .. } = best;
    Some(RaceWinner { origin, levels, value, excluded_by_bound, starving })
}

/// Drops the trials that are worse than the best so far by more than further starts may make up for,
/// after `sampled` starts. The plan in force stays.
fn drop_worse(objective: PlanObjective, trials: &mut [LevelTrial], sampled: u32) {
    let left = trials.iter().filter(|trial| !trial.is_out);
    let least = objective.race_limit(left.map(|trial| trial.mean), sampled);
    let stays = |trial: &LevelTrial| {
        // What is in force stays to the end: the price of moving is measured against it.
        trial.origin == LevelOrigin::InForce || objective.stays_in_race(trial.mean, least)
    };
    // Of levels that all miss the floor, all stay.
    if trials.iter().any(|trial| !trial.is_out && stays(trial)) {
        for trial in trials.iter_mut() {
            trial.is_out |= !stays(trial);
        }
    }
}
