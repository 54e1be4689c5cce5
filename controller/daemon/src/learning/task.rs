//! The task that owns the [`LearnedFlowTable`].
//!
//! The decision: learned flows are published at ticks, so that a flood of reports costs a few
//! copies of the table a second and not one for each report. The connections of jobs are submitted
//! to the state at the same ticks, one change for all that have come.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use p4::codec::RoceTuple;
use planner::{LearnedConnection, NicOwners};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use topology::Fabric;

use super::queue_pair_flows::QueuePairFlows;
use super::{
    AckSchedule, ConnectionList, CountedConnection, HostQueuePairs, LearnedFlowTable, LearnedFlows,
    pin_reader,
};
use crate::config::{Config, SouthboundConfig};
use crate::discovery::SwitchPort;
use crate::pipelines::FabricWiring;
use crate::southbound::connection::OutgoingMessage;
use crate::southbound::write_permit::WritePermit;
use crate::southbound::{DigestQueue, ReceivedDigests};
use crate::state::{EventSubmission, PlanRollout, StateEvent};
use crate::supervision::TaskSupervisor;

/// Time between two publications: with it, a digest and a write, a connection has its pin within a
/// second of its first packet.
const TICK: Duration = Duration::from_millis(200);
/// Lists that may wait for the task.
const QUEUED_LISTS: usize = 1_024;
/// Acknowledgements that may wait for their time, of all switches.
const WAITING_ACKS: usize = 65_536;

/// Reports of queue pairs that may wait for the task; each has a bounded number of bytes.
const QUEUED_HOSTS: usize = 64;

/// A list to be acknowledged on a stream.
type DueAck = (mpsc::Sender<OutgoingMessage>, u64);

/// Learns flows from digests.
pub(crate) struct FlowLearner {
    is_enabled: bool,
    received: mpsc::Receiver<ReceivedDigests>,
    queue: DigestQueue,
    hosts: mpsc::Receiver<HostQueuePairs>,
    to_hosts: mpsc::Sender<HostQueuePairs>,
    queue_pairs: QueuePairFlows,
    /// When joined flows are kept alive again.
    next_keeping: Instant,
    table: LearnedFlowTable,
    acks: AckSchedule<DueAck>,
    published: watch::Sender<Arc<LearnedFlows>>,
    /// The names of the switches that the table is about.
    switches: Vec<String>,
    connections: ConnectionList,
    /// The connections that the state has.
    submitted: Vec<LearnedConnection>,
    /// The fabric that the NICs of these are in.
    wiring: Option<Arc<FabricWiring>>,
    /// A reading of pins under way, and when the next one is due.
    reading: Option<JoinHandle<Vec<CountedConnection>>>,
    next_reading: Instant,
    /// When the pairs whose flows of no job are counted may change: what hosts invent must not
    /// cause more than one change of tables in this time.
    next_counting: Instant,
    /// Whether flows have changed since these pairs were last followed.
    is_uncounted: bool,
    read_interval: Duration,
    southbound: SouthboundConfig,
    /// Whether this controller leads.
    permit: watch::Receiver<WritePermit>,
}

/// What the task follows and reports to.
#[derive(Clone)]
pub(crate) struct LearnerInputs {
    /// The rollout in force.
    pub(crate) rollout: watch::Receiver<Option<PlanRollout>>,
    /// The queue of the event loop.
    pub(crate) events: mpsc::Sender<EventSubmission>,
}

impl FlowLearner {
    /// A task, and the queue of its sessions.
    pub(crate) fn new(
        config: &Config,
        permit: watch::Receiver<WritePermit>,
    ) -> (Self, DigestQueue) {
        let limits = &config.learning;
        let (queue, received) = DigestQueue::new(QUEUED_LISTS);
        let (to_hosts, hosts) = mpsc::channel(QUEUED_HOSTS);
        let learner = Self {
            is_enabled: limits.is_enabled,
            received,
            queue: queue.clone(),
            hosts,
            to_hosts,
            queue_pairs: QueuePairFlows::new(limits),
            next_keeping: Instant::now(),
            table: LearnedFlowTable::new(*limits),
            acks: AckSchedule::new(limits.refresh, WAITING_ACKS),
            published: watch::Sender::default(),
            switches: Vec::new(),
            connections: ConnectionList::default(),
            submitted: Vec::new(),
            wiring: None,
            reading: None,
            next_reading: Instant::now(),
            next_counting: Instant::now(),
            is_uncounted: false,
            read_interval: limits.refresh,
            southbound: config.southbound.clone(),
            permit,
        };
        (learner, queue)
    }

    /// The learned flows, as they change.
    pub(crate) fn flow_receiver(&self) -> watch::Receiver<Arc<LearnedFlows>> {
        self.published.subscribe()
    }

    /// The queue for the queue pairs of hosts; none if learning is disabled.
    pub(crate) fn host_queue(&self) -> Option<mpsc::Sender<HostQueuePairs>> {
        self.is_enabled.then(|| self.to_hosts.clone())
    }

    /// Learns until `stop`, if learning is enabled.
    pub(crate) async fn run(
        mut self,
        inputs: LearnerInputs,
        supervisor: TaskSupervisor,
        stop: CancellationToken,
    ) {
        if self.is_enabled {
            let running = supervisor.run_restarting("learning", &mut self, |task| {
                task.receive_reports(inputs.clone()).boxed()
            });
            stop.run_until_cancelled(running).await;
        }
    }

    async fn receive_reports(&mut self, inputs: LearnerInputs) {
        let LearnerInputs { mut rollout, events } = inputs;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Ticks come first: acknowledgements and the age of flows do not wait for reports.
                biased;
                _ = ticks.tick() => {
                    let now = Instant::now();
                    let is_new = self.follow_rollout(&mut rollout);
                    self.follow_pins(&rollout, now).await;
                    let is_joined = self.join_queue_pairs(&rollout, now);
                    self.advance_time(&rollout, now);
                    self.submit_connections(&rollout, is_new | is_joined, &events);
                }
                Some(digests) = self.received.recv() => {
                    self.follow_rollout(&mut rollout);
                    self.record_digests(digests, Instant::now());
                }
                Some(report) = self.hosts.recv() => {
                    self.queue_pairs.replace_host(report, Instant::now());
                }
            }
        }
    }

    /// Flows are kept by the ids of switches, which mean the same while the switches do. Whether
    /// there is a new rollout.
    fn follow_rollout(&mut self, rollouts: &mut watch::Receiver<Option<PlanRollout>>) -> bool {
        if !rollouts.has_changed().unwrap_or(false) {
            return false;
        }
        let rollout = rollouts.borrow_and_update();
        let wiring = rollout.as_ref().map(|rollout| &rollout.wiring);
        let is_first = self.wiring.is_none();
        // The state drops its connections with a fabric; they are submitted again for the next.
        if wiring.zip(self.wiring.as_ref()).is_none_or(|(new, had)| !Arc::ptr_eq(new, had)) {
            self.submitted.clear();
            self.wiring = wiring.cloned();
        }
        let names = rollout.iter().flat_map(|rollout| rollout.fabric.switches());
        let switches: Vec<String> = names.map(|switch| switch.name.clone()).collect();
        if self.switches != switches {
            self.table.clear_flows();
            self.connections = ConnectionList::default();
            self.submitted.clear();
            self.switches = switches;
        }
        let is_standby = !self.permit.borrow().may_write(Instant::now());
        // Those of an earlier run or of the leader, which switches do not report again while they
        // are pinned.
        let restored = rollout.as_ref().filter(|rollout| {
            is_first || is_standby && rollout.basis.connections != self.submitted
        });
        if let Some(rollout) = restored {
            let known = &rollout.basis.connections;
            restore_flows(&rollout.fabric, known, &mut self.table);
            self.connections = ConnectionList::from_connections(known);
            self.submitted.clone_from(known);
        }
        true
    }

    /// Submits the connections of jobs where they have changed. A full queue is tried again at the
    /// next tick.
    fn submit_connections(
        &mut self,
        rollout: &watch::Receiver<Option<PlanRollout>>,
        is_new: bool,
        events: &mpsc::Sender<EventSubmission>,
    ) {
        let (is_changed, now) = (self.table.take_change() | is_new, Instant::now());
        self.is_uncounted |= is_changed;
        let is_due = self.is_uncounted && now >= self.next_counting;
        if let Some(rollout) = rollout.borrow().as_ref().filter(|_| is_changed || is_due) {
            let owners = NicOwners::new(&rollout.fabric, &rollout.plan);
            let flows = Arc::clone(&self.published.borrow());
            self.connections.follow_flows(&flows.flows, &rollout.fabric, &owners);
            if is_due {
                (self.is_uncounted, self.next_counting) = (false, now + self.read_interval);
                self.connections.follow_unowned(&flows.flows, &rollout.fabric, &owners);
            }
        }
        let connections = self.connections.connections();
        if connections != self.submitted {
            let event = StateEvent::FlowsLearned(connections.clone());
            let (submission, _receipt) = EventSubmission::event(event, Instant::now());
            if events.try_send(submission).is_ok() {
                self.submitted = connections;
            }
        }
    }

    /// Takes in a finished reading of pins, and begins one when it is due.
    async fn follow_pins(&mut self, rollout: &watch::Receiver<Option<PlanRollout>>, now: Instant) {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            for counted in reading.await.unwrap_or_default() {
                self.table.record_bytes(&counted, now);
            }
        }
        if self.reading.is_some() || now < self.next_reading {
            return;
        }
        let learned = rollout
            .borrow()
            .clone()
            .filter(|rollout| !rollout.learned.is_empty() || !rollout.basis.connections.is_empty());
        if let Some(rollout) = learned {
            self.next_reading = now + self.read_interval;
            let southbound = self.southbound.clone();
            self.reading = Some(tokio::spawn(pin_reader::read_pins(rollout, southbound)));
        }
    }

    fn record_digests(&mut self, digests: ReceivedDigests, now: Instant) {
        let ReceivedDigests { switch, list, stream } = digests;
        for flow in &list.flows {
            let at = SwitchPort { switch, port: flow.ingress_port.number() };
            self.table.record_flow(at, flow.tuple, now);
        }
        self.table.record_malformed(list.malformed);
        self.acks.add_ack((stream, list.list_id), now);
    }

    /// Takes in the flows that hosts report both ends of, when they are new and in intervals;
    /// whether they are new.
    fn join_queue_pairs(
        &mut self,
        rollout: &watch::Receiver<Option<PlanRollout>>,
        now: Instant,
    ) -> bool {
        let Some(rollout) = &*rollout.borrow() else { return false };
        let is_new = self.queue_pairs.follow_rollout(rollout, now);
        if is_new || now >= self.next_keeping {
            self.next_keeping = now + self.read_interval;
            for (at, tuple) in self.queue_pairs.joined_tuples(&rollout.fabric) {
                self.table.keep_flow(at, tuple, now);
            }
        }
        is_new
    }

    fn advance_time(&mut self, rollout: &watch::Receiver<Option<PlanRollout>>, now: Instant) {
        for (stream, list) in self.acks.take_due_acks(now) {
            // Where the stream is closed or full, the switch goes on after its timeout.
            drop(stream.try_send(OutgoingMessage::DigestAck(list)));
        }
        self.table.expire_flows(now);
        let learned = self.learned_flows(rollout.borrow().as_ref());
        self.published.send_if_modified(|published| {
            let is_new = **published != learned;
            if is_new {
                *published = Arc::new(learned);
            }
            is_new
        });
    }

    /// All flows, with the jobs that hosts state.
    fn learned_flows(&self, rollout: Option<&PlanRollout>) -> LearnedFlows {
        let mut learned = self.table.all_flows(self.queue.dropped_lists());
        learned.counts.refused_hosts = self.queue_pairs.refused_hosts();
        learned.queue_pairs = self.queue_pairs.counts();
        for flow in &mut learned.flows {
            let stated = rollout
                .and_then(|rollout| self.queue_pairs.stated_job(&rollout.fabric, &flow.tuple));
            flow.stated_job = stated.cloned();
        }
        learned
    }
}

/// Puts the connections of an earlier run into the table; which queue pair receives them is not
/// known any more.
fn restore_flows(fabric: &Fabric, known: &[LearnedConnection], table: &mut LearnedFlowTable) {
    let now = Instant::now();
    for seen in known {
        let end = fabric.link(fabric.nic(seen.src).uplink).to;
        let (Some(at), Some(udp_src_port)) = (SwitchPort::at_endpoint(end), seen.udp_src_port)
        else {
            continue;
        };
        let [src, dst] = [seen.src, seen.dst].map(|nic| fabric.nic(nic).ip);
        let tuple = RoceTuple { src, dst, udp_src_port, dest_qp: 0 };
        table.keep_flow(at, tuple, now);
    }
}
