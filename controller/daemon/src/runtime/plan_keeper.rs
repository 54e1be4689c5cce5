//! The task that stores the plan in force, so that the next run continues from it.
//!
//! The decision: it follows the published rollouts and the event loop does not know of it, so no
//! repair waits for a disk. A run that is killed before the latest plan is stored continues from
//! the one before. Large plans are stored less often than they change: a write that took long is
//! followed by a longer pause.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use topology::{Finding, error_chain};

use super::log::log_finding;
use crate::standing_findings::StandingFindings;
use crate::state::PlanRollout;
use crate::store::{EmbeddedStore, StoreError};

/// The pause after a write, in multiples of what it took.
const PAUSE: u32 = 10;
/// How long after a failure the plan is stored again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The cause of the finding that a plan could not be stored.
const CAUSE: &str = "store plan";

/// Stores the plan in force.
pub(super) struct PlanKeeper {
    store: Arc<EmbeddedStore>,
    rollouts: watch::Receiver<Option<PlanRollout>>,
    findings: StandingFindings,
    stored: Option<PlanRollout>,
}

impl PlanKeeper {
    pub(super) fn new(
        store: Arc<EmbeddedStore>,
        rollouts: watch::Receiver<Option<PlanRollout>>,
        findings: StandingFindings,
    ) -> Self {
        Self { store, rollouts, findings, stored: None }
    }

    /// Stores every rollout until `stop`, and then the last.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(Ok(())) = stop.run_until_cancelled(self.rollouts.changed()).await {
            let begun = Instant::now();
            while !self.store_latest().await && !stop.is_cancelled() {
                drop(timeout(RETRY_AFTER, stop.cancelled()).await);
            }
            let pause = PAUSE * begun.elapsed();
            drop(timeout(pause.max(Duration::from_millis(1)), stop.cancelled()).await);
        }
        self.store_latest().await;
    }

    /// Stores the latest rollout; whether it is stored.
    async fn store_latest(&mut self) -> bool {
        let latest = self.rollouts.borrow_and_update().clone();
        let Some(rollout) = latest.filter(|latest| {
            !self.stored.as_ref().is_some_and(|stored| stored.has_plan_of(latest))
        }) else {
            return true;
        };
        let (store, writing) = (Arc::clone(&self.store), rollout.clone());
        let written = spawn_blocking(move || store.write_plan(&writing.stored_plan())).await;
        let written = written.map_err(|_| "storing it panicked".to_owned()).and_then(
            |written: Result<(), StoreError>| written.map_err(|error| error_chain(&error)),
        );
        let is_stored = written.is_ok();
        self.stored = is_stored.then_some(rollout);
        self.report_outcome(written);
        is_stored
    }

    fn report_outcome(&self, written: Result<(), String>) {
        match written {
            Ok(()) => self.findings.clear_finding(CAUSE),
            Err(error) => {
                let text = format!("the plan is in force, but not stored: {error}");
                let finding = Finding::error("store", text);
                log_finding(&finding);
                self.findings.report_finding(CAUSE, finding);
            }
        }
    }
}
