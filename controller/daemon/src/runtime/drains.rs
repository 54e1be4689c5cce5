//! Progress of drains: whether each is complete, and whether it takes too long.
//!
//! Sans-IO: drained parts, the generation held and the time are arguments, a [`DrainEvent`] is the
//! result; the [`observer`](super::observer) calls it. The decision: the tables of a drain are
//! complete when every switch holds them; whether anything is still sent there, counters say
//! ([`DrainReport`](crate::state::DrainReport)). Late tables are reported, and written still.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::state::DrainProgress;

/// Tracks the drains of the policy in force.
#[derive(Debug)]
pub(super) struct DrainTracker {
    /// How long a drain may take.
    deadline: Duration,
    progress: DrainProgress,
    /// The generation in force when the latest drain began, which does not include it.
    began_after: u64,
    /// When the drains are late, until that is reported.
    due: Option<Instant>,
    /// When nothing can be on its way to the parts whose tables are complete.
    settles: Option<Instant>,
}

/// A change of the progress that is logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DrainEvent {
    /// No table leads to these parts any more.
    Complete(BTreeSet<String>),
    /// Some switch does not hold the tables for these drains by the deadline.
    Late(BTreeSet<String>),
    /// Nothing can be on its way to the parts any more.
    Settled,
}

impl DrainTracker {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            progress: DrainProgress::default(),
            began_after: 0,
            due: None,
            settles: None,
        }
    }

    /// How far the drains are.
    pub(super) fn progress(&self) -> &DrainProgress {
        &self.progress
    }

    /// Sets the drained parts from now on, while `generation` is in force.
    pub(super) fn update_drained(&mut self, drained: &[String], generation: u64, now: Instant) {
        let DrainProgress { under_way, is_late, complete, .. } = &mut self.progress;
        under_way.retain(|part| drained.contains(part));
        complete.retain(|part| drained.contains(part));
        let is_added = |part: &&String| !under_way.contains(*part) && !complete.contains(*part);
        let added: Vec<String> = drained.iter().filter(is_added).cloned().collect();
        if !added.is_empty() {
            (self.began_after, self.due) = (generation, Some(now + self.deadline));
            *is_late = false;
            under_way.extend(added);
        }
        if under_way.is_empty() {
            (self.due, *is_late) = (None, false);
        }
        if complete.is_empty() {
            (self.settles, self.progress.is_settled) = (None, false);
        }
    }

    /// Checks the drains against the generation that every switch holds, if that is known.
    pub(super) fn check_progress(&mut self, held: Option<u64>, now: Instant) -> Option<DrainEvent> {
        let DrainProgress { under_way, is_late, complete, is_settled } = &mut self.progress;
        if self.settles.take_if(|at| *at <= now).is_some() {
            *is_settled = true;
            return Some(DrainEvent::Settled);
        }
        if under_way.is_empty() {
            return None;
        }
        if held.is_some_and(|held| held > self.began_after) {
            (self.due, *is_late) = (None, false);
            let done = std::mem::take(under_way);
            complete.extend(done.iter().cloned());
            // Packets that left before the last table changed may still be in queues on the way.
            (*is_settled, self.settles) = (false, Some(now + self.deadline));
            return Some(DrainEvent::Complete(done));
        }
        // Taken, so that a late drain is logged once and not in every pass.
        self.due.take_if(|due| *due <= now)?;
        *is_late = true;
        Some(DrainEvent::Late(under_way.clone()))
    }

    /// Restarts the deadline while another controller leads, as only the leader sees what is held.
    pub(super) fn restart_deadline(&mut self, now: Instant) {
        self.due = self.due.map(|_| now + self.deadline);
        self.settles = self.settles.map(|_| now + self.deadline);
    }

    /// When the progress changes by itself.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.settles).min()
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
        // A part that was drained already makes no event, nor does the end of a drain.
        drains.update_drained(&names_of(&["spine1", "leaf1-spine2"]), 6, now);
        drains.update_drained(&names_of(&["spine1"]), 7, now);
        let settled = now + DEADLINE;
        assert_eq!((drains.check_progress(Some(9), now), drains.next_due()), (None, Some(settled)));
        assert_eq!(drains.check_progress(Some(9), settled), Some(DrainEvent::Settled));
        assert!(drains.progress().is_settled && drains.next_due().is_none());
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
