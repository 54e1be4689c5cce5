//! The traffic of a soak: a packet of every flow at a fixed interval, each tracked until it arrives
//! or is lost.
//!
//! There is no retransmission and no congestion control, so that every loss is visible. All hosts
//! are one endpoint of the emulated network, whose NICs are those of the fabric.

use std::collections::BTreeMap;

use emulator::roce::{self, CongestionMarking, FlowAddresses, PacketBody};
use planner::Job;
use switch::{EndpointOutbox, Nanos, NetworkEndpoint};
use topology::{Fabric, NicId};

/// The interval between two packets of a flow.
pub(super) const PAUSE: Nanos = 10_000_000;
/// The time in flight after which a packet counts as lost: a thousand times the usual one.
pub(super) const LATE: Nanos = 100_000_000;
/// Bytes of payload of a packet.
const PAYLOAD: u32 = 512;

/// The flows of all jobs, and what became of their packets.
#[derive(Debug)]
pub(super) struct SoakTraffic {
    flows: Vec<TrackedFlow>,
    is_resting: bool,
    lost: Vec<LostPacket>,
    counts: TrafficCounts,
}

/// What became of all packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrafficCounts {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    /// Arrived after a packet that was sent later.
    pub(super) overtaken: u64,
    /// Damaged, twice, or at another NIC than they were sent to.
    pub(super) wrong: u64,
}

/// A packet that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LostPacket {
    /// When it was sent.
    pub(super) sent: Nanos,
}

/// One flow; its position among all of them is its queue pair.
#[derive(Debug)]
struct TrackedFlow {
    from: NicId,
    to: NicId,
    route: FlowAddresses,
    next: u32,
    newest: u32,
    /// Packets in flight by sequence number, with the time at which each was sent.
    waiting: BTreeMap<u32, Nanos>,
}

impl SoakTraffic {
    /// The flows of these jobs, which send nothing until [`SoakTraffic::start_flows`].
    pub(super) fn new(fabric: &Fabric, jobs: &[Job]) -> Self {
        let flows = jobs.iter().flat_map(|job| &job.flows).enumerate().map(|(pair, flow)| {
            let [source, destination] =
                [flow.src, flow.dst].map(|nic| (fabric.nic(nic).mac, fabric.nic(nic).ip));
            TrackedFlow {
                from: flow.src,
                to: flow.dst,
                route: FlowAddresses {
                    source,
                    destination,
                    udp_src_port: flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT),
                    queue_pair: pair as u32,
                    marking: CongestionMarking::Off,
                    dscp: 0,
                },
                next: 0,
                newest: 0,
                waiting: BTreeMap::new(),
            }
        });
        Self {
            flows: flows.collect(),
            is_resting: false,
            lost: Vec::new(),
            counts: TrafficCounts::default(),
        }
    }

    /// Starts all flows, evenly spaced.
    pub(super) fn start_flows(&self, now: Nanos, out: &mut EndpointOutbox) {
        let count = self.flows.len() as u64;
        for flow in 0..count {
            out.set_timer(now + flow * PAUSE / count, flow);
        }
    }

    /// Stops sending.
    pub(super) fn stop_sending(&mut self) {
        self.is_resting = true;
    }

    pub(super) fn counts(&self) -> TrafficCounts {
        self.counts
    }

    /// The packets that were lost by `now`, since the last call.
    pub(super) fn take_lost(&mut self, now: Nanos) -> Vec<LostPacket> {
        for flow in &mut self.flows {
            flow.expire_packets(now, &mut self.lost);
        }
        std::mem::take(&mut self.lost)
    }
}

impl TrackedFlow {
    fn expire_packets(&mut self, now: Nanos, lost: &mut Vec<LostPacket>) {
        while let Some(first) = self.waiting.first_entry() {
            if now.saturating_sub(*first.get()) < LATE {
                return;
            }
            let sent = first.remove();
            lost.push(LostPacket { sent });
        }
    }
}

impl NetworkEndpoint for SoakTraffic {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], _: Nanos, _: &mut EndpointOutbox) {
        let is_known = match roce::read_packet(packet) {
            Ok((pair, PacketBody::Data { psn, .. })) => {
                self.flows.get_mut(pair as usize).is_some_and(|flow| {
                    let was_under_way = flow.waiting.remove(&psn).is_some();
                    self.counts.overtaken += u64::from(psn < flow.newest);
                    flow.newest = flow.newest.max(psn);
                    was_under_way && flow.to.0 == nic
                })
            }
            _ => false,
        };
        match is_known {
            true => self.counts.arrived += 1,
            false => self.counts.wrong += 1,
        }
    }

    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox) {
        let Some(flow) = self.flows.get_mut(token as usize).filter(|_| !self.is_resting) else {
            return;
        };
        flow.expire_packets(now, &mut self.lost);
        let body = PacketBody::Data { psn: flow.next, payload: PAYLOAD, first: true, last: true };
        let mut packet = Vec::new();
        roce::write_packet(&flow.route, body, &mut packet);
        out.send_packet(flow.from.0, &packet);
        flow.waiting.insert(flow.next, now);
        // Sequence numbers have 24 bits: 46 hours of packets.
        flow.next = (flow.next + 1) & roce::PSN_MASK;
        self.counts.sent += 1;
        out.set_timer(now + PAUSE, token);
    }
}
