//! `fabric.p4`: from a plan to the tables of every switch, a total function of fabric and plan.
//!
//! [`state`](crate::state) plans, sessions write the tables. The decision: lowering has no choice,
//! no clock and no error; what it remembers of the lowering before saves work and changes no row
//! (`FabricLowering`). A fabric that might not fit a table was refused when the `FabricNumbering`
//! was built. Each module here owns the P4 tables it is named for, and no other writes them. All
//! rows are signed, so that any reader of a switch can distinguish them from the entries of others.

mod acl_punt;
mod counters;
mod dst_leaf;
mod ecmp_group;
mod flow_pin;
mod job_classify;
mod job_qos;
mod leaf_classes;
mod liveness;
mod local_host;
mod lowering;
mod neighbour_answer;
mod numbering;
mod path;
mod plan_index;
mod rate_limits;
mod roce_answer;
mod route_rows;
mod source_guard;
mod switch_context;
mod switch_salt;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::codec::{PacketOut, PacketOutTarget};
use p4::entry::{EntryKey, TableEntry, TableId};
pub(crate) use p4::fabric::{ETHERTYPE_ARP, ETHERTYPE_PROBE};
use p4::fabric::{PORT_LEVEL, PortNumber, PriorityLevel, table};
use p4::{ForwardingPipeline, SwitchTables};
use planner::{PinGranularity, Plan, PlannedFlow, SwitchCapabilities};
use topology::export::LevelMarking;
use topology::{Fabric, NicId, PipelineKind, SwitchId};

pub use self::counters::port_level_counts;
use self::lowering::FabricLowering;
use self::numbering::FabricNumbering;
use self::switch_context::SwitchContext;
use crate::pipeline::{
    AttributedEntry, PipelineLowering, PipelineWiring, PlanShortages, PortLevelCell, RefusalCell,
    SwitchPipeline, SwitchReports, WiringError,
};

/// The levels of a plan with the DSCP by which switches tell them apart, ascending.
pub fn level_markings(levels: u8) -> Vec<LevelMarking> {
    let all = PriorityLevel::all_levels().take(levels.into());
    all.map(|level| LevelMarking {
        level: level.number(),
        dscp: level.dscp(),
        answer_dscp: level.answer_dscp(),
    })
    .collect()
}

/// The modules that write tables, one for each table (or two); without those of the rows about
/// other leaves, which [`route_rows`] calls.
const OWN_ROWS: [fn(&SwitchContext<'_>) -> Vec<TableEntry>; 19] = [
    acl_punt::build_entries,
    source_guard::build_guards,
    source_guard::build_host_ports,
    source_guard::build_foreign_sources,
    neighbour_answer::build_entries,
    rate_limits::build_punt_rates,
    rate_limits::build_answer_rates,
    rate_limits::build_answer_shares,
    rate_limits::build_learn_rates,
    local_host::build_entries,
    flow_pin::build_entries,
    job_classify::build_entries,
    job_qos::build_entries,
    roce_answer::build_entries,
    trust::build_fabric_ports,
    trust::build_dscp_levels,
    liveness::build_entries,
    switch_salt::build_salts,
    switch_salt::build_strides,
];

/// The tables of pins; the last two are those of switches in transit, which do not count.
const PINS: [TableId; 6] = [
    table::FLOW_PIN,
    table::FLOW_PIN6,
    table::QP_PIN,
    table::QP_PIN6,
    table::TRANSIT_PIN6,
    table::TRANSIT_QP_PIN6,
];

/// Tables by which the program is recognized, whatever its version.
const OWN_TABLES: [TableId; 3] = [table::DST_LEAF, table::PATH, table::FLOW_PIN];

/// The program `fabric.p4`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FabricPipeline;

impl SwitchPipeline for FabricPipeline {
    fn kind(&self) -> PipelineKind {
        PipelineKind::Fabric
    }

    fn program(&self) -> &'static ForwardingPipeline {
        ForwardingPipeline::embedded_fabric()
    }

    fn recognizes(&self, tables: &BTreeSet<TableId>) -> bool {
        OWN_TABLES.iter().all(|table| tables.contains(table))
    }

    fn role(&self) -> &'static str {
        ""
    }

    fn is_read_whole(&self) -> bool {
        false
    }

    fn reports_flows(&self) -> bool {
        true
    }

    fn capabilities(&self) -> SwitchCapabilities {
        let pins = self.program().p4info.table(table::FLOW_PIN).map_or(0, |table| table.size);
        SwitchCapabilities {
            pin_granularity: PinGranularity::Flow,
            pins_max: usize::try_from(pins).unwrap_or(usize::MAX),
            pair_ports_max: 0,
            levels: PriorityLevel::all_levels().count() as u8,
            counts_pins: true,
            counts_levels: true,
            sets_levels: true,
        }
    }

    fn wire_fabric(
        &self,
        fabric: &Fabric,
        switches: BTreeSet<SwitchId>,
    ) -> Result<Box<dyn PipelineWiring>, WiringError> {
        Ok(Box::new(Arc::new(FabricNumbering::new(fabric, switches)?)))
    }

    fn punts(&self) -> Vec<TableEntry> {
        acl_punt::punt_rows()
    }

    fn punt_tables(&self) -> &'static [TableId] {
        &[table::ACL_PUNT, table::ACL_PUNT6, table::PUNT_RATE]
    }

    fn pin_tables(&self) -> &'static [TableId] {
        &PINS
    }

    fn counted_pin_tables(&self) -> &'static [TableId] {
        &PINS[..4]
    }

    fn packet_out(&self, port: u16, payload: Vec<u8>) -> Option<PacketOut> {
        let port = PortNumber::new(port.into()).ok().filter(|port| *port != PortNumber::CPU)?;
        Some(PacketOut { target: PacketOutTarget::Port(port), payload })
    }

    fn attributed_entries(&self, fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry> {
        let mut entries = counters::pin_entries(fabric, plan);
        entries.extend(counters::pair_entries(fabric, plan));
        entries.extend(counters::rule_entries(fabric, plan));
        entries.retain(|entry| fabric.switch(entry.switch).pipeline == self.kind());
        entries
    }

    fn entry_pin(&self, fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey> {
        flow_pin::entry_pin_key(fabric, flow)
    }

    fn pair_entry(&self, fabric: &Fabric, pair: (NicId, NicId)) -> Option<EntryKey> {
        job_classify::pair_key(fabric, pair)
    }

    fn port_level_counter(&self) -> Option<u32> {
        Some(PORT_LEVEL)
    }

    fn level_dscp(&self, level: u8) -> Option<u8> {
        PriorityLevel::new(level.into()).ok().map(PriorityLevel::dscp)
    }

    fn port_level_cells(&self, fabric: &Fabric, levels: u8) -> Vec<PortLevelCell> {
        let mut cells = counters::port_level_cells(fabric, levels);
        cells.retain(|cell| fabric.switch(cell.switch).pipeline == self.kind());
        cells
    }

    fn refusal_cells(&self, fabric: &Fabric) -> Vec<RefusalCell> {
        let mut cells = counters::refusal_cells(fabric);
        cells.retain(|cell| fabric.switch(cell.switch).pipeline == self.kind());
        cells
    }
}

impl PipelineWiring for Arc<FabricNumbering> {
    fn enable_reports(&mut self, reports: SwitchReports) {
        Arc::make_mut(self).reports = reports;
    }

    /// The planner knows the room of the tables of pins, and all else was checked by the wiring.
    fn find_shortages(&self, _: &Fabric, _: &Plan) -> PlanShortages {
        PlanShortages::default()
    }

    fn start_lowering(&self) -> Box<dyn PipelineLowering> {
        Box::new(FabricLowering::new(Arc::clone(self)))
    }

    fn protect_tables(&self, fabric: &Fabric, tables: &mut BTreeMap<SwitchId, Arc<SwitchTables>>) {
        for (switch, tables) in tables.iter_mut().filter(|(at, _)| self.switches().contains(at)) {
            let missing: Vec<TableEntry> = liveness::failed_port_rows(self, fabric, *switch)
                .map(TableEntry::with_signature)
                .filter(|row| tables.get(&row.key).is_none())
                .chain(
                    local_host::protected_rows(self, fabric, *switch, tables)
                        .map(TableEntry::with_signature),
                )
                .chain(
                    ecmp_group::protected_groups(self, fabric, *switch, tables)
                        .into_iter()
                        .map(TableEntry::with_signature),
                )
                .collect();
            // An untouched switch keeps sharing its tables, by which a session sees that there is
            // nothing to write.
            if !missing.is_empty() {
                Arc::make_mut(tables).extend(missing);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
