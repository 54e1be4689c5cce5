//! From a plan to the tables of every switch: a total function of fabric and plan.
//!
//! [`state`](crate::state) makes the plan, sessions write the tables. The decision: a plan leaves
//! no choice, so neither does lowering: no memory, no error, no clock; what might not fit a table
//! was refused when the [`Wiring`] was made. Each module here owns the P4 tables it is named for,
//! and no other writes them. All rows are signed, so that who reads a switch knows whose they are.

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
mod site;
mod switch_salt;
mod trust;
mod wiring;

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::Tables;
use p4::entry::TableEntry;
use planner::Plan;
use topology::{Fabric, SwitchId};

pub(crate) use self::acl_punt::rows as punts;
pub(crate) use self::job_classify::rules::rows as rule_rows;
use self::site::{Site, Situation};
pub use self::wiring::{Wiring, WiringError};

/// The modules that write tables, one for each table (or two).
const TABLES: [fn(&Site<'_>) -> Vec<TableEntry>; 13] = [
    acl_punt::entries,
    local_host::entries,
    dst_leaf::entries,
    ecmp_group::entries,
    path::entries,
    flow_pin::entries,
    job_classify::entries,
    job_qos::entries,
    roce_answer::entries,
    trust::fabric_ports,
    trust::dscp_levels,
    liveness::entries,
    switch_salt::entries,
];

/// The tables that every switch of `fabric` should hold under `plan`, which was made for it.
/// `wiring` is of the same fabric, with whatever failures.
pub fn lower(wiring: &Wiring, fabric: &Fabric, plan: &Plan) -> BTreeMap<SwitchId, Tables> {
    let situation = Situation::new(wiring, fabric, plan);
    let switches = (0..fabric.switches().len()).map(SwitchId::from);
    let tables = switches.map(|switch| {
        let site = Site {
            all: &situation,
            switch,
        };
        (
            switch,
            TABLES
                .iter()
                .flat_map(|entries| entries(&site))
                .map(TableEntry::signed)
                .collect(),
        )
    });
    tables.collect()
}

/// `tables` with the ports of what has failed in `fabric` out of use, which takes no plan and no
/// look at the whole fabric: pinned flows leave by their backups until tables are lowered anew.
/// Switches at which nothing has failed share their tables.
pub fn protect(
    wiring: &Wiring,
    fabric: &Fabric,
    tables: &BTreeMap<SwitchId, Arc<Tables>>,
) -> BTreeMap<SwitchId, Arc<Tables>> {
    let protected = tables.iter().map(|(switch, tables)| {
        let rows = liveness::rows(wiring, fabric, *switch);
        let rows: Vec<TableEntry> = rows
            .map(TableEntry::signed)
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
