//! The P4 programs that switches may run, each an implementation of [`SwitchPipeline`], and the
//! choice among them.
//!
//! The decision: everything outside this module lowers, protects and counts through the functions
//! here, so that a second program changes the choice and nothing else.

pub mod fabric;
pub mod sai;

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::SwitchTables;
use planner::Plan;
use topology::{Fabric, SwitchId};

use self::fabric::FabricPipeline;
pub(crate) use self::fabric::{ETHERTYPE_ARP, ETHERTYPE_PROBE};
use crate::pipeline::{PipelineWiring, SwitchPipeline, SwitchReports, WiringError};

/// The pipeline of all switches that the controller programs.
pub fn default_pipeline() -> &'static dyn SwitchPipeline {
    &FabricPipeline
}

/// A fabric in the terms of its switches' tables.
#[derive(Debug)]
pub struct FabricWiring(Box<dyn PipelineWiring>);

impl FabricWiring {
    /// The wiring of a fabric; it does not depend on failures and drains.
    ///
    /// # Errors
    /// The tables of the switches are too small for it.
    pub fn new(fabric: &Fabric) -> Result<Self, WiringError> {
        default_pipeline().wire_fabric(fabric).map(Self)
    }

    /// Adds the rows by which switches report to the controller.
    #[must_use]
    pub fn with_reports(mut self, reports: SwitchReports) -> Self {
        self.0.enable_reports(reports);
        self
    }
}

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it.
/// `wiring` is of the same fabric; failures do not matter to it.
pub fn lower_plan(
    wiring: &FabricWiring,
    fabric: &Fabric,
    plan: &Plan,
) -> BTreeMap<SwitchId, SwitchTables> {
    wiring.0.lower_plan(fabric, plan)
}

/// `tables` with the ports of failed parts of `fabric` out of use, without a plan and without a
/// pass over the whole fabric: pinned flows leave by their backups until tables are lowered again.
/// Switches without a failed port share their tables.
pub fn protect_tables(
    wiring: &FabricWiring,
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    wiring.0.protect_tables(fabric, tables)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn source_files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("pipelines") => {}
                true => source_files(&path, found),
                false if path.extension().is_some_and(|extension| extension == "rs") => {
                    found.push(path);
                }
                false => {}
            }
        }
    }

    #[test]
    fn only_pipelines_name_the_p4_program() {
        let mut files = Vec::new();
        source_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
        assert!(files.len() > 100);
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            for name in ["p4::fabric", "embedded_fabric"] {
                assert!(!code.contains(name), "{} names {name}", file.display());
            }
        }
    }
}
