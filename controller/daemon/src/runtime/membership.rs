//! The runtime's part in a cluster that is led through etcd: records of other controllers arrive as
//! events, and an election is accepted once everything stored is planned for.
//!
//! [`etcd`](crate::etcd) elects; the state plans whether this controller leads or not. The
//! decision: a standby plans from the same documents as the leader, so that a takeover only has to
//! start writing.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::Finding;

use super::plan_keeper::LeaderPlanStore;
use crate::config::Config;
use crate::etcd::{
    ClusterMember, ClusterNetwork, ClusterUpdate, ElectedLeader, MemberHandle, MemberIdentity,
    PlanManifest, StoreClient,
};
use crate::leadership::{reaches_most, refused_term};
use crate::southbound::arbitration::{ArbitrationInput, Mastership};
use crate::southbound::write_permit::WritePermit;
use crate::state::StateEvent;
use crate::store::StoredPlan;
use crate::supervision::TaskSupervisor;

/// How often an elected controller bids above the terms of others. Once is enough where etcd has
/// forgotten them; two leaders of two etcds must not outbid each other for ever.
const OUTBIDS: u32 = 8;

/// What wakes the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterWake {
    /// The leader may have stored something, or leadership changed.
    Updated,
    /// This controller bids in another term, or may write again in the one before. A switch that
    /// refuses it need not say so again.
    TermChanged,
}

/// The runtime's handle of a cluster member.
#[derive(Debug)]
pub(super) struct ClusterMembership {
    member: MemberHandle,
    write_permit: watch::Receiver<WritePermit>,
    /// The term to bid in as it was last seen.
    term: Option<ArbitrationInput>,
    /// Until when the permit held that was last seen.
    expires_at: Option<Instant>,
    /// The election that this controller won and did not lose.
    elected: Option<ElectedLeader>,
    /// The plan that was adopted last, and the election for which it was.
    adopted_plan: Option<(PlanManifest, Option<ElectedLeader>)>,
    /// The number of the event with which everything stored is applied.
    awaited_inputs: Option<u64>,
    /// How often it may still bid above the terms of others in this election.
    outbids_left: u32,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl ClusterMembership {
    /// Joins, if the configuration names an etcd, which then decides `permit`.
    pub(super) fn join_cluster<N: ClusterNetwork>(
        network: &N,
        config: &Config,
        permit: &watch::Sender<WritePermit>,
        supervisor: &TaskSupervisor,
    ) -> Option<Self> {
        let etcd = config.etcd.as_ref()?;
        // Before the first answer of etcd no session may bid, or it would outbid the leader.
        permit.send_replace(WritePermit::Unknown);
        let identity = MemberIdentity::new(config, supervisor.findings().clone());
        let (member, handle) = ClusterMember::new(network.clone(), etcd, identity, permit.clone());
        let stop = CancellationToken::new();
        Some(Self {
            member: handle,
            write_permit: permit.subscribe(),
            term: None,
            expires_at: None,
            elected: None,
            adopted_plan: None,
            awaited_inputs: None,
            outbids_left: OUTBIDS,
            task: supervisor.spawn_critical("etcd member", member.run_member(stop.clone())),
            stop,
        })
    }

    /// The client that stores records.
    pub(super) fn store_client(&self) -> StoreClient {
        self.member.store.clone()
    }

    /// Where the plan is stored while this controller leads.
    pub(super) fn plan_store(&self) -> LeaderPlanStore {
        let (permit, updates) = (self.write_permit.clone(), self.member.updates.clone());
        LeaderPlanStore::new(self.store_client(), permit, updates)
    }

    /// The plan of an update, if it is another one than the last, or if this controller was elected
    /// since: then it continues from it, whatever it has planned itself.
    pub(super) fn take_plan(&mut self, update: &ClusterUpdate) -> Option<Arc<StoredPlan>> {
        let published = update.plan.as_ref()?;
        let adopted = Some((published.manifest, update.elected));
        let is_new = std::mem::replace(&mut self.adopted_plan, adopted) != adopted;
        is_new.then(|| Arc::clone(&published.plan))
    }

    /// Waits for an update from etcd, or for another term or role of this controller.
    pub(super) async fn wait_for_update(&mut self) -> ClusterWake {
        loop {
            let wake = tokio::select! {
                biased;
                changed = self.member.updates.changed() => {
                    changed.map(|()| Some(ClusterWake::Updated))
                }
                changed = self.write_permit.changed() => changed.map(|()| self.note_term()),
            };
            match wake {
                Ok(Some(wake)) => return wake,
                // Only the time was renewed until which the permit holds.
                Ok(None) => {}
                // The member has panicked: the controller ends, and the permit with its lease.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn note_term(&mut self) -> Option<ClusterWake> {
        let permit = *self.write_permit.borrow_and_update();
        let (now, term) = (Instant::now(), permit.arbitration_input());
        let expired = std::mem::replace(&mut self.expires_at, permit.expires_at());
        // While it was cut off from etcd, it did not outbid switches that refuse it.
        let is_back = permit.is_leader(now) && expired.is_some_and(|at| at <= now);
        let is_new = std::mem::replace(&mut self.term, term) != term;
        (is_new || is_back).then_some(ClusterWake::TermChanged)
    }

    /// The latest update from etcd.
    pub(super) fn latest_update(&mut self) -> Option<Arc<ClusterUpdate>> {
        self.member.updates.borrow_and_update().clone()
    }

    /// Why this controller refuses an event: only the leader stores what all controllers share.
    pub(super) fn refusal_for(&self, event: &StateEvent) -> Option<Finding> {
        self.refusal_about(event.shared_subject()?)
    }

    /// Why nothing about `about` can be changed here, unless this controller leads.
    pub(super) fn refusal_about(&self, about: &'static str) -> Option<Finding> {
        let permit = *self.write_permit.borrow();
        if permit.is_leader(Instant::now()) {
            return None;
        }
        let update = self.member.updates.borrow();
        let address = update.as_ref().and_then(|update| update.leader_address.as_ref());
        let text = match (permit.other_leader(), address) {
            (Some(number), Some(address)) => {
                format!("refused: controller {number} leads at {address}; send it there")
            }
            (Some(number), None) => format!("refused: controller {number} leads; send it there"),
            (None, _) => "refused: no controller leads now; send it again when one does".to_owned(),
        };
        Some(Finding::error(about, text))
    }

    /// Has this controller bid above the terms that most switches have seen, if they refuse it as
    /// the leader; the term that they have seen.
    pub(super) fn outbid_refusals(&mut self, masterships: &[Mastership]) -> Option<u64> {
        let permit = *self.write_permit.borrow();
        let WritePermit::Leader { term, .. } = permit else {
            return None;
        };
        // One that was cut off from etcd must not outbid its successor.
        if !permit.is_leader(Instant::now()) {
            return None;
        }
        let seen = refused_term(masterships, term)?;
        let is_new = *self.member.seen_term.borrow() != Some(seen);
        if !is_new || self.outbids_left == 0 {
            return None;
        }
        self.outbids_left -= 1;
        // The member takes the next term above it, and the sessions bid in it by the permit.
        self.member.seen_term.send_replace(Some(seen));
        Some(seen)
    }

    /// Tells the other members whether most switches answer this controller.
    pub(super) fn publish_reach(&self, masterships: &[Mastership]) {
        let reaches = reaches_most(masterships);
        self.member.reach.send_if_modified(|had| std::mem::replace(had, reaches) != reaches);
    }

    /// Has this controller leave the lead to another one; the refusal if it does not lead.
    pub(super) fn step_down(&self) -> Option<Finding> {
        if !self.is_leader() {
            return Some(Finding::error("cluster", "refused: this controller does not lead"));
        }
        self.member.resignations.send_modify(|count| *count += 1);
        None
    }

    /// Whether this controller leads.
    pub(super) fn is_leader(&self) -> bool {
        self.write_permit.borrow().is_leader(Instant::now())
    }

    /// Records whether this controller is elected; whether that changed.
    pub(super) fn update_election(&mut self, elected: Option<ElectedLeader>) -> bool {
        let is_changed = self.elected != elected;
        if is_changed {
            // Events that an earlier election waited for do not confirm this one.
            (self.elected, self.awaited_inputs) = (elected, None);
            self.outbids_left = OUTBIDS;
        }
        is_changed
    }

    /// Waits until event `inputs` is planned for, with which everything stored is applied.
    pub(super) fn await_inputs(&mut self, inputs: u64) {
        self.awaited_inputs = self.elected.map(|_| inputs);
    }

    /// Accepts the election, once the awaited event is planned for.
    pub(super) fn confirm_prepared(&mut self, planned: u64) {
        if self.awaited_inputs.take_if(|inputs| *inputs <= planned).is_some() {
            self.member.prepared.send_replace(self.elected);
        }
    }

    /// Leaves the cluster and releases the leadership.
    pub(super) async fn leave_cluster(self) {
        self.stop.cancel();
        // If the member has panicked, the lease expires by itself.
        drop(self.task.await);
    }
}
