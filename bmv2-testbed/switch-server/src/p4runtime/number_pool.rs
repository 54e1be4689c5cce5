//! Numbers for members and groups that a controller does not number itself.
//!
//! The lowest unused number is taken first, so that the same updates always give the same numbers.
//! Memory is in proportion to the gaps, and a number is found without a look at those in use:
//! a table of hundreds of one-shots takes each update in the same time as one of few.

use std::collections::BTreeSet;

/// Numbers from 1 on, of which some are in use.
#[derive(Debug, Default)]
pub(super) struct NumberPool {
    /// All above it are unused.
    highest: u32,
    /// Unused ones below it.
    gaps: BTreeSet<u32>,
}

impl NumberPool {
    /// Takes the lowest unused number; none is left after `u32::MAX`.
    pub(super) fn take_lowest(&mut self) -> Option<u32> {
        if let Some(gap) = self.gaps.pop_first() {
            return Some(gap);
        }
        self.highest = self.highest.checked_add(1)?;
        Some(self.highest)
    }

    /// Gives back a number that was taken.
    pub(super) fn give_back(&mut self, number: u32) {
        self.gaps.insert(number);
        while self.highest > 0 && self.gaps.remove(&self.highest) {
            self.highest -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As by a look at all numbers in use.
        #[test]
        fn the_lowest_unused_number_is_taken(
            draws in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut pool, mut used) = (NumberPool::default(), BTreeSet::new());
            for draw in draws {
                match draw {
                    Some(index) if !used.is_empty() => {
                        let number = *index.get(&used.iter().copied().collect::<Vec<u32>>());
                        used.remove(&number);
                        pool.give_back(number);
                    }
                    _ => {
                        let lowest = (1..).find(|number| !used.contains(number));
                        prop_assert_eq!(pool.take_lowest(), lowest);
                        used.extend(lowest);
                    }
                }
                prop_assert!(pool.gaps.len() <= pool.highest as usize - used.len());
            }
        }
    }
}
