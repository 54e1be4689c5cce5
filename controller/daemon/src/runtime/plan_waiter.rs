//! Whoever submitted an event and waits until it is planned for.
//!
//! [`runtime`](crate::runtime) keeps them in the order of their events. The decision: a receipt is
//! given once, with the findings of the event itself before those of the plan.

use tokio::sync::oneshot;
use topology::Finding;

use crate::southbound::ChangeOrigin;
use crate::state::Effects;
use crate::state::SubmitReceipt;

/// Somebody who waits for a plan.
pub(super) struct PlanWaiter {
    /// The event's number among those taken in.
    pub(super) inputs: u64,
    pub(super) origin: ChangeOrigin,
    refusal: Option<Finding>,
    findings: Vec<Finding>,
    receipt: oneshot::Sender<SubmitReceipt>,
}

impl PlanWaiter {
    pub(super) fn new(
        inputs: u64,
        origin: ChangeOrigin,
        effects: &Effects,
        receipt: oneshot::Sender<SubmitReceipt>,
    ) -> Self {
        Self {
            inputs,
            origin,
            refusal: effects.refusal.clone(),
            findings: effects.findings.clone(),
            receipt,
        }
    }

    pub(super) fn send_receipt(mut self, generation: u64, findings: &[Finding]) {
        self.findings.extend_from_slice(findings);
        // Whoever asked may have gone; the event counts all the same.
        drop(self.receipt.send(SubmitReceipt {
            generation,
            refusal: self.refusal,
            findings: self.findings,
        }));
    }
}
