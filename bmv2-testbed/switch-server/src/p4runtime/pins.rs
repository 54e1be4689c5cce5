//! What SONiC's P4RT application does otherwise than the specification and BMv2 (docs/sai.md).
//!
//! A controller of a PINS switch names ports, next hops and groups by strings. The decision: they
//! are translated at the border, in both directions (`pins/string_ids.rs`), so that everything
//! behind it has numbers as in every other dialect. `pins/schema.rs` reads in the P4Info what only
//! this dialect enforces: roles, restrictions and references (`pins/references.rs`).
//! `pins/batch.rs` writes, `pins/query.rs` reads.
//!
//! Source: `p4rt_app` of sonic-net/sonic-pins at b08b068; messages and code are our own.

mod batch;
mod query;
mod references;
mod schema;
mod string_ids;

pub(super) use batch::PinsWriter;
pub(crate) use schema::PinsSchema;
pub use switch::{PortNameError, PortNames};

use references::ReferenceCounts;
use string_ids::StringIds;

/// What a PINS switch keeps beside its device: the strings behind numbers, and who refers to whom.
#[derive(Debug, Default)]
pub(super) struct PinsState {
    ids: StringIds,
    references: ReferenceCounts,
}
