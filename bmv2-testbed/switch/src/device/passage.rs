//! The way of one packet, and of the copies it makes, through a device.
//!
//! As in simple_switch: parse, ingress, queue, egress, deparse. [`Passage::take`] is the way to the
//! queue, [`Passage::leave`] the one from it; between them a packet is a [`Body`], its header
//! vector and its bytes, which is moved and never copied unless the program makes copies. What goes
//! round (resubmitted, recirculated) waits in a line and is worked off, first come first served,
//! before the next packet. Between one arrival or instant and the next, only so many passes are
//! made: a program that sends packets in circles does not stop the switch, which BMv2 lets it do.

use std::collections::VecDeque;

use super::standard::{Instance, Verdict, assign, micros};
use super::{DIGEST_LIMIT, Departure, DeviceCounts, Digest, Nanos, Outputs};
use crate::action::{CloneRequest, DROP_PORT, Machine, Requests};
use crate::arrays::Arrays;
use crate::ecn;
use crate::header::HeaderLayout;
use crate::parser::SetMember;
use crate::phv::{Phv, Slot};
use crate::pipeline::Lookups;
use crate::profile::Profile;
use crate::program::{FieldListIndex, Program};
use crate::replication::{Replica, Replication};
use crate::scheduler::Wait;
use crate::table::Table;

/// Copies and rounds between one arrival or instant and the next.
const PASS_LIMIT: u32 = 4096;
/// More bodies than this are given back to the allocator.
const SPARE_LIMIT: usize = 4096;

/// A packet inside the device.
#[derive(Debug)]
pub(super) struct Body {
    phv: Phv,
    /// The packet as it arrived.
    packet: Vec<u8>,
    /// Where what was not parsed starts.
    payload_from: usize,
    pub(super) arrived_bytes: u64,
    /// The most bytes that leave.
    truncate: Option<usize>,
    /// The load of the program whose headers these are.
    pub(super) epoch: u64,
}

/// A resubmitted or recirculated packet.
#[derive(Debug)]
pub(super) struct Round {
    packet: Vec<u8>,
    instance: Instance,
    kept: Vec<(Slot, u128)>,
}

/// A device at work on one packet.
pub(super) struct Passage<'a> {
    pub(super) program: &'a Program,
    pub(super) tables: &'a mut [Table],
    pub(super) profiles: &'a [Profile],
    pub(super) arrays: &'a mut Arrays,
    pub(super) replication: &'a Replication,
    pub(super) sets: &'a [Vec<SetMember>],
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) rounds: &'a mut VecDeque<Round>,
    pub(super) digests: &'a mut Vec<Digest>,
    #[expect(
        clippy::vec_box,
        reason = "they are moved to queues and back, as pointers"
    )]
    pub(super) spare: &'a mut Vec<Box<Body>>,
    pub(super) epoch: u64,
    /// Copies and rounds since the last arrival or instant.
    pub(super) passes: &'a mut u32,
    pub(super) counts: &'a mut DeviceCounts,
    pub(super) out: &'a mut Outputs,
    pub(super) now: Nanos,
    pub(super) levels: u8,
}

impl Passage<'_> {
    /// Takes an arriving packet to the queues, with all that follows from it.
    pub(super) fn take(&mut self, port: u16, packet: Vec<u8>) {
        let standard = &self.program.standard;
        let mut body = self.body(packet);
        body.phv.assign(standard.ingress_port, i128::from(port));
        assign(&mut body.phv, standard.ingress_timestamp, micros(self.now));
        self.ingress(body, port);
        self.go_round();
    }

    /// Takes a packet from its queue to the port, unless egress drops it or sends it elsewhere.
    pub(super) fn leave(&mut self, departure: Departure, wait: Wait) -> Option<Vec<u8>> {
        let packet = self.egress(departure, wait);
        self.go_round();
        packet
    }

    /// Keeps what a packet leaves behind for the next one.
    pub(super) fn retire(&mut self, mut body: Box<Body>) {
        self.out.recycle(std::mem::take(&mut body.packet));
        if self.spare.len() < SPARE_LIMIT && body.epoch == self.epoch {
            self.spare.push(body);
        }
    }

    fn body(&mut self, packet: Vec<u8>) -> Box<Body> {
        let mut body = self.spare.pop().unwrap_or_else(|| {
            Box::new(Body {
                phv: Phv::new(&self.program.shape),
                packet: Vec::new(),
                payload_from: 0,
                arrived_bytes: 0,
                truncate: None,
                epoch: self.epoch,
            })
        });
        body.phv.reset(packet.len() as u32);
        body.arrived_bytes = packet.len() as u64;
        body.packet = packet;
        (body.payload_from, body.truncate) = (0, None);
        body
    }

    /// Whether one more copy or round is allowed; counts it either way.
    fn may_pass(&mut self) -> bool {
        *self.passes = self.passes.saturating_add(1);
        let may = *self.passes <= PASS_LIMIT;
        self.counts.dropped_by_loop += u64::from(!may);
        may
    }

    fn go_round(&mut self) {
        while let Some(round) = self.rounds.pop_front() {
            if !self.may_pass() {
                self.out.recycle(round.packet);
                continue;
            }
            let mut body = self.body(round.packet);
            for (slot, value) in &round.kept {
                body.phv.set(*slot, *value);
            }
            let standard = &self.program.standard;
            standard.set_instance(&mut body.phv, round.instance);
            self.ingress(body, 0);
        }
    }

    /// From the parser to the queues.
    fn ingress(&mut self, mut body: Box<Body>, port: u16) {
        let (program, sets, bytes) = (self.program, self.sets, body.arrived_bytes);
        let standard = &program.standard;
        let Body { phv, packet, .. } = &mut *body;
        phv.assign(standard.packet_length, i128::from(bytes));
        let (mut machine, mut lookups) = self.equip(phv, &[], bytes);
        let parsed = program.parser.parse(packet, sets, &mut machine);
        machine.payload = &packet[parsed.bytes..];
        assign(machine.phv, standard.parser_error, i128::from(parsed.error));
        let is_wrong = program
            .verifications
            .iter()
            .any(|sum| !sum.holds(&mut machine));
        assign(machine.phv, standard.checksum_error, i128::from(is_wrong));
        program.ingress.run(&mut lookups, &mut machine);

        let requests = machine.requests;
        body.payload_from = parsed.bytes;
        self.counts.parser_errors += u64::from(parsed.error != program.parser.errors.none);
        if requests != Requests::default() && !self.serve(&requests, &body, port) {
            return self.retire(body);
        }
        match standard.verdict(&body.phv) {
            Verdict::Drop => {
                self.counts.dropped_by_program += 1;
                self.retire(body);
            }
            Verdict::Forward(port) => {
                standard.set_instance(&mut body.phv, Instance::Normal);
                body.truncate = requests.truncate;
                self.queue(port, body);
            }
            Verdict::Multicast(group) => {
                standard.set_instance(&mut body.phv, Instance::Replicated);
                let replicas = self.replication.group(group);
                self.counts.dropped_by_multicast += u64::from(replicas.is_empty());
                self.replicate(replicas, &mut body);
                self.retire(body);
            }
        }
    }

    /// Does what ingress asked for; false when the packet ends here.
    fn serve(&mut self, requests: &Requests, body: &Body, port: u16) -> bool {
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            return false;
        }
        if let Some(request) = requests.clone {
            self.clone_ingress(request, body, port);
        }
        if let Some(list) = requests.digest {
            let fields = &self.program.learn_lists[list.0 as usize].fields;
            let values = fields.iter().map(|field| body.phv.get(field.slot));
            let values = values.collect();
            if self.digests.len() < DIGEST_LIMIT {
                self.digests.push(Digest { list, values });
            }
        }
        let Some(list) = requests.resubmit else {
            return true;
        };
        self.rounds.push_back(Round {
            packet: body.packet.clone(),
            instance: Instance::Resubmitted,
            kept: self.keep(list, &body.phv),
        });
        false
    }

    /// Copies the packet as it arrived, with the parts of the metadata that are to be kept.
    fn clone_ingress(&mut self, request: CloneRequest, from: &Body, port: u16) {
        let (program, sets, replication) = (self.program, self.sets, self.replication);
        let Some(session) = replication.session(request.session) else {
            return;
        };
        let mut clone = self.copy(from);
        let Body { phv, packet, .. } = &mut *clone;
        phv.assign(program.standard.ingress_port, i128::from(port));
        let (mut machine, _) = self.equip(phv, &[], packet.len() as u64);
        clone.payload_from = program.parser.parse(packet, sets, &mut machine).bytes;
        self.mark_clone(request, &from.phv, &mut clone.phv, Instance::IngressClone);
        clone.truncate = clone_limit(session.packet_bytes);
        self.replicate(&session.replicas, &mut clone);
        self.retire(clone);
    }

    /// A packet of the same bytes, not parsed yet.
    fn copy(&mut self, of: &Body) -> Box<Body> {
        let mut packet = self.out.buffer();
        packet.extend_from_slice(&of.packet);
        self.body(packet)
    }

    fn mark_clone(&self, request: CloneRequest, from: &Phv, phv: &mut Phv, instance: Instance) {
        phv.reset_metadata(&self.program.metadata_slots);
        for (slot, value) in request
            .keep
            .map_or(Vec::new(), |list| self.keep(list, from))
        {
            phv.set(slot, value);
        }
        self.program.standard.set_instance(phv, instance);
    }

    fn keep(&self, list: FieldListIndex, phv: &Phv) -> Vec<(Slot, u128)> {
        let slots = &self.program.field_lists[list.0 as usize];
        slots.iter().map(|slot| (*slot, phv.get(*slot))).collect()
    }

    /// Queues one copy for each replica.
    fn replicate(&mut self, replicas: &[Replica], of: &mut Body) {
        for Replica { port, instance } in replicas {
            assign(
                &mut of.phv,
                self.program.standard.egress_rid,
                i128::from(*instance),
            );
            if !self.may_pass() {
                continue;
            }
            let mut copy = self.copy(of);
            copy.phv.clone_from(&of.phv);
            (copy.payload_from, copy.truncate) = (of.payload_from, of.truncate);
            self.queue(*port, copy);
        }
    }

    /// Hands a packet to the queue of its port and level.
    fn queue(&mut self, port: u16, body: Box<Body>) {
        let level = self.program.standard.level(&body.phv);
        if level >= self.levels {
            self.counts.dropped_by_priority += 1;
            return self.retire(body);
        }
        self.out
            .departures
            .push_back(Departure { port, level, body });
    }

    /// From the queue to the port, or round to ingress.
    fn egress(&mut self, departure: Departure, wait: Wait) -> Option<Vec<u8>> {
        let Departure { port, mut body, .. } = departure;
        let (program, now, bytes) = (self.program, self.now, body.arrived_bytes);
        let standard = &program.standard;
        standard.enter_egress(&mut body.phv, port, now, wait);
        let payload_from = body.payload_from;
        let Body { phv, packet, .. } = &mut *body;
        let (mut machine, mut lookups) = self.equip(phv, &packet[payload_from..], bytes);
        program.egress.run(&mut lookups, &mut machine);
        let requests = machine.requests;
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            self.retire(body);
            return None;
        }
        if let Some(request) = requests.clone {
            self.clone_egress(request, &body);
        }
        let left = self.finish(&requests, &mut body, wait);
        self.retire(body);
        left
    }

    /// What becomes of a packet after egress.
    fn finish(&mut self, requests: &Requests, body: &mut Body, wait: Wait) -> Option<Vec<u8>> {
        let program = self.program;
        if body.phv.get(program.standard.egress_spec.slot) == u128::from(DROP_PORT) {
            self.counts.dropped_by_program += 1;
            return None;
        }
        let mut left = self.out.buffer();
        let payload = &body.packet[body.payload_from..];
        let (mut machine, _) = self.equip(&mut body.phv, payload, body.arrived_bytes);
        program.deparser.deparse(&mut machine, &mut left);
        if let Some(list) = requests.recirculate {
            self.rounds.push_back(Round {
                packet: left,
                instance: Instance::Recirculated,
                kept: self.keep(list, &body.phv),
            });
            return None;
        }
        if let Some(limit) = least(body.truncate, requests.truncate) {
            left.truncate(limit);
        }
        if wait.marked {
            ecn::mark(&mut left);
        }
        self.counts.sent += 1;
        Some(left)
    }

    /// Copies the packet as egress left it.
    fn clone_egress(&mut self, request: CloneRequest, from: &Body) {
        let replication = self.replication;
        let Some(session) = replication.session(request.session) else {
            return;
        };
        let mut clone = self.copy(from);
        clone.phv.clone_from(&from.phv);
        clone.payload_from = from.payload_from;
        self.mark_clone(request, &from.phv, &mut clone.phv, Instance::EgressClone);
        clone.truncate = clone_limit(session.packet_bytes);
        self.replicate(&session.replicas, &mut clone);
        self.retire(clone);
    }

    /// What actions and tables work on, for one header vector.
    #[inline]
    fn equip<'m>(
        &'m mut self,
        phv: &'m mut Phv,
        payload: &'m [u8],
        arrived_bytes: u64,
    ) -> (Machine<'m>, Lookups<'m>) {
        let headers: &[HeaderLayout] = &self.program.headers;
        let machine = Machine {
            phv,
            headers,
            arrays: self.arrays,
            scratch: self.scratch,
            payload,
            arrived_bytes,
            now: self.now,
            exit: false,
            requests: Requests::default(),
        };
        let lookups = Lookups {
            actions: &self.program.actions,
            profile_specs: &self.program.profiles,
            tables: self.tables,
            profiles: self.profiles,
        };
        (machine, lookups)
    }
}

fn clone_limit(packet_bytes: u32) -> Option<usize> {
    (packet_bytes > 0).then_some(packet_bytes as usize)
}

fn least(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}
