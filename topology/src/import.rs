//! Fabrics from public data sets, labs and inventories.
//!
//! A file seldom says everything that a fabric needs; what is missing is assumed, and every import
//! lists its assumptions next to the fabric. Bad rows of a data set are counted by reason and
//! skipped: a file with one broken line is still a fabric. What a person keeps, a lab or an
//! inventory, is refused with the field that is wrong. The counterparts of
//! [`export`](crate::export) read what it writes.

mod containerlab;
mod csv_table;
mod inventory;
mod lingjun;
mod netbox;
mod p4utils;
mod tier_assumptions;
mod topograph;

pub use crate::export::NetboxTable;
pub use containerlab::import_containerlab;
pub use inventory::InventoryAssumptions;
pub use lingjun::import_lingjun;
pub use netbox::{NetboxTables, import_netbox};
pub use p4utils::import_p4utils;
pub use tier_assumptions::TierAssumptions;
pub use topograph::import_topograph;

use std::collections::BTreeMap;

use crate::fabric::Fabric;
use crate::spec::FabricFieldError;

/// What an importer made.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFabric {
    /// The fabric.
    pub fabric: Fabric,
    /// Rows that were left out, by reason.
    pub skipped: BTreeMap<RowSkipReason, usize>,
    /// Assumptions about properties missing from the data, one sentence each.
    pub assumptions: Vec<String>,
}

/// Why a row was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowSkipReason {
    /// Another number of columns than the header has.
    Columns,
    /// An empty value, or one with characters that names cannot have.
    Value,
    /// The host was in an earlier row.
    Duplicate,
    /// The leaf has no port left for the host's NICs.
    LeafFull,
}

impl std::fmt::Display for RowSkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Columns => "another number of columns than the header",
            Self::Value => "a value that is empty or no name",
            Self::Duplicate => "a host that was in an earlier row",
            Self::LeafFull => "a leaf with no port left (--rails: a leaf for each NIC)",
        })
    }
}

/// Why there is no fabric at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The first line is not the header of the data set.
    #[error("the first line must have the columns {expected}, found {found:?}")]
    Header {
        /// The columns needed.
        expected: &'static str,
        /// The first line, shortened.
        found: String,
    },
    /// No row was good.
    #[error("no host in the file; {skipped} rows were skipped")]
    NoHosts {
        /// Rows that were left out.
        skipped: usize,
    },
    /// A field that cannot be read, or that makes no fabric with the others.
    #[error("{field}: {problem}")]
    Field {
        /// Where in the file.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The numbers that fill in for the data make no fabric.
    #[error(transparent)]
    Options(#[from] FabricFieldError),
}

#[cfg(test)]
mod tests;
