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
        let can_run = |ledger: &Ledger<'_>, request: &Request| {
            let best = self.table.best_shape(ledger::kind(request), request.gpus);
            best.is_some_and(|best| ledger.would_be(request, best).is_some())
        };
        let ledger = Ledger::of(state, &self.table);
        let (ledger, mut decisions) = admit(state.waiting, ledger, can_run, placed);
        decisions.extend(ledger.decisions(state, self.stall));
        decisions
    }
}

/// The ledger with one more job; none if there is no room.
fn placed<'a>(ledger: &Ledger<'a>, request: &Request) -> Option<Ledger<'a>> {
    let mut after = ledger.clone();
    let fits = after.put_best(request, ledger::kind(request), request.gpus);
    fits.then_some(after)
}

/// Admits waiting jobs in order, until one of each kind finds no room: the ledger with them, and
/// the refusals of those that can never run.
pub(super) fn admit<'a>(
    waiting: &[Request],
    mut ledger: Ledger<'a>,
    can_run: impl Fn(&Ledger<'a>, &Request) -> bool,
    admitted: impl Fn(&Ledger<'a>, &Request) -> Option<Ledger<'a>>,
) -> (Ledger<'a>, Vec<Decision>) {
    let (mut blocked, mut refusals) = (BTreeSet::new(), Vec::new());
    for request in waiting {
        let kind = ledger::kind(request);
        if blocked.contains(&kind) {
            continue;
        }
        if !can_run(&ledger, request) {
            refusals.push(refusal(request));
            continue;
        }
        match admitted(&ledger, request) {
            Some(after) => ledger = after,
            None => drop(blocked.insert(kind)),
        }
    }
    (ledger, refusals)
}

/// The refusal of a job that can never run.
pub(super) fn refusal(request: &Request) -> Decision {
    let model = request.model.as_deref().unwrap_or("an unknown model");
    Decision::Refuse {
        job: request.job,
        reason: format!("{model} cannot run on the GPUs that it may have"),
    }
}
