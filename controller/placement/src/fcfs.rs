//! First come, first served with several kinds of GPU: the baseline of Crius and its rivals.
//!
//! A job gets the number and kind of GPUs that it requests, on as few hosts as hold them. Otherwise
//! it waits and blocks the jobs behind it that request the same kind (baselines/fcfs_sched.py of
//! sjtu-epcc/arena). [`super::queue`] is the same for one kind and ignores the models of jobs.

use std::collections::BTreeSet;

use super::allocation::{self, ClusterAllocation, RestartStall};
use super::throughput::ThroughputTable;
use super::{ClusterState, PlacementDecision, PlacementPolicy, PlacementRequest};

/// First come, first served, per kind of GPU.
#[derive(Clone, Debug)]
pub struct FcfsPolicy {
    /// How fast models are.
    pub table: ThroughputTable,
    /// What a start costs.
    pub stall: RestartStall,
}

impl PlacementPolicy for FcfsPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let allocation = ClusterAllocation::from_state(state, &self.table);
        let (allocation, mut decisions) = admit_in_order(
            state.waiting,
            allocation,
            |allocation, request| {
                let best = self.table.best_shape(allocation::requested_kind(request), request.gpus);
                best.is_some_and(|best| allocation.speed_in(request, best).is_some())
            },
            with_placed_job,
        );
        decisions.extend(allocation.to_decisions(state, self.stall));
        decisions
    }
}

/// The allocation with one more job; none if there is no room.
fn with_placed_job<'a>(
    allocation: &ClusterAllocation<'a>,
    request: &PlacementRequest,
) -> Option<ClusterAllocation<'a>> {
    let mut after = allocation.clone();
    let fits = after.place_compactly(request, allocation::requested_kind(request), request.gpus);
    fits.then_some(after)
}

/// Admits waiting jobs in order, until one of each kind finds no room: the allocation with them,
/// and the refusals of those that can never run.
pub(super) fn admit_in_order<'a>(
    waiting: &[PlacementRequest],
    mut allocation: ClusterAllocation<'a>,
    can_run: impl Fn(&ClusterAllocation<'a>, &PlacementRequest) -> bool,
    admitted: impl Fn(&ClusterAllocation<'a>, &PlacementRequest) -> Option<ClusterAllocation<'a>>,
) -> (ClusterAllocation<'a>, Vec<PlacementDecision>) {
    let (mut blocked, mut refusals) = (BTreeSet::new(), Vec::new());
    for request in waiting {
        let kind = allocation::requested_kind(request);
        if blocked.contains(&kind) {
            continue;
        }
        if !can_run(&allocation, request) {
            refusals.push(refuse_unrunnable(request));
            continue;
        }
        match admitted(&allocation, request) {
            Some(after) => allocation = after,
            None => drop(blocked.insert(kind)),
        }
    }
    (allocation, refusals)
}

/// The refusal of a job that can never run.
pub(super) fn refuse_unrunnable(request: &PlacementRequest) -> PlacementDecision {
    let model = request.model.as_deref().unwrap_or("an unknown model");
    PlacementDecision::Refuse {
        job: request.job,
        reason: format!("{model} cannot run on the GPUs that it may have"),
    }
}
