//! All hosts of a fabric and the jobs that train on them: one endpoint of the emulated network,
//! whose NICs are the fabric's NICs by [`NicId`].
//!
//! A packet from a switch goes to the connection that it names; a finished flow goes to its job; a
//! job that starts its flows makes packets. The protocols are in [`crate::transport`] and
//! [`crate::job`]; this module only connects them.
//!
//! The decision: one endpoint for all hosts, so that the barrier between the hosts of a job is a
//! function call. Nothing else passes between hosts but packets.

use std::fmt;

use planner::{Flow, Job};
use switch::{EndpointOutbox, Nanos, NetworkEndpoint};
use topology::{Fabric, NicId};

use crate::job::{IterationSpec, TrainingEffect, TrainingJob};
use crate::nic::NicScheduler;
use crate::roce::{self, FlowAddresses, PacketBody};
use crate::scale::TimeScale;
use crate::transport::{
    MessageSegment, TransportReceiver, TransportReply, TransportSender, TransportSettings,
};

/// Faults that hosts detected, and the retransmissions that followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostErrorCounts {
    /// Packets that were damaged or are not RoCEv2 of an emulated host.
    pub undecodable: u64,
    /// Packets that arrived at a NIC at which their connection does not end.
    pub misdelivered: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

/// The hosts of a fabric with their jobs.
pub struct HostCluster {
    jobs: Vec<EmulatedJob>,
    connections: Vec<RoceConnection>,
    /// By [`NicId`].
    nics: Vec<NicScheduler>,
    errors: HostErrorCounts,
    /// Set by [`HostCluster::stop_new_flows`].
    flows_stopped: bool,
    /// Buffer of the packet that is written.
    packet: Vec<u8>,
}

/// A job with the connections that it uses.
struct EmulatedJob {
    training: TrainingJob,
    connections: std::ops::Range<usize>,
}

/// One flow of a job; its position in [`HostCluster::connections`] is the queue pair of both ends.
struct RoceConnection {
    job: usize,
    bytes: u64,
    source: NicId,
    destination: NicId,
    forward: FlowAddresses,
    backward: FlowAddresses,
    sender: TransportSender,
    receiver: TransportReceiver,
    /// The timer that is set for the connection; at most one is set at a time.
    timer: Option<Nanos>,
}

/// What a timer is for, packed into the token of the emulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerToken {
    Job(usize),
    Connection(usize),
    Nic(usize),
}

/// Tokens are kind and index, the kind above this bit.
const INDEX_BITS: u32 = 32;

impl TimerToken {
    fn to_bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Job(index) => (0, index),
            Self::Connection(index) => (1, index),
            Self::Nic(index) => (2, index),
        };
        kind << INDEX_BITS | index as u64
    }

    fn from_bits(token: u64) -> Self {
        let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
        match token >> INDEX_BITS {
            0 => Self::Job(index),
            1 => Self::Connection(index),
            _ => Self::Nic(index),
        }
    }
}

impl HostCluster {
    /// The hosts of `fabric` with `jobs`, whose sizes and times are divided by `scale`.
    pub fn new(
        fabric: &Fabric,
        jobs: &[Job],
        scale: TimeScale,
        settings: TransportSettings,
    ) -> Self {
        let nics = fabric.nics().iter();
        let mut cluster = Self {
            jobs: Vec::new(),
            connections: Vec::new(),
            nics: nics.map(|nic| NicScheduler::new(fabric.link(nic.uplink).bandwidth)).collect(),
            errors: HostErrorCounts::default(),
            flows_stopped: false,
            packet: Vec::new(),
        };
        for job in jobs {
            cluster.add_job(fabric, job, scale, settings);
        }
        cluster
    }

    /// Schedules the start of job `index` (its position in the jobs given).
    pub fn start_job_at(&mut self, index: usize, at: Nanos, out: &mut EndpointOutbox) {
        out.set_timer(at, TimerToken::Job(index).to_bits());
    }

    fn wake_job(&mut self, index: usize, now: Nanos, out: &mut EndpointOutbox) {
        let effects = self.jobs[index].training.handle_wake(now);
        self.apply_effects(index, &effects, now, out);
    }

    /// Starts no more flows; active ones continue to their end.
    pub fn stop_new_flows(&mut self) {
        self.flows_stopped = true;
    }

    /// Whether every started flow has ended.
    pub fn all_flows_done(&self) -> bool {
        self.connections.iter().all(|connection| connection.sender.is_done())
    }

    /// The jobs, in the order given.
    pub fn training_jobs(&self) -> impl Iterator<Item = &TrainingJob> + Clone {
        self.jobs.iter().map(|job| &job.training)
    }

    /// Packets that were damaged, misdelivered or sent again since the start.
    pub fn error_counts(&self) -> HostErrorCounts {
        let senders = self.connections.iter().map(|connection| &connection.sender);
        let retransmitted = senders.map(TransportSender::retransmitted_packets).sum();
        HostErrorCounts { retransmitted, ..self.errors }
    }

    fn add_job(
        &mut self,
        fabric: &Fabric,
        job: &Job,
        scale: TimeScale,
        settings: TransportSettings,
    ) {
        let compute_ns = scale.shrink_seconds(job.compute_seconds);
        let first = self.connections.len();
        for flow in &job.flows {
            let queue_pair = self.connections.len() as u32;
            self.connections.push(RoceConnection {
                job: self.jobs.len(),
                bytes: scale.shrink_bytes(flow.bytes),
                source: flow.src,
                destination: flow.dst,
                forward: flow_addresses(fabric, flow.src, flow.dst, flow, queue_pair),
                backward: flow_addresses(fabric, flow.dst, flow.src, flow, queue_pair),
                sender: TransportSender::new(settings),
                receiver: TransportReceiver::new(settings),
                timer: None,
            });
        }
        self.jobs.push(EmulatedJob {
            training: TrainingJob::new(IterationSpec {
                compute_ns,
                communicate_after_ns: scale.shrink_seconds(job.overlap_from * job.compute_seconds),
                flows: job.flows.len() as u32,
            }),
            connections: first..self.connections.len(),
        });
    }

    fn apply_effects(
        &mut self,
        job: usize,
        effects: &[TrainingEffect],
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        for effect in effects {
            match effect {
                TrainingEffect::WakeAt(at) => out.set_timer(*at, TimerToken::Job(job).to_bits()),
                TrainingEffect::StartFlows if self.flows_stopped => {}
                TrainingEffect::StartFlows => {
                    for index in self.jobs[job].connections.clone() {
                        let connection = &mut self.connections[index];
                        connection.sender.begin_message(connection.bytes, now);
                        self.request_transmission(index, now, out);
                    }
                }
            }
        }
    }

    /// Gives a data packet to its receiver and sends the reply.
    fn receive_data(&mut self, index: usize, psn: u32, last: bool, out: &mut EndpointOutbox) {
        let connection = &mut self.connections[index];
        let answer = match connection.receiver.receive_segment(psn, last) {
            TransportReply::NoReply => return,
            TransportReply::Ack(psn) => PacketBody::Ack { psn },
            TransportReply::Nak(psn) => PacketBody::Nak { psn },
        };
        roce::write_packet(&connection.backward, answer, &mut self.packet);
        out.send_packet(connection.destination.0, &self.packet);
    }

    /// Gives a reply to its sender, sends what it allows, and reports a completed flow to its job.
    fn receive_reply(
        &mut self,
        index: usize,
        answer: PacketBody,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &mut self.connections[index];
        let (job, was_done) = (connection.job, connection.sender.is_done());
        match answer {
            PacketBody::Ack { psn } => connection.sender.handle_ack(psn, now),
            PacketBody::Nak { psn } => connection.sender.handle_nak(psn, now),
            PacketBody::Data { .. } => {}
        }
        let is_done = connection.sender.is_done();
        self.request_transmission(index, now, out);
        if !was_done && is_done {
            let effects = self.jobs[job].training.handle_flow_done(now);
            self.apply_effects(job, &effects, now, out);
        }
    }

    /// Sends what the window allows and makes sure that a timer is set.
    fn request_transmission(&mut self, index: usize, now: Nanos, out: &mut EndpointOutbox) {
        let connection = &mut self.connections[index];
        // The timer is not moved when the deadline moves: it expires early, finds nothing to do,
        // and is set again. So a connection has one timer, whatever the number of replies.
        if let (None, Some(deadline)) = (connection.timer, connection.sender.deadline()) {
            connection.timer = Some(deadline);
            out.set_timer(deadline, TimerToken::Connection(index).to_bits());
        }
        if connection.sender.can_send() {
            let nic = connection.source.index();
            self.nics[nic].enqueue_connection(index);
            self.transmit_packets(nic, now, out);
        }
    }

    /// Sends packets while the link of a NIC is free.
    fn transmit_packets(&mut self, nic: usize, now: Nanos, out: &mut EndpointOutbox) {
        while let Some(index) = self.nics[nic].next_connection(now) {
            let connection = &mut self.connections[index];
            let segment = connection.sender.next_segment();
            let Some(MessageSegment { psn, payload, first, last }) = segment else {
                continue;
            };
            let body = PacketBody::Data { psn, payload, first, last };
            roce::write_packet(&connection.forward, body, &mut self.packet);
            out.send_packet(nic as u32, &self.packet);
            let overhead = roce::overhead_from(connection.forward.source.1);
            self.nics[nic].occupy_link(payload + overhead, now);
            if connection.sender.can_send() {
                self.nics[nic].enqueue_connection(index);
            }
        }
        if let Some(at) = self.nics[nic].take_next_wake() {
            out.set_timer(at, TimerToken::Nic(nic).to_bits());
        }
    }
}

impl NetworkEndpoint for HostCluster {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], now: Nanos, out: &mut EndpointOutbox) {
        let Ok((queue_pair, body)) = roce::read_packet(packet) else {
            self.errors.undecodable += 1;
            return;
        };
        let index = queue_pair as usize;
        let end = self.connections.get(index).map(|connection| match body {
            PacketBody::Data { .. } => connection.destination,
            PacketBody::Ack { .. } | PacketBody::Nak { .. } => connection.source,
        });
        match body {
            _ if end != Some(NicId(nic)) => self.errors.misdelivered += 1,
            PacketBody::Data { psn, last, .. } => self.receive_data(index, psn, last, out),
            answer => self.receive_reply(index, answer, now, out),
        }
    }

    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox) {
        match TimerToken::from_bits(token) {
            TimerToken::Job(index) => self.wake_job(index, now, out),
            TimerToken::Connection(index) => {
                let connection = &mut self.connections[index];
                connection.timer = None;
                connection.sender.handle_timeout(now);
                self.request_transmission(index, now, out);
            }
            TimerToken::Nic(nic) => {
                self.nics[nic].clear_wake();
                self.transmit_packets(nic, now, out);
            }
        }
    }
}

impl fmt::Debug for HostCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCluster of {} jobs, {} connections", self.jobs.len(), self.connections.len())
    }
}

/// Addresses of one direction of a flow. Replies carry the UDP source port of the flow, so that the
/// five-tuple identifies their flow to a switch.
fn flow_addresses(
    fabric: &Fabric,
    from: NicId,
    to: NicId,
    flow: &Flow,
    queue_pair: u32,
) -> FlowAddresses {
    let (from, to) = (fabric.nic(from), fabric.nic(to));
    FlowAddresses {
        source: (from.mac, from.ip),
        destination: (to.mac, to.ip),
        // A host that states no port still sends from one.
        udp_src_port: flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT),
        queue_pair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for token in [
            TimerToken::Job(0),
            TimerToken::Job(7),
            TimerToken::Connection(0),
            TimerToken::Connection(77),
            TimerToken::Nic(3),
        ] {
            assert_eq!(TimerToken::from_bits(token.to_bits()), token);
        }
    }
}
