//! The P4 programs that switches may run, each an implementation of [`SwitchPipeline`], and which
//! of them a switch runs.
//!
//! The decision: a fabric says for each switch which program it runs, and everything outside this
//! module lowers, protects and counts through the functions here. A fabric is wired once for each
//! program in it, and each wiring writes the tables of its own switches alone.

pub mod fabric;
pub mod sai;
mod switch_routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::SwitchTables;
use p4::entry::{EntryKey, TableId};
use planner::{Plan, PlannedFlow};
use topology::{Fabric, NicId, PipelineKind, SwitchId};

use self::fabric::FabricPipeline;
pub(crate) use self::fabric::{ETHERTYPE_ARP, ETHERTYPE_PROBE};
use self::sai::SaiPipeline;
use crate::pipeline::{
    AttributedEntry, PipelineLowering, PipelineWiring, PlanShortages, PortLevelCell, RefusalCell,
    SwitchPipeline, SwitchReports, WiringError,
};

/// All programs.
const ALL: [&dyn SwitchPipeline; 2] = [&FabricPipeline, &SaiPipeline];

/// The program of a kind.
pub fn pipeline_of(kind: PipelineKind) -> &'static dyn SwitchPipeline {
    match kind {
        PipelineKind::Fabric => &FabricPipeline,
        PipelineKind::Sai => &SaiPipeline,
    }
}

/// The program of a switch, as the fabric has it.
pub fn pipeline_at(fabric: &Fabric, switch: SwitchId) -> &'static dyn SwitchPipeline {
    pipeline_of(fabric.switch(switch).pipeline)
}

/// The kind of a program with these tables; none for a program that is of no kind known here.
pub(crate) fn recognize_pipeline(tables: &BTreeSet<TableId>) -> Option<PipelineKind> {
    let found = ALL.into_iter().find(|pipeline| pipeline.recognizes(tables));
    found.map(SwitchPipeline::kind)
}

/// The entries that count what jobs send under a plan.
pub fn attributed_entries(fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
    let used = pipelines_in(fabric).into_iter();
    used.flat_map(|pipeline| pipeline.attributed_entries(fabric, plan)).collect()
}

/// The cells of the counters by port and level, for `levels` levels.
pub(crate) fn port_level_cells(fabric: &Fabric, levels: u8) -> Vec<PortLevelCell> {
    let used = pipelines_in(fabric).into_iter();
    used.flat_map(|pipeline| pipeline.port_level_cells(fabric, levels)).collect()
}

/// The cells that count what is refused of hosts.
pub(crate) fn refusal_cells(fabric: &Fabric) -> Vec<RefusalCell> {
    let used = pipelines_in(fabric).into_iter();
    used.flat_map(|pipeline| pipeline.refusal_cells(fabric)).collect()
}

/// The entry that pins a flow at the leaf where it enters, and counts it; none for a flow without a
/// port.
pub(crate) fn entry_pin(fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey> {
    pipeline_at(fabric, fabric.leaf_of(flow.src)).entry_pin(fabric, flow)
}

/// The entry that counts what is sent from one NIC to another without a pin, at the leaf where it
/// enters, if that has one for this pair.
pub(crate) fn pair_entry(fabric: &Fabric, pair: (NicId, NicId)) -> Option<EntryKey> {
    pipeline_at(fabric, fabric.leaf_of(pair.0)).pair_entry(fabric, pair)
}

/// The switches of a fabric that run a program.
pub(crate) fn switches_of(fabric: &Fabric, kind: PipelineKind) -> BTreeSet<SwitchId> {
    let switches = fabric.switch_ids();
    switches.filter(|switch| fabric.switch(*switch).pipeline == kind).collect()
}

/// The programs that some switch of a fabric runs.
fn pipelines_in(fabric: &Fabric) -> Vec<&'static dyn SwitchPipeline> {
    let kinds: BTreeSet<PipelineKind> =
        fabric.switches().iter().map(|switch| switch.pipeline).collect();
    kinds.into_iter().map(pipeline_of).collect()
}

/// A fabric in the terms of its switches' tables; by default one without switches.
#[derive(Debug, Default)]
pub struct FabricWiring(Vec<Box<dyn PipelineWiring>>);

impl FabricWiring {
    /// The wiring of a fabric; it does not depend on failures and drains.
    ///
    /// # Errors
    /// The tables of the switches are too small for it.
    pub fn new(fabric: &Fabric) -> Result<Self, WiringError> {
        let wirings = pipelines_in(fabric).into_iter().map(|pipeline| {
            let switches = switches_of(fabric, pipeline.kind());
            pipeline.wire_fabric(fabric, switches)
        });
        wirings.collect::<Result<_, _>>().map(Self)
    }

    /// Adds the rows by which switches report to the controller.
    #[must_use]
    pub fn with_reports(mut self, reports: SwitchReports) -> Self {
        self.0.iter_mut().for_each(|wiring| wiring.enable_reports(reports));
        self
    }

    /// What of a plan the switches have no room for.
    pub(crate) fn find_shortages(&self, fabric: &Fabric, plan: &Plan) -> PlanShortages {
        let mut all = PlanShortages::default();
        for wiring in &self.0 {
            let PlanShortages { spilled, findings } = wiring.find_shortages(fabric, plan);
            all.spilled.extend(spilled);
            all.findings.extend(findings);
        }
        all
    }
}

/// Lowers plans on a fabric, each continuing from the one before; by default on one without
/// switches.
#[derive(Debug, Default)]
pub struct PlanLowering {
    wiring: Arc<FabricWiring>,
    pipelines: Vec<Box<dyn PipelineLowering>>,
}

impl PlanLowering {
    /// Nothing is lowered yet.
    pub fn new(wiring: &Arc<FabricWiring>) -> Self {
        let pipelines = wiring.0.iter().map(|wiring| wiring.start_lowering()).collect();
        Self { wiring: Arc::clone(wiring), pipelines }
    }

    /// The tables that every switch of `fabric` should hold under `plan`, which was made for it.
    /// `wiring` is of the same fabric; failures do not matter to it. After a lowering for another
    /// wiring, this one starts from nothing.
    pub fn lower_plan(
        &mut self,
        wiring: &Arc<FabricWiring>,
        fabric: &Fabric,
        plan: &Plan,
    ) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
        if !Arc::ptr_eq(&self.wiring, wiring) {
            *self = Self::new(wiring);
        }
        let mut lowered = BTreeMap::new();
        for pipeline in &mut self.pipelines {
            lowered.append(&mut pipeline.lower_plan(fabric, plan));
        }
        lowered
    }
}

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it,
/// lowered from nothing.
pub fn lower_plan(
    wiring: &FabricWiring,
    fabric: &Fabric,
    plan: &Plan,
) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    let mut lowered = BTreeMap::new();
    for wiring in &wiring.0 {
        lowered.append(&mut wiring.start_lowering().lower_plan(fabric, plan));
    }
    lowered
}

/// `tables` with the ports of failed parts of `fabric` out of use, without a plan and without a
/// pass over the whole fabric: pinned flows leave by their backups until tables are lowered again.
/// Switches without a failed port share their tables.
pub fn protect_tables(
    wiring: &FabricWiring,
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    let mut protected = tables.clone();
    wiring.0.iter().for_each(|wiring| wiring.protect_tables(fabric, &mut protected));
    protected
}

#[cfg(test)]
mod tests {
    mod bonds;
    mod continued_lowering;

    use std::path::{Path, PathBuf};

    use super::*;

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
    fn programs_are_recognized_by_their_tables() {
        for pipeline in ALL {
            let tables = pipeline.program().p4info.table_ids();
            assert_eq!(recognize_pipeline(&tables), Some(pipeline.kind()));
            assert_eq!(pipeline_of(pipeline.kind()).kind(), pipeline.kind());
        }
        assert_eq!(recognize_pipeline(&BTreeSet::new()), None);
    }

    #[test]
    fn only_pipelines_name_the_p4_programs() {
        let mut files = Vec::new();
        source_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
        assert!(files.len() > 100);
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            for name in ["p4::fabric", "embedded_fabric", "p4::sai", "embedded_sai"] {
                assert!(!code.contains(name), "{} names {name}", file.display());
            }
        }
    }
}
