//! All hosts of a fabric and the jobs that train on them: one endpoint of the in-process fabric,
//! whose NICs are the fabric's NICs by [`NicId`].
//!
//! Packets come in from switches and go to the connection that they name; finished flows go to
//! their job; what a job starts goes out as packets. The rules are those of [`crate::transport`]
//! and [`crate::job`]; this module only carries between them.
//!
//! The decision: one endpoint for all hosts, so that the barrier between the hosts of a job is a
//! function call. Nothing else passes between hosts but packets.

use std::fmt;

use planner::{Flow, Job};
use switch::{Endpoint, Outbox};
use topology::{Fabric, NicId};

use crate::job::{Effect, Rhythm, Training};
use crate::nic::Nic;
use crate::roce::{self, Body, OVERHEAD, Route};
use crate::scale::Scale;
use crate::transport::{Nanos, Receiver, Reply, Segment, Sender, Settings};

/// What hosts saw that should not be, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Packets that were damaged or not understood.
    pub unreadable: u64,
    /// Packets that came to a NIC that their connection does not end at.
    pub misdelivered: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

/// The hosts of a fabric with their jobs.
pub struct Cluster {
    jobs: Vec<Running>,
    connections: Vec<Connection>,
    /// By [`NicId`].
    nics: Vec<Nic>,
    faults: Faults,
    /// No more flows are started.
    resting: bool,
    /// The packet being written.
    packet: Vec<u8>,
}

/// A job with the connections that it uses.
struct Running {
    training: Training,
    connections: std::ops::Range<usize>,
}

/// One flow of a job; its position in [`Cluster::connections`] is the queue pair of both its ends.
struct Connection {
    job: usize,
    bytes: u64,
    source: NicId,
    destination: NicId,
    forward: Route,
    backward: Route,
    sender: Sender,
    receiver: Receiver,
    /// The one timer that is set for it.
    timer: Option<Nanos>,
}

/// What a timer is for, packed into the fabric's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Job(usize),
    Connection(usize),
    Nic(usize),
}

/// Tokens are kind and index, the kind above this bit.
const INDEX_BITS: u32 = 32;

impl Token {
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Self::Job(index) => (0, index),
            Self::Connection(index) => (1, index),
            Self::Nic(index) => (2, index),
        };
        kind << INDEX_BITS | index as u64
    }

    fn unpack(token: u64) -> Self {
        let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
        match token >> INDEX_BITS {
            0 => Self::Job(index),
            1 => Self::Connection(index),
            _ => Self::Nic(index),
        }
    }
}

impl Cluster {
    /// The hosts of `fabric` with `jobs`, whose sizes and times are shrunk by `scale`.
    pub fn new(fabric: &Fabric, jobs: &[Job], scale: Scale, settings: Settings) -> Self {
        let nics = fabric.nics().iter();
        let mut cluster = Self {
            jobs: Vec::new(),
            connections: Vec::new(),
            nics: nics
                .map(|nic| Nic::new(fabric.link(nic.uplink).bandwidth))
                .collect(),
            faults: Faults::default(),
            resting: false,
            packet: Vec::new(),
        };
        for job in jobs {
            cluster.add(fabric, job, scale, settings);
        }
        cluster
    }

    /// Has job `index` (its position in the jobs given) begin at an instant to come.
    pub fn start_at(&mut self, index: usize, at: Nanos, out: &mut Outbox) {
        out.set_timer(at, Token::Job(index).pack());
    }

    fn wake(&mut self, index: usize, now: Nanos, out: &mut Outbox) {
        let effects = self.jobs[index].training.wake(now);
        self.carry_out(index, &effects, now, out);
    }

    /// Starts no more flows; those under way end.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// Whether every flow that was started has ended.
    pub fn is_quiet(&self) -> bool {
        self.connections
            .iter()
            .all(|connection| connection.sender.is_done())
    }

    /// The jobs, in the order given.
    pub fn trainings(&self) -> impl Iterator<Item = &Training> + Clone {
        self.jobs.iter().map(|job| &job.training)
    }

    /// What should not have been.
    pub fn faults(&self) -> Faults {
        let again = self
            .connections
            .iter()
            .map(|connection| connection.sender.retransmitted());
        Faults {
            retransmitted: again.sum(),
            ..self.faults
        }
    }

    fn add(&mut self, fabric: &Fabric, job: &Job, scale: Scale, settings: Settings) {
        let compute_ns = scale.shrink_seconds(job.compute_seconds);
        let first = self.connections.len();
        for flow in &job.flows {
            let queue_pair = self.connections.len() as u32;
            self.connections.push(Connection {
                job: self.jobs.len(),
                bytes: scale.shrink_bytes(flow.bytes),
                source: flow.src,
                destination: flow.dst,
                forward: route(fabric, flow.src, flow.dst, flow, queue_pair),
                backward: route(fabric, flow.dst, flow.src, flow, queue_pair),
                sender: Sender::new(settings),
                receiver: Receiver::new(settings),
                timer: None,
            });
        }
        self.jobs.push(Running {
            training: Training::new(Rhythm {
                compute_ns,
                communicate_after_ns: scale.shrink_seconds(job.overlap_from * job.compute_seconds),
                flows: job.flows.len() as u32,
            }),
            connections: first..self.connections.len(),
        });
    }

    fn carry_out(&mut self, job: usize, effects: &[Effect], now: Nanos, out: &mut Outbox) {
        for effect in effects {
            match effect {
                Effect::WakeAt(at) => out.set_timer(*at, Token::Job(job).pack()),
                Effect::StartFlows if self.resting => {}
                Effect::StartFlows => {
                    for index in self.jobs[job].connections.clone() {
                        let connection = &mut self.connections[index];
                        connection.sender.begin(connection.bytes, now);
                        self.pump(index, now, out);
                    }
                }
            }
        }
    }

    /// A data packet: take it and answer.
    fn arrived(&mut self, index: usize, psn: u32, last: bool, out: &mut Outbox) {
        let connection = &mut self.connections[index];
        let answer = match connection.receiver.receive(psn, last) {
            Reply::Silence => return,
            Reply::Ack(psn) => Body::Ack { psn },
            Reply::Nak(psn) => Body::Nak { psn },
        };
        roce::write(&connection.backward, answer, &mut self.packet);
        out.send(connection.destination.0, &self.packet);
    }

    /// An answer: send what it allows, and tell the job when that was all.
    fn answered(&mut self, index: usize, answer: Body, now: Nanos, out: &mut Outbox) {
        let connection = &mut self.connections[index];
        let (job, was_done) = (connection.job, connection.sender.is_done());
        match answer {
            Body::Ack { psn } => connection.sender.acknowledge(psn, now),
            Body::Nak { psn } => connection.sender.go_back(psn, now),
            Body::Data { .. } => {}
        }
        let is_done = connection.sender.is_done();
        self.pump(index, now, out);
        if !was_done && is_done {
            let effects = self.jobs[job].training.flow_done(now);
            self.carry_out(job, &effects, now, out);
        }
    }

    /// Has the NIC send what the window allows, and sees that a timer is set.
    fn pump(&mut self, index: usize, now: Nanos, out: &mut Outbox) {
        let connection = &mut self.connections[index];
        if let (None, Some(deadline)) = (connection.timer, connection.sender.deadline()) {
            connection.timer = Some(deadline);
            out.set_timer(deadline, Token::Connection(index).pack());
        }
        if connection.sender.can_send() {
            let nic = connection.source.index();
            self.nics[nic].wants(index);
            self.transmit(nic, now, out);
        }
    }

    /// Sends what the wire of a NIC has room for.
    fn transmit(&mut self, nic: usize, now: Nanos, out: &mut Outbox) {
        while let Some(index) = self.nics[nic].next(now) {
            let connection = &mut self.connections[index];
            let Some(Segment {
                psn,
                payload,
                first,
                last,
            }) = connection.sender.poll()
            else {
                continue;
            };
            let body = Body::Data {
                psn,
                payload,
                first,
                last,
            };
            roce::write(&connection.forward, body, &mut self.packet);
            out.send(nic as u32, &self.packet);
            self.nics[nic].sends(payload + OVERHEAD, now);
            if connection.sender.can_send() {
                self.nics[nic].wants(index);
            }
        }
        if let Some(at) = self.nics[nic].wake_at() {
            out.set_timer(at, Token::Nic(nic).pack());
        }
    }
}

impl Endpoint for Cluster {
    fn receive(&mut self, nic: u32, packet: &[u8], now: Nanos, out: &mut Outbox) {
        let Ok((queue_pair, body)) = roce::read(packet) else {
            self.faults.unreadable += 1;
            return;
        };
        let index = queue_pair as usize;
        let end = self.connections.get(index).map(|connection| match body {
            Body::Data { .. } => connection.destination,
            Body::Ack { .. } | Body::Nak { .. } => connection.source,
        });
        match body {
            _ if end != Some(NicId(nic)) => self.faults.misdelivered += 1,
            Body::Data { psn, last, .. } => self.arrived(index, psn, last, out),
            answer => self.answered(index, answer, now, out),
        }
    }

    fn timer(&mut self, token: u64, now: Nanos, out: &mut Outbox) {
        match Token::unpack(token) {
            Token::Job(index) => self.wake(index, now, out),
            Token::Connection(index) => {
                let connection = &mut self.connections[index];
                connection.timer = None;
                connection.sender.expire(now);
                self.pump(index, now, out);
            }
            Token::Nic(nic) => {
                self.nics[nic].woken();
                self.transmit(nic, now, out);
            }
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cluster of {} jobs, {} connections",
            self.jobs.len(),
            self.connections.len()
        )
    }
}

/// Addresses of one direction of a flow. Answers have the UDP source port of the flow, so that a
/// switch can tell by the five-tuple whose they are.
fn route(fabric: &Fabric, from: NicId, to: NicId, flow: &Flow, queue_pair: u32) -> Route {
    let address = |nic| {
        let nic = fabric.nic(nic);
        (nic.mac, nic.ip)
    };
    Route {
        source: address(from),
        destination: address(to),
        udp_src_port: flow.udp_src_port,
        queue_pair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for token in [
            Token::Job(0),
            Token::Job(7),
            Token::Connection(0),
            Token::Connection(77),
            Token::Nic(3),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
