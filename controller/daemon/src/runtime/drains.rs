//! Whether what an operator drains is drained: a word when it is, and one when it takes too long.
//!
//! Sans-IO: what is drained, what is held and the time are arguments, [`News`] is the result; the
//! [`sight`](super::sight) of the task asks. The decision: a drain is complete when every switch
//! holds tables that know of it, since from then on nothing sends there. It is not given up when it
//! is late, only told to be.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::state::DrainProgress;

/// Keeps account of them.
#[derive(Debug)]
pub(super) struct DrainTracker {
    /// How long one may take.
    deadline: Duration,
    progress: DrainProgress,
    /// The generation before the latest that began, which does not know of it.
    began_after: u64,
    /// When it is late, until that is told.
    due: Option<Instant>,
}

/// Something to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DrainEvent {
    /// Nothing sends there any more.
    Complete(BTreeSet<String>),
    /// Not every switch knows of it though it has had time.
    Late(BTreeSet<String>),
}

impl DrainTracker {
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, progress: DrainProgress::default(), began_after: 0, due: None }
    }

    /// How far they are.
    pub(super) fn progress(&self) -> &DrainProgress {
        &self.progress
    }

    /// Takes in what is drained from now on, while `generation` is in force.
    pub(super) fn update_drained(&mut self, drained: &[String], generation: u64, now: Instant) {
        let DrainProgress { under_way, is_late, complete } = &mut self.progress;
        under_way.retain(|part| drained.contains(part));
        complete.retain(|part| drained.contains(part));
        let known = |part: &&String| under_way.contains(*part) || complete.contains(*part);
        let added: Vec<String> = drained.iter().filter(|part| !known(part)).cloned().collect();
        if !added.is_empty() {
            (self.began_after, self.due) = (generation, Some(now + self.deadline));
            *is_late = false;
            under_way.extend(added);
        }
        if under_way.is_empty() {
            (self.due, *is_late) = (None, false);
        }
    }

    /// Takes in that every switch holds at least this generation, if it is known.
    pub(super) fn check_progress(&mut self, held: Option<u64>, now: Instant) -> Option<DrainEvent> {
        let DrainProgress { under_way, is_late, complete } = &mut self.progress;
        if under_way.is_empty() {
            return None;
        }
        if held.is_some_and(|held| held > self.began_after) {
            (self.due, *is_late) = (None, false);
            let done = std::mem::take(under_way);
            complete.extend(done.iter().cloned());
            return Some(DrainEvent::Complete(done));
        }
        self.due.take_if(|due| *due <= now)?;
        *is_late = true;
        Some(DrainEvent::Late(under_way.clone()))
    }

    /// Another controller leads, and sees what is held. Time counts from when this one does.
    pub(super) fn restart_deadline(&mut self, now: Instant) {
        self.due = self.due.map(|_| now + self.deadline);
    }

    /// When something becomes late.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn names_of(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn spine() -> BTreeSet<String> {
        BTreeSet::from(["spine1".to_owned()])
    }

    #[test]
    fn drain_completes_when_every_switch_holds_its_tables() {
        let (mut drains, now) = (DrainTracker::new(DEADLINE), Instant::now());
        drains.update_drained(&names_of(&["spine1"]), 4, now);
        let events = [None, Some(4), Some(5), Some(6)].map(|held| drains.check_progress(held, now));
        assert_eq!(events, [None, None, Some(DrainEvent::Complete(spine())), None]);
        assert_eq!(drains.progress().complete, spine());
        // What was drained already is no news; what is given back needs no word.
        drains.update_drained(&names_of(&["spine1", "leaf1-spine2"]), 6, now);
        drains.update_drained(&names_of(&["spine1"]), 7, now);
        assert_eq!((drains.check_progress(Some(9), now), drains.next_due()), (None, None));
        drains.update_drained(&[], 9, now);
        assert_eq!(*drains.progress(), DrainProgress::default());
    }

    #[test]
    fn late_drain_is_reported_once_and_continues() {
        let (mut drains, now) = (DrainTracker::new(DEADLINE), Instant::now());
        drains.update_drained(&names_of(&["spine1"]), 4, now);
        let late = now + DEADLINE;
        assert_eq!(drains.next_due(), Some(late));
        drains.restart_deadline(now + DEADLINE / 2);
        assert_eq!(drains.check_progress(None, late), None);
        let late = late + DEADLINE / 2;
        assert_eq!(drains.check_progress(None, late), Some(DrainEvent::Late(spine())));
        let finding = drains.progress().late_finding().unwrap();
        assert_eq!(finding.about, "drain of spine1");
        assert_eq!((drains.check_progress(Some(4), late), drains.next_due()), (None, None));
        assert_eq!(drains.check_progress(Some(5), late), Some(DrainEvent::Complete(spine())));
        assert_eq!(drains.progress().late_finding(), None);
    }
}
