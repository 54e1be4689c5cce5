//! Better levels for a contention group: from given ones, single steps until none is better.
//!
//! A step ([`LevelMove`]) is tried coarsely first, and from all starts if that promises
//! anything, so most steps cost one simulation.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::contention_group::ContentionGroup;
use super::horizon::COARSE_START;
use super::judge::{DecisionValue, Judge};
use super::level_moves::LevelMove;
use super::local_search::Sampler;
use super::objective::PlanObjective;

/// Moves that are rated before one is tried, at most: a group of hundreds has tens of thousands.
const MAX_MOVES: usize = 512;

/// Levels of the members of a group, with what they are worth.
#[derive(Clone, Debug)]
pub(super) struct ValuedLevels {
    /// As indices into the levels that jobs may have.
    pub(super) levels: Vec<u8>,
    pub(super) value: DecisionValue,
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

/// What a model expects of levels, and what asking it cost, in events.
pub(super) struct Promise {
    pub(super) score: f64,
    pub(super) cost: u64,
}

/// The levels that no single step makes better, of the steps that are drawn where they are many, or
/// the best when the limit is reached. The steps of which `promise` expects most are tried first.
pub(super) fn climb_levels(
    judge: &mut Judge<'_>,
    climb: LevelClimb<'_>,
    start: ValuedLevels,
    mut promise: impl FnMut(&[u8]) -> Promise,
) -> ValuedLevels {
    let LevelClimb { objective, group, allowed, cost_limit } = climb;
    let moves = list_moves(allowed);
    let mut best = start;
    let Some(mut first) = judge.evaluate_levels(group, &best.levels, COARSE_START) else {
        return best;
    };
    let mut tried = BTreeSet::new();
    let mut sampler = Sampler::new();
    'improved: loop {
        let drawn = draw_moves(&moves, &mut sampler);
        let next = drawn.iter().filter_map(|step| step.apply_to(&best.levels, allowed));
        // By the order of levels between jobs that share links: nothing else can differ in a
        // simulation.
        let next = next.filter(|levels| tried.insert(group.level_relations(levels)));
        let mut next: Vec<(f64, Vec<u8>)> = next
            .map(|levels| {
                let Promise { score, cost } = promise(&levels);
                judge.charge(cost);
                (score, levels)
            })
            .collect();
        // A stable sort: of equals the first.
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, levels) in next {
            if judge.event_cost() >= cost_limit {
                return best;
            }
            let Some(quick) = judge.evaluate_levels(group, &levels, COARSE_START) else {
                return best;
            };
            // A coarse value is compared with the coarse value of the best, as both lack the later
            // starts.
            if !objective.is_better(quick, first, 0.0) {
                continue;
            }
            let Some(value) = judge.mean_value(group, &levels) else {
                return best;
            };
            if objective.is_better(value, best.value, 0.0) {
                (best, first) = (ValuedLevels { levels, value }, quick);
                // Steps are made anew from here: those that were drawn began at other levels.
                continue 'improved;
            }
        }
        return best;
    }
}

/// All moves where they are few, else some of them.
fn draw_moves(moves: &[LevelMove], sampler: &mut Sampler) -> Vec<LevelMove> {
    if moves.len() <= MAX_MOVES {
        return moves.to_vec();
    }
    (0..MAX_MOVES).map(|_| moves[sampler.next_below(moves.len())]).collect()
}

/// Every exchange of two members, and every place for one among at most so many levels.
fn list_moves(allowed: &[RangeInclusive<u8>]) -> Vec<LevelMove> {
    let places = 2 * allowed
        .len()
        .min(allowed.iter().map(|of| usize::from(*of.end()) + 1).max().unwrap_or(1))
        + 1;
    let mut moves = Vec::new();
    for member in 0..allowed.len() {
        let others = member + 1..allowed.len();
        moves.extend(others.map(|other| LevelMove::Swap { members: [member, other] }));
        moves.extend((0..places).map(|place| LevelMove::Place { member, place }));
    }
    moves
}
