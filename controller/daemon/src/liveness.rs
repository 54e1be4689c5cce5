//! From what is seen of cables and switches to what is believed of them: hold-down and damping.
//!
//! Observations come from whoever sees ports (the operating system of an emulation, probes, an
//! operator) and from the sessions, which see whether switches answer. What is believed goes to
//! [`state`](crate::state) as changes of the fabric. Sans-IO: time is an argument, and the next
//! deadline is a result. The decision: bad news about a cable is believed at once, good news only
//! after it has lasted; the wait doubles with every relapse, so that what flaps stays out of use,
//! and is forgotten after a calm as long as the longest wait.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use topology::{Change, Fabric, LinkId, SwitchId};

use crate::config::Retry;

/// Something that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A cable, named by either of its directions.
    Cable(LinkId),
    /// A switch; works as long as it answers.
    Switch(SwitchId),
}

/// How something looks, or is believed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Up,
    /// It does not.
    Down,
}

/// How long an observation must last to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Before something that failed counts as working again: at first, and at most.
    pub hold: Retry,
    /// Before a switch that does not answer counts as failed.
    pub silence: Duration,
    /// Before what works again is used although not all switches are seen to know of it.
    pub returning: Duration,
}

/// What is believed of all parts. Parts never heard of work.
#[derive(Clone, Debug)]
pub struct Liveness {
    patience: Patience,
    parts: BTreeMap<Part, Track>,
}

/// What is known of one part.
#[derive(Clone, Copy, Debug)]
struct Track {
    believed: Health,
    seen: Health,
    /// Since when it looks so.
    since: Instant,
    /// Failures that are not forgotten.
    failures: u32,
}

impl Liveness {
    /// Everything works.
    pub fn new(patience: Patience) -> Self {
        let parts = BTreeMap::new();
        Self { patience, parts }
    }

    /// Turns to another fabric of the same switches: cables have other names, and those that have
    /// failed in it failed at `now`.
    pub fn turn_to(&mut self, fabric: &Fabric, now: Instant) {
        let is_switch = |part: &Part, _: &mut Track| matches!(part, Part::Switch(_));
        self.parts.retain(is_switch);
        let cables = (0..fabric.links().len()).step_by(2).map(LinkId::from);
        let failed = cables.filter(|link| !fabric.is_cable_up(*link));
        let track = Track {
            believed: Health::Down,
            seen: Health::Down,
            since: now,
            failures: 1,
        };
        self.parts
            .extend(failed.map(|link| (Part::Cable(link), track)));
    }

    /// Takes in how a part looks at `now`; what that changes at once.
    pub fn observe(&mut self, part: Part, seen: Health, now: Instant) -> Option<Change> {
        let part = whole(part);
        let track = self.parts.entry(part).or_insert(Track {
            believed: Health::Up,
            seen: Health::Up,
            since: now,
            failures: 0,
        });
        if track.seen != seen {
            let calm = now.duration_since(track.since) >= self.patience.hold.longest;
            if seen == Health::Down {
                let forgotten = track.believed == Health::Up && calm;
                track.failures = if forgotten { 1 } else { track.failures + 1 };
            }
            (track.seen, track.since) = (seen, now);
        }
        self.settle(part, now)
    }

    /// What has lasted long enough by `now`.
    pub fn due(&mut self, now: Instant) -> Vec<Change> {
        let parts: Vec<Part> = self.parts.keys().copied().collect();
        let settled = parts.into_iter().map(|part| self.settle(part, now));
        settled.flatten().collect()
    }

    /// When [`Liveness::due`] will next have something to say, if nothing else is observed.
    pub fn next_due(&self) -> Option<Instant> {
        let pending = self.parts.iter();
        let pending = pending.filter(|(_, track)| track.seen != track.believed);
        let times = pending.filter(|(part, track)| self.may_settle(**part, track));
        times
            .map(|(part, track)| self.believed_at(*part, track))
            .min()
    }

    /// Believes what has lasted long enough.
    fn settle(&mut self, part: Part, now: Instant) -> Option<Change> {
        let track = *self.parts.get(&part)?;
        let lasts = track.seen != track.believed && self.believed_at(part, &track) <= now;
        if !lasts || !self.may_settle(part, &track) {
            return None;
        }
        self.parts.get_mut(&part)?.believed = track.seen;
        Some(change(part, track.seen))
    }

    fn believed_at(&self, part: Part, track: &Track) -> Instant {
        let wait = match (part, track.seen) {
            (_, Health::Up) => self.patience.hold.after(track.failures),
            (Part::Cable(_), Health::Down) => Duration::ZERO,
            (Part::Switch(_), Health::Down) => self.patience.silence,
        };
        track.since + wait
    }

    /// Where half of the switches or more do not answer, it is the controller that is cut off, and
    /// nothing is known of them.
    fn may_settle(&self, part: Part, track: &Track) -> bool {
        let Part::Switch(_) = part else { return true };
        let switches = self.parts.iter();
        let switches = switches.filter(|(part, _)| matches!(part, Part::Switch(_)));
        let silent = |(_, track): &(&Part, &Track)| track.seen == Health::Down;
        let all = switches.clone().count();
        track.seen == Health::Up || 2 * switches.filter(silent).count() < all
    }
}

/// Both directions of a cable are one part.
fn whole(part: Part) -> Part {
    match part {
        Part::Cable(link) => Part::Cable(link.min(link.reverse())),
        Part::Switch(_) => part,
    }
}

fn change(part: Part, believed: Health) -> Change {
    match (part, believed) {
        (Part::Cable(link), Health::Down) => Change::LinkDown(link),
        (Part::Cable(link), Health::Up) => Change::LinkUp(link),
        (Part::Switch(switch), Health::Down) => Change::SwitchDown(switch),
        (Part::Switch(switch), Health::Up) => Change::SwitchUp(switch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CABLE: Part = Part::Cable(LinkId(4));
    const UP: Health = Health::Up;
    const DOWN: Health = Health::Down;

    fn patience() -> Patience {
        Patience {
            hold: Retry {
                first: Duration::from_secs(1),
                longest: Duration::from_secs(8),
            },
            silence: Duration::from_secs(3),
            returning: Duration::from_secs(1),
        }
    }

    /// What is believed when, in seconds, after observations of one part (others look well).
    fn check(part: Part, seen: &[(u64, Health)], expected: &[(u64, Change)]) {
        let mut liveness = Liveness::new(patience());
        let start = Instant::now();
        for other in 1..=4 {
            liveness.observe(Part::Switch(SwitchId(other)), UP, start);
        }
        let mut believed = Vec::new();
        for second in 0..40 {
            let now = start + Duration::from_secs(second);
            for (_, health) in seen.iter().filter(|(at, _)| *at == second) {
                believed.extend(liveness.observe(part, *health, now));
            }
            believed.extend(liveness.due(now));
            let when = believed.len();
            let known = expected.iter().filter(|(at, _)| *at <= second).count();
            assert_eq!(when, known, "at {second} s: {believed:?}");
        }
        assert!(liveness.next_due().is_none());
        let changes: Vec<_> = expected.iter().map(|(_, change)| *change).collect();
        assert_eq!(believed, changes);
    }

    #[test]
    fn a_cable_is_down_at_once_and_up_after_it_has_lasted() {
        let (down, up) = (Change::LinkDown(LinkId(4)), Change::LinkUp(LinkId(4)));
        check(CABLE, &[(2, DOWN), (5, UP)], &[(2, down), (6, up)]);
        // Either direction means the cable.
        let back = Part::Cable(LinkId(5));
        check(back, &[(2, DOWN), (5, UP)], &[(2, down), (6, up)]);
    }

    #[test]
    fn a_cable_that_flaps_stays_out_of_use_for_longer_each_time() {
        let (down, up) = (Change::LinkDown(LinkId(4)), Change::LinkUp(LinkId(4)));
        let seen = [(0, DOWN), (1, UP), (3, DOWN), (4, UP), (5, DOWN), (6, UP)];
        check(CABLE, &seen, &[(0, down), (2, up), (3, down), (10, up)]);
        // After a calm, as if nothing had been.
        let seen = [(0, DOWN), (1, UP), (20, DOWN), (21, UP)];
        check(CABLE, &seen, &[(0, down), (2, up), (20, down), (22, up)]);
    }

    #[test]
    fn a_switch_may_be_silent_for_a_moment() {
        let part = Part::Switch(SwitchId(9));
        check(part, &[(1, DOWN), (3, UP)], &[]);
        let (down, up) = (
            Change::SwitchDown(SwitchId(9)),
            Change::SwitchUp(SwitchId(9)),
        );
        check(part, &[(1, DOWN), (10, UP)], &[(4, down), (11, up)]);
    }

    #[test]
    fn a_controller_that_is_cut_off_believes_no_switch_to_be_down() {
        let mut liveness = Liveness::new(patience());
        let start = Instant::now();
        for switch in 0..4 {
            let seen = if switch < 2 { DOWN } else { UP };
            liveness.observe(Part::Switch(SwitchId(switch)), seen, start);
        }
        let late = start + Duration::from_secs(60);
        assert_eq!((liveness.next_due(), liveness.due(late)), (None, vec![]));
        // One of the two comes back: the other one is really down.
        liveness.observe(Part::Switch(SwitchId(1)), UP, late);
        assert_eq!(liveness.due(late), [Change::SwitchDown(SwitchId(0))]);
    }

    proptest! {
        /// Whatever is seen of a cable: changes alternate, and in the end it is believed to be what
        /// it looks like.
        #[test]
        fn belief_follows_sight(
            seen in proptest::collection::vec((0u64..5, any::<bool>()), 1..40)
        ) {
            let mut liveness = Liveness::new(patience());
            let mut now = Instant::now();
            let mut changes = Vec::new();
            for (wait, up) in &seen {
                now += Duration::from_secs(*wait);
                let health = if *up { UP } else { DOWN };
                changes.extend(liveness.due(now));
                changes.extend(liveness.observe(CABLE, health, now));
            }
            changes.extend(liveness.due(now + Duration::from_secs(8)));
            let up = Change::LinkUp(LinkId(4));
            for (index, change) in changes.iter().enumerate() {
                prop_assert_eq!(*change == up, index % 2 == 1);
            }
            prop_assert_eq!(changes.len() % 2 == 0, seen[seen.len() - 1].1);
        }
    }
}
