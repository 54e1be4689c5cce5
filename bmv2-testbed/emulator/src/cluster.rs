//! All hosts of a fabric and the jobs that train on them: one endpoint of the emulated network,
//! whose NICs are the fabric's NICs by [`NicId`].
//!
//! A packet from a switch goes to the connection that it names; a finished flow goes to its job; a
//! job that starts its flows makes packets. The protocols are in [`crate::transport`] and
//! [`crate::job`]; this module only connects them.
//!
//! The decision: one endpoint for all hosts, so that the barrier between the hosts of a job is a
//! function call. Nothing else passes between hosts but packets. Links inside a host are queues
//! like that of a NIC ([`transmission`]).

use std::collections::VecDeque;
use std::fmt;

use planner::Job;
use switch::{EndpointOutbox, LevelPause, Nanos, NetworkEndpoint, NicPause, WireState};
use topology::{Fabric, NicId};

use crate::connection::{HostSettings, RoceConnection};
use crate::host_link::HostLinkScheduler;
use crate::host_ports::HostPorts;
use crate::job::{IterationSpec, StartGrid, TrainingEffect, TrainingJob};
use crate::roce::{self, PacketBody};
use crate::scale::TimeScale;
use crate::transport::TransportSender;

mod transmission;
use transmission::PacketPlace;

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

/// What congestion did to the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCongestionCounts {
    /// Packets that arrived with a mark.
    pub marked: u64,
    /// Congestion notifications that receivers sent.
    pub notifications: u64,
    /// Times that a switch paused a NIC.
    pub pauses: u64,
    /// How long, summed over NICs, over the pauses that have ended.
    pub paused_ns: Nanos,
    /// Timeouts of connections.
    pub timeouts: u64,
    /// Connections that are lost because their retries were exhausted.
    pub lost_connections: u64,
}

/// A connection whose retries were exhausted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostConnection {
    /// The job, by its position; it has ended with the connection.
    pub job: usize,
    /// The flow, counted over all jobs.
    pub flow: usize,
    /// When.
    pub at: Nanos,
}

/// The hosts of a fabric with their jobs.
pub struct HostCluster {
    jobs: Vec<EmulatedJob>,
    connections: Vec<RoceConnection>,
    /// Links that hosts send on: of NICs by [`NicId`], then those inside hosts in their order.
    links: Vec<HostLinkScheduler>,
    ports: HostPorts,
    /// Links with something to do, in the order in which that came up.
    ready_links: VecDeque<usize>,
    errors: HostErrorCounts,
    /// Packets that arrived with a mark.
    marked: u64,
    lost: Vec<LostConnection>,
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

/// A data packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedSegment {
    psn: u32,
    last: bool,
    marked: bool,
    /// Of the whole packet.
    bytes: u32,
}

/// What a timer is for, packed into the token of the emulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerToken {
    Job(usize),
    Connection(usize),
    Link(usize),
    Rate(usize),
}

/// Tokens are kind and index, the kind above this bit.
const INDEX_BITS: u32 = 32;

impl TimerToken {
    fn to_bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Job(index) => (0, index),
            Self::Connection(index) => (1, index),
            Self::Link(index) => (2, index),
            Self::Rate(index) => (3, index),
        };
        kind << INDEX_BITS | index as u64
    }

    fn from_bits(token: u64) -> Self {
        let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
        match token >> INDEX_BITS {
            0 => Self::Job(index),
            1 => Self::Connection(index),
            2 => Self::Link(index),
            _ => Self::Rate(index),
        }
    }
}

impl HostCluster {
    /// The hosts of `fabric` with `jobs`, whose sizes and times are divided by `scale`.
    pub fn new(fabric: &Fabric, jobs: &[Job], scale: TimeScale, settings: HostSettings) -> Self {
        let links = fabric.nics().iter().map(|nic| nic.uplink).chain(fabric.intra_host_link_ids());
        let links = links.map(|link| {
            HostLinkScheduler::new(fabric.link_bandwidth(link), fabric.link_scheduler(link))
        });
        let mut cluster = Self {
            jobs: Vec::new(),
            connections: Vec::new(),
            links: links.collect(),
            ports: HostPorts::new(fabric),
            ready_links: VecDeque::new(),
            errors: HostErrorCounts::default(),
            marked: 0,
            lost: Vec::new(),
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

    /// Has the hosts send packets and answers of each job with its DSCP, as `crux agent --set-dscp`
    /// does.
    pub fn set_job_dscps(&mut self, dscps: &[u8]) {
        for connection in &mut self.connections {
            let dscp = dscps.get(connection.job).copied().unwrap_or_default();
            (connection.forward.dscp, connection.backward.dscp) = (dscp, dscp);
        }
    }

    /// Has the next iterations of each job begin on its grid, or as soon as they can.
    pub fn set_start_grids(&mut self, grids: &[Option<StartGrid>]) {
        for (job, grid) in self.jobs.iter_mut().zip(grids) {
            job.training.set_grid(*grid);
        }
    }

    fn wake_job(&mut self, index: usize, now: Nanos, out: &mut EndpointOutbox) {
        let effects = self.jobs[index].training.handle_wake(now);
        self.apply_effects(index, &effects, now, out);
    }

    /// Starts no more flows; active ones continue to their end.
    pub fn stop_new_flows(&mut self) {
        self.flows_stopped = true;
    }

    /// Whether every started flow has ended, or is lost.
    pub fn all_flows_done(&self) -> bool {
        let mut senders = self.connections.iter().map(|connection| &connection.sender);
        senders.all(|sender| sender.is_done() || sender.is_lost())
    }

    /// Connections that are lost, in the order in which that happened.
    pub fn lost_connections(&self) -> &[LostConnection] {
        &self.lost
    }

    /// When each message of each flow was acknowledged; flows are counted over all jobs.
    pub fn flow_completions(&self) -> impl Iterator<Item = &[Nanos]> {
        self.connections.iter().map(|connection| connection.completions.as_slice())
    }

    /// How long each flow has waited for service at most: from when it had something to send, or
    /// from the packet before, until a packet of it arrived or until `now`.
    pub fn longest_waits(&self, now: Nanos) -> impl Iterator<Item = Nanos> {
        self.connections.iter().map(move |connection| connection.wait.longest(now))
    }

    /// The rate that congestion control allows each flow at `now`, in bits per second; none where
    /// only the window limits it.
    pub fn allowed_rates(&mut self, now: Nanos) -> Vec<Option<f64>> {
        let pacers = self.connections.iter_mut().map(|connection| connection.pacer.as_mut());
        pacers.map(|pacer| pacer.map(|pacer| pacer.reaction().rate_at(now))).collect()
    }

    /// What congestion did to the hosts since the start.
    pub fn congestion_counts(&self) -> HostCongestionCounts {
        let pauses = self.links.iter().map(HostLinkScheduler::pauses);
        let connections = || self.connections.iter();
        HostCongestionCounts {
            marked: self.marked,
            notifications: connections().map(|one| one.notification.sent()).sum(),
            pauses: pauses.clone().map(|pauses| pauses.count).sum(),
            paused_ns: pauses.map(|pauses| pauses.paused_ns).sum(),
            timeouts: connections().map(|one| one.sender.timeouts()).sum(),
            lost_connections: self.lost.len() as u64,
        }
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

    fn add_job(&mut self, fabric: &Fabric, job: &Job, scale: TimeScale, settings: HostSettings) {
        let (iteration, starts) = IterationSpec::of_job(job, |at| scale.shrink_seconds(at));
        let first = self.connections.len();
        for (flow, start) in job.flows.iter().zip(starts) {
            let index = self.connections.len();
            let connection = RoceConnection::new(fabric, flow, index as u32, settings.transport);
            let link_bps = fabric.link(fabric.nic(flow.src).uplink).bandwidth.gbps() * 1e9;
            let control = settings.congestion.map(|control| control.parameters(link_bps, scale));
            let (job, bytes) = (self.jobs.len(), scale.shrink_bytes(flow.bytes));
            let mut connection = RoceConnection { job, start, bytes, ..connection };
            connection.choose_port(&self.ports);
            self.connections.push(match control {
                Some(parameters) => connection.with_dcqcn(parameters, link_bps),
                None => connection,
            });
        }
        self.jobs.push(EmulatedJob {
            training: TrainingJob::new(iteration),
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
                TrainingEffect::StartFlows(start) => self.start_flows(job, *start, now, out),
            }
        }
    }

    fn start_flows(&mut self, job: usize, start: usize, now: Nanos, out: &mut EndpointOutbox) {
        if self.flows_stopped {
            return;
        }
        for index in self.jobs[job].connections.clone() {
            let connection = &mut self.connections[index];
            if connection.start != start {
                continue;
            }
            connection.sender.begin_message(connection.bytes, now);
            connection.wait.begin(now);
            self.request_transmission(index, now, out);
        }
    }

    /// Gives a data packet to its receiver and sends the replies.
    fn receive_data(
        &mut self,
        index: usize,
        segment: ArrivedSegment,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &mut self.connections[index];
        connection.wait.handle_arrival(segment.last, now);
        if segment.marked {
            self.marked += 1;
            let interval = connection.notification_interval_ns;
            if connection.pacer.is_some() && connection.notification.handle_mark(interval, now) {
                self.send_reply(index, PacketBody::CongestionNotification, now, out);
            }
        }
        let receiver = &mut self.connections[index].receiver;
        for body in receiver.receive_segment(segment.psn, segment.last).packets() {
            self.send_reply(index, body, now, out);
        }
    }

    /// Sends a reply, unless its priority is paused: it then goes when the pause ends.
    fn send_reply(
        &mut self,
        index: usize,
        reply: PacketBody,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let connection = &self.connections[index];
        let addresses = connection.reply_addresses(reply);
        let port = self.ports.sending_port(connection.destination, &addresses);
        let link = &mut self.links[port.index()];
        let priority = roce::priority_of_dscp(addresses.dscp);
        if link.is_paused(priority) {
            return link.hold_reply(index, reply, priority);
        }
        roce::write_packet(&addresses, reply, &mut self.packet);
        link.occupy_link(self.packet.len() as u32, now);
        out.send_packet(port.0, &self.packet);
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
            PacketBody::CongestionNotification => {
                connection.pacer.iter_mut().for_each(|pacer| pacer.handle_notification(now));
            }
            PacketBody::Data { .. } => {}
        }
        let is_done = connection.sender.is_done();
        connection.completions.extend((is_done && !was_done).then_some(now));
        self.request_transmission(index, now, out);
        if !was_done && is_done {
            let effects = self.jobs[job].training.handle_flow_done(now);
            self.apply_effects(job, &effects, now, out);
        }
    }

    /// A connection is lost: its job ends, with all its connections.
    fn end_job(&mut self, index: usize, now: Nanos) {
        let job = self.connections[index].job;
        self.lost.push(LostConnection { job, flow: index, at: now });
        for connection in &mut self.connections[self.jobs[job].connections.clone()] {
            connection.sender.abandon();
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
            PacketBody::Data { .. } => self.ports.first_of(connection.destination),
            PacketBody::Ack { .. }
            | PacketBody::Nak { .. }
            | PacketBody::CongestionNotification => self.ports.first_of(connection.source),
        });
        match body {
            _ if end != Some(self.ports.first_of(NicId(nic))) => self.errors.misdelivered += 1,
            PacketBody::Data { psn, last, .. } => {
                let marked = roce::is_marked(packet);
                let segment = ArrivedSegment { psn, last, marked, bytes: packet.len() as u32 };
                self.pass_inward(PacketPlace { connection: index, hop: 0 }, segment, now, out);
                self.run_links(now, out);
            }
            answer => self.receive_reply(index, answer, now, out),
        }
    }

    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox) {
        match TimerToken::from_bits(token) {
            TimerToken::Job(index) => self.wake_job(index, now, out),
            TimerToken::Connection(index) => {
                let connection = &mut self.connections[index];
                connection.timer = None;
                let was_lost = connection.sender.is_lost();
                connection.sender.handle_timeout(now);
                if connection.sender.is_lost() && !was_lost {
                    return self.end_job(index, now);
                }
                self.request_transmission(index, now, out);
            }
            TimerToken::Rate(index) => {
                self.connections[index].is_paced = false;
                self.request_transmission(index, now, out);
            }
            TimerToken::Link(link) => {
                self.links[link].clear_wake();
                self.ready_links.push_back(link);
                self.run_links(now, out);
            }
        }
    }

    fn handle_pause(&mut self, pause: NicPause, now: Nanos, out: &mut EndpointOutbox) {
        let nic = pause.nic as usize;
        self.links[nic].set_pause(pause.priority, pause.pause, now);
        if pause.pause == LevelPause::Ends {
            while let Some(held) = self.links[nic].release_reply() {
                self.send_reply(held.connection, held.body, now, out);
            }
            self.ready_links.push_back(nic);
            self.run_links(now, out);
        }
    }

    fn handle_carrier(
        &mut self,
        nic: u32,
        carrier: WireState,
        now: Nanos,
        out: &mut EndpointOutbox,
    ) {
        let port = NicId(nic);
        self.ports.set_working(port, carrier == WireState::Up);
        let first = self.ports.first_of(port);
        // The link of a NIC with one port stays its only one.
        if self.ports.has_two(first) {
            self.choose_ports(first, now, out);
        }
    }
}

impl HostCluster {
    /// Has the connections of a NIC use the port that their host chooses now.
    fn choose_ports(&mut self, nic: NicId, now: Nanos, out: &mut EndpointOutbox) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if self.ports.first_of(connection.source) == nic {
                connection.choose_port(&self.ports);
                self.enqueue_before_wire(index);
                self.request_transmission(index, now, out);
            }
        }
    }
}

impl fmt::Debug for HostCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCluster of {} jobs, {} connections", self.jobs.len(), self.connections.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use planner::{Flow, FlowGpus, MeasuredSlowdown};
    use topology::{HostId, HostInterconnect, LinkScheduler, PcieSwitch, clos};

    use super::*;
    use crate::transport::{LossRecovery, MessageSegment, TransportSettings};

    /// Two hosts whose NIC is behind a PCIe switch and has two ports, and a job between them.
    fn bonded_cluster() -> HostCluster {
        let spec =
            clos::ClosSpec { hosts_per_leaf: 1, ports_per_nic: 2, ..clos::ClosSpec::default() };
        let switch =
            PcieSwitch { gpus: (0..8).collect(), nics: vec![0], gbps: 400.0, root_gbps: None };
        let interconnect = Arc::new(HostInterconnect {
            pcie_switches: vec![switch],
            nvlink_domains: Vec::new(),
            scheduler: LinkScheduler::Fifo,
        });
        let fabric = clos::build_clos("bonds", &spec).unwrap();
        let fabric = fabric.with_interconnects(|_| Some(Arc::clone(&interconnect)));
        let job = Job {
            id: "a".into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), 8), (HostId(1), 8)]),
            flop_per_iteration: 1.0,
            compute_seconds: 0.1,
            overlap_from: 0.5,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: vec![Flow {
                src: fabric.host(HostId(0)).nics[0],
                dst: fabric.host(HostId(1)).nics[0],
                bytes: 1e9,
                udp_src_port: Some(0xC000),
                gpus: FlowGpus::new(Some(0), Some(0)),
                overlap_from: None,
            }],
        };
        let transport = TransportSettings {
            window: 16,
            ack_every: 4,
            timeout_ns: 1_000_000_000,
            recovery: LossRecovery::GoBackN,
            reordering: 0,
            retries: None,
        };
        let settings = HostSettings { transport, congestion: None };
        HostCluster::new(&fabric, &[job], TimeScale::REAL, settings)
    }

    #[test]
    fn packets_before_a_port_that_fails_leave_by_the_other() {
        let mut cluster = bonded_cluster();
        let mut out = EndpointOutbox::default();
        let outward = &mut cluster.connections[0].outward;
        let wire = outward.last_place().unwrap();
        let port = outward.link_at(wire).unwrap();
        for psn in 0..2 {
            outward.put(wire, MessageSegment { psn, payload: 4096, first: psn == 0, last: false });
        }
        assert_eq!(outward.passable_link(wire - 1), None, "PCIe is held back");
        cluster.handle_carrier(port as u32, WireState::Down, 0, &mut out);
        let outward = &cluster.connections[0].outward;
        assert_ne!(outward.link_at(wire), Some(port));
        assert!(outward.passable_link(wire - 1).is_some(), "the first has left by the other");
    }

    #[test]
    fn tokens_round_trip() {
        for token in [
            TimerToken::Job(0),
            TimerToken::Job(7),
            TimerToken::Connection(0),
            TimerToken::Connection(77),
            TimerToken::Link(3),
            TimerToken::Rate(5),
        ] {
            assert_eq!(TimerToken::from_bits(token.to_bits()), token);
        }
    }
}
