//! etcd in as few words as possible: leases, one key for who leads, and what all share; and the
//! way of a controller to it.
//!
//! What holds of etcd is in `Cluster`, a value that time is told to; `Seat` is what a controller
//! calls, over messages that get lost and late like all others. The decision: leases end by the
//! world's clock alone, so a controller that takes its own for longer is seen to write without one.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::etcd::{Changes, EtcdError, Granted, Leader, Registry, Snapshot};
use controller::store::{Memory, Record};
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::mutant::Mutant;
use super::rig::Rig;
use super::schedule::ETCD;
use super::world::{Fate, TRIP};

/// What etcd holds.
#[derive(Default)]
pub(super) struct Cluster {
    revision: u64,
    leases: BTreeMap<i64, Instant>,
    leader: Option<Leader>,
    memory: Memory,
    changes: watch::Sender<u64>,
}

impl Cluster {
    /// Lets time come to `now`: leases end, and what hangs on them goes.
    fn pass(&mut self, now: Instant) {
        self.leases.retain(|_, ends| *ends > now);
        let leases = &self.leases;
        let held = |leader: &Leader| leases.contains_key(&leader.lease);
        if self.leader.take_if(|leader| !held(leader)).is_some() {
            self.change();
        }
    }

    fn change(&mut self) -> u64 {
        self.revision += 1;
        self.changes.send_replace(self.revision);
        self.revision
    }

    /// Whether this controller leads at `now`.
    pub(super) fn is_led_by(&mut self, controller: u32, now: Instant) -> bool {
        self.pass(now);
        self.leader
            .is_some_and(|leader| leader.controller == controller)
    }

    fn grant(&mut self, ends: Instant) -> i64 {
        let lease = self.change().cast_signed();
        self.leases.insert(lease, ends);
        lease
    }

    /// Whether the lease was still there.
    fn renew(&mut self, lease: i64, until: Instant) -> bool {
        let ends = self.leases.get_mut(&lease);
        ends.map(|ends| *ends = until).is_some()
    }

    fn stand(&mut self, controller: u32, lease: i64) {
        if self.leader.is_none() && self.leases.contains_key(&lease) {
            let revision = self.change();
            self.leader = Some(Leader {
                revision,
                lease,
                controller,
            });
        }
    }

    fn store(&mut self, record: &Record, elected: u64) -> Result<(), EtcdError> {
        let leads = |leader: &Leader| leader.revision == elected;
        self.leader.filter(leads).ok_or(EtcdError::NotLeader)?;
        self.memory.take(record.clone());
        self.change();
        Ok(())
    }

    fn read(&self) -> Snapshot {
        Snapshot {
            revision: self.revision,
            leader: self.leader,
            memory: self.memory.clone(),
        }
    }
}

/// A controller's connection to etcd.
#[derive(Clone)]
pub(super) struct Seat {
    rig: Rig,
    lease: Duration,
    deadline: Duration,
}

impl Seat {
    pub(super) async fn take(
        rig: Rig,
        lease: Duration,
        deadline: Duration,
    ) -> Result<Self, EtcdError> {
        let seat = Self {
            rig,
            lease,
            deadline,
        };
        seat.call("connect", |_, _| ()).await?;
        Ok(seat)
    }

    /// A call that may be lost on its way there or back.
    async fn call<T>(
        &self,
        what: &'static str,
        perform: impl FnOnce(&mut Cluster, Instant) -> T,
    ) -> Result<T, EtcdError> {
        let fate = self.rig.fate(ETCD, self.deadline);
        let (after, is_answered) = match fate {
            Fate::Arrives(after) | Fate::Twice(after) => (after, true),
            Fate::Late(_) => (TRIP, false),
            Fate::Lost => (self.deadline, false),
        };
        self.rig.wait(ETCD, after).await;
        let is_lost = matches!(fate, Fate::Lost) || self.rig.is_cut(ETCD);
        let answer = (!is_lost).then(|| {
            let now = Instant::now();
            let mut world = self.rig.world();
            world.cluster.pass(now);
            perform(&mut world.cluster, now)
        });
        match answer.filter(|_| is_answered) {
            Some(answer) => {
                self.rig.wait(ETCD, TRIP).await;
                Ok(answer)
            }
            None => {
                self.rig.wait(ETCD, self.deadline).await;
                Err(EtcdError::Deadline(what))
            }
        }
    }

    /// Lets a lease end when its time has come, though nobody calls.
    fn end_later(&self, ends: Instant) {
        let rig = self.rig.clone();
        tokio::spawn(async move {
            sleep_until(ends).await;
            rig.world().cluster.pass(Instant::now());
        });
    }

    /// How long a lease lasts, as the controller hears it.
    fn told(&self) -> Duration {
        match self.rig.mutant() {
            Mutant::OutlivesItsLease => 16 * self.lease,
            _ => self.lease,
        }
    }
}

impl Registry for Seat {
    async fn grant(&self, _: Duration) -> Result<Granted, EtcdError> {
        let lease = self.lease;
        let granted =
            |cluster: &mut Cluster, now: Instant| (cluster.grant(now + lease), now + lease);
        let (lease, ends) = self.call("LeaseGrant", granted).await?;
        self.end_later(ends);
        let lasts = self.told();
        Ok(Granted { lease, lasts })
    }

    async fn renew(&self, lease: i64) -> Result<Option<Duration>, EtcdError> {
        let lasts = self.lease;
        let renewed = |cluster: &mut Cluster, now: Instant| {
            let ends = now + lasts;
            (cluster.renew(lease, ends), ends)
        };
        let (is_there, ends) = self.call("LeaseKeepAlive", renewed).await?;
        self.end_later(ends);
        Ok(is_there.then(|| self.told()))
    }

    async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let revoked = |cluster: &mut Cluster, now: Instant| {
            cluster.leases.remove(&lease);
            cluster.pass(now);
        };
        self.call("LeaseRevoke", revoked).await
    }

    async fn register(&self, _: u32, _: i64) -> Result<u64, EtcdError> {
        self.call("Txn", |cluster, _| cluster.change()).await
    }

    async fn stand(&self, controller: u32, lease: i64) -> Result<(), EtcdError> {
        let stood = |cluster: &mut Cluster, _: Instant| cluster.stand(controller, lease);
        self.call("Txn", stood).await
    }

    async fn store(&self, record: &Record, elected: u64) -> Result<(), EtcdError> {
        let stored = |cluster: &mut Cluster, _: Instant| cluster.store(record, elected);
        self.call("Txn", stored).await?
    }

    async fn read(&self) -> Result<Snapshot, EtcdError> {
        self.call("Txn", |cluster, _| cluster.read()).await
    }

    async fn watch(&self, revision: u64) -> Result<Changes, EtcdError> {
        let watched = |cluster: &mut Cluster, _: Instant| cluster.changes.subscribe();
        let mut changes = self.call("Watch", watched).await?;
        changes.mark_unchanged();
        let is_news = *changes.borrow() > revision;
        if is_news {
            changes.mark_changed();
        }
        let seat = self.clone();
        let told = stream::unfold((seat, changes), |(seat, mut changes)| async move {
            let mut cuts = seat.rig.world().cut_news.subscribe();
            let is_changed = tokio::select! {
                biased;
                changed = changes.changed() => changed.is_ok(),
                _ = cuts.changed() => false,
            };
            seat.rig.wait(ETCD, TRIP).await;
            let told = match is_changed && !seat.rig.is_cut(ETCD) {
                true => Ok(()),
                false => Err(EtcdError::WatchEnded),
            };
            Some((told, (seat, changes)))
        });
        Ok(told.boxed())
    }
}
