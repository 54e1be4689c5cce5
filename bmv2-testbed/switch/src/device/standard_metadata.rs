//! `standard_metadata`: the fields that simple_switch itself reads and writes.

use crate::run::action::DROP_PORT;
use crate::run::phv::Phv;
use crate::run::standard_metadata::StandardMetadata;
use crate::scheduler::QueueWait;
use crate::spec::FieldRef;
use crate::time::Nanos;

/// How a packet came to be, by the numbers of simple_switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceType {
    Normal = 0,
    IngressClone = 1,
    EgressClone = 2,
    Recirculated = 4,
    Replicated = 5,
    Resubmitted = 6,
}

/// What ingress decided about a packet.
pub(super) enum IngressDecision {
    Forward(u16),
    Drop,
    Multicast(u16),
}

impl StandardMetadata {
    #[inline]
    pub(super) fn ingress_decision(&self, phv: &Phv) -> IngressDecision {
        let group = self.multicast.map_or(0, |field| phv.get(field.slot) as u16);
        let port = phv.get(self.egress_spec.slot) as u16;
        match (group, port) {
            (0, DROP_PORT) => IngressDecision::Drop,
            (0, port) => IngressDecision::Forward(port),
            (group, _) => IngressDecision::Multicast(group),
        }
    }

    /// The priority level of the packet; 0 where the program has no such field.
    #[inline]
    pub(super) fn priority_level(&self, phv: &Phv) -> u8 {
        self.priority.map_or(0, |field| phv.get(field.slot) as u8)
    }

    #[inline]
    pub(super) fn enter_egress(&self, phv: &mut Phv, port: u16, now: Nanos, wait: QueueWait) {
        phv.assign_field(self.egress_port, i128::from(port));
        // Not the drop port, so that egress drops only on purpose.
        phv.assign_field(self.egress_spec, i128::from(DROP_PORT) + 1);
        phv.assign_field(self.packet_length, i128::from(phv.packet_length));
        let waited = to_micros(now) - to_micros(wait.since);
        assign_field(phv, self.enqueue_timestamp, to_micros(wait.since));
        assign_field(phv, self.enqueue_depth, i128::from(wait.found));
        assign_field(phv, self.dequeue_delta, waited);
        assign_field(phv, self.dequeue_depth, i128::from(wait.left));
        assign_field(phv, self.egress_timestamp, to_micros(now));
    }

    pub(super) fn set_instance(&self, phv: &mut Phv, instance: InstanceType) {
        assign_field(phv, self.instance_type, instance as i128);
    }
}

/// Writes a field, if the program has it.
#[inline]
pub(super) fn assign_field(phv: &mut Phv, field: Option<FieldRef>, value: i128) {
    if let Some(field) = field {
        phv.assign_field(field, value);
    }
}

/// Timestamps of v1model are in microseconds.
#[inline]
pub(super) fn to_micros(now: Nanos) -> i128 {
    i128::from(now / 1_000)
}
