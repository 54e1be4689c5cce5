//! The way of one packet, and of the copies it makes, through a device.
//!
//! As in simple_switch: parse, ingress, traffic manager, egress, deparse. A packet that is neither
//! copied nor sent round goes straight through on the device's own header vector. Everything else
//! waits in a line and is worked off, first come first served, before the next packet; a limit
//! keeps a program that sends packets in circles from stopping the switch, which BMv2 lets it do.

use std::collections::VecDeque;

use super::standard::{Instance, Verdict, assign, micros};
use super::{DIGEST_LIMIT, DeviceCounts, Digest, Nanos, Outputs};
use crate::action::{CloneRequest, DROP_PORT, Machine, Requests};
use crate::arrays::Arrays;
use crate::header::HeaderLayout;
use crate::parser::SetMember;
use crate::phv::{Phv, Slot};
use crate::pipeline::Lookups;
use crate::profile::Profile;
use crate::program::{FieldListIndex, Program};
use crate::replication::{Replica, Replication};
use crate::table::Table;

use super::Output;

/// Passes through ingress or egress that one arriving packet may cause.
const PASS_LIMIT: usize = 4096;

/// One packet as it arrives.
pub(super) struct Arrival<'a> {
    pub(super) port: u16,
    pub(super) packet: &'a [u8],
    pub(super) now: Nanos,
    pub(super) levels: u8,
}

/// A packet that waits for its next pass.
#[derive(Debug)]
pub(super) enum Pending {
    /// From the parser on, again.
    Ingress(Round),
    /// Through egress.
    Egress(Box<Copy>),
}

/// A resubmitted or recirculated packet.
#[derive(Debug)]
pub(super) struct Round {
    packet: Vec<u8>,
    instance: Instance,
    kept: Vec<(Slot, u128)>,
}

/// One copy of a packet.
#[derive(Debug)]
pub(super) struct Copy {
    phv: Phv,
    payload: Vec<u8>,
    leaving: Leaving,
}

/// What is known about a packet after the traffic manager.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    port: u16,
    arrived_bytes: u64,
    /// The most bytes that leave.
    truncate: Option<usize>,
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
    pub(super) pending: &'a mut VecDeque<Pending>,
    pub(super) digests: &'a mut Vec<Digest>,
    pub(super) counts: &'a mut DeviceCounts,
    pub(super) out: &'a mut Outputs,
    pub(super) now: Nanos,
    pub(super) levels: u8,
}

impl Passage<'_> {
    /// Takes a packet through, with all that follows from it.
    pub(super) fn take(&mut self, arrival: &Arrival<'_>, phv: &mut Phv) {
        let standard = &self.program.standard;
        phv.reset(arrival.packet.len() as u32);
        phv.assign(standard.ingress_port, i128::from(arrival.port));
        assign(phv, standard.ingress_timestamp, micros(self.now));
        self.ingress(arrival.packet, arrival.port, phv);
        for _ in 0..PASS_LIMIT {
            match self.pending.pop_front() {
                None => return,
                Some(Pending::Ingress(round)) => self.again(&round, phv),
                Some(Pending::Egress(mut copy)) => {
                    self.egress(&mut copy.phv, &copy.payload, copy.leaving);
                }
            }
        }
        self.counts.dropped_by_loop += self.pending.len() as u64;
        self.pending.clear();
    }

    fn again(&mut self, round: &Round, phv: &mut Phv) {
        phv.reset(round.packet.len() as u32);
        for (slot, value) in &round.kept {
            phv.set(*slot, *value);
        }
        self.program.standard.set_instance(phv, round.instance);
        self.ingress(&round.packet, 0, phv);
    }

    /// From the parser to the traffic manager, and on if the packet just goes on.
    fn ingress(&mut self, packet: &[u8], port: u16, phv: &mut Phv) {
        let (program, sets, bytes) = (self.program, self.sets, packet.len());
        let standard = &program.standard;
        phv.assign(standard.packet_length, bytes as i128);
        let (mut machine, mut lookups) = self.equip(phv, &[], bytes as u64);
        let parsed = program.parser.parse(packet, sets, &mut machine);
        let payload = &packet[parsed.bytes..];
        machine.payload = payload;
        assign(machine.phv, standard.parser_error, i128::from(parsed.error));
        let is_wrong = program
            .verifications
            .iter()
            .any(|sum| !sum.holds(&mut machine));
        assign(machine.phv, standard.checksum_error, i128::from(is_wrong));
        program.ingress.run(&mut lookups, &mut machine);

        let requests = machine.requests;
        self.counts.parser_errors += u64::from(parsed.error != program.parser.errors.none);
        if requests != Requests::default() && !self.serve(&requests, packet, port, phv) {
            return;
        }
        let (truncate, arrived_bytes) = (requests.truncate, bytes as u64);
        match standard.verdict(phv) {
            Verdict::Drop => self.counts.dropped_by_program += 1,
            Verdict::Forward(port) => {
                standard.set_instance(phv, Instance::Normal);
                self.egress(
                    phv,
                    payload,
                    Leaving {
                        port,
                        arrived_bytes,
                        truncate,
                    },
                );
            }
            Verdict::Multicast(group) => {
                standard.set_instance(phv, Instance::Replicated);
                let replicas = self.replication.group(group);
                self.counts.dropped_by_multicast += u64::from(replicas.is_empty());
                let leaving = Leaving {
                    port,
                    arrived_bytes,
                    truncate: None,
                };
                self.replicate(replicas, phv, payload, leaving);
            }
        }
    }

    /// Does what ingress asked for; false when the packet ends here.
    fn serve(&mut self, requests: &Requests, packet: &[u8], port: u16, phv: &mut Phv) -> bool {
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            return false;
        }
        if let Some(request) = requests.clone {
            self.clone_ingress(request, packet, port, phv);
        }
        if let Some(list) = requests.digest {
            let fields = &self.program.learn_lists[list.0 as usize].fields;
            let values = fields.iter().map(|field| phv.get(field.slot)).collect();
            if self.digests.len() < DIGEST_LIMIT {
                self.digests.push(Digest { list, values });
            }
        }
        let Some(list) = requests.resubmit else {
            return true;
        };
        self.pending.push_back(Pending::Ingress(Round {
            packet: packet.to_vec(),
            instance: Instance::Resubmitted,
            kept: self.keep(list, phv),
        }));
        false
    }

    /// Copies the packet as it arrived, with the parts of the metadata that are to be kept.
    fn clone_ingress(&mut self, request: CloneRequest, packet: &[u8], port: u16, from: &Phv) {
        let (program, sets, replication) = (self.program, self.sets, self.replication);
        let Some(session) = replication.session(request.session) else {
            return;
        };
        let mut phv = Phv::new(&program.shape);
        phv.reset(packet.len() as u32);
        phv.assign(program.standard.ingress_port, i128::from(port));
        let (mut machine, _) = self.equip(&mut phv, &[], packet.len() as u64);
        let parsed = program.parser.parse(packet, sets, &mut machine);
        self.mark_clone(request, from, &mut phv, Instance::IngressClone);
        let arrived_bytes = packet.len() as u64;
        let truncate = clone_limit(session.packet_bytes);
        let leaving = Leaving {
            port,
            arrived_bytes,
            truncate,
        };
        self.replicate(
            &session.replicas,
            &mut phv,
            &packet[parsed.bytes..],
            leaving,
        );
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

    /// Puts one copy for each replica in line for egress.
    fn replicate(&mut self, replicas: &[Replica], phv: &mut Phv, payload: &[u8], of: Leaving) {
        for Replica { port, instance } in replicas {
            assign(phv, self.program.standard.egress_rid, i128::from(*instance));
            self.pending.push_back(Pending::Egress(Box::new(Copy {
                phv: phv.clone(),
                payload: payload.to_vec(),
                leaving: Leaving { port: *port, ..of },
            })));
        }
    }

    /// From the traffic manager to the port, or round to ingress.
    fn egress(&mut self, phv: &mut Phv, payload: &[u8], leaving: Leaving) {
        let (program, now) = (self.program, self.now);
        let standard = &program.standard;
        let level = standard.level(phv);
        if level >= self.levels {
            self.counts.dropped_by_priority += 1;
            return;
        }
        standard.enter_egress(phv, leaving.port, now);
        let (mut machine, mut lookups) = self.equip(phv, payload, leaving.arrived_bytes);
        program.egress.run(&mut lookups, &mut machine);
        let requests = machine.requests;
        if requests.failed {
            self.counts.dropped_by_assertion += 1;
            return;
        }
        if let Some(request) = requests.clone {
            self.clone_egress(request, phv, payload, leaving);
        }
        if phv.get(standard.egress_spec.slot) == u128::from(DROP_PORT) {
            self.counts.dropped_by_program += 1;
            return;
        }
        let mut packet = self.out.buffer();
        let (mut machine, _) = self.equip(phv, payload, leaving.arrived_bytes);
        program.deparser.deparse(&mut machine, &mut packet);
        if let Some(list) = requests.recirculate {
            let (instance, kept) = (Instance::Recirculated, self.keep(list, phv));
            return self.pending.push_back(Pending::Ingress(Round {
                packet,
                instance,
                kept,
            }));
        }
        if let Some(limit) = least(leaving.truncate, requests.truncate) {
            packet.truncate(limit);
        }
        self.out.packets.push(Output {
            port: leaving.port,
            level,
            packet,
        });
        self.counts.sent += 1;
    }

    /// Copies the packet as egress left it.
    fn clone_egress(
        &mut self,
        request: CloneRequest,
        from: &Phv,
        payload: &[u8],
        leaving: Leaving,
    ) {
        let replication = self.replication;
        if let Some(session) = replication.session(request.session) {
            let mut phv = from.clone();
            self.mark_clone(request, from, &mut phv, Instance::EgressClone);
            let truncate = clone_limit(session.packet_bytes);
            let leaving = Leaving {
                truncate,
                ..leaving
            };
            self.replicate(&session.replicas, &mut phv, payload, leaving);
        }
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
