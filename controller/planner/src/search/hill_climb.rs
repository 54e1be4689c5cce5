//! Hill climb: from a position to one that no single change makes better.

use super::LEAST_GAIN;
use super::evaluation::PositionEvaluator;
use super::search_space::{SearchPosition, SearchSpace};

/// A position with its value.
#[derive(Clone, Debug)]
pub(super) struct ValuedPosition {
    pub(super) position: SearchPosition,
    pub(super) value: f64,
}

/// What may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClimbFreedom {
    /// Levels change; paths stay.
    Levels,
    /// Both levels and paths change.
    LevelsAndPaths,
}

/// One change of a position.
#[derive(Clone, Copy, Debug)]
enum PositionChange {
    Path { choice: usize, option: usize },
    Level { job: usize, level: u8 },
    SwapLevels { jobs: [usize; 2] },
}

/// Result of a climb.
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

/// Applies every change that is better, one after the other in a fixed cycle, until a whole cycle
/// has none. Each step gains a least share, so the climb ends.
pub(super) fn climb_position(
    space: &SearchSpace<'_>,
    evaluator: &mut PositionEvaluator<'_>,
    start: ValuedPosition,
    freedom: ClimbFreedom,
) -> ClimbResult {
    let changes = list_changes(space, freedom);
    let mut best = start;
    let mut unchanged = 0;
    for change in changes.iter().cycle() {
        if unchanged == changes.len() {
            break;
        }
        unchanged += 1;
        let mut next = best.position.clone();
        change.apply_to(space, &mut next);
        if next == best.position {
            continue;
        }
        let Some(value) = evaluator.position_value(&next) else {
            return ClimbResult::BudgetExhausted(best);
        };
        if value > best.value * (1.0 + LEAST_GAIN) {
            best = ValuedPosition { position: next, value };
            unchanged = 0;
        }
    }
    ClimbResult::LocalOptimum(best)
}

fn list_changes(space: &SearchSpace<'_>, freedom: ClimbFreedom) -> Vec<PositionChange> {
    let mut changes = Vec::new();
    if freedom == ClimbFreedom::LevelsAndPaths {
        let choices = space.choices.iter().enumerate();
        changes.extend(choices.flat_map(|(choice, of)| {
            (0..of.options).map(move |option| PositionChange::Path { choice, option })
        }));
    }
    let jobs = space.jobs.len();
    for a in 0..jobs {
        changes.extend((a + 1..jobs).map(|b| PositionChange::SwapLevels { jobs: [a, b] }));
        let levels = space.jobs[a].levels.clone();
        changes.extend(levels.map(|level| PositionChange::Level { job: a, level }));
    }
    changes
}

impl PositionChange {
    fn apply_to(&self, space: &SearchSpace<'_>, position: &mut SearchPosition) {
        match *self {
            Self::Path { choice, option } => position.options[choice] = option,
            Self::Level { job, level } => position.levels[job] = level,
            Self::SwapLevels { jobs: [a, b] } => {
                let (x, y) = (position.levels[a], position.levels[b]);
                if space.jobs[a].levels.contains(&y) && space.jobs[b].levels.contains(&x) {
                    position.levels.swap(a, b);
                }
            }
        }
    }
}
