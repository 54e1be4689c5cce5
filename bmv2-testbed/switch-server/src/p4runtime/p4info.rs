//! P4Info resolved against a program: the object of the device for each id of the protocol.
//!
//! `p4info/resolution.rs` joins a `p4.config.v1.P4Info` with the program of the BMv2 JSON by name
//! and refuses pairs that disagree; the service then translates with plain look-ups. The decision
//! behind it: a controller that pushes two artefacts of different builds gets an error at once,
//! with the object and both values named, instead of wrong packets later. What p4c leaves out of
//! the JSON because no packet can reach it is no disagreement: only its use is an error.

mod resolution;
mod stateful_objects;

use std::collections::BTreeMap;

use p4runtime_proto::config_v1 as p4info;
use thiserror::Error;

use crate::p4runtime::pins::PinsSchema;
use switch::MatchKind;
use switch::{
    ActionIndex, CounterIndex, LearnListIndex, MeterIndex, ProfileIndex, RegisterIndex, TableIndex,
    ValueSetIndex,
};

/// Why a P4Info cannot be used with a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SchemaError {
    /// The P4Info names an object that the JSON lacks.
    #[error("the P4Info has {what} {name}, the device config has not")]
    Missing {
        /// The kind of object.
        what: &'static str,
        /// Its full name.
        name: String,
    },
    /// Both have the object, but differently.
    #[error("{object}: {property} is {p4info} in the P4Info and {program} in the device config")]
    Differs {
        /// The object, as `table IngressImpl.path`.
        object: String,
        /// What differs.
        property: String,
        /// The P4Info's side.
        p4info: String,
        /// The program's side.
        program: String,
    },
    /// An id that the P4Info uses and does not define, or defines twice.
    #[error("{object}: id {id} is {problem}")]
    Id {
        /// Where the id stands.
        object: String,
        /// The id.
        id: u32,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Something this switch does not do.
    #[error("{object}: {feature} is not supported")]
    Unsupported {
        /// Where it stands.
        object: String,
        /// What it is.
        feature: String,
    },
}

/// The objects of a pipeline by P4Info id, as the service needs them.
#[derive(Debug, Default)]
pub(crate) struct PipelineSchema {
    pub(crate) tables: BTreeMap<u32, TableSchema>,
    pub(crate) profiles: BTreeMap<u32, ProfileSchema>,
    pub(crate) counters: BTreeMap<u32, CounterIndex>,
    pub(crate) meters: BTreeMap<u32, MeterIndex>,
    pub(crate) registers: BTreeMap<u32, RegisterSchema>,
    pub(crate) digests: BTreeMap<u32, DigestSchema>,
    pub(crate) value_sets: BTreeMap<u32, ValueSetSchema>,
    pub(crate) packet_in: ControllerPacketHeader,
    pub(crate) packet_out: ControllerPacketHeader,
    /// Objects of the P4Info that cannot be used, and why.
    pub(crate) unusable: BTreeMap<u32, SchemaError>,
    /// What a PINS switch enforces beyond this; none in other dialects.
    pub(crate) pins: Option<PinsSchema>,
}

/// One table.
#[derive(Debug)]
pub(crate) struct TableSchema {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) index: TableIndex,
    /// In the order of the program's key.
    pub(crate) fields: Vec<FieldSchema>,
    pub(crate) takes_priority: bool,
    pub(crate) actions: TableActionSchemas,
    /// The default action that nothing can change.
    pub(crate) const_default: Option<u32>,
    pub(crate) is_const: bool,
    pub(crate) notifies_idle: bool,
    /// The P4Info id of its action profile.
    pub(crate) profile: Option<u32>,
    pub(crate) direct_counter: bool,
    pub(crate) direct_meter: bool,
}

/// One register array.
#[derive(Debug)]
pub(crate) struct RegisterSchema {
    pub(crate) index: RegisterIndex,
    pub(crate) bits: u32,
}

/// One kind of digest.
#[derive(Debug)]
pub(crate) struct DigestSchema {
    pub(crate) index: LearnListIndex,
    /// Whether its values are the members of a struct, or the digest is one value.
    pub(crate) is_struct: bool,
}

/// One parser value set.
#[derive(Debug)]
pub(crate) struct ValueSetSchema {
    pub(crate) index: ValueSetIndex,
    /// In the order of the parser's key.
    pub(crate) fields: Vec<FieldSchema>,
}

/// One field of a key.
#[derive(Debug)]
pub(crate) struct FieldSchema {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) bits: u32,
    pub(crate) kind: MatchKind,
}

/// The actions of one table, by P4Info id. BMv2 has a copy of an action per table that uses it,
/// so the way back is by index and belongs to the table as well.
#[derive(Debug, Default)]
pub(crate) struct TableActionSchemas {
    pub(crate) by_id: BTreeMap<u32, ActionSchema>,
    pub(crate) by_index: BTreeMap<ActionIndex, u32>,
}

/// One action as one table may use it.
#[derive(Debug)]
pub(crate) struct ActionSchema {
    pub(crate) name: String,
    pub(crate) index: ActionIndex,
    pub(crate) scope: p4info::action_ref::Scope,
    /// In the order of the program's parameters.
    pub(crate) parameters: Vec<ParameterSchema>,
}

/// One parameter of an action, or one field of a packet header.
#[derive(Clone, Debug)]
pub(crate) struct ParameterSchema {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) bits: u32,
}

/// One action profile.
#[derive(Debug)]
pub(crate) struct ProfileSchema {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) index: ProfileIndex,
    /// The table whose actions its members call.
    pub(crate) table: u32,
    /// Members it can hold.
    pub(crate) size: usize,
    pub(crate) with_selector: bool,
    pub(crate) max_group_size: i32,
    /// The greatest weight of a member, where group size counts members; else it counts weights.
    pub(crate) max_member_weight: Option<i32>,
}

/// The header before a packet from or to the controller.
#[derive(Debug, Default)]
pub(crate) struct ControllerPacketHeader {
    pub(crate) fields: Vec<PacketHeaderField>,
}

/// One field of such a header; padding may be left out by the sender.
#[derive(Debug)]
pub(crate) struct PacketHeaderField {
    pub(crate) field: ParameterSchema,
    pub(crate) is_padding: bool,
}
