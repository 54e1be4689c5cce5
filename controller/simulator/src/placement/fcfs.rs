//! First come, first served among several kinds of GPU: what Crius and its rivals are measured by.
//!
//! A job gets the GPUs that it asks for, of the kind that it asks for, on as few hosts as hold
//! them, or waits, and holds back those behind it that want the same kind (baselines/fcfs_sched.py
//! of sjtu-epcc/arena). [`super::queue`] is the same for one kind, and does not ask what a job
//! trains.

use std::collections::BTreeSet;

use super::allocation::{self, Allocation, Stall};
use super::throughput::Throughputs;
use super::{Decision, Policy, Request, State};

/// The policy.
#[derive(Clone, Debug)]
pub struct Fcfs {
    /// How fast models are.
    pub table: Throughputs,
    /// What a start costs.
    pub stall: Stall,
}

impl Policy for Fcfs {
    fn decide(&mut self, state: &State<'_>) -> Vec<Decision> {
        let can_run = |allocation: &Allocation<'_>, request: &Request| {
            let best = self
                .table
                .best_shape(allocation::kind(request), request.gpus);
            best.is_some_and(|best| allocation.would_be(request, best).is_some())
        };
        let allocation = Allocation::of(state, &self.table);
        let (allocation, mut decisions) = admit(state.waiting, allocation, can_run, placed);
        decisions.extend(allocation.decisions(state, self.stall));
        decisions
    }
}

/// The allocation with one more job; none if there is no room.
fn placed<'a>(allocation: &Allocation<'a>, request: &Request) -> Option<Allocation<'a>> {
    let mut after = allocation.clone();
    let fits = after.put_best(request, allocation::kind(request), request.gpus);
    fits.then_some(after)
}

/// Admits waiting jobs in order, until one of each kind finds no room: the allocation with them,
/// and the refusals of those that can never run.
pub(super) fn admit<'a>(
    waiting: &[Request],
    mut allocation: Allocation<'a>,
    can_run: impl Fn(&Allocation<'a>, &Request) -> bool,
    admitted: impl Fn(&Allocation<'a>, &Request) -> Option<Allocation<'a>>,
) -> (Allocation<'a>, Vec<Decision>) {
    let (mut blocked, mut refusals) = (BTreeSet::new(), Vec::new());
    for request in waiting {
        let kind = allocation::kind(request);
        if blocked.contains(&kind) {
            continue;
        }
        if !can_run(&allocation, request) {
            refusals.push(refusal(request));
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
pub(super) fn refusal(request: &Request) -> Decision {
    let model = request.model.as_deref().unwrap_or("an unknown model");
    Decision::Refuse {
        job: request.job,
        reason: format!("{model} cannot run on the GPUs that it may have"),
    }
}
