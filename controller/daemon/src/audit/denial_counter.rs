//! Refusals and admissions that repeat, counted instead of recorded one by one.
//!
//! Sans-IO: time is an argument. The decision: the first of a kind is recorded at once, and what
//! repeats within a window is one more record when it ends. Beyond a bound of kinds, further ones
//! are counted together: an attacker with many addresses gets one record a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Kinds that are counted separately.
const KINDS: usize = 1_024;

/// The time in which refusals of a kind are counted together.
pub(super) const DENIAL_WINDOW: Duration = Duration::from_secs(60);

/// The time in which a caller counts as let in at an address.
pub(super) const ADMISSION_WINDOW: Duration = Duration::from_secs(3_600);

/// What repeats: who or what, and the address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RepeatedKind {
    pub(super) who: String,
    pub(super) address: String,
    pub(super) reason: String,
}

impl RepeatedKind {
    /// All kinds that are not counted separately.
    fn others() -> Self {
        let text = "more addresses and reasons than are counted separately";
        Self { who: String::new(), address: String::new(), reason: text.to_owned() }
    }
}

/// Counts what repeats within a window.
#[derive(Debug)]
pub(super) struct RepeatCounter {
    window: Duration,
    kinds: BTreeMap<RepeatedKind, (Instant, u64)>,
}

impl RepeatCounter {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, kinds: BTreeMap::new() }
    }

    /// Counts one; the kind if it is to be recorded now.
    pub(super) fn count(&mut self, kind: RepeatedKind, now: Instant) -> Option<RepeatedKind> {
        let is_known = self.kinds.contains_key(&kind);
        let kind = if is_known || self.kinds.len() < KINDS { kind } else { RepeatedKind::others() };
        match self.kinds.get_mut(&kind) {
            Some((_, more)) => {
                *more += 1;
                None
            }
            None => {
                self.kinds.insert(kind.clone(), (now, 0));
                Some(kind)
            }
        }
    }

    /// The kinds whose window has ended, with how often they came after the first.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<(RepeatedKind, u64)> {
        let window = self.window;
        let ended = self.kinds.extract_if(.., |_, (begun, _)| now.duration_since(*begun) >= window);
        let repeated = ended.map(|(kind, (_, more))| (kind, more));
        repeated.filter(|(_, more)| *more > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: u32) -> RepeatedKind {
        RepeatedKind {
            who: String::new(),
            address: address.to_string(),
            reason: "no token".to_owned(),
        }
    }

    #[test]
    fn what_repeats_is_one_record_at_first_and_one_at_the_end() {
        let now = Instant::now();
        let mut counter = RepeatCounter::new(DENIAL_WINDOW);
        let recorded = (0..1_000).filter_map(|_| counter.count(kind(1), now)).count();
        assert_eq!(recorded, 1);
        assert_eq!(counter.take_ended(now), []);
        assert_eq!(counter.take_ended(now + DENIAL_WINDOW), [(kind(1), 999)]);
        assert_eq!(counter.count(kind(1), now + DENIAL_WINDOW), Some(kind(1)));
    }

    #[test]
    fn many_addresses_are_counted_together() {
        let now = Instant::now();
        let mut counter = RepeatCounter::new(DENIAL_WINDOW);
        let recorded = (0..1_000_000).filter_map(|n| counter.count(kind(n), now)).count();
        assert_eq!(recorded, KINDS + 1);
        let ended = counter.take_ended(now + DENIAL_WINDOW);
        assert_eq!(ended, [(RepeatedKind::others(), 1_000_000 - KINDS as u64 - 1)]);
    }
}
