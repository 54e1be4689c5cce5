//! The vocabulary of the control API: match keys, action calls, group members and what can go
//! wrong.
//!
//! The P4Runtime service translates protobufs into these and back; `table` and `profile` hold them.
//! Everything is by index and value, as resolved through [`Program`](crate::Program) lookups, and a
//! write is checked here against the program, once, so that the packet path never has to.

use crate::ids::{ActionIndex, GroupId, MemberId};
use crate::spec::{ActionSpec, KeySpec, MatchKind, TableSpec, bit_mask};

/// How an entry matches one key field; values are unsigned and no wider than the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyField {
    /// Equal to this value.
    Exact(u128),
    /// The first `prefix` bits equal those of `value`; the others are zero in `value`.
    Lpm {
        /// The prefix, aligned to the left of the field.
        value: u128,
        /// Its length in bits, 0 to the field's width.
        prefix: u32,
    },
    /// Equal in the bits set in `mask`; `value` is zero elsewhere.
    Ternary {
        /// The bits to compare with.
        value: u128,
        /// Which bits count.
        mask: u128,
    },
    /// Between two values, both included.
    Range {
        /// The smallest value that matches.
        low: u128,
        /// The largest value that matches.
        high: u128,
    },
    /// Equal to this value, or anything.
    Optional(Option<u128>),
}

/// The whole key of an entry, one field per key field of the table, in the table's order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchKey {
    /// The fields.
    pub fields: Vec<KeyField>,
    /// As in P4Runtime: the larger wins, and it is 0 exactly in tables that take no priority.
    pub priority: u32,
}

/// An action and its arguments, in the action's parameter order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionCall {
    /// Which action.
    pub action: ActionIndex,
    /// One value per parameter, no wider than the parameter.
    pub arguments: Vec<u128>,
}

/// What an entry leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableAction {
    /// An action of its own, in a direct table.
    Action(ActionCall),
    /// A member of the table's action profile.
    Member(MemberId),
    /// A group of the table's action profile; the selector's hash picks the member.
    Group(GroupId),
}

/// One member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupMember {
    /// Which member.
    pub member: MemberId,
    /// Its share of the hash space relative to the others; at least 1.
    pub weight: u32,
    /// The port without which it is not selected.
    pub watch: Option<u16>,
}

impl GroupMember {
    /// A member that is selected whatever the state of ports.
    pub fn unwatched(member: MemberId, weight: u32) -> Self {
        Self { member, weight, watch: None }
    }
}

/// One copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The egress port.
    pub port: u16,
    /// `standard_metadata.egress_rid` of the copy.
    pub instance: u16,
}

/// A refused read or write of a device's tables, profiles or counters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No program has been loaded.
    #[error("the device runs no program")]
    NoProgram,
    /// An index that the program does not have.
    #[error("the program has no {what} number {index}")]
    NoSuchObject {
        /// What was looked for: table, action, profile or counter.
        what: &'static str,
        /// The number given.
        index: u32,
    },
    /// The wrong number of key fields.
    #[error("the key has {found} fields, the table {expected}")]
    KeyLength {
        /// Fields in the table's key.
        expected: usize,
        /// Fields in the given key.
        found: usize,
    },
    /// A key field of another match kind, too wide, or not canonical.
    #[error("key field {field} {problem}")]
    KeyField {
        /// The field's name.
        field: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A priority where the table takes none, or none where it needs one.
    #[error("this table {0}")]
    Priority(&'static str),
    /// The action is not one of the table's.
    #[error("action {action} is not an action of {table}")]
    ForeignAction {
        /// The action's name.
        action: String,
        /// The table's or profile's name.
        table: String,
    },
    /// The wrong number of arguments.
    #[error("action {action} takes {expected} arguments, {found} were given")]
    ArgumentCount {
        /// The action's name.
        action: String,
        /// Parameters it has.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// An argument wider than its parameter.
    #[error("argument {parameter} of {action} is wider than {bits} bits")]
    ArgumentWidth {
        /// The action's name.
        action: String,
        /// The parameter's name.
        parameter: String,
        /// The parameter's width.
        bits: u32,
    },
    /// An action in a table with an action profile, or a member or group in one without.
    #[error("this table takes {0}")]
    TargetKind(&'static str),
    /// The entry, member or group is already there.
    #[error("it exists already")]
    AlreadyExists,
    /// The entry, member or group is not there.
    #[error("it does not exist")]
    NotFound,
    /// The table or profile has all the entries it can hold.
    #[error("it is full: {size} is its size")]
    Full {
        /// Its declared size.
        size: usize,
    },
    /// The program fixes the entries of this table, or its default action.
    #[error("the program fixes {0}")]
    Constant(&'static str),
    /// A target or group names a member that does not exist.
    #[error("member {0} does not exist")]
    NoSuchMember(MemberId),
    /// A target names a group that does not exist.
    #[error("group {0} does not exist")]
    NoSuchGroup(GroupId),
    /// A member or group that is still referred to.
    #[error("it is still referred to by {0}")]
    InUse(&'static str),
    /// A group member with weight 0 or listed twice.
    #[error("member {0} of the group has weight 0 or is listed twice")]
    BadGroup(MemberId),
    /// A counter cell beyond the array's size.
    #[error("cell {cell} is beyond the counter's size {size}")]
    NoSuchCell {
        /// The requested cell.
        cell: usize,
        /// Cells there are.
        size: usize,
    },
    /// A direct counter of a table that has none.
    #[error("the table has no direct counter")]
    NoDirectCounter,
    /// A direct meter of a table that has none.
    #[error("the table has no direct meter")]
    NoDirectMeter,
    /// An idle timeout in a table that has none.
    #[error("the table has no idle timeout")]
    NoIdleTimeout,
    /// A meter whose peak rate is below its committed one.
    #[error("the peak rate is below the committed rate")]
    PeakBelowCommitted,
    /// A value wider than the register's cells.
    #[error("the value is wider than {0} bits")]
    RegisterWidth(u32),
    /// A group or session lists a replica twice.
    #[error("port {} with instance {} is given twice", .0.port, .0.instance)]
    RepeatedReplica(Replica),
}

/// Checks a key against the table's declaration.
pub(crate) fn check_key(spec: &TableSpec, key: &MatchKey) -> Result<(), ControlError> {
    if key.fields.len() != spec.keys.len() {
        return Err(ControlError::KeyLength { expected: spec.keys.len(), found: key.fields.len() });
    }
    for (field, declared) in key.fields.iter().zip(&spec.keys) {
        check_key_field(declared, field)?;
    }
    match (spec.takes_priority(), key.priority) {
        (true, 0) => Err(ControlError::Priority("needs a priority above 0")),
        (false, 1..) => Err(ControlError::Priority("takes no priority")),
        _ => Ok(()),
    }
}

fn check_key_field(declared: &KeySpec, field: &KeyField) -> Result<(), ControlError> {
    let all = bit_mask(declared.bits);
    let fits = |value: u128| value & !all == 0;
    let problem = match (declared.kind, *field) {
        (MatchKind::Exact, KeyField::Exact(value)) if fits(value) => None,
        (MatchKind::Lpm, KeyField::Lpm { prefix, .. }) if prefix > declared.bits => {
            Some("has a prefix longer than the field")
        }
        (MatchKind::Lpm, KeyField::Lpm { value, prefix }) => {
            let kept = all & !bit_mask(declared.bits - prefix);
            (value & !kept != 0).then_some("has bits set beyond its prefix")
        }
        (MatchKind::Ternary, KeyField::Ternary { value, mask }) if fits(mask) => {
            (value & !mask != 0).then_some("has bits set outside its mask")
        }
        (MatchKind::Range, KeyField::Range { low, high }) if fits(low) && fits(high) => {
            (low > high).then_some("has a lower bound above its upper one")
        }
        // p4c compiles an optional match to a ternary one.
        (MatchKind::Optional | MatchKind::Ternary, KeyField::Optional(value))
            if value.is_none_or(fits) =>
        {
            None
        }
        (kind, field) if kind != field.match_kind() => Some("has another kind of match"),
        _ => Some("is wider than the field"),
    };
    match problem {
        None => Ok(()),
        Some(problem) => Err(ControlError::KeyField { field: declared.name.clone(), problem }),
    }
}

impl KeyField {
    /// The kind of match this is.
    pub fn match_kind(&self) -> MatchKind {
        match self {
            Self::Exact(_) => MatchKind::Exact,
            Self::Lpm { .. } => MatchKind::Lpm,
            Self::Ternary { .. } => MatchKind::Ternary,
            Self::Range { .. } => MatchKind::Range,
            Self::Optional(_) => MatchKind::Optional,
        }
    }
}

/// Checks arguments against the action's parameters.
pub(crate) fn check_arguments(spec: &ActionSpec, arguments: &[u128]) -> Result<(), ControlError> {
    if arguments.len() != spec.parameters.len() {
        return Err(ControlError::ArgumentCount {
            action: spec.name.clone(),
            expected: spec.parameters.len(),
            found: arguments.len(),
        });
    }
    let too_wide = arguments
        .iter()
        .zip(&spec.parameters)
        .find(|(value, parameter)| **value & !bit_mask(parameter.bits) != 0);
    match too_wide {
        None => Ok(()),
        Some((_, parameter)) => Err(ControlError::ArgumentWidth {
            action: spec.name.clone(),
            parameter: parameter.name.clone(),
            bits: parameter.bits,
        }),
    }
}
