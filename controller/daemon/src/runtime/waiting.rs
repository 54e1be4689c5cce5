//! Whoever submitted an event and waits until it is planned for.
//!
//! [`runtime`](crate::runtime) keeps them in the order of their events. The decision: a receipt is
//! given once, with the findings of the event itself before those of the plan.

use tokio::sync::oneshot;
use topology::Finding;

use super::access::Receipt;
use crate::southbound::Origin;
use crate::state::Effects;

/// Somebody who waits for a plan.
pub(super) struct Waiting {
    /// The event's number among those taken in.
    pub(super) inputs: u64,
    pub(super) origin: Origin,
    refusal: Option<Finding>,
    findings: Vec<Finding>,
    receipt: oneshot::Sender<Receipt>,
}

impl Waiting {
    pub(super) fn new(
        inputs: u64,
        origin: Origin,
        effects: &Effects,
        receipt: oneshot::Sender<Receipt>,
    ) -> Self {
        Self {
            inputs,
            origin,
            refusal: effects.refusal.clone(),
            findings: effects.findings.clone(),
            receipt,
        }
    }

    pub(super) fn tell(mut self, generation: u64, findings: &[Finding]) {
        self.findings.extend_from_slice(findings);
        // Whoever asked may have gone; the event counts all the same.
        drop(self.receipt.send(Receipt {
            generation,
            refusal: self.refusal,
            findings: self.findings,
        }));
    }
}
