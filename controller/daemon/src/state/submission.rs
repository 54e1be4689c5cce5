//! The envelope in which inputs reach the state: an event, an observation or a query.
//!
//! Senders put it into the queue of [`runtime`](crate::runtime). The decision: it is defined beside
//! the state and not beside the queue, so that senders (access, discovery) do not depend on the
//! runtime.

use std::fmt;

use planner::{Job, JobId};
use tokio::sync::oneshot;
use tokio::time::Instant;
use topology::{Fabric, Finding};

use super::{PlanRequest, State, StateEvent};
use crate::liveness::{FabricPart, PartHealth};
use crate::policy_history::RevisionMetadata;

/// The outcome of a submitted event.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitReceipt {
    /// The generation that takes it into account.
    pub generation: u64,
    /// Why the event was refused, if it was; among the findings as well.
    pub refusal: Option<Finding>,
    /// Findings about the event and its plan, a refusal included.
    pub findings: Vec<Finding>,
}

/// An input on its way to the state.
#[derive(Debug)]
pub(crate) struct EventSubmission {
    pub(crate) item: SubmittedItem,
    /// When the first of the reports that it combines arrived.
    pub(crate) first_reported: Instant,
    pub(crate) received: Instant,
}

impl EventSubmission {
    /// The health of a part as observed now.
    pub(crate) fn part_health(part: FabricPart, health: PartHealth) -> Self {
        Self::received_now(SubmittedItem::Health(part, health))
    }

    /// A fabric that discovery learned; nobody waits for its receipt.
    pub(crate) fn learned_fabric(fabric: Fabric) -> Self {
        let (receipt, _) = oneshot::channel();
        let event = StateEvent::FabricLearned(fabric);
        Self::received_now(SubmittedItem::Event(Box::new(event), receipt))
    }

    /// An event that combines reports since `first_reported`, and the receiver of its receipt.
    pub(crate) fn event(
        event: StateEvent,
        first_reported: Instant,
    ) -> (Self, oneshot::Receiver<SubmitReceipt>) {
        let (receipt, answer) = oneshot::channel();
        let item = SubmittedItem::Event(Box::new(event), receipt);
        (Self { first_reported, ..Self::received_now(item) }, answer)
    }

    /// A query of the state between two events, and the receiver of its result.
    pub(crate) fn query<R: Send + 'static>(
        query: impl FnOnce(&State) -> R + Send + 'static,
    ) -> (Self, oneshot::Receiver<R>) {
        let (found, answer) = oneshot::channel();
        // The caller may have stopped waiting.
        let query = StateQuery(Box::new(move |state| drop(found.send(query(state)))));
        (Self::received_now(SubmittedItem::Query(query)), answer)
    }

    /// A question what a fabric would change, and the receiver of the answer.
    pub(crate) fn fabric_preview(
        fabric: Fabric,
    ) -> (Self, oneshot::Receiver<Result<ConsideredFabric, Finding>>) {
        let (found, answer) = oneshot::channel();
        (Self::received_now(SubmittedItem::FabricPreview(Box::new(fabric), found)), answer)
    }

    /// A fabric that an operator gives, and the receiver of its receipt.
    pub(crate) fn fabric_proposal(
        proposal: FabricProposal,
    ) -> (Self, oneshot::Receiver<SubmitReceipt>) {
        let (receipt, answer) = oneshot::channel();
        (Self::received_now(SubmittedItem::Fabric(Box::new(proposal), receipt)), answer)
    }

    /// The request that this controller takes or leaves the lead, and the receiver of its refusal.
    pub(crate) fn lead(change: LeadChange) -> (Self, oneshot::Receiver<Option<Finding>>) {
        let (refused, answer) = oneshot::channel();
        (Self::received_now(SubmittedItem::Lead(change, refused)), answer)
    }

    fn received_now(item: SubmittedItem) -> Self {
        let now = Instant::now();
        Self { item, first_reported: now, received: now }
    }
}

/// What was submitted.
#[derive(Debug)]
pub(crate) enum SubmittedItem {
    Event(Box<StateEvent>, oneshot::Sender<SubmitReceipt>),
    Health(FabricPart, PartHealth),
    Query(StateQuery),
    /// What would follow from a fabric.
    FabricPreview(Box<Fabric>, oneshot::Sender<Result<ConsideredFabric, Finding>>),
    /// A fabric that is to be in force.
    Fabric(Box<FabricProposal>, oneshot::Sender<SubmitReceipt>),
    /// This controller is to take or leave the lead; answered with the refusal, if it does not.
    Lead(LeadChange, oneshot::Sender<Option<Finding>>),
}

/// A fabric that an operator gives.
#[derive(Clone, Debug)]
pub struct FabricProposal {
    /// The fabric, without failures and drains.
    pub fabric: Fabric,
    /// Who gives it, why and when.
    pub signature: RevisionMetadata,
    /// Whether it is what the fabric file of the controller says now.
    pub is_of_file: bool,
    /// Whether jobs may lose their hosts by it.
    pub force: bool,
}

/// What would follow from a fabric.
#[derive(Clone, Debug)]
pub(crate) struct ConsideredFabric {
    /// The settled plan request on it.
    pub(crate) request: PlanRequest,
    /// The jobs in force, on the fabric in force.
    pub(crate) jobs: Vec<Job>,
    /// Jobs whose hosts or NICs it lacks.
    pub(crate) lost_jobs: Vec<JobId>,
}

/// What an operator wants of a controller in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadChange {
    /// It takes the lead from any other controller.
    Take,
    /// It is to leave the lead to another one.
    Leave,
}

/// A closure that reads the state between two events.
pub(crate) struct StateQuery(Box<dyn FnOnce(&State) + Send>);

impl StateQuery {
    /// Runs it.
    pub(crate) fn run(self, state: &State) {
        (self.0)(state);
    }
}

impl fmt::Debug for StateQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateQuery")
    }
}
