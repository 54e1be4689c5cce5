//! `standard_metadata`: the fields that simple_switch itself reads and writes.

use crate::action::DROP_PORT;
use crate::device::Nanos;
use crate::phv::{Field, Phv};
use crate::scheduler::Wait;

/// Where a program keeps them; the optional ones may be missing from older programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardMetadata {
    pub(crate) ingress_port: Field,
    pub(crate) egress_spec: Field,
    pub(crate) egress_port: Field,
    pub(crate) packet_length: Field,
    pub(crate) instance_type: Option<Field>,
    pub(crate) egress_rid: Option<Field>,
    pub(crate) priority: Option<Field>,
    pub(crate) multicast: Option<Field>,
    pub(crate) parser_error: Option<Field>,
    pub(crate) checksum_error: Option<Field>,
    pub(crate) ingress_timestamp: Option<Field>,
    pub(crate) egress_timestamp: Option<Field>,
    pub(crate) enqueue_timestamp: Option<Field>,
    pub(crate) enqueue_depth: Option<Field>,
    pub(crate) dequeue_delta: Option<Field>,
    pub(crate) dequeue_depth: Option<Field>,
}

/// How a packet came to be, by the numbers of simple_switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instance {
    Normal = 0,
    IngressClone = 1,
    EgressClone = 2,
    Recirculated = 4,
    Replicated = 5,
    Resubmitted = 6,
}

/// What ingress decided about a packet.
pub(super) enum Verdict {
    Forward(u16),
    Drop,
    Multicast(u16),
}

impl StandardMetadata {
    #[inline]
    pub(super) fn verdict(&self, phv: &Phv) -> Verdict {
        let group = self.multicast.map_or(0, |field| phv.get(field.slot) as u16);
        let port = phv.get(self.egress_spec.slot) as u16;
        match (group, port) {
            (0, DROP_PORT) => Verdict::Drop,
            (0, port) => Verdict::Forward(port),
            (group, _) => Verdict::Multicast(group),
        }
    }

    /// The priority queue the packet wants; 0 where the program has no say.
    #[inline]
    pub(super) fn level(&self, phv: &Phv) -> u8 {
        self.priority.map_or(0, |field| phv.get(field.slot) as u8)
    }

    #[inline]
    pub(super) fn enter_egress(&self, phv: &mut Phv, port: u16, now: Nanos, wait: Wait) {
        phv.assign(self.egress_port, i128::from(port));
        // Not the drop port, so that egress drops only on purpose.
        phv.assign(self.egress_spec, i128::from(DROP_PORT) + 1);
        phv.assign(self.packet_length, i128::from(phv.packet_length));
        let waited = micros(now) - micros(wait.since);
        assign(phv, self.enqueue_timestamp, micros(wait.since));
        assign(phv, self.enqueue_depth, i128::from(wait.found));
        assign(phv, self.dequeue_delta, waited);
        assign(phv, self.dequeue_depth, i128::from(wait.left));
        assign(phv, self.egress_timestamp, micros(now));
    }

    pub(super) fn set_instance(&self, phv: &mut Phv, instance: Instance) {
        assign(phv, self.instance_type, instance as i128);
    }
}

/// Writes a field, if the program has it.
#[inline]
pub(super) fn assign(phv: &mut Phv, field: Option<Field>, value: i128) {
    if let Some(field) = field {
        phv.assign(field, value);
    }
}

/// Timestamps of v1model are in microseconds.
#[inline]
pub(super) fn micros(now: Nanos) -> i128 {
    i128::from(now / 1_000)
}
