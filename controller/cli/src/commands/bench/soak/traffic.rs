//! What the hosts send while the controllers are soaked: every flow a packet now and then, each
//! followed until it arrives or is lost.
//!
//! Nothing is sent again and nobody slows down, so that what is lost is the network's doing and
//! seen as such. All hosts are one endpoint of the in-process fabric, whose NICs are the fabric's.

use std::collections::BTreeMap;

use emulator::roce::{self, Body, Route};
use planner::Job;
use switch::{Endpoint, Nanos, Outbox};
use topology::{Fabric, NicId};

/// Between two packets of a flow.
pub(super) const PAUSE: Nanos = 10_000_000;
/// A packet that is under way for longer is lost: a thousand times what the way takes.
pub(super) const LATE: Nanos = 100_000_000;
/// Bytes of payload.
const PAYLOAD: u32 = 512;

/// All flows.
#[derive(Debug)]
pub(super) struct Traffic {
    flows: Vec<Stream>,
    is_resting: bool,
    lost: Vec<Lost>,
    counts: Counts,
}

/// What became of all packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    /// Arrived after one that was sent later.
    pub(super) overtaken: u64,
    /// Damaged, twice, or at another NIC than they were sent to.
    pub(super) wrong: u64,
}

/// A packet that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// When it was sent.
    pub(super) sent: Nanos,
}

/// One flow; its position among all of them is its queue pair.
#[derive(Debug)]
struct Stream {
    from: NicId,
    to: NicId,
    route: Route,
    next: u32,
    newest: u32,
    /// Under way, by number, with the time at which each was sent.
    waiting: BTreeMap<u32, Nanos>,
}

impl Traffic {
    /// The flows of these jobs, at rest until [`Traffic::start`].
    pub(super) fn new(fabric: &Fabric, jobs: &[Job]) -> Self {
        let flows = jobs.iter().flat_map(|job| &job.flows).enumerate();
        let flows = flows.map(|(pair, flow)| {
            let end = |nic| (fabric.nic(nic).mac, fabric.nic(nic).ip);
            Stream {
                from: flow.src,
                to: flow.dst,
                route: Route {
                    source: end(flow.src),
                    destination: end(flow.dst),
                    udp_src_port: flow.udp_src_port,
                    queue_pair: pair as u32,
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
            counts: Counts::default(),
        }
    }

    /// Lets every flow begin, one after the other.
    pub(super) fn start(&self, now: Nanos, out: &mut Outbox) {
        let count = self.flows.len() as u64;
        for flow in 0..count {
            out.set_timer(now + flow * PAUSE / count, flow);
        }
    }

    /// Nothing more is sent.
    pub(super) fn rest(&mut self) {
        self.is_resting = true;
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The packets that have become lost by `now` since this was asked last.
    pub(super) fn take_lost(&mut self, now: Nanos) -> Vec<Lost> {
        for flow in &mut self.flows {
            flow.give_up(now, &mut self.lost);
        }
        std::mem::take(&mut self.lost)
    }
}

impl Stream {
    fn give_up(&mut self, now: Nanos, lost: &mut Vec<Lost>) {
        while let Some(first) = self.waiting.first_entry() {
            if now.saturating_sub(*first.get()) < LATE {
                return;
            }
            let sent = first.remove();
            lost.push(Lost { sent });
        }
    }
}

impl Endpoint for Traffic {
    fn receive(&mut self, nic: u32, packet: &[u8], _: Nanos, _: &mut Outbox) {
        let is_known = match roce::read(packet) {
            Ok((pair, Body::Data { psn, .. })) => {
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

    fn timer(&mut self, token: u64, now: Nanos, out: &mut Outbox) {
        let Some(flow) = self
            .flows
            .get_mut(token as usize)
            .filter(|_| !self.is_resting)
        else {
            return;
        };
        flow.give_up(now, &mut self.lost);
        let body = Body::Data {
            psn: flow.next,
            payload: PAYLOAD,
            first: true,
            last: true,
        };
        let mut packet = Vec::new();
        roce::write(&flow.route, body, &mut packet);
        out.send(flow.from.0, &packet);
        flow.waiting.insert(flow.next, now);
        // Sequence numbers have 24 bits: 46 hours of packets.
        flow.next = (flow.next + 1) & roce::PSN_MASK;
        self.counts.sent += 1;
        out.set_timer(now + PAUSE, token);
    }
}
