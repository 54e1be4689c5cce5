//! Levels for the jobs of one contest: plausible ones, to compare ways with, and all there are,
//! where they are few.
//!
//! Contests do not touch each other, so the best levels of a position are those that are best in
//! each of its contests by itself.

use std::collections::BTreeSet;

use super::contention_group::ContentionGroup;

/// All levels of a contest of more jobs are too many.
const MAX_MEMBERS: usize = 5;

/// Two assignments that are plausible for parties ranked by the worth of their link seconds, the
/// first being the highest: one level each as far as `count` goes, and an even split. By party.
pub(super) fn plausible_levels(ranked: &[usize], count: u8) -> [Vec<u8>; 2] {
    let assigned = |level: &dyn Fn(usize) -> usize| {
        let mut levels = vec![0; ranked.len()];
        for (place, party) in ranked.iter().enumerate() {
            let below_highest = u8::try_from(level(place)).unwrap_or(u8::MAX);
            levels[*party] = (count - 1).saturating_sub(below_highest);
        }
        levels
    };
    let split = usize::from(count).min(ranked.len());
    [assigned(&|place| place), assigned(&|place| place * split / ranked.len())]
}

/// Every assignment of `count` levels that tells parties that meet apart in a way of its own; none
/// if there are too many parties.
pub(super) fn all_levels(contest: &ContentionGroup, count: u8) -> Option<Vec<Vec<u8>>> {
    let parties = contest.members.len();
    if parties > MAX_MEMBERS {
        return None;
    }
    // More levels than parties say nothing new.
    let used = count.min(u8::try_from(parties).ok()?);
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..parties {
        let longer = |levels: &Vec<u8>| {
            let levels = levels.clone();
            (count - used..count).map(move |level| [&levels[..], &[level]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    let mut seen = BTreeSet::new();
    all.retain(|levels| seen.insert(contest.level_relations(levels)));
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plausible_classes_follow_the_ranking() {
        let [one_each, even] = plausible_levels(&[2, 0, 1, 3, 4], 3);
        assert_eq!(one_each, [1, 0, 2, 0, 0]);
        assert_eq!(even, [2, 1, 2, 1, 0]);
        assert_eq!(plausible_levels(&[0], 8), [[7], [7]]);
    }
}
