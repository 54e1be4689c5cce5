//! From a position to one that no single change makes better.

use super::evaluation::PositionEvaluator;
use super::search_space::{SearchPosition, SearchSpace};

/// A change is better if it gains this share; less is noise of the judge.
pub(super) const LEAST_GAIN: f64 = 1e-3;

/// A position with its value.
#[derive(Clone, Debug)]
pub(super) struct ValuedPosition {
    pub(super) position: SearchPosition,
    pub(super) value: f64,
}

/// What may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClimbFreedom {
    /// Levels alone.
    Levels,
    /// Levels and ways.
    LevelsAndPaths,
}

/// One change of a position.
#[derive(Clone, Copy, Debug)]
enum PositionChange {
    Path { choice: usize, option: usize },
    Level { player: usize, level: u8 },
    SwapLevels { players: [usize; 2] },
}

/// Where the climb ends.
#[derive(Clone, Debug)]
pub(super) enum ClimbResult {
    /// No change is better.
    LocalOptimum(ValuedPosition),
    /// The budget is spent; the best so far.
    BudgetExhausted(ValuedPosition),
}

impl ClimbResult {
    pub(super) fn into_position(self) -> ValuedPosition {
        match self {
            Self::LocalOptimum(valued) | Self::BudgetExhausted(valued) => valued,
        }
    }
}

/// Takes every change that is better, one after the other in a fixed round, until a whole round has
/// none. Each step gains, so it ends.
pub(super) fn climb_position(
    setting: &SearchSpace<'_>,
    arena: &mut PositionEvaluator<'_>,
    start: ValuedPosition,
    freedom: ClimbFreedom,
) -> ClimbResult {
    let changes = list_changes(setting, freedom);
    let mut best = start;
    let mut in_vain = 0;
    for change in changes.iter().cycle() {
        if in_vain == changes.len() {
            break;
        }
        in_vain += 1;
        let mut next = best.position.clone();
        change.apply_to(setting, &mut next);
        if next == best.position {
            continue;
        }
        let Some(value) = arena.position_value(&next) else {
            return ClimbResult::BudgetExhausted(best);
        };
        if value > best.value * (1.0 + LEAST_GAIN) {
            best = ValuedPosition { position: next, value };
            in_vain = 0;
        }
    }
    ClimbResult::LocalOptimum(best)
}

fn list_changes(setting: &SearchSpace<'_>, freedom: ClimbFreedom) -> Vec<PositionChange> {
    let mut changes = Vec::new();
    if freedom == ClimbFreedom::LevelsAndPaths {
        let choices = setting.choices.iter().enumerate();
        changes.extend(choices.flat_map(|(choice, of)| {
            (0..of.options).map(move |option| PositionChange::Path { choice, option })
        }));
    }
    let players = setting.jobs.len();
    for a in 0..players {
        changes.extend((a + 1..players).map(|b| PositionChange::SwapLevels { players: [a, b] }));
        let levels = setting.jobs[a].levels.clone();
        changes.extend(levels.map(|level| PositionChange::Level { player: a, level }));
    }
    changes
}

impl PositionChange {
    fn apply_to(&self, setting: &SearchSpace<'_>, position: &mut SearchPosition) {
        match *self {
            Self::Path { choice, option } => position.options[choice] = option,
            Self::Level { player, level } => position.levels[player] = level,
            Self::SwapLevels { players: [a, b] } => {
                let (x, y) = (position.levels[a], position.levels[b]);
                let may = |player: usize, level| setting.jobs[player].levels.contains(&level);
                if may(a, y) && may(b, x) {
                    position.levels.swap(a, b);
                }
            }
        }
    }
}
