//! Fabrics from public data sets, labs and inventories.
//!
//! Nothing is left out in silence, and nothing is invented in silence: every node and cable of a
//! file is in the fabric or among what is left out, by name and with the reason, and every default
//! is among the assumptions. Bad rows of a data set are left out: a file with one broken line is
//! still a fabric. What a person keeps, a lab or an inventory, is refused with the field that is
//! wrong. The counterparts of [`export`](crate::export) read what it writes.

mod containerlab;
mod csv_table;
mod host_tree;
mod inventory;
mod left_out;
mod lingjun;
mod netbox;
mod p4utils;
mod roles;
mod slurm;
mod sonic;
mod tier_assumptions;
mod topograph;

pub use crate::export::NetboxTable;
pub use containerlab::import_containerlab;
pub use inventory::InventoryAssumptions;
pub use left_out::LeftOut;
pub use lingjun::import_lingjun;
pub use netbox::{NetboxTables, import_netbox};
pub use p4utils::import_p4utils;
pub use slurm::{import_slurm_conf, import_slurm_yaml};
pub use sonic::{SonicSwitch, import_sonic};
pub use tier_assumptions::TierAssumptions;
pub use topograph::import_topograph;

use crate::fabric::Fabric;
use crate::spec::FabricFieldError;

/// What an importer made.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFabric {
    /// The fabric.
    pub fabric: Fabric,
    /// Parts of the file that are not in the fabric, by reason.
    pub left_out: Vec<LeftOut>,
    /// Assumptions about properties missing from the data, one sentence each.
    pub assumptions: Vec<String>,
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
