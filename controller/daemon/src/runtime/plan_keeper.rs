//! The task that stores the plan in force, so that the next run of this controller, or the next
//! leader through etcd, continues from it.
//!
//! The decision: it follows the published rollouts and the event loop does not know of it, so no
//! repair waits for a disk or for etcd. A controller that is killed before the latest plan is
//! stored is followed by one that continues from the plan before. Plans are stored less often than
//! they change: the latest is taken, and a write that took long is followed by a longer pause.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use topology::{Finding, error_chain};

use super::log::log_finding;
use crate::etcd::{ClusterUpdate, ElectedLeader, EtcdError, PlanManifest, StoreClient};
use crate::southbound::write_permit::WritePermit;
use crate::standing_findings::StandingFindings;
use crate::state::PlanRollout;
use crate::store::EmbeddedStore;

/// The pause after a write, in multiples of what it took.
const PAUSE: u32 = 10;
/// The pause after a write to etcd at least: etcd keeps every revision until it is compacted.
const CLUSTER_PAUSE: Duration = Duration::from_secs(1);
/// How long after a failure the plan is stored again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The cause of the finding that a plan could not be stored.
const CAUSE: &str = "store plan";

/// Where the plan is stored.
pub(super) enum PlanStore {
    /// In the file of this controller.
    File(Arc<EmbeddedStore>),
    /// In etcd, while this controller leads.
    Cluster(LeaderPlanStore),
}

/// The plan in etcd, and what says whether this controller may store it.
pub(super) struct LeaderPlanStore {
    client: StoreClient,
    permit: watch::Receiver<WritePermit>,
    updates: watch::Receiver<Option<Arc<ClusterUpdate>>>,
    /// The election in which this controller leads, as it was last seen.
    election: Option<ElectedLeader>,
    /// How many plans were stored, or begun to be.
    plans: u64,
}

impl LeaderPlanStore {
    pub(super) fn new(
        client: StoreClient,
        permit: watch::Receiver<WritePermit>,
        updates: watch::Receiver<Option<Arc<ClusterUpdate>>>,
    ) -> Self {
        Self { client, permit, updates, election: None, plans: 0 }
    }

    /// Looks whether this controller leads; whether it leads otherwise than when it last looked.
    fn observe_election(&mut self) -> bool {
        let leads = self.permit.borrow_and_update().is_leader(Instant::now());
        let update = self.updates.borrow().clone();
        let election = update.filter(|_| leads).and_then(|update| update.elected);
        std::mem::replace(&mut self.election, election) != election
    }

    async fn store_rollout(&mut self, rollout: PlanRollout) -> Result<(), EtcdError> {
        let election = self.election.ok_or(EtcdError::NotLeader)?;
        // A large plan has megabytes of JSON; encoding them would hold up a worker of the runtime.
        let encoded = spawn_blocking(move || {
            serde_json::to_vec(&rollout.stored_plan()).expect("documents have text for keys")
        });
        let encoded = encoded.await.map_err(|_| EtcdError::Unreachable)?;
        // A number for each attempt: pieces of an earlier one are never overwritten.
        self.plans += 1;
        let manifest = PlanManifest::new(election, self.plans, &encoded);
        self.client.store_plan(manifest, &encoded).await
    }
}

/// Stores the plan in force.
pub(super) struct PlanKeeper {
    store: PlanStore,
    rollouts: watch::Receiver<Option<PlanRollout>>,
    findings: StandingFindings,
    stored: Option<PlanRollout>,
}

impl PlanKeeper {
    pub(super) fn new(
        store: PlanStore,
        rollouts: watch::Receiver<Option<PlanRollout>>,
        findings: StandingFindings,
    ) -> Self {
        Self { store, rollouts, findings, stored: None }
    }

    /// Stores every rollout until `stop`, and then the last; drops `kept` when that is done.
    pub(super) async fn run(mut self, stop: CancellationToken, kept: DropGuard) {
        while stop.run_until_cancelled(self.wait_for_change()).await == Some(true) {
            let begun = Instant::now();
            while !self.store_latest().await && !stop.is_cancelled() {
                drop(timeout(RETRY_AFTER, stop.cancelled()).await);
            }
            let shortest = match self.store {
                PlanStore::File(_) => Duration::from_millis(1),
                PlanStore::Cluster(_) => CLUSTER_PAUSE,
            };
            // The wait ends with the controller, whose last plan is stored below.
            drop(timeout(shortest.max(PAUSE * begun.elapsed()), stop.cancelled()).await);
        }
        self.store_latest().await;
        drop(kept);
    }

    /// Waits for another rollout, or until this controller may lead; false once the controller
    /// ends.
    async fn wait_for_change(&mut self) -> bool {
        match &mut self.store {
            PlanStore::File(_) => self.rollouts.changed().await.is_ok(),
            PlanStore::Cluster(store) => tokio::select! {
                biased;
                changed = self.rollouts.changed() => changed.is_ok(),
                changed = store.permit.changed() => changed.is_ok(),
            },
        }
    }

    /// Stores the latest rollout, unless it is stored or another controller leads; whether nothing
    /// is left to do.
    async fn store_latest(&mut self) -> bool {
        let latest = self.rollouts.borrow_and_update().clone();
        if let PlanStore::Cluster(store) = &mut self.store {
            if store.observe_election() {
                // Another leader may have stored its plan since.
                self.stored = None;
            }
            if store.election.is_none() {
                self.findings.clear_finding(CAUSE);
                return true;
            }
        }
        let Some(rollout) = latest.filter(|latest| {
            !self.stored.as_ref().is_some_and(|stored| stored.has_plan_of(latest))
        }) else {
            return true;
        };
        let writing = rollout.clone();
        let written = match &mut self.store {
            PlanStore::File(store) => {
                let store = Arc::clone(store);
                let written = spawn_blocking(move || store.write_plan(&writing.stored_plan()));
                let written = written.await.map_err(|_| "storing it panicked".to_owned());
                written.and_then(|written| written.map_err(|error| error_chain(&error)))
            }
            PlanStore::Cluster(store) => match store.store_rollout(writing).await {
                // Another one was elected, which the next change of the permit tells.
                Err(EtcdError::NotLeader) => return true,
                written => written.map_err(|error| error_chain(&error)),
            },
        };
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
