//! Whether a leader leaves the lead because most switches do not answer it but answer another
//! controller.
//!
//! Sans-IO: what the sessions and etcd say and when are arguments. The decision: without another
//! controller that reaches most switches the leader stays, so controllers that are all cut off do
//! not hand the lead to each other in turns.

use std::time::Duration;

use tokio::time::Instant;

/// What this controller and the others of the cluster reach.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SwitchReach {
    /// Whether most switches answer this controller.
    reaches_most: bool,
    /// Since when they do not, if they did before.
    lost_since: Option<Instant>,
    /// Whether another controller says that most switches answer it.
    others_reach: bool,
}

impl SwitchReach {
    /// Most switches answer this controller at `now`, or do not.
    pub(super) fn observe_own(&mut self, reaches_most: bool, now: Instant) {
        self.lost_since = match (self.reaches_most, reaches_most) {
            (true, false) => Some(now),
            (_, true) => None,
            (false, false) => self.lost_since,
        };
        self.reaches_most = reaches_most;
    }

    /// Most switches answer some other controller, or none.
    pub(super) fn observe_others(&mut self, reach: bool) {
        self.others_reach = reach;
    }

    /// Whether most switches answer this controller.
    pub(super) fn reaches_most(&self) -> bool {
        self.reaches_most
    }

    /// Whether a leader hands over at `now`, after `grace` without most switches.
    pub(super) fn is_handover_due(&self, grace: Duration, now: Instant) -> bool {
        let is_lost = self.lost_since.is_some_and(|since| now.duration_since(since) >= grace);
        is_lost && self.others_reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_hands_over_only_after_a_while_and_to_one_that_reaches_most() {
        let grace = Duration::from_secs(5);
        let now = Instant::now();
        let mut reach = SwitchReach::default();
        reach.observe_others(true);
        reach.observe_own(false, now);
        assert!(!reach.is_handover_due(grace, now + 2 * grace), "it never had them");
        reach.observe_own(true, now);
        reach.observe_own(false, now);
        reach.observe_own(false, now + grace / 2);
        assert!(!reach.is_handover_due(grace, now + grace / 2));
        assert!(reach.is_handover_due(grace, now + grace));
        reach.observe_others(false);
        assert!(!reach.is_handover_due(grace, now + grace), "nobody is better off");
        reach.observe_others(true);
        reach.observe_own(true, now + grace);
        assert!(!reach.is_handover_due(grace, now + 2 * grace));
    }
}
