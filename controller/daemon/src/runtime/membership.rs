//! The runtime's part in a cluster that is led through etcd: what others stored comes in as events,
//! and an election is answered once everything stored is planned for.
//!
//! [`etcd`](crate::etcd) elects; the state plans as always, whether this controller leads or not.
//! The decision: who waits to lead plans the same as the leader, from the same documents, so that
//! to take over is to begin writing and nothing else.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::Finding;

use crate::config::Config;
use crate::etcd::ClusterNetwork;
use crate::etcd::{ClusterMember, ClusterUpdate, MemberHandle, StoreClient};
use crate::southbound::write_permit::WritePermit;
use crate::state::StateEvent;

/// A membership as the runtime holds it.
#[derive(Debug)]
pub(super) struct ClusterMembership {
    member: MemberHandle,
    write_permit: watch::Receiver<WritePermit>,
    /// The election that this controller won and did not lose.
    elected: Option<u64>,
    /// The number of the event with which everything stored is taken in.
    awaited_inputs: Option<u64>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl ClusterMembership {
    /// Takes part, if the configuration names an etcd; `mandate` is then decided there.
    pub(super) fn join_cluster<N: ClusterNetwork>(
        network: &N,
        config: &Config,
        permit: &watch::Sender<WritePermit>,
    ) -> Option<Self> {
        let etcd = config.etcd.as_ref()?;
        permit.send_replace(WritePermit::Unknown);
        let network = network.clone();
        let (member, handle) = ClusterMember::new(network, etcd, config.controller, permit.clone());
        let stop = CancellationToken::new();
        Some(Self {
            member: handle,
            write_permit: permit.subscribe(),
            elected: None,
            awaited_inputs: None,
            task: tokio::spawn(member.run_member(stop.clone())),
            stop,
        })
    }

    /// Where records go.
    pub(super) fn store_client(&self) -> StoreClient {
        self.member.store.clone()
    }

    /// Waits for news.
    pub(super) async fn wait_for_update(&mut self) {
        if self.member.updates.changed().await.is_err() {
            // The member has panicked: there is no news any more, and no mandate after its end.
            std::future::pending::<()>().await;
        }
    }

    /// What was read in etcd last.
    pub(super) fn latest_update(&mut self) -> Option<Arc<ClusterUpdate>> {
        self.member.updates.borrow_and_update().clone()
    }

    /// Why this controller does not take an event: others would not hear of it.
    pub(super) fn refusal_for(&self, event: &StateEvent) -> Option<Finding> {
        let about = match event {
            StateEvent::JobsChanged(_) | StateEvent::JobsReported(_) => "jobs",
            event if event.changes_policy() => "policy",
            _ => return None,
        };
        let leader = match *self.write_permit.borrow() {
            permit if permit.is_leader(Instant::now()) => return None,
            WritePermit::Standby { leader, .. } => leader,
            _ => None,
        };
        let text = match leader {
            Some(number) => format!("refused: controller {number} leads; tell that one"),
            None => "refused: no controller leads now; tell again when one does".to_owned(),
        };
        Some(Finding::error(about, text))
    }

    /// Whether this controller leads.
    pub(super) fn is_leader(&self) -> bool {
        self.write_permit.borrow().is_leader(Instant::now())
    }

    /// Whether it has turned: this controller was elected, or is not any more.
    pub(super) fn update_election(&mut self, elected: Option<u64>) -> bool {
        let turns = self.elected != elected;
        if turns {
            (self.elected, self.awaited_inputs) = (elected, None);
        }
        turns
    }

    /// Everything stored until the election is taken in with event `inputs`.
    pub(super) fn await_inputs(&mut self, inputs: u64) {
        self.awaited_inputs = self.elected.map(|_| inputs);
    }

    /// Accepts the election, once all that was awaited is planned for.
    pub(super) fn confirm_prepared(&mut self, planned: u64) {
        if self.awaited_inputs.take_if(|inputs| *inputs <= planned).is_some() {
            self.member.prepared.send_replace(self.elected);
        }
    }

    /// Leaves, and gives a leadership back.
    pub(super) async fn leave_cluster(self) {
        self.stop.cancel();
        // If it has panicked, the lease runs out by itself.
        drop(self.task.await);
    }
}
