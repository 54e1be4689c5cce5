//! A minimal etcd (leases, one election key, the shared records and the plan) and a controller's client of it.
//!
//! [`FakeEtcd`] is a value to which time is an argument. [`FakeEtcdClient`] is what a controller
//! calls, over messages that are lost and delayed like all others. The decision: leases expire by
//! the clock of the testbed alone, so a controller that assumes a longer lease is seen to write
//! without one.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::etcd::{
    ClusterSnapshot, ClusterStore, ElectedLeader, EtcdError, GrantedLease, PlanManifest,
    StoreChanges,
};
use controller::store::{StoreRecord, StoredState};
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::fake_network::FakeNetwork;
use super::fault_schedule::ETCD;
use super::fault_testbed::{MessageFate, TRIP};
use super::planted_bug::PlantedBug;

/// How long a lease lasts after a snapshot was restored, as granted.
const RESTORED_LEASE: Duration = Duration::from_secs(2);

/// An etcd that may be lost and restored.
#[derive(Default)]
pub(super) struct FakeEtcd {
    content: EtcdContent,
    /// Leases that were ever granted; two never have one id, as those of etcd are random.
    granted: i64,
    changes: watch::Sender<u64>,
    /// Its last snapshot.
    snapshot: Option<EtcdContent>,
    /// Until when a leader may trust a lease that etcd has lost.
    upset_until: Option<Instant>,
}

/// The state of etcd: leases, the elected leader and the stored records.
#[derive(Clone, Default)]
struct EtcdContent {
    revision: u64,
    leases: BTreeMap<i64, Instant>,
    leader: Option<ElectedLeader>,
    memory: StoredState,
    plan: Option<PlanManifest>,
    /// Pieces of plans, by the election and the number of the plan and their own.
    pieces: BTreeMap<(u64, u64, u32), Vec<u8>>,
    /// Whether most switches answer each controller that has said so, with its lease.
    reach: BTreeMap<u32, (i64, bool)>,
}

impl FakeEtcd {
    /// Advances time to `now`: expires leases and removes the keys attached to them.
    fn expire_leases(&mut self, now: Instant) {
        self.content.leases.retain(|_, ends| *ends > now);
        let leases = &self.content.leases;
        self.content.reach.retain(|_, (lease, _)| leases.contains_key(lease));
        if self.content.leader.take_if(|leader| !leases.contains_key(&leader.lease)).is_some() {
            self.bump_revision();
        }
    }

    fn bump_revision(&mut self) -> u64 {
        self.content.revision += 1;
        self.changes.send_replace(self.content.revision);
        self.content.revision
    }

    /// Whether this controller leads at `now`, or may still believe so.
    pub(super) fn is_led_by(&mut self, controller: u32, now: Instant) -> bool {
        self.expire_leases(now);
        self.upset_until.is_some_and(|until| now < until)
            || self.content.leader.is_some_and(|leader| leader.controller == controller)
    }

    /// Loses everything, revisions included.
    pub(super) fn wipe(&mut self) {
        self.become_content(EtcdContent::default());
    }

    pub(super) fn back_up(&mut self) {
        self.snapshot = Some(self.content.clone());
    }

    /// Is again what it was at its snapshot. Leases that it had then run anew.
    pub(super) fn restore(&mut self) {
        if let Some(mut content) = self.snapshot.clone() {
            let ends = Instant::now() + RESTORED_LEASE;
            content.leases.values_mut().for_each(|lease| *lease = ends);
            self.become_content(content);
        }
    }

    fn become_content(&mut self, content: EtcdContent) {
        (self.content, self.upset_until) = (content, upset_until());
    }

    /// Has all leases expire before their time.
    pub(super) fn expire_all_leases(&mut self) {
        self.content.leases.clear();
        self.expire_leases(Instant::now());
        self.upset_until = upset_until();
    }

    fn grant_lease(&mut self, ends: Instant) -> i64 {
        self.granted += 1;
        self.content.leases.insert(self.granted, ends);
        self.granted
    }

    /// Extends a lease; false if it had already expired.
    fn renew_lease(&mut self, lease: i64, until: Instant) -> bool {
        let ends = self.content.leases.get_mut(&lease);
        ends.map(|ends| *ends = until).is_some()
    }

    fn stand_for_election(&mut self, controller: u32, lease: i64) {
        if self.content.leader.is_none() && self.content.leases.contains_key(&lease) {
            let revision = self.bump_revision();
            self.content.leader = Some(ElectedLeader { revision, lease, controller });
        }
    }

    fn store_record(&mut self, record: &StoreRecord, elected: u64) -> Result<(), EtcdError> {
        self.check_leader(elected)?;
        self.content.memory.apply_record(record.clone());
        self.bump_revision();
        Ok(())
    }

    fn store_plan_piece(
        &mut self,
        plan: &PlanManifest,
        index: u32,
        piece: &[u8],
    ) -> Result<(), EtcdError> {
        self.check_leader(plan.election)?;
        self.content.pieces.insert((plan.election, plan.number, index), piece.to_vec());
        // Pieces are not watched.
        self.content.revision += 1;
        Ok(())
    }

    fn publish_plan(&mut self, plan: &PlanManifest) -> Result<(), EtcdError> {
        self.check_leader(plan.election)?;
        let of_plan = (plan.election, plan.number);
        self.content.pieces.retain(|(election, number, _), _| (*election, *number) == of_plan);
        self.content.plan = Some(*plan);
        self.bump_revision();
        Ok(())
    }

    fn check_leader(&self, elected: u64) -> Result<(), EtcdError> {
        let leader = self.content.leader.filter(|leader| leader.revision == elected);
        leader.map(drop).ok_or(EtcdError::NotLeader)
    }

    fn publish_reach(&mut self, controller: u32, lease: i64, reaches_most: bool) {
        if self.content.leases.contains_key(&lease) {
            self.content.reach.insert(controller, (lease, reaches_most));
            self.bump_revision();
        }
    }

    /// The controllers that say that most switches answer them.
    fn reaching(&self) -> Vec<u32> {
        let reach = self.content.reach.iter().filter(|(_, (_, reaches_most))| *reaches_most);
        reach.map(|(controller, _)| *controller).collect()
    }

    fn read_snapshot(&self) -> ClusterSnapshot {
        ClusterSnapshot {
            revision: self.content.revision,
            leader: self.content.leader,
            leader_address: None,
            reaching: self.reaching(),
            stored: self.content.memory.clone(),
            plan: self.content.plan,
        }
    }
}

/// Until when leaders may trust leases that are lost now.
fn upset_until() -> Option<Instant> {
    Some(Instant::now() + RESTORED_LEASE)
}

/// A controller's connection to etcd.
#[derive(Clone)]
pub(super) struct FakeEtcdClient {
    network: FakeNetwork,
    lease: Duration,
    deadline: Duration,
}

impl FakeEtcdClient {
    pub(super) async fn connect_client(
        rig: FakeNetwork,
        lease: Duration,
        deadline: Duration,
    ) -> Result<Self, EtcdError> {
        let seat = Self { network: rig, lease, deadline };
        seat.call_etcd("connect", |_, _| ()).await?;
        Ok(seat)
    }

    /// A call whose request or response may be lost.
    async fn call_etcd<T>(
        &self,
        what: &'static str,
        perform: impl FnOnce(&mut FakeEtcd, Instant) -> T,
    ) -> Result<T, EtcdError> {
        let fate = self.network.draw_fate(ETCD, self.deadline);
        let (after, is_answered) = match fate {
            MessageFate::Arrives(after) | MessageFate::Twice(after) => (after, true),
            MessageFate::Late(_) => (TRIP, false),
            MessageFate::Lost => (self.deadline, false),
        };
        self.network.wait_for_slot(ETCD, after).await;
        let is_lost = matches!(fate, MessageFate::Lost) || self.network.is_cut(ETCD);
        let answer = (!is_lost).then(|| {
            let now = Instant::now();
            let mut world = self.network.lock_testbed();
            world.cluster.expire_leases(now);
            perform(&mut world.cluster, now)
        });
        match answer.filter(|_| is_answered) {
            Some(answer) => {
                self.network.wait_for_slot(ETCD, TRIP).await;
                Ok(answer)
            }
            None => {
                self.network.wait_for_slot(ETCD, self.deadline).await;
                Err(EtcdError::Deadline(what))
            }
        }
    }

    /// Expires a lease when it is due, without a call that would do so.
    fn expire_later(&self, ends: Instant) {
        let rig = self.network.clone();
        tokio::spawn(async move {
            sleep_until(ends).await;
            rig.lock_testbed().cluster.expire_leases(Instant::now());
        });
    }

    /// The lease duration that the controller is given.
    fn reported_lease(&self) -> Duration {
        match self.network.planted_bug() {
            PlantedBug::OutlivesItsLease => 16 * self.lease,
            _ => self.lease,
        }
    }
}

impl ClusterStore for FakeEtcdClient {
    async fn grant_lease(&self, _: Duration) -> Result<GrantedLease, EtcdError> {
        let lease = self.lease;
        let (lease, ends) = self
            .call_etcd("LeaseGrant", |cluster: &mut FakeEtcd, now: Instant| {
                (cluster.grant_lease(now + lease), now + lease)
            })
            .await?;
        self.expire_later(ends);
        let lasts = self.reported_lease();
        Ok(GrantedLease { lease, ttl: lasts })
    }

    async fn renew_lease(&self, lease: i64) -> Result<Option<Duration>, EtcdError> {
        let lasts = self.lease;
        let (is_there, ends) = self
            .call_etcd("LeaseKeepAlive", |cluster: &mut FakeEtcd, now: Instant| {
                let ends = now + lasts;
                (cluster.renew_lease(lease, ends), ends)
            })
            .await?;
        self.expire_later(ends);
        let is_kept = is_there || self.network.planted_bug() == PlantedBug::KeepsLostLease;
        Ok(is_kept.then(|| self.reported_lease()))
    }

    async fn revoke_lease(&self, lease: i64) -> Result<(), EtcdError> {
        self.call_etcd("LeaseRevoke", |cluster: &mut FakeEtcd, now: Instant| {
            cluster.content.leases.remove(&lease);
            cluster.expire_leases(now);
        })
        .await
    }

    async fn register_controller(&self, _: u32, _: i64) -> Result<u64, EtcdError> {
        self.call_etcd("Txn", |cluster, _| cluster.bump_revision()).await
    }

    async fn publish_reach(
        &self,
        controller: u32,
        lease: i64,
        reaches_most: bool,
    ) -> Result<(), EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| {
            cluster.publish_reach(controller, lease, reaches_most);
        })
        .await
    }

    async fn stand_for_election(
        &self,
        controller: u32,
        _: Option<&str>,
        lease: i64,
    ) -> Result<(), EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| {
            cluster.stand_for_election(controller, lease);
        })
        .await
    }

    async fn store_record(&self, record: &StoreRecord, elected: u64) -> Result<(), EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| {
            cluster.store_record(record, elected)
        })
        .await?
    }

    async fn store_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
        piece: &[u8],
    ) -> Result<(), EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| {
            cluster.store_plan_piece(plan, index, piece)
        })
        .await?
    }

    async fn publish_plan(&self, plan: &PlanManifest) -> Result<(), EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| cluster.publish_plan(plan))
            .await?
    }

    async fn read_plan_piece(
        &self,
        plan: &PlanManifest,
        index: u32,
    ) -> Result<Option<Vec<u8>>, EtcdError> {
        self.call_etcd("Txn", |cluster: &mut FakeEtcd, _: Instant| {
            cluster.content.pieces.get(&(plan.election, plan.number, index)).cloned()
        })
        .await
    }

    async fn read_snapshot(&self) -> Result<ClusterSnapshot, EtcdError> {
        self.call_etcd("Txn", |cluster, _| cluster.read_snapshot()).await
    }

    async fn watch_changes(&self, revision: u64) -> Result<StoreChanges, EtcdError> {
        let mut changes = self
            .call_etcd("Watch", |cluster: &mut FakeEtcd, _: Instant| cluster.changes.subscribe())
            .await?;
        changes.mark_unchanged();
        // A watch from an old revision starts with the changes since then, as that of etcd does.
        let is_newer = *changes.borrow() > revision;
        if is_newer {
            changes.mark_changed();
        }
        let seat = self.clone();
        let updates = stream::unfold((seat, changes), |(seat, mut changes)| async move {
            let mut cuts = seat.network.lock_testbed().cut_changes.subscribe();
            let is_changed = tokio::select! {
                biased;
                changed = changes.changed() => changed.is_ok(),
                _ = cuts.changed() => false,
            };
            seat.network.wait_for_slot(ETCD, TRIP).await;
            let update = match is_changed && !seat.network.is_cut(ETCD) {
                true => Ok(()),
                false => Err(EtcdError::WatchEnded),
            };
            Some((update, (seat, changes)))
        });
        Ok(updates.boxed())
    }
}
