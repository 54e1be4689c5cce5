//! `local_host`: the NICs of a leaf, each with its port. The rows stay when a cable fails: there is
//! no other path to the NIC.

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let nics = site.nics().iter().map(|nic| site.shared.fabric.nic(*nic));
    let rows = nics.filter_map(|nic| {
        let port = site.port(nic.uplink.reverse())?;
        Some(fabric::local_host(nic.ip, port, nic.mac.0))
    });
    rows.collect()
}
