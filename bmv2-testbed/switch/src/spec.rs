//! What a program declares: its tables, actions, profiles, arrays and value sets.
//!
//! `compile` fills these in from the BMv2 JSON, the packet path and the control API read them. They
//! hold no state: entries and cells belong to a device (`run`). [`entry`] is the vocabulary of what
//! the control plane writes, and checks it against these declarations.

pub(crate) mod entry;

use crate::ids::{ActionIndex, HeaderIndex, PhvSlot, ProfileIndex};
use entry::{ActionCall, MatchKey};

/// How a key field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchKind {
    /// Equality.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value and mask.
    Ternary,
    /// Two bounds.
    Range,
    /// Equality or anything.
    Optional,
}

/// One field of a table's key.
#[derive(Clone, Debug)]
pub struct KeySpec {
    /// Its name, as in the p4info.
    pub name: String,
    /// How it is compared.
    pub kind: MatchKind,
    /// Its width.
    pub bits: u32,
    pub(crate) source: KeySource,
}

/// Where a key field's value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySource {
    /// A field, which reads as 0 while its header is absent; a static mask is applied first.
    Field { slot: PhvSlot, header: HeaderIndex, mask: u128 },
    /// The validity of a header.
    Valid(HeaderIndex),
}

/// What a table is, apart from its entries.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The key, in order; empty for a table that always misses.
    pub keys: Vec<KeySpec>,
    /// The most entries it holds.
    pub size: usize,
    /// The actions its entries and default may call.
    pub actions: Vec<ActionIndex>,
    /// The action profile its entries refer to; none in a direct table.
    pub profile: Option<ProfileIndex>,
    /// Whether each entry counts its packets.
    pub direct_counter: bool,
    /// The meter of each entry, if they have one.
    pub direct_meter: Option<DirectMeter>,
    /// Whether entries may have an idle timeout.
    pub idle_timeout: bool,
    /// The default action at load; none means that a miss does nothing.
    pub default: Option<ActionCall>,
    /// How much of the default action the program fixes.
    pub default_mutability: DefaultMutability,
    /// Entries written in the program; such a table takes no others.
    pub constant_entries: Option<Vec<(MatchKey, ActionCall)>>,
}

impl TableSpec {
    /// Whether entries carry a priority: some field is ternary, range or optional.
    pub fn takes_priority(&self) -> bool {
        self.keys.iter().any(|key| {
            matches!(key.kind, MatchKind::Ternary | MatchKind::Range | MatchKind::Optional)
        })
    }
}

/// The meter of each entry of a table.
#[derive(Clone, Copy, Debug)]
pub struct DirectMeter {
    /// What it counts.
    pub unit: MeterUnit,
    /// Where the colour of the packet goes.
    pub(crate) color: FieldRef,
}

/// How much of a table's default action the program fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultMutability {
    /// Nothing: any action of the table may become the default.
    Free,
    /// The action: only its arguments may change.
    FixedAction,
    /// The action and its arguments.
    Constant,
}

/// Where control goes after a table, by the action that ran.
#[derive(Clone, Debug)]
pub(crate) struct NextNodes {
    /// After each action of the table; most have less than four.
    pub(crate) by_action: Box<[ActionNext]>,
    /// After a miss without a default action.
    pub(crate) none: NextNode,
}

/// Where control goes after an action of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionNext {
    pub(crate) action: ActionIndex,
    pub(crate) hit: NextNode,
    /// Where it was the default action.
    pub(crate) miss: NextNode,
}

impl NextNodes {
    /// Where control goes after this action of the table.
    #[inline]
    pub(crate) fn after(&self, action: ActionIndex) -> ActionNext {
        let found = self.by_action.iter().find(|next| next.action == action);
        found.copied().unwrap_or(ActionNext { action, hit: None, miss: None })
    }
}

/// The next node of a pipeline; none is its end.
pub(crate) type NextNode = Option<u32>;

/// An action as the control plane sees it.
#[derive(Clone, Debug)]
pub struct ActionSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<ActionParameter>,
}

/// One parameter of an action.
#[derive(Clone, Debug)]
pub struct ActionParameter {
    /// Its name.
    pub name: String,
    /// Its width.
    pub bits: u32,
}

/// An action profile: its members, and its selector if it has one.
#[derive(Clone, Debug)]
pub struct ProfileSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The most members it holds.
    pub size: usize,
    /// The actions its members may call: those of the tables that use it.
    pub actions: Vec<ActionIndex>,
    /// Whether it has groups.
    pub with_selector: bool,
}

/// An indirect counter array.
#[derive(Clone, Debug)]
pub struct CounterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
}

/// An array of meters, as a program declares it.
#[derive(Clone, Debug)]
pub struct MeterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
    /// What it counts.
    pub unit: MeterUnit,
}

/// What a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Bytes of the packet as it arrived.
    Bytes,
    /// Packets.
    Packets,
}

/// A register array, as a program declares it.
#[derive(Clone, Debug)]
pub struct RegisterSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// How many cells it has.
    pub size: usize,
    /// The width of a cell, 1 to 128.
    pub bits: u32,
}

/// A set of values that a parser compares with, filled by the control plane.
#[derive(Clone, Debug)]
pub struct ValueSetSpec {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The most members it holds.
    pub size: usize,
    /// The widths of the parts of a member, in order.
    pub bits: Vec<u32>,
}

/// What a digest carries.
#[derive(Clone, Debug)]
pub struct LearnList {
    /// Its full name, as in the p4info preamble.
    pub name: String,
    /// The fields, in order.
    pub(crate) fields: Vec<FieldRef>,
}

/// A field as an expression's operand or target: its slot, width and the header it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldRef {
    pub(crate) slot: PhvSlot,
    /// 1 to 128.
    pub(crate) bits: u32,
    pub(crate) signed: bool,
    pub(crate) header: HeaderIndex,
}

impl FieldRef {
    /// The number that bits in this field stand for: two's complement where it is signed.
    #[inline]
    pub(crate) fn number_of_bits(self, bits: u128) -> i128 {
        if self.signed {
            let spare = 128 - self.bits;
            ((bits as i128) << spare) >> spare
        } else {
            bits as i128
        }
    }
}

/// The low `bits` bits set, for widths 0 to 128.
#[inline]
pub const fn bit_mask(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}
