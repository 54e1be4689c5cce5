//! A single host: its ends of all connections, on any carrier of packets.
//!
//! [`HostCluster`](crate::HostCluster) holds all hosts of an emulated network; this is one host on
//! a machine of its own, whose caller starts the flows of each iteration. Transport and NIC are the
//! same: [`crate::transport`], and connections that take turns at the rate of the link.
//!
//! Sans-IO. The decision: the caller advances time from deadline to deadline
//! ([`EmulatedHost::next_deadline`]), so a late caller sends late and still at the full rate.

use std::collections::{BTreeMap, VecDeque};

use planner::Job;
use switch::Nanos;
use topology::{Fabric, HostId, NicId};

use crate::host_link::HostLinkScheduler;
use crate::roce::{self, PacketBody};
use crate::transport::{
    MessageSegment, TransportReceiver, TransportReply, TransportSender, TransportSettings,
};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPacket {
    /// The flow it belongs to, counted over all jobs; the queue pair of both its ends.
    pub flow: u32,
    /// Data, acknowledgement or negative acknowledgement.
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
    /// Bytes around the payload of each packet.
    overhead: u32,
}

/// A NIC and the time at which it can send again.
#[derive(Debug)]
struct ScheduledNic {
    scheduler: HostLinkScheduler,
    due: Option<Nanos>,
}

impl EmulatedHost {
    /// The ends of the flows of `jobs` at `host`. Flows are numbered over all jobs, in their order.
    pub fn new(fabric: &Fabric, jobs: &[Job], host: HostId, settings: TransportSettings) -> Self {
        let mut ends = Self {
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            nics: BTreeMap::new(),
            packets: VecDeque::new(),
            finished: VecDeque::new(),
        };
        for (index, flow) in jobs.iter().flat_map(|job| &job.flows).enumerate() {
            if fabric.nic(flow.src).host == host {
                let sender = TransportSender::new(settings);
                let (nic, bytes) = (flow.src, flow.bytes.round() as u64);
                let overhead = roce::overhead_from(fabric.nic(nic).ip);
                ends.outgoing.insert(index, OutgoingFlow { sender, nic, bytes, overhead });
            }
            if fabric.nic(flow.dst).host == host {
                ends.incoming.insert(index, TransportReceiver::new(settings));
            }
        }
        for id in fabric.nic_ids().filter(|id| fabric.nic(*id).host == host) {
            let rate = fabric.link(fabric.nic(id).uplink).bandwidth;
            ends.nics
                .insert(id, ScheduledNic { scheduler: HostLinkScheduler::new(rate), due: None });
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

    /// Handles a packet that has arrived; false if it belongs to no connection of this host.
    pub fn receive_packet(&mut self, packet: HostPacket, now: Nanos) -> bool {
        let HostPacket { flow, body } = packet;
        let index = flow as usize;
        let is_ours = match body {
            PacketBody::Data { .. } => self.incoming.contains_key(&index),
            PacketBody::Ack { .. } | PacketBody::Nak { .. } => self.outgoing.contains_key(&index),
            // The kernel does not say which datagrams were marked, so nobody sends these.
            PacketBody::CongestionNotification => return false,
        };
        match body {
            PacketBody::Data { psn, last, .. } => self.reply_to_data(flow, psn, last),
            answer => self.receive_reply(flow, answer, now),
        }
        is_ours
    }

    /// The next call of [`EmulatedHost::advance_to`], unless a packet arrives before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let wires = self.nics.values().filter_map(|wire| wire.due);
        let deadlines = self.outgoing.values().filter_map(|flow| flow.sender.deadline());
        wires.chain(deadlines).min()
    }

    /// Advances time to `now`; a late caller does so for each [`EmulatedHost::next_deadline`].
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

    fn reply_to_data(&mut self, flow: u32, psn: u32, last: bool) {
        let Some(receiver) = self.incoming.get_mut(&(flow as usize)) else {
            return;
        };
        let body = match receiver.receive_segment(psn, last) {
            TransportReply::NoReply => return,
            TransportReply::Ack(psn) => PacketBody::Ack { psn },
            TransportReply::Nak(psn) | TransportReply::Missing(psn, _) => PacketBody::Nak { psn },
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
            PacketBody::Data { .. } | PacketBody::CongestionNotification => {}
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
            wire.scheduler.enqueue_connection(index);
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
            let segment = outgoing.sender.next_segment();
            let Some(MessageSegment { psn, payload, first, last }) = segment else {
                continue;
            };
            let body = PacketBody::Data { psn, payload, first, last };
            let flow = index as u32;
            self.packets.push_back(HostPacket { flow, body });
            wire.scheduler.occupy_link(payload + outgoing.overhead, now);
            if outgoing.sender.can_send() {
                wire.scheduler.enqueue_connection(index);
            }
        }
        wire.scheduler.clear_wake();
        wire.due = wire.scheduler.take_next_wake();
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
        let flow = |src, dst| Flow {
            src: NicId(src),
            dst: NicId(dst),
            bytes: 1e6,
            udp_src_port: Some(0xC000),
            gpus: planner::FlowGpus::default(),
        };
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
        let packet_ns = u64::from(roce::MTU + roce::OVERHEAD) * 800;
        assert_eq!(exchange(|_| true), 244 * packet_ns);
    }

    #[test]
    fn lost_packets_are_retransmitted() {
        let least = exchange(|_| true);
        let took = exchange(|packet| packet % 50 != 0);
        assert!(took > least && took < 100 * least, "{took}");
    }

    #[test]
    fn packets_of_other_hosts_are_reported() {
        let (mut a, _) = pair();
        let body = PacketBody::Ack { psn: 0 };
        assert!(!a.receive_packet(HostPacket { flow: 1, body }, 0));
        assert!(!a.receive_packet(HostPacket { flow: 77, body }, 0));
    }
}
