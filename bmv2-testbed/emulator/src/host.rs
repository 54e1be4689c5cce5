//! A single host: its ends of all connections, on any carrier of packets.
//!
//! [`HostCluster`](crate::HostCluster) holds all hosts of an emulated network; this is one host on
//! a machine of its own, whose caller starts the flows of each iteration. Transport and NIC are the
//! same: [`crate::transport`], the rate control of [`crate::dcqcn`], and connections that take
//! turns at the rate of the link.
//!
//! Sans-IO. The decision: the caller advances time from deadline to deadline
//! ([`EmulatedHost::next_deadline`]), so a late caller sends late and still at the full rate.

use std::collections::{BTreeMap, VecDeque};

use planner::Job;
use switch::Nanos;
use topology::{Fabric, HostId, NicId};

use crate::cluster::HostCongestionCounts;
use crate::connection::HostSettings;
use crate::dcqcn::{NotificationPoint, RatePacer, ReactionPoint};
use crate::host_link::HostLinkScheduler;
use crate::roce::{self, PacketBody};
use crate::scale::TimeScale;
use crate::transport::{MessageSegment, TransportReceiver, TransportSender};

/// The priority of all packets here: nobody pauses it.
const UNPAUSED_PRIORITY: u8 = 0;

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPacket {
    /// The flow it belongs to, counted over all jobs; the queue pair of both its ends.
    pub flow: u32,
    /// Data, acknowledgement, negative acknowledgement or congestion notification.
    pub body: PacketBody,
}

/// One host with its ends of the flows of all jobs.
#[derive(Debug)]
pub struct EmulatedHost {
    /// Flows that begin here, by number.
    outgoing: BTreeMap<usize, OutgoingFlow>,
    /// Flows that end here.
    incoming: BTreeMap<usize, IncomingFlow>,
    /// Packets that arrived with a mark.
    marked: u64,
    nics: BTreeMap<NicId, ScheduledNic>,
    packets: VecDeque<HostPacket>,
    finished: VecDeque<u32>,
}

#[derive(Debug)]
struct OutgoingFlow {
    sender: TransportSender,
    nic: NicId,
    bytes: u64,
    /// Bytes around the payload of each packet.
    overhead: u32,
    /// The rate, under congestion control.
    pacer: Option<RatePacer>,
    /// When the rate allows the next packet, while the flow waits for that.
    paced_until: Option<Nanos>,
}

#[derive(Debug)]
struct IncomingFlow {
    receiver: TransportReceiver,
    notification: NotificationPoint,
    /// How far notifications are apart at least; none are sent without congestion control.
    notification_interval_ns: Option<Nanos>,
}

impl OutgoingFlow {
    fn next_deadline(&self) -> Option<Nanos> {
        self.sender.deadline().into_iter().chain(self.paced_until).min()
    }

    /// Handles a timer that is due; whether the flow may have something to send.
    fn handle_timers(&mut self, now: Nanos) -> bool {
        let is_expired = self.sender.deadline().is_some_and(|deadline| deadline <= now);
        if is_expired {
            self.sender.handle_timeout(now);
        }
        is_expired | self.paced_until.take_if(|until| *until <= now).is_some()
    }

    /// The next packet, unless the rate makes it wait.
    fn next_segment(&mut self, now: Nanos) -> Option<MessageSegment> {
        self.paced_until = self.pacer.as_mut().and_then(|pacer| pacer.wait_until(now));
        if self.paced_until.is_some() {
            return None;
        }
        let segment = self.sender.next_segment()?;
        let bytes = segment.payload + self.overhead;
        self.pacer.iter_mut().for_each(|pacer| pacer.handle_sent(bytes, now));
        Some(segment)
    }
}

/// A NIC and the time at which it can send again.
#[derive(Debug)]
struct ScheduledNic {
    scheduler: HostLinkScheduler,
    due: Option<Nanos>,
}

impl EmulatedHost {
    /// The ends of the flows of `jobs` at `host`, in real time. Flows are numbered over all jobs,
    /// in their order.
    pub fn new(fabric: &Fabric, jobs: &[Job], host: HostId, settings: HostSettings) -> Self {
        let mut ends = Self {
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            marked: 0,
            nics: BTreeMap::new(),
            packets: VecDeque::new(),
            finished: VecDeque::new(),
        };
        for (index, flow) in jobs.iter().flat_map(|job| &job.flows).enumerate() {
            let link_bps = fabric.link(fabric.nic(flow.src).uplink).bandwidth.gbps() * 1e9;
            let control = settings.congestion;
            let control = control.map(|control| control.parameters(link_bps, TimeScale::REAL));
            if fabric.nic(flow.src).host == host {
                let pacer = control.map(|parameters| ReactionPoint::new(parameters, link_bps));
                let outgoing = OutgoingFlow {
                    sender: TransportSender::new(settings.transport),
                    nic: flow.src,
                    bytes: flow.bytes.round() as u64,
                    overhead: roce::overhead_from(fabric.nic(flow.src).ip),
                    pacer: pacer.map(RatePacer::new),
                    paced_until: None,
                };
                ends.outgoing.insert(index, outgoing);
            }
            if fabric.nic(flow.dst).host == host {
                let incoming = IncomingFlow {
                    receiver: TransportReceiver::new(settings.transport),
                    notification: NotificationPoint::default(),
                    notification_interval_ns: control.map(|one| one.notification_interval_ns),
                };
                ends.incoming.insert(index, incoming);
            }
        }
        for id in fabric.nic_ids().filter(|id| fabric.nic(*id).host == host) {
            let uplink = fabric.link(fabric.nic(id).uplink);
            let scheduler = HostLinkScheduler::new(uplink.bandwidth, uplink.scheduler);
            ends.nics.insert(id, ScheduledNic { scheduler, due: None });
        }
        ends
    }

    /// Begins the message of a flow; ignores a flow that begins at another host or is still active.
    pub fn begin_flow(&mut self, flow: u32, now: Nanos) {
        let index = flow as usize;
        if let Some(outgoing) = self.outgoing.get_mut(&index).filter(|flow| flow.sender.is_done()) {
            outgoing.sender.begin_message(outgoing.bytes, now);
            let nic = outgoing.nic;
            self.request_transmission(index, nic, now);
        }
    }

    /// Handles a packet that has arrived, marked by a switch or not; false if it belongs to no
    /// connection of this host.
    pub fn receive_packet(&mut self, packet: HostPacket, is_marked: bool, now: Nanos) -> bool {
        let HostPacket { flow, body } = packet;
        let index = flow as usize;
        let is_ours = match body {
            PacketBody::Data { .. } => self.incoming.contains_key(&index),
            PacketBody::Ack { .. }
            | PacketBody::Nak { .. }
            | PacketBody::CongestionNotification => self.outgoing.contains_key(&index),
        };
        match body {
            PacketBody::Data { psn, last, .. } => {
                if is_marked {
                    self.handle_mark(flow, now);
                }
                self.reply_to_data(flow, psn, last);
            }
            answer => self.receive_reply(flow, answer, now),
        }
        is_ours
    }

    /// The next call of [`EmulatedHost::advance_to`], unless a packet arrives before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let wires = self.nics.values().filter_map(|wire| wire.due);
        let deadlines = self.outgoing.values().filter_map(OutgoingFlow::next_deadline);
        wires.chain(deadlines).min()
    }

    /// Advances time to `now`; a late caller does so for each [`EmulatedHost::next_deadline`].
    pub fn advance_to(&mut self, now: Nanos) {
        let due = self.outgoing.iter_mut().filter_map(|(index, flow)| {
            let has_turn = flow.handle_timers(now);
            has_turn.then_some((*index, flow.nic))
        });
        for (index, nic) in due.collect::<Vec<_>>() {
            self.request_transmission(index, nic, now);
        }
        let nics = self.nics.iter_mut();
        let due: Vec<NicId> = nics
            .filter_map(|(nic, wire)| wire.due.take_if(|due| *due <= now).map(|_| *nic))
            .collect();
        for nic in due {
            self.transmit_segments(nic, now);
        }
    }

    /// The next packet to send.
    pub fn next_packet(&mut self) -> Option<HostPacket> {
        self.packets.pop_front()
    }

    /// The next flow whose message has been sent and acknowledged.
    pub fn next_finished_flow(&mut self) -> Option<u32> {
        self.finished.pop_front()
    }

    /// Packets sent again since the start.
    pub fn retransmitted_packets(&self) -> u64 {
        self.outgoing.values().map(|flow| flow.sender.retransmitted_packets()).sum()
    }

    /// What congestion did to the flows of this host. Nobody pauses it: no kernel obeys frames of
    /// IEEE 802.1Qbb for a socket.
    pub fn congestion_counts(&self) -> HostCongestionCounts {
        let senders = || self.outgoing.values().map(|flow| &flow.sender);
        let receivers = self.incoming.values();
        HostCongestionCounts {
            marked: self.marked,
            notifications: receivers.map(|flow| flow.notification.sent()).sum(),
            timeouts: senders().map(TransportSender::timeouts).sum(),
            lost_connections: senders().filter(|sender| sender.is_lost()).count() as u64,
            ..HostCongestionCounts::default()
        }
    }

    /// A flow whose connection is lost, because its retries were exhausted.
    pub fn lost_flow(&self) -> Option<u32> {
        let lost = self.outgoing.iter().find(|(_, flow)| flow.sender.is_lost());
        lost.map(|(index, _)| *index as u32)
    }

    /// Data has arrived with a mark: its sender is told, unless it was told just before.
    fn handle_mark(&mut self, flow: u32, now: Nanos) {
        let Some(incoming) = self.incoming.get_mut(&(flow as usize)) else {
            return;
        };
        self.marked += 1;
        let interval = incoming.notification_interval_ns;
        if interval.is_some_and(|interval| incoming.notification.handle_mark(interval, now)) {
            self.packets.push_back(HostPacket { flow, body: PacketBody::CongestionNotification });
        }
    }

    fn reply_to_data(&mut self, flow: u32, psn: u32, last: bool) {
        let Some(incoming) = self.incoming.get_mut(&(flow as usize)) else {
            return;
        };
        let replies = incoming.receiver.receive_segment(psn, last).packets();
        self.packets.extend(replies.map(|body| HostPacket { flow, body }));
    }

    fn receive_reply(&mut self, flow: u32, answer: PacketBody, now: Nanos) {
        let index = flow as usize;
        let Some(outgoing) = self.outgoing.get_mut(&index) else {
            return;
        };
        let was_done = outgoing.sender.is_done();
        match answer {
            PacketBody::Ack { psn } => outgoing.sender.handle_ack(psn, now),
            PacketBody::Nak { psn } => outgoing.sender.handle_nak(psn, now),
            PacketBody::CongestionNotification => {
                outgoing.pacer.iter_mut().for_each(|pacer| pacer.handle_notification(now));
            }
            PacketBody::Data { .. } => {}
        }
        if !was_done && outgoing.sender.is_done() {
            self.finished.push_back(flow);
        }
        let nic = outgoing.nic;
        self.request_transmission(index, nic, now);
    }

    /// Sends what the window of a flow allows.
    fn request_transmission(&mut self, index: usize, nic: NicId, now: Nanos) {
        let can_send = self.outgoing.get(&index).is_some_and(|flow| flow.sender.can_send());
        if let (true, Some(wire)) = (can_send, self.nics.get_mut(&nic)) {
            wire.scheduler.enqueue_connection(index, UNPAUSED_PRIORITY);
            self.transmit_segments(nic, now);
        }
    }

    /// Sends packets while the link of a NIC is free.
    fn transmit_segments(&mut self, nic: NicId, now: Nanos) {
        let Some(wire) = self.nics.get_mut(&nic) else {
            return;
        };
        while let Some(index) = wire.scheduler.next_connection(now) {
            let Some(outgoing) = self.outgoing.get_mut(&index) else {
                continue;
            };
            let segment = outgoing.next_segment(now);
            let Some(MessageSegment { psn, payload, first, last }) = segment else {
                continue;
            };
            let body = PacketBody::Data { psn, payload, first, last };
            let flow = index as u32;
            self.packets.push_back(HostPacket { flow, body });
            wire.scheduler.occupy_link(payload + outgoing.overhead, now);
            if outgoing.sender.can_send() {
                wire.scheduler.enqueue_connection(index, UNPAUSED_PRIORITY);
            }
        }
        wire.scheduler.clear_wake();
        wire.due = wire.scheduler.take_next_wake();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use planner::{Flow, MeasuredSlowdown};
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::{DcqcnOptions, HostTransport, TestbedOptions, host_settings};

    /// Two hosts on a link of 10 Mbit/s, and a job that sends 1 MB each way.
    fn pair(transport: HostTransport) -> (EmulatedHost, EmulatedHost) {
        let spec = ClosSpec {
            leaves: 1,
            spines: 1,
            hosts_per_leaf: 2,
            host_links: 1,
            host_gbps: 0.01,
            uplink_gbps: 0.01,
            ..ClosSpec::default()
        };
        let fabric = clos::build_clos("pair", &spec).unwrap();
        let flow = |src, dst| Flow {
            src: NicId(src),
            dst: NicId(dst),
            bytes: 1e6,
            udp_src_port: Some(0xC000),
            gpus: planner::FlowGpus::default(),
            overlap_from: None,
        };
        let jobs = [Job {
            id: "pair".into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), 1), (HostId(1), 1)]),
            flop_per_iteration: 1.0,
            compute_seconds: 0.1,
            overlap_from: 1.0,
            can_wait: false,
            measured: MeasuredSlowdown::default(),
            flows: vec![flow(0, 1), flow(1, 0)],
        }];
        let options = TestbedOptions { transport, ..TestbedOptions::default() };
        let settings = host_settings(&fabric, &jobs, TimeScale::REAL, options);
        let host = |index| EmulatedHost::new(&fabric, &jobs, HostId(index), settings);
        (host(0), host(1))
    }

    /// What becomes of the n-th packet.
    #[derive(Clone, Copy, PartialEq)]
    enum PacketFate {
        Arrives,
        IsMarked,
        IsLost,
    }

    /// Packets take no time between the two; when both flows were done, and what hosts counted.
    fn exchange(
        transport: HostTransport,
        fate: impl Fn(usize) -> PacketFate,
    ) -> (Nanos, [HostCongestionCounts; 2]) {
        let (mut a, mut b) = pair(transport);
        a.begin_flow(0, 0);
        b.begin_flow(1, 0);
        let (mut now, mut sent, mut done) = (0, 0, 0);
        while done < 2 {
            let mut packets = Vec::new();
            packets.extend(std::iter::from_fn(|| a.next_packet()).map(|packet| (1, packet)));
            packets.extend(std::iter::from_fn(|| b.next_packet()).map(|packet| (0, packet)));
            for (to, packet) in &packets {
                sent += 1;
                let host = if *to == 0 { &mut a } else { &mut b };
                let (fate, mark) = (fate(sent), PacketFate::IsMarked);
                assert!(
                    fate == PacketFate::IsLost || host.receive_packet(*packet, fate == mark, now)
                );
            }
            done += a.next_finished_flow().iter().count() + b.next_finished_flow().iter().count();
            if packets.is_empty() {
                now = [a.next_deadline(), b.next_deadline()].into_iter().flatten().min().unwrap();
                a.advance_to(now);
                b.advance_to(now);
            }
        }
        (now, [a.congestion_counts(), b.congestion_counts()])
    }

    const DCQCN: fn() -> HostTransport = || HostTransport::Dcqcn(DcqcnOptions::default());

    #[test]
    fn both_directions_run_at_the_rate_of_the_link() {
        // 245 packets; the last is on the wire alone, so that 244 wires' times have passed.
        let packet_ns = u64::from(roce::MTU + roce::OVERHEAD) * 800;
        for transport in [HostTransport::Window, DCQCN()] {
            assert_eq!(exchange(transport, |_| PacketFate::Arrives).0, 244 * packet_ns);
        }
    }

    #[test]
    fn lost_packets_are_retransmitted() {
        let (least, _) = exchange(HostTransport::Window, |_| PacketFate::Arrives);
        let lossy = |packet: usize| {
            if packet.is_multiple_of(50) { PacketFate::IsLost } else { PacketFate::Arrives }
        };
        let (took, _) = exchange(HostTransport::Window, lossy);
        assert!(took > least && took < 100 * least, "{took}");
    }

    #[test]
    fn marked_packets_slow_their_sender_down() {
        let (least, _) = exchange(DCQCN(), |_| PacketFate::Arrives);
        let marks = |packet: usize| {
            if packet.is_multiple_of(20) { PacketFate::IsMarked } else { PacketFate::Arrives }
        };
        let (took, counts) = exchange(DCQCN(), marks);
        assert!(took > least + least / 10, "{took} {least}");
        for host in counts {
            assert!(host.notifications > 0 && host.notifications <= host.marked, "{host:?}");
            assert_eq!(host.lost_connections, 0);
        }
        // Without congestion control nobody says so.
        let (took, counts) = exchange(HostTransport::Window, marks);
        assert_eq!((took, counts[0].notifications), (least, 0));
        assert!(counts[0].marked > 0);
    }

    #[test]
    fn a_connection_that_nobody_answers_is_lost() {
        let (mut a, _) = pair(DCQCN());
        a.begin_flow(0, 0);
        while let Some(due) = a.next_deadline() {
            a.advance_to(due);
        }
        assert_eq!((a.lost_flow(), a.congestion_counts().timeouts), (Some(0), 8));
    }

    #[test]
    fn packets_of_other_hosts_are_reported() {
        let (mut a, _) = pair(HostTransport::Window);
        for body in [PacketBody::Ack { psn: 0 }, PacketBody::CongestionNotification] {
            assert!(!a.receive_packet(HostPacket { flow: 1, body }, false, 0));
            assert!(!a.receive_packet(HostPacket { flow: 77, body }, false, 0));
        }
    }
}
