//! The processing of one packet, and of the copies it makes, in a device.
//!
//! As in simple_switch: parse, ingress, queue, egress, deparse. [`PacketRun::process_arrival`]
//! leads to the queue, [`PacketRun::process_departure`] from it to the port; between them a packet
//! is a [`BufferedPacket`], its header vector and its bytes, which is moved and never copied unless
//! the program makes copies. Resubmitted and recirculated packets wait in one queue and are
//! processed first come first served, before the next packet. Between one arrival or instant and
//! the next, the number of passes is bounded: a program that sends packets in circles does not stop
//! the switch, while BMv2 never ends.

use std::collections::VecDeque;

use super::pending_digests::PendingDigests;
use super::standard_metadata::{IngressDecision, InstanceType, assign_field, to_micros};
use super::{DeviceCounts, DeviceOutputs, Digest, QueuedPacket};
use crate::device::replication::ReplicationEngine;
use crate::ids::{FieldListIndex, PhvSlot};
use crate::run::action::{CloneRequest, DROP_PORT, PacketContext, PacketRequests};
use crate::run::arrays::StatefulArrays;
use crate::run::ecn;
use crate::run::header::HeaderLayout;
use crate::run::parser::ValueSetMember;
use crate::run::phv::Phv;
use crate::run::pipeline::LookupContext;
use crate::run::profile::ActionProfile;
use crate::run::program::Program;
use crate::run::table::MatchTable;
use crate::scheduler::QueueWait;
use crate::spec::entry::Replica;
use crate::time::Nanos;
use crate::traffic::shared_buffer::PriorityGroup;

/// Copies and recirculations between one arrival or instant and the next.
const PASS_LIMIT: u32 = 4096;
/// More packets than this are given back to the allocator.
const SPARE_LIMIT: usize = 4096;

/// A packet inside the device.
#[derive(Debug)]
pub(super) struct BufferedPacket {
    phv: Phv,
    /// The packet as it arrived.
    packet: Vec<u8>,
    /// Where what was not parsed starts.
    payload_from: usize,
    pub(super) arrived_bytes: u64,
    /// The most bytes that leave.
    truncate_to: Option<usize>,
    /// The load of the program whose headers these are.
    pub(super) load_number: u64,
}

/// A resubmitted or recirculated packet.
#[derive(Debug)]
pub(super) struct Recirculation {
    packet: Vec<u8>,
    instance: InstanceType,
    preserved: Vec<(PhvSlot, u128)>,
}

/// A device at work on one packet.
pub(super) struct PacketRun<'a> {
    pub(super) program: &'a Program,
    pub(super) tables: &'a mut [MatchTable],
    pub(super) profiles: &'a [ActionProfile],
    pub(super) arrays: &'a mut StatefulArrays,
    pub(super) replication: &'a ReplicationEngine,
    pub(super) value_sets: &'a [Vec<ValueSetMember>],
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) recirculations: &'a mut VecDeque<Recirculation>,
    pub(super) digests: &'a mut PendingDigests,
    #[expect(clippy::vec_box, reason = "they are moved to queues and back, as pointers")]
    pub(super) spare_packets: &'a mut Vec<Box<BufferedPacket>>,
    pub(super) load_number: u64,
    /// Copies and rounds since the last arrival or instant.
    pub(super) pass_count: &'a mut u32,
    pub(super) counts: &'a mut DeviceCounts,
    pub(super) out: &'a mut DeviceOutputs,
    pub(super) now: Nanos,
    pub(super) levels: u8,
    pub(super) trusts_dscp: bool,
}

impl PacketRun<'_> {
    /// Takes an arriving packet to the queues, with all that follows from it.
    pub(super) fn process_arrival(&mut self, port: u16, packet: Vec<u8>) {
        let standard = &self.program.standard;
        let mut body = self.new_packet(packet);
        if self.trusts_dscp {
            let level = PriorityGroup::of_frame(port, &body.packet).priority();
            let level = level.min(self.levels.saturating_sub(1));
            assign_field(&mut body.phv, standard.priority, i128::from(level));
        }
        body.phv.assign_field(standard.ingress_port, i128::from(port));
        assign_field(&mut body.phv, standard.ingress_timestamp, to_micros(self.now));
        self.run_ingress(body, port);
        self.run_recirculated();
    }

    /// Takes a packet from its queue to the port, unless egress drops it or sends it elsewhere.
    pub(super) fn process_departure(
        &mut self,
        departure: QueuedPacket,
        wait: QueueWait,
    ) -> Option<Vec<u8>> {
        let packet = self.run_egress(departure, wait);
        self.run_recirculated();
        packet
    }

    /// Keeps what a packet leaves behind for the next one.
    pub(super) fn recycle_packet(&mut self, mut body: Box<BufferedPacket>) {
        self.out.recycle_buffer(std::mem::take(&mut body.packet));
        if self.spare_packets.len() < SPARE_LIMIT && body.load_number == self.load_number {
            self.spare_packets.push(body);
        }
    }

    fn new_packet(&mut self, packet: Vec<u8>) -> Box<BufferedPacket> {
        let mut body = self.spare_packets.pop().unwrap_or_else(|| {
            Box::new(BufferedPacket {
                phv: Phv::new(&self.program.shape),
                packet: Vec::new(),
                payload_from: 0,
                arrived_bytes: 0,
                truncate_to: None,
                load_number: self.load_number,
            })
        });
        body.phv.reset(packet.len() as u32);
        body.arrived_bytes = packet.len() as u64;
        body.packet = packet;
        (body.payload_from, body.truncate_to) = (0, None);
        body
    }

    /// Whether one more copy or round is allowed; counts it either way.
    fn count_pass(&mut self) -> bool {
        *self.pass_count = self.pass_count.saturating_add(1);
        let may = *self.pass_count <= PASS_LIMIT;
        self.counts.dropped_by_loop += u64::from(!may);
        may
    }

    fn run_recirculated(&mut self) {
        while let Some(round) = self.recirculations.pop_front() {
            if !self.count_pass() {
                self.out.recycle_buffer(round.packet);
                continue;
            }
            let mut body = self.new_packet(round.packet);
            for (slot, value) in &round.preserved {
                body.phv.set(*slot, *value);
            }
            let standard = &self.program.standard;
            standard.set_instance(&mut body.phv, round.instance);
            self.run_ingress(body, 0);
        }
    }

    /// From the parser to the queues.
    fn run_ingress(&mut self, mut body: Box<BufferedPacket>, port: u16) {
        let (program, sets, bytes) = (self.program, self.value_sets, body.arrived_bytes);
        let standard = &program.standard;
        let BufferedPacket { phv, packet, .. } = &mut *body;
        phv.assign_field(standard.packet_length, i128::from(bytes));
        let (mut machine, mut lookups) = self.execution_state(phv, &[], bytes);
        let parsed = program.parser.parse_packet(packet, sets, &mut machine);
        machine.payload = &packet[parsed.bytes..];
        assign_field(machine.phv, standard.parser_error, i128::from(parsed.error));
        let is_wrong = program.verifications.iter().any(|sum| !sum.is_correct(&mut machine));
        assign_field(machine.phv, standard.checksum_error, i128::from(is_wrong));
        program.ingress.run_packet(&mut lookups, &mut machine);

        let requests = machine.requests;
        body.payload_from = parsed.bytes;
        self.counts.parser_errors += u64::from(parsed.error != program.parser.errors.none);
        if requests != PacketRequests::default() && !self.apply_requests(&requests, &body, port) {
            return self.recycle_packet(body);
        }
        match standard.ingress_decision(&body.phv) {
            IngressDecision::Drop => {
                self.counts.dropped_by_program += 1;
                self.recycle_packet(body);
            }
            IngressDecision::Forward(port) => {
                standard.set_instance(&mut body.phv, InstanceType::Normal);
                body.truncate_to = requests.truncate;
                self.enqueue_packet(port, body);
            }
            IngressDecision::Multicast(group) => {
                standard.set_instance(&mut body.phv, InstanceType::Replicated);
                let replicas = self.replication.group(group);
                self.counts.dropped_by_multicast += u64::from(replicas.is_empty());
                self.replicate_packet(replicas, &mut body);
                self.recycle_packet(body);
            }
        }
    }

    /// Carries out the requests of ingress; false when the packet ends here.
    fn apply_requests(
        &mut self,
        requests: &PacketRequests,
        body: &BufferedPacket,
        port: u16,
    ) -> bool {
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            return false;
        }
        if let Some(request) = requests.clone {
            self.clone_ingress(request, body, port);
        }
        if let Some(list) = requests.digest {
            let fields = &self.program.learn_lists[list.0 as usize].fields;
            let values = fields.iter().map(|field| body.phv.get(field.slot)).collect();
            self.digests.push(Digest { list, values });
        }
        let Some(list) = requests.resubmit else {
            return true;
        };
        self.recirculations.push_back(Recirculation {
            packet: body.packet.clone(),
            instance: InstanceType::Resubmitted,
            preserved: self.preserved_fields(list, &body.phv),
        });
        false
    }

    /// Copies the packet as it arrived, with the parts of the metadata that are to be kept.
    fn clone_ingress(&mut self, request: CloneRequest, from: &BufferedPacket, port: u16) {
        let (program, sets, replication) = (self.program, self.value_sets, self.replication);
        let Some(session) = replication.session(request.session) else {
            return;
        };
        let mut clone = self.copy_packet(from);
        let BufferedPacket { phv, packet, .. } = &mut *clone;
        phv.assign_field(program.standard.ingress_port, i128::from(port));
        let (mut machine, _) = self.execution_state(phv, &[], packet.len() as u64);
        clone.payload_from = program.parser.parse_packet(packet, sets, &mut machine).bytes;
        self.mark_clone(request, &from.phv, &mut clone.phv, InstanceType::IngressClone);
        clone.truncate_to = clone_limit(session.packet_bytes);
        self.replicate_packet(&session.replicas, &mut clone);
        self.recycle_packet(clone);
    }

    /// A packet of the same bytes, not parsed yet.
    fn copy_packet(&mut self, of: &BufferedPacket) -> Box<BufferedPacket> {
        let mut packet = self.out.take_buffer();
        packet.extend_from_slice(&of.packet);
        self.new_packet(packet)
    }

    fn mark_clone(&self, request: CloneRequest, from: &Phv, phv: &mut Phv, instance: InstanceType) {
        phv.reset_metadata(&self.program.metadata_slots);
        for (slot, value) in
            request.keep.map_or(Vec::new(), |list| self.preserved_fields(list, from))
        {
            phv.set(slot, value);
        }
        self.program.standard.set_instance(phv, instance);
    }

    fn preserved_fields(&self, list: FieldListIndex, phv: &Phv) -> Vec<(PhvSlot, u128)> {
        let slots = &self.program.field_lists[list.0 as usize];
        slots.iter().map(|slot| (*slot, phv.get(*slot))).collect()
    }

    /// Queues one copy for each replica.
    fn replicate_packet(&mut self, replicas: &[Replica], of: &mut BufferedPacket) {
        for Replica { port, instance } in replicas {
            assign_field(&mut of.phv, self.program.standard.egress_rid, i128::from(*instance));
            if !self.count_pass() {
                continue;
            }
            let mut copy = self.copy_packet(of);
            copy.phv.clone_from(&of.phv);
            (copy.payload_from, copy.truncate_to) = (of.payload_from, of.truncate_to);
            self.enqueue_packet(*port, copy);
        }
    }

    /// Hands a packet to the queue of its port and level.
    fn enqueue_packet(&mut self, port: u16, body: Box<BufferedPacket>) {
        let level = self.program.standard.priority_level(&body.phv);
        if level >= self.levels {
            self.counts.dropped_by_priority += 1;
            return self.recycle_packet(body);
        }
        let group = PriorityGroup::NONE;
        self.out.queued.push_back(QueuedPacket { port, level, group, buffered: body });
    }

    /// From the queue to the port, or round to ingress.
    fn run_egress(&mut self, departure: QueuedPacket, wait: QueueWait) -> Option<Vec<u8>> {
        let QueuedPacket { port, buffered: mut body, .. } = departure;
        let (program, now, bytes) = (self.program, self.now, body.arrived_bytes);
        let standard = &program.standard;
        standard.enter_egress(&mut body.phv, port, now, wait);
        let payload_from = body.payload_from;
        let BufferedPacket { phv, packet, .. } = &mut *body;
        let (mut machine, mut lookups) = self.execution_state(phv, &packet[payload_from..], bytes);
        program.egress.run_packet(&mut lookups, &mut machine);
        let requests = machine.requests;
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            self.recycle_packet(body);
            return None;
        }
        if let Some(request) = requests.clone {
            self.clone_egress(request, &body);
        }
        let left = self.finish_egress(&requests, &mut body, wait);
        self.recycle_packet(body);
        left
    }

    /// What becomes of a packet after egress.
    fn finish_egress(
        &mut self,
        requests: &PacketRequests,
        body: &mut BufferedPacket,
        wait: QueueWait,
    ) -> Option<Vec<u8>> {
        let program = self.program;
        if body.phv.get(program.standard.egress_spec.slot) == u128::from(DROP_PORT) {
            self.counts.dropped_by_program += 1;
            return None;
        }
        let mut left = self.out.take_buffer();
        let payload = &body.packet[body.payload_from..];
        let (mut machine, _) = self.execution_state(&mut body.phv, payload, body.arrived_bytes);
        program.deparser.deparse_packet(&mut machine, &mut left);
        if let Some(list) = requests.recirculate {
            self.recirculations.push_back(Recirculation {
                packet: left,
                instance: InstanceType::Recirculated,
                preserved: self.preserved_fields(list, &body.phv),
            });
            return None;
        }
        if let Some(limit) = smaller_limit(body.truncate_to, requests.truncate) {
            left.truncate(limit);
        }
        if wait.marked {
            ecn::mark_congestion(&mut left);
        }
        self.counts.sent += 1;
        Some(left)
    }

    /// Copies the packet as egress left it.
    fn clone_egress(&mut self, request: CloneRequest, from: &BufferedPacket) {
        let replication = self.replication;
        let Some(session) = replication.session(request.session) else {
            return;
        };
        let mut clone = self.copy_packet(from);
        clone.phv.clone_from(&from.phv);
        clone.payload_from = from.payload_from;
        self.mark_clone(request, &from.phv, &mut clone.phv, InstanceType::EgressClone);
        clone.truncate_to = clone_limit(session.packet_bytes);
        self.replicate_packet(&session.replicas, &mut clone);
        self.recycle_packet(clone);
    }

    /// What actions and tables work on, for one header vector.
    #[inline]
    fn execution_state<'m>(
        &'m mut self,
        phv: &'m mut Phv,
        payload: &'m [u8],
        arrived_bytes: u64,
    ) -> (PacketContext<'m>, LookupContext<'m>) {
        let headers: &[HeaderLayout] = &self.program.headers;
        let machine = PacketContext {
            phv,
            headers,
            arrays: self.arrays,
            scratch: self.scratch,
            payload,
            arrived_bytes,
            now: self.now,
            exit: false,
            requests: PacketRequests::default(),
        };
        let lookups = LookupContext {
            actions: &self.program.actions,
            selectors: &self.program.selectors,
            tables: self.tables,
            profiles: self.profiles,
        };
        (machine, lookups)
    }
}

fn clone_limit(packet_bytes: u32) -> Option<usize> {
    (packet_bytes > 0).then_some(packet_bytes as usize)
}

fn smaller_limit(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}
