//! One host by itself: its ends of all connections, on whatever carries its packets.
//!
//! [`HostCluster`](crate::HostCluster) is all hosts of an in-process fabric in one; this is one of them for
//! a machine of its own, where somebody else says when the flows of an iteration begin. The rules
//! are the same: [`crate::transport`], and NICs whose connections take turns at the rate of the
//! link.
//!
//! Sans-IO. The decision: time is told in the order in which things are due ([`EmulatedHost::next_deadline`]), so
//! that a caller who is late sends late and still at the full rate.

use std::collections::{BTreeMap, VecDeque};

use planner::Job;
use topology::{Fabric, HostId, NicId};

use crate::nic::NicScheduler;
use crate::roce::{OVERHEAD, PacketBody};
use crate::transport::{
    MessageSegment, Nanos, TransportReceiver, TransportReply, TransportSender, TransportSettings,
};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPacket {
    /// The flow it belongs to, counted over all jobs; the queue pair of both its ends.
    pub flow: u32,
    /// What it carries.
    pub body: PacketBody,
}

/// One host with its ends of the flows of all jobs.
#[derive(Debug)]
pub struct EmulatedHost {
    /// Flows that begin here, by number.
    outgoing: BTreeMap<usize, OutgoingFlow>,
    /// Flows that end here.
    incoming: BTreeMap<usize, TransportReceiver>,
    nics: BTreeMap<NicId, ScheduledNic>,
    packets: VecDeque<HostPacket>,
    finished: VecDeque<u32>,
}

#[derive(Debug)]
struct OutgoingFlow {
    sender: TransportSender,
    nic: NicId,
    bytes: u64,
}

/// A NIC, and when it wants to send again.
#[derive(Debug)]
struct ScheduledNic {
    nic: NicScheduler,
    due: Option<Nanos>,
}

impl EmulatedHost {
    /// The part of `host` in `jobs`, whose flows are numbered over all jobs in their order.
    pub fn new(fabric: &Fabric, jobs: &[Job], host: HostId, settings: TransportSettings) -> Self {
        let is_here = |nic: NicId| fabric.nic(nic).host == host;
        let flows = || jobs.iter().flat_map(|job| &job.flows).enumerate();
        let outgoing = flows().filter(|(_, flow)| is_here(flow.src));
        let outgoing = outgoing.map(|(index, flow)| {
            let (sender, nic, bytes) =
                (TransportSender::new(settings), flow.src, flow.bytes.round() as u64);
            (index, OutgoingFlow { sender, nic, bytes })
        });
        let incoming = flows().filter(|(_, flow)| is_here(flow.dst));
        let nics = fabric.nic_ids().filter(|nic| is_here(*nic));
        let wire = |nic: NicId| {
            let rate = fabric.link(fabric.nic(nic).uplink).bandwidth;
            let wire = ScheduledNic { nic: NicScheduler::new(rate), due: None };
            (nic, wire)
        };
        Self {
            outgoing: outgoing.collect(),
            incoming: incoming
                .map(|(index, _)| (index, TransportReceiver::new(settings)))
                .collect(),
            nics: nics.map(wire).collect(),
            packets: VecDeque::new(),
            finished: VecDeque::new(),
        }
    }

    /// Begins the message of a flow; a flow that does not begin here, or is under way, stays as it
    /// is.
    pub fn begin_flow(&mut self, flow: u32, now: Nanos) {
        let index = flow as usize;
        if let Some(outgoing) = self.outgoing.get_mut(&index).filter(|flow| flow.sender.is_done()) {
            outgoing.sender.begin_message(outgoing.bytes, now);
            let nic = outgoing.nic;
            self.request_transmission(index, nic, now);
        }
    }

    /// A packet has arrived. False if it is for none of this host's connections.
    pub fn receive_packet(&mut self, packet: HostPacket, now: Nanos) -> bool {
        let HostPacket { flow, body } = packet;
        let index = flow as usize;
        let is_ours = match body {
            PacketBody::Data { .. } => self.incoming.contains_key(&index),
            PacketBody::Ack { .. } | PacketBody::Nak { .. } => self.outgoing.contains_key(&index),
        };
        match body {
            PacketBody::Data { psn, last, .. } => self.reply_to_data(flow, psn, last),
            answer => self.receive_reply(flow, answer, now),
        }
        is_ours
    }

    /// When [`EmulatedHost::advance`] has something to do, if no packet comes before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let wires = self.nics.values().filter_map(|wire| wire.due);
        let deadlines = self.outgoing.values().filter_map(|flow| flow.sender.deadline());
        wires.chain(deadlines).min()
    }

    /// Time has come to `now`. Callers who are late do it for each [`EmulatedHost::next_deadline`] in turn.
    pub fn advance_to(&mut self, now: Nanos) {
        let expired: Vec<_> = self
            .outgoing
            .iter_mut()
            .filter(|(_, flow)| flow.sender.deadline().is_some_and(|deadline| deadline <= now))
            .map(|(index, flow)| {
                flow.sender.handle_timeout(now);
                (*index, flow.nic)
            })
            .collect();
        for (index, nic) in expired {
            self.request_transmission(index, nic, now);
        }
        let due = self.nics.iter_mut().filter(|(_, wire)| wire.due.is_some_and(|due| due <= now));
        let due: Vec<_> = due.map(|(nic, wire)| (*nic, wire.due.take())).collect();
        for (nic, _) in due {
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

    fn reply_to_data(&mut self, flow: u32, psn: u32, last: bool) {
        let Some(receiver) = self.incoming.get_mut(&(flow as usize)) else {
            return;
        };
        let body = match receiver.receive_segment(psn, last) {
            TransportReply::NoReply => return,
            TransportReply::Ack(psn) => PacketBody::Ack { psn },
            TransportReply::Nak(psn) => PacketBody::Nak { psn },
        };
        self.packets.push_back(HostPacket { flow, body });
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
            PacketBody::Data { .. } => {}
        }
        if !was_done && outgoing.sender.is_done() {
            self.finished.push_back(flow);
        }
        let nic = outgoing.nic;
        self.request_transmission(index, nic, now);
    }

    /// Has the NIC send what the window of a flow allows.
    fn request_transmission(&mut self, index: usize, nic: NicId, now: Nanos) {
        let can_send = self.outgoing.get(&index).is_some_and(|flow| flow.sender.can_send());
        if let (true, Some(wire)) = (can_send, self.nics.get_mut(&nic)) {
            wire.nic.enqueue_connection(index);
            self.transmit_segments(nic, now);
        }
    }

    /// Sends what the wire of a NIC has room for.
    fn transmit_segments(&mut self, nic: NicId, now: Nanos) {
        let Some(wire) = self.nics.get_mut(&nic) else {
            return;
        };
        while let Some(index) = wire.nic.next_connection(now) {
            let Some(outgoing) = self.outgoing.get_mut(&index) else {
                continue;
            };
            let Some(segment) = outgoing.sender.next_segment() else {
                continue;
            };
            let MessageSegment { psn, payload, first, last } = segment;
            let body = PacketBody::Data { psn, payload, first, last };
            let flow = index as u32;
            self.packets.push_back(HostPacket { flow, body });
            wire.nic.occupy_link(payload + OVERHEAD, now);
            if outgoing.sender.can_send() {
                wire.nic.enqueue_connection(index);
            }
        }
        wire.nic.clear_wake();
        wire.due = wire.nic.take_next_wake();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use planner::Flow;
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::{TestbedOptions, TimeScale, transport_settings};

    /// Two hosts on a link of 10 Mbit/s, and a job that sends 1 MB each way.
    fn pair() -> (EmulatedHost, EmulatedHost) {
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
        let flow =
            |src, dst| Flow { src: NicId(src), dst: NicId(dst), bytes: 1e6, udp_src_port: 0xC000 };
        let jobs = [Job {
            id: "pair".into(),
            tenant: None,
            model: None,
            gpus: BTreeMap::from([(HostId(0), 1), (HostId(1), 1)]),
            flop_per_iteration: 1.0,
            compute_seconds: 0.1,
            overlap_from: 1.0,
            recent_slowdown: 0.0,
            flows: vec![flow(0, 1), flow(1, 0)],
        }];
        let scale = TimeScale::new(1.0).unwrap();
        let settings = transport_settings(&fabric, &jobs, scale, TestbedOptions::default());
        let host = |index| EmulatedHost::new(&fabric, &jobs, HostId(index), settings);
        (host(0), host(1))
    }

    /// Packets take no time between the two, and some do not arrive; when both flows were done.
    fn exchange(arrives: impl Fn(usize) -> bool) -> Nanos {
        let (mut a, mut b) = pair();
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
                assert!(!arrives(sent) || host.receive_packet(*packet, now));
            }
            done += a.next_finished_flow().iter().count() + b.next_finished_flow().iter().count();
            if packets.is_empty() {
                now = [a.next_deadline(), b.next_deadline()].into_iter().flatten().min().unwrap();
                a.advance_to(now);
                b.advance_to(now);
            }
        }
        now
    }

    #[test]
    fn both_directions_run_at_the_rate_of_the_link() {
        // 245 packets; the last is on the wire alone, so that 244 wires' times have passed.
        let packet_ns = u64::from(crate::roce::MTU + OVERHEAD) * 800;
        assert_eq!(exchange(|_| true), 244 * packet_ns);
    }

    #[test]
    fn what_is_lost_is_sent_again() {
        let least = exchange(|_| true);
        let took = exchange(|packet| packet % 50 != 0);
        assert!(took > least && took < 100 * least, "{took}");
    }

    #[test]
    fn packets_for_others_are_told() {
        let (mut a, _) = pair();
        let body = PacketBody::Ack { psn: 0 };
        assert!(!a.receive_packet(HostPacket { flow: 1, body }, 0));
        assert!(!a.receive_packet(HostPacket { flow: 77, body }, 0));
    }
}
