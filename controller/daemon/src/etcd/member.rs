//! One controller's part in the cluster: a task that keeps its lease, stands for election, follows
//! what is stored and stores what its [`MemberHandle`] is given.
//!
//! Decisions are [`LeaseState`]'s; here are the calls that it needs, one after the other. The
//! decision: whatever etcd tells only wakes the task, which then reads everything. A connection
//! that breaks costs nothing else: lease and leadership go on as long as etcd keeps them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use topology::{Finding, error_chain};
use tracing::{info, warn};

use super::EtcdError;
use super::cluster_store::{ClusterNetwork, ClusterSnapshot, ClusterStore};
use super::lease_state::{ElectedLeader, LeaseState};
use super::plan_pieces::PlanManifest;
use super::switch_reach::SwitchReach;
use crate::config::{Config, EtcdConfig};
use crate::southbound::session_log::SessionLog;
use crate::southbound::write_permit::WritePermit;
use crate::standing_findings::StandingFindings;
use crate::store::{StoreRecord, StoredPlan, StoredState};

/// Records that wait to be stored.
const QUEUE: usize = 16;

/// The subject of the finding that etcd does not answer.
const OUTAGE: &str = "etcd";

/// The shared state as read from etcd.
#[derive(Clone, Debug)]
pub(crate) struct ClusterUpdate {
    /// Everything that is shared.
    pub(crate) stored: StoredState,
    /// The election that this controller won; it leads once it has reported to be prepared.
    pub(crate) elected: Option<ElectedLeader>,
    /// Where operators reach the leader, if it has said so.
    pub(crate) leader_address: Option<String>,
    /// The plan that the latest leader had in force. While this controller leads, the one from which
    /// it continued.
    pub(crate) plan: Option<PublishedPlan>,
}

/// A plan as a leader stored it.
#[derive(Clone, Debug)]
pub(crate) struct PublishedPlan {
    /// Its manifest, which no other plan has.
    pub(crate) manifest: PlanManifest,
    /// The plan.
    pub(crate) plan: Arc<StoredPlan>,
}

/// The runtime's side of a membership.
#[derive(Debug)]
pub(crate) struct MemberHandle {
    /// The latest that was read; nothing before etcd was reached.
    pub(crate) updates: watch::Receiver<Option<Arc<ClusterUpdate>>>,
    /// The election for which everything stored is planned.
    pub(crate) prepared: watch::Sender<Option<ElectedLeader>>,
    /// The highest term by which switches refuse this controller as the leader.
    pub(crate) seen_term: watch::Sender<Option<u64>>,
    /// Whether most switches answer this controller.
    pub(crate) reach: watch::Sender<bool>,
    /// How often this controller was asked to leave the lead.
    pub(crate) resignations: watch::Sender<u64>,
    /// Where records go.
    pub(crate) store: StoreClient,
}

/// Stores records through the member.
#[derive(Clone, Debug)]
pub(crate) struct StoreClient {
    requests: mpsc::Sender<StoreRequest>,
    deadline: Duration,
}

#[derive(Debug)]
struct StoreRequest {
    operation: StoreOperation,
    stored: oneshot::Sender<Result<(), EtcdError>>,
}

/// What a leader stores in one call to etcd.
#[derive(Debug)]
enum StoreOperation {
    Record(Box<StoreRecord>),
    PlanPiece {
        plan: PlanManifest,
        index: u32,
        piece: Vec<u8>,
    },
    /// The pieces of this plan are stored, and it replaces the one before.
    Plan(PlanManifest),
}

impl StoreClient {
    /// Stores a record as the leader; done when etcd has it.
    pub(crate) async fn store_record(&self, record: StoreRecord) -> Result<(), EtcdError> {
        self.request(StoreOperation::Record(Box::new(record))).await
    }

    /// Stores an encoded plan as the leader; done when every reader finds it. One request for each
    /// piece, so that renewals of the lease and records come between them.
    pub(crate) async fn store_plan(
        &self,
        plan: PlanManifest,
        encoded: &[u8],
    ) -> Result<(), EtcdError> {
        for (index, piece) in (0..).zip(PlanManifest::cut_plan(encoded)) {
            let piece = piece.to_vec();
            self.request(StoreOperation::PlanPiece { plan, index, piece }).await?;
        }
        self.request(StoreOperation::Plan(plan)).await
    }

    async fn request(&self, operation: StoreOperation) -> Result<(), EtcdError> {
        let (stored, answer) = oneshot::channel();
        let hand_in = async {
            let sent = self.requests.send(StoreRequest { operation, stored }).await;
            sent.map_err(|_| EtcdError::Unreachable)?;
            answer.await.map_err(|_| EtcdError::Unreachable)?
        };
        let answer = timeout(self.deadline, hand_in).await;
        answer.map_err(|_| EtcdError::Unreachable)?
    }
}

/// A member as others see it, and its list of findings.
#[derive(Clone, Debug)]
pub(crate) struct MemberIdentity {
    /// Its number.
    pub(crate) controller: u32,
    /// Where operators reach it, if that can be said: not for an address of all interfaces.
    pub(crate) address: Option<String>,
    /// Where it reports that etcd does not answer.
    pub(crate) findings: StandingFindings,
}

impl MemberIdentity {
    /// The member that a configuration describes.
    pub(crate) fn new(config: &Config, findings: StandingFindings) -> Self {
        let listen = config.northbound.listen;
        let address = listen.filter(|address| !address.ip().is_unspecified());
        let address = address.filter(|address| address.port() != 0);
        let address = address.map(|address| address.to_string());
        Self { controller: config.controller, address, findings }
    }
}

/// Renews the lease, takes part in elections and stores records of the leader.
pub(crate) struct ClusterMember<N: ClusterNetwork> {
    network: N,
    config: EtcdConfig,
    identity: MemberIdentity,
    lease_state: LeaseState,
    switch_reach: SwitchReach,
    write_permit: watch::Sender<WritePermit>,
    updates: watch::Sender<Option<Arc<ClusterUpdate>>>,
    /// The plan that was read last.
    plan: Option<PublishedPlan>,
    runtime: RuntimeInputs,
    /// Until when it leaves the lead to others, unless one has taken it.
    resigned_until: Option<Instant>,
    requests: mpsc::Receiver<StoreRequest>,
    /// While connected.
    store: Option<N::Store>,
    /// Connections that failed since the last that served.
    failures_in_a_row: usize,
    log: SessionLog,
}

impl<N: ClusterNetwork> ClusterMember<N> {
    /// A member that publishes `permit`, and its handle for the runtime.
    pub(crate) fn new(
        network: N,
        config: &EtcdConfig,
        identity: MemberIdentity,
        permit: watch::Sender<WritePermit>,
    ) -> (Self, MemberHandle) {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (updates, to_runtime) = watch::channel(None);
        let (prepared, from_runtime) = watch::channel(None);
        let (seen_term, from_switches) = watch::channel(None);
        let (reach, from_sessions) = watch::channel(false);
        let (resignations, from_operators) = watch::channel(0);
        let member = Self {
            network,
            config: config.clone(),
            identity,
            lease_state: LeaseState::default(),
            switch_reach: SwitchReach::default(),
            write_permit: permit,
            updates,
            plan: None,
            runtime: RuntimeInputs {
                prepared: from_runtime,
                seen_term: from_switches,
                reach: from_sessions,
                resignations: from_operators,
            },
            resigned_until: None,
            requests: queue,
            store: None,
            failures_in_a_row: 0,
            log: SessionLog::default(),
        };
        let handle = MemberHandle {
            updates: to_runtime,
            prepared,
            seen_term,
            reach,
            resignations,
            store: StoreClient { requests, deadline: 2 * config.deadline },
        };
        (member, handle)
    }

    /// Takes part until `stop`, then resigns at once by revoking the lease.
    pub(crate) async fn run_member(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.reconnect_forever()).await;
        self.write_permit.send_replace(WritePermit::Unknown);
        if let (Some(calls), Some(lease)) = (&self.store, self.lease_state.lease_id())
            && let Err(error) = calls.revoke_lease(lease).await
        {
            let text = "the lease was not revoked and expires by itself";
            warn!(error = error_chain(&error), "{text}");
        }
    }

    /// Connects again and again, to one server after the other.
    async fn reconnect_forever(&mut self) -> Infallible {
        let mut failures = 0_usize;
        loop {
            let servers = &self.config.endpoints;
            let server = servers[failures % servers.len()].clone();
            let Err(error) = self.run_connection(&server).await;
            self.store = None;
            failures = failures.wrapping_add(1);
            let error = error_chain(&error);
            self.failures_in_a_row += 1;
            // The first is a connection that broke; then each server is tried.
            if self.failures_in_a_row > self.config.endpoints.len() {
                self.report_outage(&error);
            }
            let consequence = self.describe_lease();
            // Retries are short, since the lease waits for none.
            self.log.log_limited("connection", |omitted| {
                warn!(error, server, omitted, "the connection to etcd failed; {consequence}");
            });
            let again = Instant::now() + self.config.backoff.wait_after(1);
            while let Ok(request) = tokio::select! {
                request = self.requests.recv() => request.ok_or(()),
                () = sleep_until(again) => Err(()),
            } {
                drop(request.stored.send(Err(EtcdError::Unreachable)));
            }
        }
    }

    /// Reports that etcd does not answer, and what follows.
    fn report_outage(&self, error: &str) {
        let text = format!(
            "does not answer: {error}; without it nobody leads for longer than a \
             lease, and no failure is repaired. Start etcd (etcdctl endpoint health), or correct \
             etcd.endpoints"
        );
        self.identity.findings.report_finding(OUTAGE, Finding::error(OUTAGE, text));
    }

    /// What a broken connection means for this controller now.
    fn describe_lease(&self) -> &'static str {
        match self.lease_state.write_permit() {
            WritePermit::Leader { until, .. } if Instant::now() < until => "the lease runs on",
            WritePermit::Leader { .. } => "the lease has run out, and nothing is written",
            _ => "another controller leads, or none",
        }
    }

    /// One connection, until it fails.
    async fn run_connection(&mut self, server: &str) -> Result<Infallible, EtcdError> {
        let calls = self.network.connect_store(server, &self.config).await?;
        self.store = Some(calls.clone());
        self.renew_lease(&calls).await?;
        let snapshot = calls.read_snapshot().await?;
        let mut changes = calls.watch_changes(snapshot.revision).await?;
        self.publish_snapshot(snapshot, &calls).await?;
        self.failures_in_a_row = 0;
        self.identity.findings.clear_finding(OUTAGE);
        loop {
            let renewal = self.lease_state.renewal_due().unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = sleep_until(renewal) => self.renew_membership(&calls).await?,
                // The runtime may be gone; then nothing is prepared any more.
                input = self.runtime.next_input() => self.apply_input(input, &calls).await?,
                changed = changes.next() => {
                    changed.ok_or(EtcdError::WatchEnded)??;
                    self.publish_snapshot(calls.read_snapshot().await?, &calls).await?;
                }
                Some(request) = self.requests.recv() => self.store_request(request, &calls).await,
            }
        }
    }

    /// Renews the lease and takes part in the election again where that is due.
    async fn renew_membership(&mut self, calls: &N::Store) -> Result<(), EtcdError> {
        // A lease that was lost took the leadership with it.
        let is_new = self.renew_lease(calls).await? == LeaseRenewal::New;
        if is_new || self.is_resignation_over() {
            self.publish_snapshot(calls.read_snapshot().await?, calls).await?;
        }
        self.hand_over_if_cut_off(calls).await
    }

    /// Renews the lease, or begins a new one.
    async fn renew_lease(&mut self, calls: &N::Store) -> Result<LeaseRenewal, EtcdError> {
        // The lease runs from before the call at the earliest: the answer may take any time.
        let asked = Instant::now();
        if let Some(lease) = self.lease_state.lease_id() {
            let lasts = calls.renew_lease(lease).await?;
            self.lease_state.record_renewal(asked, lasts);
            self.publish_permit();
            if lasts.is_some() {
                return Ok(LeaseRenewal::Kept);
            }
            warn!("the lease has run out");
        }
        let asked = Instant::now();
        let granted = calls.grant_lease(self.config.lease).await?;
        let number = self.identity.controller;
        let revision = calls.register_controller(number, granted.lease).await?;
        self.lease_state.record_grant(granted.lease, revision, asked, granted.ttl);
        self.publish_permit();
        Ok(LeaseRenewal::New)
    }

    /// Takes in what is stored, after standing for election if nobody leads.
    async fn publish_snapshot(
        &mut self,
        mut snapshot: ClusterSnapshot,
        calls: &N::Store,
    ) -> Result<(), EtcdError> {
        loop {
            self.resigned_until
                .take_if(|until| snapshot.leader.is_some() || *until <= Instant::now());
            if let (None, Some(lease), None) =
                (snapshot.leader, self.lease_state.lease_id(), self.resigned_until)
            {
                let address = self.identity.address.as_deref();
                calls.stand_for_election(self.identity.controller, address, lease).await?;
                // What the last leader stored before this election is final: its later
                // transactions fail.
                snapshot = calls.read_snapshot().await?;
            }
            self.lease_state.observe_leader(snapshot.leader);
            self.publish_permit();
            self.observe_reach(&snapshot.reaching, calls).await?;
            if self.read_plan(snapshot.plan, calls).await? == LeaseRenewal::Kept {
                break;
            }
            // With the lease, the election is lost that was just read.
            snapshot = calls.read_snapshot().await?;
        }
        self.updates.send_replace(Some(Arc::new(ClusterUpdate {
            stored: snapshot.stored,
            elected: self.lease_state.won_election(),
            leader_address: snapshot.leader_address,
            plan: self.plan.clone(),
        })));
        Ok(())
    }

    /// Reads the plan of a manifest, unless it is known; what became of the lease meanwhile.
    async fn read_plan(
        &mut self,
        manifest: Option<PlanManifest>,
        calls: &N::Store,
    ) -> Result<LeaseRenewal, EtcdError> {
        let won = self.lease_state.won_election();
        let leads_on = won.is_some()
            && self.updates.borrow().as_ref().is_some_and(|update| update.elected == won);
        let is_known = self.plan.as_ref().map(|known| known.manifest) == manifest;
        if is_known || leads_on {
            // A leader that leads on finds what it has stored itself.
            return Ok(LeaseRenewal::Kept);
        }
        self.plan = None;
        let Some(manifest) = manifest else {
            return Ok(LeaseRenewal::Kept);
        };
        let mut encoded = Vec::new();
        for index in 0..manifest.pieces {
            // A large plan takes longer to read than the lease can wait for its renewal.
            let is_due = self.lease_state.renewal_due().is_some_and(|due| due <= Instant::now());
            if is_due && self.renew_lease(calls).await? == LeaseRenewal::New {
                return Ok(LeaseRenewal::New);
            }
            let Some(piece) = calls.read_plan_piece(&manifest, index).await? else {
                // A later plan has replaced it, which the watch reports next.
                return Ok(LeaseRenewal::Kept);
            };
            encoded.extend(piece);
        }
        let parsed = spawn_blocking(move || serde_json::from_slice::<StoredPlan>(&encoded)).await;
        match parsed {
            Ok(Ok(plan)) => self.plan = Some(PublishedPlan { manifest, plan: Arc::new(plan) }),
            // It costs moved flows at a takeover, and no leader.
            Ok(Err(error)) => {
                warn!(%error, "the plan in etcd cannot be read, and a new one will be made");
            }
            Err(_) => warn!("reading the plan in etcd panicked"),
        }
        Ok(LeaseRenewal::Kept)
    }

    /// Ends the lease, with the leadership that hangs on it, and begins another one. Others follow
    /// at once; if none does, this controller stands again after a lease.
    async fn resign_lead(&mut self, calls: &N::Store) -> Result<(), EtcdError> {
        let Some(lease) = self.lease_state.lease_id() else {
            return Ok(());
        };
        // No write may follow the end of the lease.
        self.lease_state.record_renewal(Instant::now(), None);
        self.publish_permit();
        self.resigned_until = Some(Instant::now() + self.config.lease);
        calls.revoke_lease(lease).await?;
        self.renew_lease(calls).await?;
        self.publish_snapshot(calls.read_snapshot().await?, calls).await
    }

    /// Leaves the lead, if it leads and most switches answer another controller and not this one.
    async fn hand_over_if_cut_off(&mut self, calls: &N::Store) -> Result<(), EtcdError> {
        let now = Instant::now();
        let is_leader = self.lease_state.write_permit().is_leader(now);
        if !is_leader || !self.switch_reach.is_handover_due(self.config.lease, now) {
            return Ok(());
        }
        warn!("most switches answer another controller and not this one, which leaves the lead");
        self.resign_lead(calls).await
    }

    /// Takes in which controllers reach most switches, as etcd has it, and corrects what it has of
    /// this one: a call may have failed, and etcd may have lost it.
    async fn observe_reach(&mut self, reaching: &[u32], calls: &N::Store) -> Result<(), EtcdError> {
        let own = self.identity.controller;
        self.switch_reach.observe_others(reaching.iter().any(|number| *number != own));
        if reaching.contains(&own) == self.switch_reach.reaches_most() {
            Ok(())
        } else {
            self.publish_reach(calls).await
        }
    }

    /// Tells the others whether most switches answer this controller.
    async fn publish_reach(&self, calls: &N::Store) -> Result<(), EtcdError> {
        let Some(lease) = self.lease_state.lease_id() else {
            return Ok(());
        };
        let reaches_most = self.switch_reach.reaches_most();
        calls.publish_reach(self.identity.controller, lease, reaches_most).await
    }

    /// Whether it left the lead to others and nobody has taken it.
    fn is_resignation_over(&self) -> bool {
        self.resigned_until.is_some_and(|until| until <= Instant::now())
    }

    async fn apply_input(
        &mut self,
        input: RuntimeInput,
        calls: &N::Store,
    ) -> Result<(), EtcdError> {
        match input {
            RuntimeInput::Prepared(election) => self.lease_state.record_prepared(election),
            RuntimeInput::TermSeen(term) => self.lease_state.record_seen_term(term),
            RuntimeInput::ReachChanged(reaches_most) => {
                self.switch_reach.observe_own(reaches_most, Instant::now());
                self.publish_reach(calls).await?;
            }
            RuntimeInput::Resigned => self.resign_lead(calls).await?,
        }
        self.publish_permit();
        Ok(())
    }

    async fn store_request(&self, request: StoreRequest, calls: &N::Store) {
        let stored = match (self.lease_state.won_election(), &request.operation) {
            (None, _) => Err(EtcdError::NotLeader),
            (Some(election), StoreOperation::Record(record)) => {
                calls.store_record(record, election.revision).await
            }
            (_, StoreOperation::PlanPiece { plan, index, piece }) => {
                calls.store_plan_piece(plan, *index, piece).await
            }
            (_, StoreOperation::Plan(plan)) => calls.publish_plan(plan).await,
        };
        // The caller may have given up waiting; the record is stored all the same.
        drop(request.stored.send(stored));
    }

    /// Publishes the write permit to the sessions.
    fn publish_permit(&self) {
        let permit = self.lease_state.write_permit();
        self.write_permit.send_if_modified(|had| {
            let before = std::mem::replace(had, permit);
            if std::mem::discriminant(&before) != std::mem::discriminant(&permit) {
                info!("{}", permit.describe());
            }
            before != permit
        });
    }
}

/// What the runtime tells the member.
struct RuntimeInputs {
    prepared: watch::Receiver<Option<ElectedLeader>>,
    seen_term: watch::Receiver<Option<u64>>,
    reach: watch::Receiver<bool>,
    resignations: watch::Receiver<u64>,
}

#[derive(Clone, Copy, Debug)]
enum RuntimeInput {
    /// Everything stored before this election is planned for.
    Prepared(ElectedLeader),
    /// Switches refuse the leader by this term.
    TermSeen(u64),
    /// Most switches answer this controller, or do not.
    ReachChanged(bool),
    /// An operator has it leave the lead.
    Resigned,
}

impl RuntimeInputs {
    /// Waits for the next; for ever once the runtime is gone.
    async fn next_input(&mut self) -> RuntimeInput {
        loop {
            let input = tokio::select! {
                biased;
                Ok(()) = self.prepared.changed() => {
                    (*self.prepared.borrow_and_update()).map(RuntimeInput::Prepared)
                }
                Ok(()) = self.seen_term.changed() => {
                    (*self.seen_term.borrow_and_update()).map(RuntimeInput::TermSeen)
                }
                Ok(()) = self.reach.changed() => {
                    Some(RuntimeInput::ReachChanged(*self.reach.borrow_and_update()))
                }
                Ok(()) = self.resignations.changed() => Some(RuntimeInput::Resigned),
                else => std::future::pending().await,
            };
            if let Some(input) = input {
                return input;
            }
        }
    }
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseRenewal {
    Kept,
    New,
}
