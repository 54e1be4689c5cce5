//! Steps from one assignment of levels to another.
//!
//! Only the order of levels counts where jobs share links, so a job moves to the level of others or
//! to one of its own between two of theirs, and the others make room: to raise one job above seven
//! that have the highest level, these all go down.

use std::ops::RangeInclusive;

/// One step, of members by position.
#[derive(Clone, Copy, Debug)]
pub(super) enum LevelMove {
    /// A place among the levels in use: `2 * n` is a level of its own below the `n`-th, counted from
    /// the lowest, and `2 * n + 1` is the `n`-th itself.
    Place { member: usize, place: usize },
    /// The levels of two exchanged.
    Swap { members: [usize; 2] },
}

impl LevelMove {
    /// The levels after the step; none if that changes nothing, or a member may not have its level.
    pub(super) fn apply_to(self, levels: &[u8], allowed: &[RangeInclusive<u8>]) -> Option<Vec<u8>> {
        let mut next = levels.to_vec();
        match self {
            Self::Swap { members: [a, b] } => next.swap(a, b),
            Self::Place { member, place } => {
                let mut used: Vec<u8> = levels.to_vec();
                used.sort_unstable();
                used.dedup();
                // Odd places are those of levels in use, even ones lie between them, and below and
                // above all.
                let doubled = |level: &u8| 2 * used.partition_point(|of| of < level) + 1;
                let mut places: Vec<usize> = levels.iter().map(doubled).collect();
                if place > 2 * used.len() {
                    return None;
                }
                places[member] = place;
                next = to_levels(&places, allowed)?;
            }
        }
        let fits = next.iter().zip(allowed).all(|(level, allowed)| allowed.contains(level));
        (fits && next != levels).then_some(next)
    }
}

/// Every exchange of two members, and every place for one among at most so many levels.
pub(super) fn list_moves(allowed: &[RangeInclusive<u8>]) -> Vec<LevelMove> {
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

/// Levels in the order of `places`, the highest that all may have; none if there are more places
/// than levels.
fn to_levels(places: &[usize], allowed: &[RangeInclusive<u8>]) -> Option<Vec<u8>> {
    let mut used = places.to_vec();
    used.sort_unstable();
    used.dedup();
    let highest = allowed.iter().map(|of| *of.end()).max()?;
    let lowest = (usize::from(highest) + 1).checked_sub(used.len())?;
    let level = |place: &usize| lowest + used.partition_point(|of| of < place);
    Some(places.iter().map(|place| level(place) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_make_room_for_a_job_that_moves() {
        let free = vec![0..=7; 3];
        let place = |levels: &[u8], member, place| {
            LevelMove::Place { member, place }.apply_to(levels, &free)
        };
        assert_eq!(place(&[7, 7, 7], 1, 2), Some(vec![6, 7, 6]));
        assert_eq!(place(&[7, 7, 7], 1, 0), Some(vec![7, 6, 7]));
        assert_eq!(place(&[7, 7, 7], 1, 1), None, "where it is");
        assert_eq!(place(&[5, 2, 5], 0, 1), Some(vec![6, 6, 7]));
        assert_eq!(place(&[5, 2, 7], 1, 4), Some(vec![5, 6, 7]));
        let bounded = vec![0..=7, 3..=3, 0..=7];
        let swap = LevelMove::Swap { members: [0, 1] };
        assert_eq!(swap.apply_to(&[5, 3, 1], &bounded), None);
        let full: Vec<u8> = (0..8).collect();
        let step = LevelMove::Place { member: 0, place: 4 };
        assert_eq!(step.apply_to(&full, &vec![0..=7; 8]), Some(vec![1, 0, 2, 3, 4, 5, 6, 7]));
    }
}
