//! `source_guard`: the addresses of the NICs of a leaf, each at its port. Whatever else a host
//! sends from has no pin, no job and no level.

use p4::entry::TableEntry;
use p4::fabric;
use topology::NicId;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let row = |nic: &NicId| {
        let nic = site.shared.fabric.nic(*nic);
        Some(fabric::source_guard(site.port(nic.uplink.reverse())?, nic.ip))
    };
    site.nics().iter().filter_map(row).collect()
}
