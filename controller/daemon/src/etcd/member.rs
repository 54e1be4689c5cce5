//! One controller's part in the cluster: a task that keeps its lease, stands for election, follows
//! what is stored and stores what its [`Door`] is given.
//!
//! Decisions are [`Tenure`]'s; here are the calls that it needs, one after the other. The decision:
//! whatever etcd tells only wakes the task, which then reads everything. A connection that breaks
//! costs nothing else: lease and leadership go on as long as etcd keeps them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::EtcdError;
use super::registry::{Registry, Snapshot};
use super::tenure::Tenure;
use crate::config::Etcd;
use crate::southbound::chain;
use crate::southbound::connection::Network;
use crate::southbound::mandate::Mandate;
use crate::store::{Memory, Record};

/// Records that wait to be stored.
const QUEUE: usize = 16;

/// What was read in etcd.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Everything that is shared.
    pub(crate) memory: Memory,
    /// The election that this controller won; it leads when it says that it is prepared.
    pub(crate) elected: Option<u64>,
}

/// The runtime's side of a membership.
#[derive(Debug)]
pub(crate) struct Door {
    /// The latest that was read; nothing before etcd was reached.
    pub(crate) news: watch::Receiver<Option<Arc<News>>>,
    /// The election for which everything stored is planned.
    pub(crate) prepared: watch::Sender<Option<u64>>,
    /// Where records go.
    pub(crate) desk: Desk,
}

/// Where records are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    requests: mpsc::Sender<Request>,
    deadline: Duration,
}

#[derive(Debug)]
struct Request {
    record: Record,
    stored: oneshot::Sender<Result<(), EtcdError>>,
}

impl Desk {
    /// Stores a record as the leader; done when etcd has it.
    pub(crate) async fn store(&self, record: Record) -> Result<(), EtcdError> {
        let (stored, answer) = oneshot::channel();
        let hand_in = async {
            let sent = self.requests.send(Request { record, stored }).await;
            sent.map_err(|_| EtcdError::Away)?;
            answer.await.map_err(|_| EtcdError::Away)?
        };
        let answer = timeout(self.deadline, hand_in).await;
        answer.map_err(|_| EtcdError::Away)?
    }
}

/// The task.
pub(crate) struct Member<N: Network> {
    network: N,
    config: Etcd,
    controller: u32,
    tenure: Tenure,
    mandate: watch::Sender<Mandate>,
    news: watch::Sender<Option<Arc<News>>>,
    prepared: watch::Receiver<Option<u64>>,
    requests: mpsc::Receiver<Request>,
    /// While connected.
    calls: Option<N::Registry>,
}

impl<N: Network> Member<N> {
    /// A member, which decides what `mandate` is, and the door to it.
    pub(crate) fn new(
        network: N,
        config: &Etcd,
        controller: u32,
        mandate: watch::Sender<Mandate>,
    ) -> (Self, Door) {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (news, to_runtime) = watch::channel(None);
        let (prepared, from_runtime) = watch::channel(None);
        let member = Self {
            network,
            config: config.clone(),
            controller,
            tenure: Tenure::default(),
            mandate,
            news,
            prepared: from_runtime,
            requests: queue,
            calls: None,
        };
        let door = Door {
            news: to_runtime,
            prepared,
            desk: Desk {
                requests,
                deadline: 2 * config.deadline,
            },
        };
        (member, door)
    }

    /// Takes part until `stop`, then gives the leadership back at once.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.take_part()).await;
        self.mandate.send_replace(Mandate::Unknown);
        if let (Some(calls), Some(lease)) = (&self.calls, self.tenure.lease())
            && let Err(error) = calls.revoke(lease).await
        {
            let text = "the lease was not given back and runs out by itself";
            warn!(error = chain(&error), "{text}");
        }
    }

    /// Connects again and again, to one server after the other.
    async fn take_part(&mut self) -> Infallible {
        let mut failures = 0_usize;
        loop {
            let servers = &self.config.endpoints;
            let server = servers[failures % servers.len()].clone();
            let Err(error) = self.connected(&server).await;
            self.calls = None;
            failures = failures.wrapping_add(1);
            let error = chain(&error);
            warn!(error, server, "no use of etcd; the lease runs on");
            let again = Instant::now() + self.config.retry.after(1);
            while let Ok(request) = tokio::select! {
                request = self.requests.recv() => request.ok_or(()),
                () = sleep_until(again) => Err(()),
            } {
                drop(request.stored.send(Err(EtcdError::Away)));
            }
        }
    }

    /// One connection, until it fails.
    async fn connected(&mut self, server: &str) -> Result<Infallible, EtcdError> {
        let calls = self.network.registry(server, &self.config).await?;
        self.calls = Some(calls.clone());
        self.renew(&calls).await?;
        let snapshot = calls.read().await?;
        let mut changes = calls.watch(snapshot.revision).await?;
        self.follow(snapshot, &calls).await?;
        loop {
            let renewal = self.tenure.renewal().unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = sleep_until(renewal) => {
                    // A lease that was lost took the leadership with it.
                    if self.renew(&calls).await? == Lease::New {
                        self.follow(calls.read().await?, &calls).await?;
                    }
                }
                // The runtime may be gone; then nothing is prepared any more.
                Ok(()) = self.prepared.changed() => self.prepare(),
                changed = changes.next() => {
                    changed.ok_or(EtcdError::WatchEnded)??;
                    self.follow(calls.read().await?, &calls).await?;
                }
                Some(request) = self.requests.recv() => self.store(request, &calls).await,
            }
        }
    }

    /// Keeps the lease, or begins one.
    async fn renew(&mut self, calls: &N::Registry) -> Result<Lease, EtcdError> {
        let asked = Instant::now();
        if let Some(lease) = self.tenure.lease() {
            let lasts = calls.renew(lease).await?;
            self.tenure.renewed(asked, lasts);
            self.tell();
            if lasts.is_some() {
                return Ok(Lease::Kept);
            }
            warn!("the lease has run out");
        }
        let asked = Instant::now();
        let granted = calls.grant(self.config.lease).await?;
        let revision = calls.register(self.controller, granted.lease).await?;
        self.tenure
            .granted(granted.lease, revision, asked, granted.lasts);
        self.tell();
        Ok(Lease::New)
    }

    /// Takes in what is stored, after standing for election if nobody leads.
    async fn follow(
        &mut self,
        mut snapshot: Snapshot,
        calls: &N::Registry,
    ) -> Result<(), EtcdError> {
        if let (None, Some(lease)) = (snapshot.leader, self.tenure.lease()) {
            calls.stand(self.controller, lease).await?;
            snapshot = calls.read().await?;
        }
        self.tenure.saw(snapshot.leader);
        self.tell();
        self.news.send_replace(Some(Arc::new(News {
            memory: snapshot.memory,
            elected: self.tenure.elected(),
        })));
        Ok(())
    }

    fn prepare(&mut self) {
        if let Some(revision) = *self.prepared.borrow_and_update() {
            self.tenure.prepared(revision);
        }
        self.tell();
    }

    async fn store(&self, request: Request, calls: &N::Registry) {
        let stored = match self.tenure.elected() {
            Some(elected) => calls.store(&request.record, elected).await,
            None => Err(EtcdError::NotLeader),
        };
        // Whoever asked may have gone; what is stored is stored.
        drop(request.stored.send(stored));
    }

    /// Gives the sessions their mandate.
    fn tell(&self) {
        let mandate = self.tenure.mandate();
        self.mandate.send_if_modified(|had| {
            let before = std::mem::replace(had, mandate);
            if std::mem::discriminant(&before) != std::mem::discriminant(&mandate) {
                info!(?mandate, "mandate");
            }
            before != mandate
        });
    }
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    Kept,
    New,
}
