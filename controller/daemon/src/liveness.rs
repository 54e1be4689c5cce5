//! Hold-down and damping of observed failures of cables and switches.
//!
//! Observations of ports come from the operating system of an emulation, from probes or from an
//! operator, those of switches from the sessions. Confirmed changes go to
//! [`state`](crate::state) as changes of the fabric. Sans-IO: time is an argument, and the next
//! deadline is a result. The decision: a cable that goes down is confirmed down at once, and one
//! that comes up only after a hold-down. The hold-down doubles with every relapse, so a flapping
//! cable stays out of use; relapses are forgotten after a calm as long as the longest hold-down.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use topology::{AvailabilityChange, Fabric, LinkId, SwitchId};

use crate::config::LivenessTimeouts;

/// A part of the fabric that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FabricPart {
    /// A cable, named by either of its directions.
    Cable(LinkId),
    /// A switch, which works as long as it answers.
    Switch(SwitchId),
}

/// The observed or confirmed health of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartHealth {
    /// It works.
    Up,
    /// It does not work.
    Down,
}

/// The confirmed health of all parts. Parts without observations are up.
#[derive(Clone, Debug)]
pub struct LivenessTracker {
    timeouts: LivenessTimeouts,
    parts: BTreeMap<FabricPart, PartRecord>,
}

/// Observations of one part.
#[derive(Clone, Copy, Debug)]
struct PartRecord {
    confirmed: PartHealth,
    observed: PartHealth,
    /// Since when `observed` holds.
    since: Instant,
    /// Failures since the last calm.
    failures: u32,
}

impl LivenessTracker {
    /// A tracker by which every part is up.
    pub fn new(timeouts: LivenessTimeouts) -> Self {
        Self { timeouts, parts: BTreeMap::new() }
    }

    /// Continues on `fabric` after `before`. Switches that both have keep what was observed of them;
    /// cables that are down in it count as failed at `now`, and so do switches that were never
    /// observed.
    pub fn adopt_fabric(&mut self, before: &Fabric, fabric: &Fabric, now: Instant) {
        let kept = std::mem::take(&mut self.parts).into_iter().filter_map(|(part, record)| {
            let FabricPart::Switch(switch) = part else { return None };
            let known = before.switches().get(switch.index())?;
            Some((FabricPart::Switch(fabric.switch_named(&known.name)?), record))
        });
        self.parts = kept.collect();
        let cables = fabric.cables();
        let failed = cables.filter(|link| !fabric.is_cable_up(*link)).map(FabricPart::Cable);
        let silent = fabric.switch_ids().filter(|switch| !fabric.is_switch_up(*switch));
        let track = PartRecord {
            confirmed: PartHealth::Down,
            observed: PartHealth::Down,
            since: now,
            failures: 1,
        };
        for part in failed.chain(silent.map(FabricPart::Switch)) {
            self.parts.entry(part).or_insert(track);
        }
    }

    /// Takes over a failure that another controller has confirmed, of a part that was not seen to
    /// work here; whether that is new.
    pub fn adopt_failure(&mut self, failure: AvailabilityChange, now: Instant) -> bool {
        let part = match failure {
            AvailabilityChange::LinkDown(link) => canonical_part(FabricPart::Cable(link)),
            AvailabilityChange::SwitchDown(switch) => FabricPart::Switch(switch),
            _ => return false,
        };
        let track = self.parts.entry(part).or_insert(PartRecord {
            confirmed: PartHealth::Up,
            observed: PartHealth::Down,
            since: now,
            failures: 1,
        });
        let is_new = track.confirmed == PartHealth::Up && track.observed == PartHealth::Down;
        if is_new {
            track.confirmed = PartHealth::Down;
        }
        is_new
    }

    /// Records the health of a part at `now`; the change that it confirms at once.
    pub fn observe_part(
        &mut self,
        part: FabricPart,
        observed: PartHealth,
        now: Instant,
    ) -> Option<AvailabilityChange> {
        let part = canonical_part(part);
        let track = self.parts.entry(part).or_insert(PartRecord {
            confirmed: PartHealth::Up,
            observed: PartHealth::Up,
            since: now,
            failures: 0,
        });
        // `since` moves only when the observation changes: a repeated one must not restart the
        // wait.
        if track.observed != observed {
            let calm = now.duration_since(track.since) >= self.timeouts.hold_down.longest;
            if observed == PartHealth::Down {
                let forgotten = track.confirmed == PartHealth::Up && calm;
                track.failures = if forgotten { 1 } else { track.failures + 1 };
            }
            (track.observed, track.since) = (observed, now);
        }
        self.confirm_if_due(part, now)
    }

    /// The changes whose wait is over by `now`.
    pub fn take_due_changes(&mut self, now: Instant) -> Vec<AvailabilityChange> {
        let parts: Vec<FabricPart> = self.parts.keys().copied().collect();
        let settled = parts.into_iter().map(|part| self.confirm_if_due(part, now));
        settled.flatten().collect()
    }

    /// When [`Self::take_due_changes`] will next return a change, if nothing else is observed.
    pub fn next_due(&self) -> Option<Instant> {
        let pending = self.parts.iter().filter(|(part, track)| {
            track.observed != track.confirmed && self.may_confirm(**part, track)
        });
        pending.map(|(part, track)| self.confirmed_at(*part, track)).min()
    }

    /// Confirms the observation of a part if its wait is over.
    fn confirm_if_due(&mut self, part: FabricPart, now: Instant) -> Option<AvailabilityChange> {
        let track = *self.parts.get(&part)?;
        let lasts = track.observed != track.confirmed && self.confirmed_at(part, &track) <= now;
        if !lasts || !self.may_confirm(part, &track) {
            return None;
        }
        self.parts.get_mut(&part)?.confirmed = track.observed;
        Some(fabric_change(part, track.observed))
    }

    fn confirmed_at(&self, part: FabricPart, track: &PartRecord) -> Instant {
        let wait = match (part, track.observed) {
            (_, PartHealth::Up) => self.timeouts.hold_down.wait_after(track.failures),
            (FabricPart::Cable(_), PartHealth::Down) => Duration::ZERO,
            (FabricPart::Switch(_), PartHealth::Down) => self.timeouts.switch_silence,
        };
        track.since + wait
    }

    /// Whether the observation of a part may be confirmed. Where half of the switches or more do
    /// not answer, the controller itself is probably isolated, and no switch is confirmed down.
    fn may_confirm(&self, part: FabricPart, track: &PartRecord) -> bool {
        let FabricPart::Switch(_) = part else {
            return true;
        };
        if track.observed == PartHealth::Up {
            return true;
        }
        let (mut all, mut silent) = (0, 0);
        for (part, track) in &self.parts {
            if let FabricPart::Switch(_) = part {
                all += 1;
                silent += usize::from(track.observed == PartHealth::Down);
            }
        }
        2 * silent < all
    }
}

/// The part with its canonical id: both directions of a cable are one part.
fn canonical_part(part: FabricPart) -> FabricPart {
    match part {
        FabricPart::Cable(link) => FabricPart::Cable(link.min(link.reverse())),
        FabricPart::Switch(_) => part,
    }
}

fn fabric_change(part: FabricPart, confirmed: PartHealth) -> AvailabilityChange {
    match (part, confirmed) {
        (FabricPart::Cable(link), PartHealth::Down) => AvailabilityChange::LinkDown(link),
        (FabricPart::Cable(link), PartHealth::Up) => AvailabilityChange::LinkUp(link),
        (FabricPart::Switch(switch), PartHealth::Down) => AvailabilityChange::SwitchDown(switch),
        (FabricPart::Switch(switch), PartHealth::Up) => AvailabilityChange::SwitchUp(switch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RetryBackoff;
    use proptest::prelude::*;

    const CABLE: FabricPart = FabricPart::Cable(LinkId(4));
    const UP: PartHealth = PartHealth::Up;
    const DOWN: PartHealth = PartHealth::Down;

    fn timeouts() -> LivenessTimeouts {
        LivenessTimeouts {
            hold_down: RetryBackoff {
                first: Duration::from_secs(1),
                longest: Duration::from_secs(8),
            },
            switch_silence: Duration::from_secs(3),
            return_limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn failures_that_another_controller_saw_count_where_a_part_was_not_seen_to_work() {
        let mut liveness = LivenessTracker::new(timeouts());
        let now = Instant::now();
        let other = LinkId(8);
        liveness.observe_part(CABLE, UP, now);
        liveness.observe_part(FabricPart::Switch(SwitchId(1)), DOWN, now);
        let cases = [
            (AvailabilityChange::LinkDown(LinkId(4)), false),
            (AvailabilityChange::LinkDown(other), true),
            (AvailabilityChange::LinkDown(other), false),
            (AvailabilityChange::SwitchDown(SwitchId(1)), true),
            (AvailabilityChange::SwitchDown(SwitchId(2)), true),
        ];
        for (failure, is_new) in cases {
            assert_eq!(liveness.adopt_failure(failure, now), is_new, "{failure:?}");
        }
        assert_eq!(liveness.observe_part(FabricPart::Cable(other), UP, now), None);
        let due = liveness.next_due().unwrap();
        assert_eq!(liveness.take_due_changes(due), [AvailabilityChange::LinkUp(other)]);
    }

    /// Checks which changes are confirmed, and at which second, after observations of one part.
    fn check(part: FabricPart, seen: &[(u64, PartHealth)], expected: &[(u64, AvailabilityChange)]) {
        let mut liveness = LivenessTracker::new(timeouts());
        let start = Instant::now();
        for other in 1..=4 {
            liveness.observe_part(FabricPart::Switch(SwitchId(other)), UP, start);
        }
        let mut confirmed = Vec::new();
        for second in 0..40 {
            let now = start + Duration::from_secs(second);
            for (_, health) in seen.iter().filter(|(at, _)| *at == second) {
                confirmed.extend(liveness.observe_part(part, *health, now));
            }
            confirmed.extend(liveness.take_due_changes(now));
            let when = confirmed.len();
            let known = expected.iter().filter(|(at, _)| *at <= second).count();
            assert_eq!(when, known, "at {second} s: {confirmed:?}");
        }
        assert!(liveness.next_due().is_none());
        let changes: Vec<_> = expected.iter().map(|(_, change)| *change).collect();
        assert_eq!(confirmed, changes);
    }

    #[test]
    fn cable_goes_down_at_once_and_up_after_the_hold_down() {
        let (down, up) =
            (AvailabilityChange::LinkDown(LinkId(4)), AvailabilityChange::LinkUp(LinkId(4)));
        check(CABLE, &[(2, DOWN), (5, UP)], &[(2, down), (6, up)]);
        // Either direction identifies the cable.
        let back = FabricPart::Cable(LinkId(5));
        check(back, &[(2, DOWN), (5, UP)], &[(2, down), (6, up)]);
    }

    #[test]
    fn flapping_cable_stays_down_longer_each_time() {
        let (down, up) =
            (AvailabilityChange::LinkDown(LinkId(4)), AvailabilityChange::LinkUp(LinkId(4)));
        let seen = [(0, DOWN), (1, UP), (3, DOWN), (4, UP), (5, DOWN), (6, UP)];
        check(CABLE, &seen, &[(0, down), (2, up), (3, down), (10, up)]);
        // After a calm, the hold-down is the first again.
        let seen = [(0, DOWN), (1, UP), (20, DOWN), (21, UP)];
        check(CABLE, &seen, &[(0, down), (2, up), (20, down), (22, up)]);
    }

    #[test]
    fn short_silence_of_a_switch_is_ignored() {
        let part = FabricPart::Switch(SwitchId(9));
        check(part, &[(1, DOWN), (3, UP)], &[]);
        let (down, up) = (
            AvailabilityChange::SwitchDown(SwitchId(9)),
            AvailabilityChange::SwitchUp(SwitchId(9)),
        );
        check(part, &[(1, DOWN), (10, UP)], &[(4, down), (11, up)]);
    }

    #[test]
    fn isolated_controller_reports_no_switch_down() {
        let mut liveness = LivenessTracker::new(timeouts());
        let start = Instant::now();
        for switch in 0..4 {
            let seen = if switch < 2 { DOWN } else { UP };
            liveness.observe_part(FabricPart::Switch(SwitchId(switch)), seen, start);
        }
        let late = start + Duration::from_secs(60);
        assert_eq!((liveness.next_due(), liveness.take_due_changes(late)), (None, vec![]));
        // One of the two comes back: now the other is confirmed down.
        liveness.observe_part(FabricPart::Switch(SwitchId(1)), UP, late);
        assert_eq!(liveness.take_due_changes(late), [AvailabilityChange::SwitchDown(SwitchId(0))]);
    }

    proptest! {
        /// For any observations of a cable: changes alternate, and the last one matches the last
        /// observation.
        #[test]
        fn confirmed_changes_alternate_and_follow_observations(
            seen in proptest::collection::vec((0u64..5, any::<bool>()), 1..40)
        ) {
            let mut liveness = LivenessTracker::new(timeouts());
            let mut now = Instant::now();
            let mut changes = Vec::new();
            for (wait, up) in &seen {
                now += Duration::from_secs(*wait);
                let health = if *up { UP } else { DOWN };
                changes.extend(liveness.take_due_changes(now));
                changes.extend(liveness.observe_part(CABLE, health, now));
            }
            changes.extend(liveness.take_due_changes(now + Duration::from_secs(8)));
            let up = AvailabilityChange::LinkUp(LinkId(4));
            for (index, change) in changes.iter().enumerate() {
                prop_assert_eq!(*change == up, index % 2 == 1);
            }
            prop_assert_eq!(changes.len() % 2 == 0, seen[seen.len() - 1].1);
        }
    }
}
