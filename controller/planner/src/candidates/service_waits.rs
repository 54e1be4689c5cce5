//! The longest waits of flows in a large region, which is simulated in steps.
//!
//! A step is too long to tell a wait from the order in which flows get their shares. The decision:
//! only what may be adopted is simulated event by event as well, for its waits alone, and where
//! even that is too expensive nothing is said of them.

use crate::search::contention_group::ContentionGroup;
use crate::search::group_run::{GroupRun, MeasureWindow};

/// What a run may cost, in events.
const MOST_COST: u64 = 1_000_000;

/// A run of a contention group for the waits of its flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitRun<'a> {
    /// When each member starts, seconds.
    pub(super) starts: &'a [f64],
    /// To the end of this window.
    pub(super) window: MeasureWindow,
    /// The longest wait that is followed beyond it, seconds.
    pub(super) limit: f64,
}

impl WaitRun<'_> {
    /// The longest wait of a flow of each member, seconds, and what the run cost, in events; none
    /// if it is too expensive or the model rejects a job.
    pub(super) fn longest_waits(
        self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> (Option<Vec<f64>>, u64) {
        let Ok(mut run) = GroupRun::new(group, self.starts) else {
            return (None, 0);
        };
        let ended = run.busy_shares(levels, self.window, MOST_COST);
        let waits = match ended {
            Ok(Some(_)) => run.longest_waits(self.limit).ok(),
            _ => None,
        };
        (waits, run.event_cost())
    }
}
