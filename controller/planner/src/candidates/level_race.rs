//! The best of several levels for a contention group, of which most are simulated only once.

use super::group_simulation::StartSample;
use super::group_values::{DecisionValue, GroupEvaluator};
use super::objective::PlanObjective;
use super::origins::LevelOrigin;
use crate::search::contention_group::ContentionGroup;

/// The best levels of a race.
pub(super) struct RaceWinner {
    pub(super) origin: LevelOrigin,
    /// By member of the group.
    pub(super) levels: Vec<u8>,
    pub(super) value: DecisionValue,
    /// Whether some levels of the race miss the service bound.
    pub(super) excluded_by_bound: bool,
}

/// Levels in a race.
struct LevelTrial {
    origin: LevelOrigin,
    levels: Vec<u8>,
    /// From the first start.
    first: DecisionValue,
    /// The mean over all starts, once it is simulated.
    mean: Option<DecisionValue>,
}

/// The best of the levels that were `tried`: all are simulated from one start, then the good ones
/// from the others. Good is what no better one excludes that holds the floor and the service bound,
/// from all starts as soon as that is known. None if the model rejects a job.
pub(super) fn race_levels(
    evaluator: &mut GroupEvaluator<'_>,
    objective: PlanObjective,
    group: &ContentionGroup,
    tried: Vec<(LevelOrigin, Vec<u8>)>,
) -> Option<RaceWinner> {
    evaluator
        .simulate_ahead(group, tried.iter().map(|(_, levels)| (&levels[..], StartSample::FIRST)));
    let mut trials = Vec::new();
    for (origin, levels) in tried {
        let first = evaluator.evaluate_levels(group, &levels, StartSample::FIRST)?;
        trials.push(LevelTrial { origin, levels, first, mean: None });
    }
    let mut round = next_round(objective, &trials);
    if round.is_empty() {
        // Of levels that all miss the floor, all stay.
        round = (0..trials.len()).collect();
    }
    while !round.is_empty() {
        let samples = evaluator.horizon.samples();
        let cases = round.iter().flat_map(|place| {
            let levels = &trials[*place].levels[..];
            samples.clone().map(move |sample| (levels, sample))
        });
        evaluator.simulate_ahead(group, cases);
        for place in round {
            trials[place].mean = Some(evaluator.mean_value(group, &trials[place].levels)?);
        }
        round = next_round(objective, &trials);
    }
    let excluded_by_bound = trials.iter().any(|trial| trial.misses_service_bound(objective));
    let winners = trials.into_iter().filter_map(|LevelTrial { origin, levels, mean, .. }| {
        Some(RaceWinner { origin, levels, value: mean?, excluded_by_bound })
    });
    winners.reduce(|best, next| match objective.is_better(next.value, best.value, 0.0) {
        true => next,
        false => best,
    })
}

/// Positions of the trials to simulate from all starts next.
fn next_round(objective: PlanObjective, trials: &[LevelTrial]) -> Vec<usize> {
    let eligible = trials.iter().filter(|trial| !trial.is_out(objective));
    let least = objective.race_limit(eligible.map(|trial| trial.first));
    let stays = |trial: &LevelTrial| {
        matches!(trial.origin, LevelOrigin::InForce | LevelOrigin::Ranked(1))
            || objective.stays_in_race(trial.first, least)
    };
    let open = trials.iter().enumerate().filter(|(_, trial)| trial.mean.is_none());
    open.filter(|(_, trial)| stays(trial)).map(|(place, _)| place).collect()
}

impl LevelTrial {
    /// Whether it is known that it misses the floor or the bound from all starts.
    fn is_out(&self, objective: PlanObjective) -> bool {
        self.mean.is_some_and(|mean| objective.misses_floor(mean))
    }

    /// Whether it misses the bound from any start.
    fn misses_service_bound(&self, objective: PlanObjective) -> bool {
        objective.misses_service_bound(self.mean.unwrap_or(self.first))
    }
}
