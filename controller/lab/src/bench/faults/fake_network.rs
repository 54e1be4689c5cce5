//! The network between the controllers and the switches of one testbed, with its faults.
//!
//! It replaces gRPC. The decision: a message takes time, and may be lost on the way there, on the
//! way back, or arrive after its sender has timed out. [`fault_testbed`](super::fault_testbed)
//! draws which.

mod switch_calls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use controller::Clock;
use controller::config::{EtcdConfig, SouthboundConfig};
use controller::etcd::{ClusterNetwork, EtcdError};
use controller::host_machine::HostMachine;
use controller::southbound::arbitration::ElectionId;
use controller::southbound::connection::{
    Computation, ComputationPanicked, ExistingEntries, IncomingMessage, OutgoingMessage,
    StreamChannel, SwitchConnection, SwitchNetwork,
};
use controller::southbound::{ClientError, MastershipStatus, SwitchAddress};
use controller::store::{EmbeddedStore, StoreError};
use futures::{StreamExt, stream};
use p4::codec::{DigestTiming, RefusedUpdate, WriteError};
use p4::{ForwardingPipeline, SwitchTables, TableScope, TableUpdate, UpdateKind};
use rand::Rng;
use switch_server::p4runtime::election::SessionId;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Code;

use super::fake_etcd::FakeEtcdClient;
use super::fake_switch::FakeSwitch;
use super::fault_schedule::LeadershipMode;
use super::fault_testbed::{EndpointPair, FaultTestbed, MessageFate, TRIP};
use super::lying_switch::{FLOOD_BURST, FLOOD_MAX, SwitchLie, read_endlessly};
use super::planted_bug::PlantedBug;

/// Messages that a stream can queue.
const NOTICES: usize = 64;
/// The longest that a switch keeps the stream of a controller that is cut off.
pub(super) const KEEPALIVE: Duration = Duration::from_millis(200);

/// One controller's connections to the switches of a testbed.
#[derive(Clone)]
pub(super) struct FakeNetwork {
    /// Shared by everything in the testbed. A lock, because the trait requires values that are
    /// `Send`; there is one thread, so it is never contended.
    testbed: Arc<Mutex<FaultTestbed>>,
    controller: u32,
    planted_bug: PlantedBug,
    cached_tables: Arc<Mutex<BTreeMap<usize, SwitchTables>>>,
    /// What switches acknowledged since they were last read.
    acknowledged: Arc<Mutex<BTreeMap<usize, SwitchTables>>>,
    /// Held during a call by a controller that calls one switch at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A connection from one controller to one switch.
pub(super) struct FakeConnection {
    network: FakeNetwork,
    switch: usize,
    incarnation: u64,
    deadline: Duration,
    read_max: usize,
    /// Whether the last status received from the switch was that this controller is primary.
    is_primary: Arc<Mutex<bool>>,
}

impl FakeNetwork {
    pub(super) fn new(
        world: Arc<Mutex<FaultTestbed>>,
        controller: u32,
        planted_bug: PlantedBug,
    ) -> Self {
        Self {
            testbed: world,
            controller,
            planted_bug,
            cached_tables: Arc::default(),
            acknowledged: Arc::default(),
            turn: Arc::default(),
        }
    }

    pub(super) fn lock_testbed(&self) -> MutexGuard<'_, FaultTestbed> {
        lock_mutex(&self.testbed)
    }

    pub(super) fn planted_bug(&self) -> PlantedBug {
        self.planted_bug
    }

    /// Draws the fate of a message between this controller and a switch, or etcd.
    pub(super) fn draw_fate(&self, with: usize, deadline: Duration) -> MessageFate {
        self.lock_testbed().draw_fate((self.controller, with), deadline)
    }

    /// Waits, and then for a time slot in which no other pair's messages arrive. A message of a
    /// process that is stopped waits until it goes on.
    pub(super) async fn wait_for_slot(&self, with: usize, after: Duration) {
        let pair = (self.controller, with);
        let mut moment = self.lock_testbed().next_slot(pair, after);
        loop {
            sleep_until(moment).await;
            let testbed = self.lock_testbed();
            if !testbed.is_paused(self.controller) {
                return;
            }
            moment = testbed.next_slot(pair, TRIP);
        }
    }

    pub(super) fn is_cut(&self, with: usize) -> bool {
        self.lock_testbed().cuts.contains(&(self.controller, with))
    }
}

pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostMachine for FakeNetwork {
    fn start_clock(&self) -> Clock {
        Clock::showing(self.lock_testbed().wall_clock(self.controller))
    }

    fn open_store(&self, _: &Path) -> Result<EmbeddedStore, StoreError> {
        let disk = self.lock_testbed().disks.get(&self.controller).cloned().unwrap_or_default();
        EmbeddedStore::open_backend(disk.mount(self.planted_bug))
    }
}

#[async_trait]
impl SwitchNetwork for FakeNetwork {
    async fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Box<dyn SwitchConnection>, ClientError> {
        let switch: usize = address
            .p4runtime
            .parse()
            .map_err(|_| ClientError::Address(address.p4runtime.clone()))?;
        let incarnation = self.lock_testbed().devices[switch].incarnation;
        let line = FakeConnection {
            network: self.clone(),
            switch,
            incarnation,
            deadline: limits.rpc_deadline,
            read_max: limits.read_max,
            is_primary: Arc::default(),
        };
        line.send_one_way("connect").await?;
        Ok(Box::new(line))
    }

    async fn run_blocking(&self, work: Computation) -> Result<(), ComputationPanicked> {
        work();
        Ok(())
    }
}

impl ClusterNetwork for FakeNetwork {
    type Store = FakeEtcdClient;

    async fn connect_store(&self, _: &str, etcd: &EtcdConfig) -> Result<FakeEtcdClient, EtcdError> {
        FakeEtcdClient::connect_client(self.clone(), etcd.lease, etcd.deadline).await
    }
}

impl FakeConnection {
    /// Sends a message one way; an error if it is lost or the receiver is down.
    async fn send_one_way(&self, call: &'static str) -> Result<(), ClientError> {
        let fate = self.network.draw_fate(self.switch, self.deadline);
        match fate {
            // Delivered twice has no effect here: these calls are idempotent.
            MessageFate::Arrives(after) | MessageFate::Twice(after) => {
                self.wait_for_slot(after).await;
            }
            MessageFate::Lost | MessageFate::Late(_) => {
                self.wait_for_slot(self.deadline).await;
                return Err(ClientError::Deadline(call));
            }
        }
        if self.is_cut() {
            self.wait_for_slot(self.deadline).await;
            return Err(ClientError::Deadline(call));
        }
        match self.is_alive() {
            true => Ok(()),
            false => Err(call_error(call, Code::Unavailable)),
        }
    }

    /// Waits as long as the switch makes a caller wait; an error if that is beyond the deadline.
    async fn await_answer(&self, call: &'static str) -> Result<(), ClientError> {
        let waits_for_liars = self.network.planted_bug == PlantedBug::WaitsForLiars;
        let _turn = match waits_for_liars {
            true => Some(self.network.turn.lock().await),
            false => None,
        };
        match self.lie() {
            Some(SwitchLie::Slow) => self.wait_for_slot(self.deadline.mul_f64(0.8)).await,
            Some(SwitchLie::Silent) if waits_for_liars => {
                while self.lie() == Some(SwitchLie::Silent) {
                    self.wait_for_slot(self.deadline).await;
                }
            }
            Some(SwitchLie::Silent) => {
                self.wait_for_slot(self.deadline).await;
                return Err(ClientError::Deadline(call));
            }
            _ => {}
        }
        Ok(())
    }

    fn lie(&self) -> Option<SwitchLie> {
        self.with_switch(|device| device.lie)
    }

    fn report_violation(&self, what: &str) {
        let (controller, switch) = (self.network.controller, self.switch);
        let violation = format!("controller {controller}, switch {switch}: {what}");
        self.network.lock_testbed().violations.push(violation);
    }

    fn endpoint_pair(&self) -> EndpointPair {
        (self.network.controller, self.switch)
    }

    /// A random share from 0 to 1.
    fn draw_share(&self) -> f64 {
        self.network.lock_testbed().pair_random(self.endpoint_pair()).random_range(0.0..=1.0)
    }

    async fn wait_for_slot(&self, after: Duration) {
        self.network.wait_for_slot(self.switch, after).await;
    }

    fn is_cut(&self) -> bool {
        self.network.is_cut(self.switch)
    }

    fn is_alive(&self) -> bool {
        let world = self.network.lock_testbed();
        let device = &world.devices[self.switch];
        device.is_on && device.incarnation == self.incarnation
    }

    /// Runs something on the switch.
    fn with_switch<R>(&self, what: impl FnOnce(&mut FakeSwitch) -> R) -> R {
        what(&mut self.network.lock_testbed().devices[self.switch])
    }

    /// Records a violation if a controller writes after it learned that another is primary, or
    /// after its lease has expired.
    fn check_mastership(&self, call: &str) {
        let (controller, switch) = (self.network.controller, self.switch);
        let is_primary = *lock_mutex(&self.is_primary);
        let mut world = self.network.lock_testbed();
        if world.is_paused(controller) {
            // It leaves when the process goes on, as what was under way when it was stopped.
            return;
        }
        let leads = world.led != LeadershipMode::Etcd
            || world.cluster.is_led_by(controller, Instant::now());
        let why = match (is_primary, leads) {
            (true, true) => return,
            (false, _) => "as backup",
            (true, false) => "without a lease",
        };
        let what = format!("controller {controller} calls {call} of switch {switch} {why}");
        world.violations.push(what);
    }

    /// Records a violation if the switch is somebody else's.
    fn check_owner(&self, call: &str) {
        if self.with_switch(|device| device.foreign.is_some()) && self.is_alive() {
            self.report_violation(&format!("{call} at a switch of somebody else"));
        }
    }

    /// Another handle of this connection, for tasks beside its calls.
    fn clone_connection(&self) -> Self {
        Self { network: self.network.clone(), is_primary: Arc::clone(&self.is_primary), ..*self }
    }

    /// Forwards bids to the switch until the controller closes the stream, which the switch notices
    /// later.
    async fn forward_bids(self, session: SessionId, mut messages: mpsc::Receiver<OutgoingMessage>) {
        while let Some(message) = messages.recv().await {
            if self.network.planted_bug == PlantedBug::BidsOnce {
                continue;
            }
            // A stream that loses a message has ended.
            if self.send_one_way("StreamChannel").await.is_err() {
                break;
            }
            if let OutgoingMessage::Bid(bid) = message {
                let bid = self.sent_election_id(bid);
                self.check_owner("a bid");
                self.with_switch(|device| device.bid_election(session, bid));
            }
        }
        let share = self.draw_share();
        self.wait_for_slot(KEEPALIVE.mul_f64(share)).await;
        if self.is_alive() {
            self.with_switch(|device| device.close_stream(session));
        }
    }

    /// The next message of a flood, once its burst has arrived; none if there is no flood.
    async fn next_of_flood(&self, flooded: &mut u32) -> Option<IncomingMessage> {
        while self.lie() == Some(SwitchLie::FloodsStreams) && self.is_alive() && !self.is_cut() {
            *flooded += 1;
            if flooded.is_multiple_of(FLOOD_BURST) {
                self.wait_for_slot(TRIP).await;
            }
            if *flooded == FLOOD_MAX {
                self.report_violation("a flood on a stream was received to its end");
                return None;
            }
            if self.network.planted_bug != PlantedBug::HearsOutFloods {
                return Some(IncomingMessage::StreamError("a flood".to_owned()));
            }
        }
        None
    }

    /// The next message from the switch, after its delay; `None` once the connection is dead.
    async fn next_message(
        &self,
        verdicts: &mut mpsc::Receiver<MastershipStatus>,
        flooded: &mut u32,
    ) -> Option<IncomingMessage> {
        loop {
            if let Some(message) = self.next_of_flood(flooded).await {
                return Some(message);
            }
            // Subscribe before the check: a cut between the two would be missed.
            let mut cuts = self.network.lock_testbed().cut_changes.subscribe();
            if self.is_cut() {
                return None;
            }
            let status = tokio::select! {
                biased;
                status = verdicts.recv() => match status {
                    Some(status) => Some(status),
                    None => {
                        // A stopped process learns of the end when it goes on.
                        self.wait_for_slot(Duration::ZERO).await;
                        return None;
                    }
                },
                _ = cuts.changed() => None,
            };
            // A status that arrives while the connection is cut is lost with it.
            if self.is_cut() {
                return None;
            }
            let Some(status) = status else { continue };
            let trip = self.draw_share();
            self.wait_for_slot(TRIP.mul_f64(trip)).await;
            let was_primary = {
                let mut is_primary = lock_mutex(&self.is_primary);
                std::mem::replace(&mut *is_primary, status == MastershipStatus::Primary)
            };
            let deaf = self.network.planted_bug == PlantedBug::DeafToLoss && was_primary;
            if !deaf {
                return Some(IncomingMessage::Mastership(self.received_status(status)));
            }
        }
    }

    /// A status as a controller receives it that does not learn the terms of others.
    fn received_status(&self, status: MastershipStatus) -> MastershipStatus {
        let unknown = ElectionId::default();
        match (self.network.planted_bug, status) {
            (PlantedBug::ForgetsTerms, MastershipStatus::Backup { .. }) => {
                MastershipStatus::Backup { highest: unknown }
            }
            (PlantedBug::ForgetsTerms, MastershipStatus::NoPrimary { .. }) => {
                MastershipStatus::NoPrimary { highest: unknown }
            }
            _ => status,
        }
    }

    /// The election id with which a write arrives that was sent with this one.
    fn arriving_election_id(&self, election: ElectionId) -> ElectionId {
        let primary = self.with_switch(|device| device.primary());
        match self.network.planted_bug {
            PlantedBug::WritesAsSuccessor => primary.unwrap_or(election),
            _ => election,
        }
    }

    /// The election id that reaches the switch for this bid.
    fn sent_election_id(&self, bid: ElectionId) -> ElectionId {
        let mut world = self.network.lock_testbed();
        let used = world.terms.entry(self.network.controller).or_default();
        *used = bid.term().max(*used);
        match self.network.planted_bug {
            PlantedBug::ReusesElectionIds => ElectionId::new(1, self.network.controller, 1),
            _ => bid,
        }
    }

    /// Applies a batch, now or, if it is late, after its sender has timed out.
    fn apply_batch(
        &self,
        updates: &[TableUpdate],
        election: ElectionId,
    ) -> Result<Vec<Code>, Code> {
        if !self.is_alive() {
            return Err(Code::Unavailable);
        }
        self.check_owner("Write");
        let incarnation = self.incarnation;
        let election = self.arriving_election_id(election);
        if self.network.planted_bug != PlantedBug::ReusesElectionIds
            && election.controller() != self.network.controller
        {
            self.report_violation("a write in the name of another controller");
        }
        let codes = self.with_switch(|device| {
            device.authorize_write(election)?;
            match device.lie {
                Some(SwitchLie::ClaimsWrites) => Ok(vec![Code::Ok; updates.len()]),
                _ => device.apply_batch(updates),
            }
        })?;
        let mut world = self.network.lock_testbed();
        world.record_word(incarnation);
        world.record_word(election.0 as u64);
        for code in &codes {
            world.record_word(*code as u64 + 1);
        }
        Ok(codes)
    }

    /// Applies a batch later; its result is discarded.
    fn apply_batch_later(&self, updates: Vec<TableUpdate>, election: ElectionId, after: Duration) {
        let line = self.clone_connection();
        tokio::spawn(async move {
            line.wait_for_slot(after).await;
            drop(line.apply_batch(&updates, election));
        });
    }

    fn store_cached_tables(&self, tables: SwitchTables) {
        lock_mutex(&self.network.cached_tables).insert(self.switch, tables);
    }

    /// Remembers updates that were acknowledged for the next read, if the controller trusts them.
    fn note_acknowledged(&self, sent: &[TableUpdate]) {
        if self.network.planted_bug == PlantedBug::TrustsAcknowledgements {
            let held = self.with_switch(|device| device.tables.clone());
            let mut acknowledged = lock_mutex(&self.network.acknowledged);
            acknowledged.entry(self.switch).or_insert(held).apply(sent);
        }
    }

    fn take_acknowledged(&self) -> Option<SwitchTables> {
        lock_mutex(&self.network.acknowledged).remove(&self.switch)
    }

    fn cached_tables(&self) -> Option<SwitchTables> {
        let remembers = self.network.planted_bug == PlantedBug::RemembersTables;
        lock_mutex(&self.network.cached_tables).get(&self.switch).filter(|_| remembers).cloned()
    }
}

fn call_error(call: &'static str, code: Code) -> ClientError {
    ClientError::Call { call, code, message: "injected by the schedule".to_owned() }
}
