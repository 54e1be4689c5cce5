//! Whoever submitted an event and waits until it is planned for.
//!
//! [`runtime`](crate::runtime) keeps them in the order of their events. The decision: a receipt is
//! given once, with the findings of the event itself before those of the plan.

use tokio::sync::oneshot;
use tokio::time::Instant;
use topology::Finding;

use super::access::Receipt;

/// Somebody who waits for a plan.
pub(super) struct Waiting {
    /// The event's number among those taken in.
    pub(super) inputs: u64,
    pub(super) received: Instant,
    findings: Vec<Finding>,
    receipt: oneshot::Sender<Receipt>,
}

impl Waiting {
    pub(super) fn new(
        inputs: u64,
        received: Instant,
        findings: Vec<Finding>,
        receipt: oneshot::Sender<Receipt>,
    ) -> Self {
        Self {
            inputs,
            received,
            findings,
            receipt,
        }
    }

    pub(super) fn tell(mut self, generation: u64, findings: &[Finding]) {
        self.findings.extend_from_slice(findings);
        let findings = self.findings;
        // Whoever asked may have gone; the event counts all the same.
        drop(self.receipt.send(Receipt {
            generation,
            findings,
        }));
    }
}
