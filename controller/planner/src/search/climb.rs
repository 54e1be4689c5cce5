//! From a position to one that no single change makes better.

use super::arena::Arena;
use super::setting::{Position, Setting};

/// A change is better if it gains this share; less is noise of the judge.
pub(super) const LEAST_GAIN: f64 = 1e-3;

/// A position with its value.
#[derive(Clone, Debug)]
pub(super) struct Valued {
    pub(super) position: Position,
    pub(super) value: f64,
}

/// What may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freedom {
    /// Classes alone.
    Classes,
    /// Classes and ways.
    Choices,
}

/// One change of a position.
#[derive(Clone, Copy, Debug)]
enum Change {
    Option { choice: usize, option: usize },
    Class { player: usize, class: u8 },
    Swap { players: [usize; 2] },
}

/// Where the climb ends.
#[derive(Clone, Debug)]
pub(super) enum Climbed {
    /// No change is better.
    Top(Valued),
    /// The budget is spent; the best so far.
    Tired(Valued),
}

impl Climbed {
    pub(super) fn valued(self) -> Valued {
        match self {
            Self::Top(valued) | Self::Tired(valued) => valued,
        }
    }
}

/// Takes every change that is better, one after the other in a fixed round, until a whole round has
/// none. Each step gains, so it ends.
pub(super) fn climb(
    setting: &Setting<'_>,
    arena: &mut Arena<'_>,
    start: Valued,
    freedom: Freedom,
) -> Climbed {
    let changes = changes(setting, freedom);
    let mut best = start;
    let mut in_vain = 0;
    for change in changes.iter().cycle() {
        if in_vain == changes.len() {
            break;
        }
        in_vain += 1;
        let mut next = best.position.clone();
        change.apply(setting, &mut next);
        if next == best.position {
            continue;
        }
        let Some(value) = arena.value(&next) else {
            return Climbed::Tired(best);
        };
        if value > best.value * (1.0 + LEAST_GAIN) {
            best = Valued {
                position: next,
                value,
            };
            in_vain = 0;
        }
    }
    Climbed::Top(best)
}

fn changes(setting: &Setting<'_>, freedom: Freedom) -> Vec<Change> {
    let mut changes = Vec::new();
    if freedom == Freedom::Choices {
        let choices = setting.choices.iter().enumerate();
        changes.extend(choices.flat_map(|(choice, of)| {
            (0..of.options).map(move |option| Change::Option { choice, option })
        }));
    }
    let players = setting.players.len();
    for a in 0..players {
        changes.extend((a + 1..players).map(|b| Change::Swap { players: [a, b] }));
        let classes = setting.players[a].classes.clone();
        changes.extend(classes.map(|class| Change::Class { player: a, class }));
    }
    changes
}

impl Change {
    fn apply(&self, setting: &Setting<'_>, position: &mut Position) {
        match *self {
            Self::Option { choice, option } => position.options[choice] = option,
            Self::Class { player, class } => position.classes[player] = class,
            Self::Swap { players: [a, b] } => {
                let (x, y) = (position.classes[a], position.classes[b]);
                let may = |player: usize, class| setting.players[player].classes.contains(&class);
                if may(a, y) && may(b, x) {
                    position.classes.swap(a, b);
                }
            }
        }
    }
}
