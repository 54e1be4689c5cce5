//! Numbers that stand for the objects of a program and of the control API.
//!
//! Names are resolved to these when a program is compiled; no other module of the packet path sees
//! a name. An index is valid for the
//! [`Program`](crate::run::program::Program) it comes from.

/// The number of a table in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIndex(pub u32);
/// The number of an action in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionIndex(pub u32);
/// The number of an action profile in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileIndex(pub u32);
/// The number of an indirect counter array in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterIndex(pub u32);
/// The number of an indirect meter array in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterIndex(pub u32);
/// The number of a register array in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterIndex(pub u32);
/// The number of a parser value set in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueSetIndex(pub u32);
/// The number of a field list of digests in a [`Program`](crate::run::program::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LearnListIndex(pub u32);
/// The number of a header instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeaderIndex(pub(crate) u32);
/// The number of a header stack or a stack of unions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StackIndex(pub(crate) u32);
/// The number of a variable-length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VarbitIndex(pub(crate) u32);
/// The number of a list of fields that a copy of a packet keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FieldListIndex(pub(crate) u32);
/// The place of one field in the [`Phv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PhvSlot(pub(crate) u32);
/// The number of an action profile member, chosen by the controller.
pub type MemberId = u32;
/// The number of an action profile group, chosen by the controller.
pub type GroupId = u32;
