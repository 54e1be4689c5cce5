//! From a plan to the tables of every switch: a total function of fabric and plan.
//!
//! [`state`](crate::state) makes the plan, sessions write the tables. The decision: a plan leaves
//! no choice, so neither does lowering: no memory, no error, no clock; what might not fit a table
//! was refused when the [`FabricWiring`] was made. Each module here owns the P4 tables it is named
//! for, and no other writes them. All rows are signed, so that who reads a switch knows whose they
//! are.

mod acl_punt;
mod dst_leaf;
mod ecmp_group;
mod flow_pin;
mod job_classify;
mod job_qos;
mod liveness;
mod local_host;
mod path;
mod roce_answer;
mod switch_context;
mod switch_salt;
mod trust;
mod wiring;

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::SwitchTables;
use p4::entry::TableEntry;
use planner::Plan;
use topology::{Fabric, SwitchId};

pub(crate) use self::acl_punt::punt_rows as punts;
pub(crate) use self::job_classify::adoption_rules::adoption_rows as rule_rows;
use self::switch_context::{LoweringContext, SwitchContext};
pub use self::wiring::{FabricWiring, WiringError};

/// The modules that write tables, one for each table (or two).
const TABLES: [fn(&SwitchContext<'_>) -> Vec<TableEntry>; 13] = [
    acl_punt::build_entries,
    local_host::build_entries,
    dst_leaf::build_entries,
    ecmp_group::build_entries,
    path::build_entries,
    flow_pin::build_entries,
    job_classify::build_entries,
    job_qos::build_entries,
    roce_answer::build_entries,
    trust::build_fabric_ports,
    trust::build_dscp_levels,
    liveness::build_entries,
    switch_salt::build_entries,
];

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it.
/// `wiring` is of the same fabric, with whatever failures.
pub fn lower_plan(
    wiring: &FabricWiring,
    fabric: &Fabric,
    plan: &Plan,
) -> BTreeMap<SwitchId, SwitchTables> {
    let situation = LoweringContext::new(wiring, fabric, plan);
    let switches = fabric.switch_ids();
    let tables = switches.map(|switch| {
        let site = SwitchContext { shared: &situation, switch };
        (
            switch,
            TABLES
                .iter()
                .flat_map(|entries| entries(&site))
                .map(TableEntry::with_signature)
                .collect(),
        )
    });
    tables.collect()
}

/// `tables` with the ports of what has failed in `fabric` out of use, which takes no plan and no
/// look at the whole fabric: pinned flows leave by their backups until tables are lowered anew.
/// Switches at which nothing has failed share their tables.
pub fn protect_tables(
    wiring: &FabricWiring,
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<SwitchTables>>,
) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    let protected = tables.iter().map(|(switch, tables)| {
        let rows = liveness::failed_port_rows(wiring, fabric, *switch);
        let rows: Vec<TableEntry> = rows
            .map(TableEntry::with_signature)
            .filter(|row| tables.get(&row.key).is_none())
            .collect();
        let mut tables = Arc::clone(tables);
        if !rows.is_empty() {
            Arc::make_mut(&mut tables).extend(rows);
        }
        (*switch, tables)
    });
    protected.collect()
}

#[cfg(test)]
mod tests;
