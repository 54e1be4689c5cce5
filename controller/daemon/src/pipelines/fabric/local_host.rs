//! `local_host`: the NICs of a leaf, each at its port. Stays through failures of their cables: the
//! packets have nowhere else to go.

use p4::entry::TableEntry;
use p4::fabric;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let row = |nic| {
        let nic = site.shared.fabric.nic(nic);
        let port = site.port(nic.uplink.reverse())?;
        Some(fabric::local_host(nic.ip, port, nic.mac.0))
    };
    site.nics().filter_map(row).collect()
}
