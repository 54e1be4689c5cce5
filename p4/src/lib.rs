//! `fabric.p4`, its compiled artefacts, and the table entries that a controller writes into it.
//!
//! The controller lowers a plan to [`SwitchTables`], reads a switch back into [`SwitchTables`], and
//! writes the [`diff_tables`]. Here is everything on that way that needs no connection: entries as
//! values, their order, their translation from and to P4Runtime, and the compiled program itself.
//! The decision: P4Runtime's messages stop at [`codec`] (and those of P4Info at [`p4info`]), so all
//! else compares plain values.

pub mod artefacts;
pub mod bytes;
pub mod codec;
pub mod constraint;
pub mod display;
pub mod entry;
mod entry_map;
pub mod fabric;
mod ids;
pub mod p4info;
pub mod pipeline;
pub mod sai;
pub mod sdn_string;
pub mod tables;
mod write_order;

pub use entry::{EntryKey, EntryValue, TableEntry};
pub use p4info::P4Info;
pub use pipeline::{ForwardingPipeline, PipelineError};
pub use sdn_string::{FieldValue, SdnString};
pub use tables::{
    EntryPool, SwitchTables, TableScope, TableUpdate, UpdateKind, diff_entries, diff_tables,
};
pub use write_order::split_stages;
