//! `source_guard`, `host_port` and `foreign_source`: the addresses of the hosts of a leaf, each at its
//! ports.
//! Whatever else a host sends from has no pin, no job and no level, and is dropped if it is the
//! address of a host elsewhere.
//!
//! A host with several NICs may send from the address of any of them by all, as Linux does. The
//! addresses elsewhere are the prefixes of all leaves, joined to the fewest: an address that no host
//! has and that would be at this leaf may be a container's, or a host's that is yet to be found.

use std::collections::BTreeMap;

use p4::entry::TableEntry;
use p4::fabric::{self, IpPrefix};

use super::switch_context::SwitchContext;

pub(super) fn build_guards(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let fabric = site.shared.fabric;
    let rows = site.nics().iter().flat_map(|nic| {
        let nic = fabric.nic(*nic);
        let addresses = fabric.host(nic.host).nics.iter().map(|nic| fabric.nic(*nic).ip);
        let port = site.port(nic.uplink.reverse());
        addresses.filter_map(move |address| Some(fabric::source_guard(port?, address)))
    });
    rows.collect()
}

pub(super) fn build_host_ports(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let nics = site.nics().iter().map(|nic| site.shared.fabric.nic(*nic));
    nics.filter_map(|nic| site.port(nic.uplink.reverse())).map(fabric::host_port).collect()
}

pub(super) fn build_foreign_sources(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let wiring = site.shared.wiring;
    let Some(leaf) = wiring.leaf(site.switch) else {
        return Vec::new();
    };
    let mut rows: BTreeMap<IpPrefix, TableEntry> = BTreeMap::new();
    rows.extend(wiring.host_prefixes().iter().map(|all| (*all, fabric::refuse_source(*all))));
    rows.extend(wiring.prefixes_at(site.switch).map(|own| (own, fabric::allow_source(own))));
    let nics = leaf.nics.iter().map(|nic| IpPrefix::from(site.shared.fabric.nic(*nic).ip));
    rows.extend(nics.map(|nic| (nic, fabric::refuse_source(nic))));
    rows.into_values().collect()
}
