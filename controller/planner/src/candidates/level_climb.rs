//! Better levels for a contention group: from given ones, single changes until none is better.
//!
//! A change gives one job another level or exchanges the levels of two. It is tried from one start
//! first, and from all starts if that promises anything, so most changes cost one simulation.

use std::ops::RangeInclusive;

use super::group_simulation::StartSample;
use super::group_values::{DecisionValue, GroupEvaluator};
use super::objective::PlanObjective;
use crate::search::contention_group::ContentionGroup;

/// Levels of the members of a group, with what they are worth.
#[derive(Clone, Debug)]
pub(super) struct ValuedLevels {
    /// As indices into the levels that jobs may have.
    pub(super) levels: Vec<u8>,
    pub(super) value: DecisionValue,
}

/// One change of the levels of a group.
#[derive(Clone, Copy, Debug)]
enum LevelChange {
    Set { member: usize, level: u8 },
    Swap { members: [usize; 2] },
}

/// What a climb depends on besides its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelClimb<'a> {
    pub(super) objective: PlanObjective,
    pub(super) group: &'a ContentionGroup,
    /// The lowest and the highest level of each member.
    pub(super) allowed: &'a [RangeInclusive<u8>],
    /// Cost of all simulations of the evaluator, in events, at which it ends.
    pub(super) cost_limit: u64,
}

/// The levels that no single change makes better, or the best when the limit is reached.
pub(super) fn climb_levels(
    evaluator: &mut GroupEvaluator<'_>,
    climb: LevelClimb<'_>,
    start: ValuedLevels,
) -> ValuedLevels {
    let LevelClimb { objective, group, allowed, cost_limit } = climb;
    let changes = list_changes(allowed);
    let mut best = start;
    let Some(mut first) = evaluator.evaluate_levels(group, &best.levels, StartSample::FIRST) else {
        return best;
    };
    let mut unchanged = 0;
    for change in changes.iter().cycle() {
        if unchanged == changes.len() || evaluator.event_cost() >= cost_limit {
            break;
        }
        unchanged += 1;
        let Some(levels) = change.apply_to(&best.levels, allowed) else {
            continue;
        };
        let Some(quick) = evaluator.evaluate_levels(group, &levels, StartSample::FIRST) else {
            break;
        };
        if !objective.is_better(quick, first, 0.0) {
            continue;
        }
        let Some(value) = evaluator.mean_value(group, &levels) else {
            break;
        };
        if objective.is_better(value, best.value, 0.0) {
            (best, first, unchanged) = (ValuedLevels { levels, value }, quick, 0);
        }
    }
    best
}

fn list_changes(allowed: &[RangeInclusive<u8>]) -> Vec<LevelChange> {
    let mut changes = Vec::new();
    for member in 0..allowed.len() {
        let others = member + 1..allowed.len();
        changes.extend(others.map(|other| LevelChange::Swap { members: [member, other] }));
        let levels = allowed[member].clone();
        changes.extend(levels.map(|level| LevelChange::Set { member, level }));
    }
    changes
}

impl LevelChange {
    /// The levels after the change; none if nothing changes or a level is not allowed.
    fn apply_to(self, levels: &[u8], allowed: &[RangeInclusive<u8>]) -> Option<Vec<u8>> {
        let mut next = levels.to_vec();
        match self {
            Self::Set { member, level } => next[member] = level,
            Self::Swap { members: [a, b] } => {
                if !allowed[a].contains(&levels[b]) || !allowed[b].contains(&levels[a]) {
                    return None;
                }
                next.swap(a, b);
            }
        }
        (next != levels).then_some(next)
    }
}
