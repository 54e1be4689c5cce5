//! The task that owns the [`LearnedFlowTable`].
//!
//! The decision: what is learned is published at ticks, so that a flood of reports costs a copy of
//! the table a second and not one for each report.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{AckSchedule, LearnedFlowTable, LearnedFlows};
use crate::config::LearningConfig;
use crate::discovery::SwitchPort;
use crate::southbound::connection::OutgoingMessage;
use crate::southbound::{DigestQueue, ReceivedDigests};
use crate::state::PlanRollout;

/// Time between two publications.
const TICK: Duration = Duration::from_secs(1);
/// Lists that may wait for the task.
const QUEUED_LISTS: usize = 1_024;
/// Acknowledgements that may wait for their time, of all switches.
const WAITING_ACKS: usize = 65_536;

/// A list to be acknowledged on a stream.
type DueAck = (mpsc::Sender<OutgoingMessage>, u64);

/// Learns flows from digests.
pub(crate) struct FlowLearner {
    is_enabled: bool,
    received: mpsc::Receiver<ReceivedDigests>,
    queue: DigestQueue,
    table: LearnedFlowTable,
    acks: AckSchedule<DueAck>,
    published: watch::Sender<Arc<LearnedFlows>>,
    /// The names of the switches that the table is about.
    switches: Vec<String>,
}

impl FlowLearner {
    /// A task, and the queue of its sessions.
    pub(crate) fn new(limits: &LearningConfig) -> (Self, DigestQueue) {
        let (queue, received) = DigestQueue::new(QUEUED_LISTS);
        let learner = Self {
            is_enabled: limits.is_enabled,
            received,
            queue: queue.clone(),
            table: LearnedFlowTable::new(*limits),
            acks: AckSchedule::new(limits.refresh, WAITING_ACKS),
            published: watch::Sender::default(),
            switches: Vec::new(),
        };
        (learner, queue)
    }

    /// The learned flows, as they change.
    pub(crate) fn flow_receiver(&self) -> watch::Receiver<Arc<LearnedFlows>> {
        self.published.subscribe()
    }

    /// Learns until `stop`, if learning is enabled.
    pub(crate) async fn run(
        mut self,
        rollout: watch::Receiver<Option<PlanRollout>>,
        stop: CancellationToken,
    ) {
        if self.is_enabled {
            stop.run_until_cancelled(self.receive_reports(rollout)).await;
        }
    }

    async fn receive_reports(&mut self, mut rollout: watch::Receiver<Option<PlanRollout>>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Ticks come first: acknowledgements and the age of flows do not wait for reports.
                biased;
                _ = ticks.tick() => {
                    self.follow_rollout(&mut rollout);
                    self.advance_time(Instant::now());
                }
                Some(digests) = self.received.recv() => {
                    self.follow_rollout(&mut rollout);
                    self.record_digests(digests, Instant::now());
                }
            }
        }
    }

    /// Flows are kept by the ids of switches, which mean the same while the switches do.
    fn follow_rollout(&mut self, rollouts: &mut watch::Receiver<Option<PlanRollout>>) {
        if !rollouts.has_changed().unwrap_or(false) {
            return;
        }
        let rollout = rollouts.borrow_and_update();
        let names = rollout.iter().flat_map(|rollout| rollout.fabric.switches());
        let switches: Vec<String> = names.map(|switch| switch.name.clone()).collect();
        if self.switches != switches {
            self.table.clear_flows();
            self.switches = switches;
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

    fn advance_time(&mut self, now: Instant) {
        for (stream, list) in self.acks.take_due_acks(now) {
            // Where the stream is closed or full, the switch goes on after its timeout.
            drop(stream.try_send(OutgoingMessage::DigestAck(list)));
        }
        self.table.expire_flows(now);
        let learned = self.table.all_flows(self.queue.dropped_lists());
        self.published.send_if_modified(|published| {
            let is_new = **published != learned;
            if is_new {
                *published = Arc::new(learned);
            }
            is_new
        });
    }
}
