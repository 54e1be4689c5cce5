//! `fabric_port` and `dscp_level`: inside the fabric the level comes from DSCP, so that a spine
//! holds one row for each level, however many jobs there are. The inside ports depend on the wiring
//! and not on failures.

use p4::entry::TableEntry;
use p4::fabric::{self, PriorityLevel};

use super::switch_context::SwitchContext;

pub(super) fn build_fabric_ports(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let ports = site.fabric_links().filter_map(|link| site.port(link));
    ports.map(fabric::fabric_port).collect()
}

pub(super) fn build_dscp_levels(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let levels = PriorityLevel::all_levels().take(site.shared.plan.levels.into());
    levels.flat_map(|level| [fabric::dscp_level(level), fabric::answer_dscp_level(level)]).collect()
}
