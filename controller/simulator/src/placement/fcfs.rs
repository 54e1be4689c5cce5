//! First come, first served among several kinds of GPU: what Crius and its rivals are measured by.
//!
//! A job gets the GPUs that it asks for, of the kind that it asks for, on as few hosts as hold
//! them, or waits, and holds back those behind it that want the same kind (baselines/fcfs_sched.py
//! of sjtu-epcc/arena). [`super::queue`] is the same for one kind, and does not ask what a job
//! trains.

use std::collections::BTreeSet;

use super::ledger::{self, Ledger, Stall};
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
        let mut ledger = Ledger::of(state, &self.table);
        let mut decisions = Vec::new();
        first_of_each_kind(state.waiting, |request| {
            let kind = ledger::kind(request);
            let best = self.table.best_shape(kind, request.gpus);
            let known = best.and_then(|best| ledger.would_be(request, best));
            if known.is_none() {
                decisions.push(refusal(request));
            }
            known.is_none() || ledger.put_best(request, kind, request.gpus)
        });
        decisions.extend(ledger.decisions(state, self.stall));
        decisions
    }
}

/// Offers waiting jobs in order, until one of each kind finds no room.
pub(super) fn first_of_each_kind(waiting: &[Request], mut fits: impl FnMut(&Request) -> bool) {
    let mut blocked = BTreeSet::new();
    for request in waiting {
        let kind = ledger::kind(request);
        if !blocked.contains(&kind) && !fits(request) {
            blocked.insert(kind);
        }
    }
}

/// The refusal of a job that can never run.
pub(super) fn refusal(request: &Request) -> Decision {
    let model = request.model.as_deref().unwrap_or("an unknown model");
    Decision::Refuse {
        job: request.job,
        reason: format!("{model} cannot run on the GPUs that it may have"),
    }
}
