//! Candidate levels for the jobs of one contention group: plausible ones, for comparing paths, and
//! all of them, where they are few.
//!
//! Contention groups do not affect each other, so the best levels of a position are the best of
//! each of its groups.

use std::collections::BTreeSet;

use super::contention_group::ContentionGroup;

/// Groups of more jobs have too many assignments of levels.
const MAX_MEMBERS: usize = 5;

/// Two plausible assignments, by job, for jobs `ranked` by descending worth of a second of link:
/// one level each as far as `count` goes, and an even split.
pub(super) fn plausible_levels(ranked: &[usize], count: u8) -> [Vec<u8>; 2] {
    let split = usize::from(count).min(ranked.len());
    let (mut one_each, mut even) = (vec![0; ranked.len()], vec![0; ranked.len()]);
    for (place, job) in ranked.iter().enumerate() {
        one_each[*job] = levels_below_highest(count, place);
        even[*job] = levels_below_highest(count, place * split / ranked.len());
    }
    [one_each, even]
}

fn levels_below_highest(count: u8, below: usize) -> u8 {
    (count - 1).saturating_sub(u8::try_from(below).unwrap_or(u8::MAX))
}

/// Every assignment of `count` levels that orders the jobs that share links differently; none if
/// there are too many jobs.
pub(super) fn all_levels(group: &ContentionGroup, count: u8) -> Option<Vec<Vec<u8>>> {
    let jobs = group.members.len();
    if jobs > MAX_MEMBERS {
        return None;
    }
    // More levels than jobs add no new order.
    let used = count.min(u8::try_from(jobs).ok()?);
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..jobs {
        all = all
            .iter()
            .flat_map(|levels| {
                let levels = levels.clone();
                (count - used..count).map(move |level| [&levels[..], &[level]].concat())
            })
            .collect();
    }
    let mut seen = BTreeSet::new();
    all.retain(|levels| seen.insert(group.level_relations(levels)));
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plausible_levels_follow_the_ranking() {
        let [one_each, even] = plausible_levels(&[2, 0, 1, 3, 4], 3);
        assert_eq!(one_each, [1, 0, 2, 0, 0]);
        assert_eq!(even, [2, 1, 2, 1, 0]);
        assert_eq!(plausible_levels(&[0], 8), [[7], [7]]);
    }
}
