//! `arp_answer` and `nd_answer`: a leaf answers every ARP request and neighbour solicitation of its
//! hosts with its own Ethernet address.
//!
//! The fabric routes by IP address and ignores the Ethernet destination, so one answer serves every
//! design of addresses: a gateway on the leaf's subnet, the other end of a /31, an on-link gateway
//! for /32 addresses, or hosts that believe the whole fabric to be one subnet. A request from an
//! address that `source_guard` does not list goes to the controller instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use p4::entry::TableEntry;
use p4::fabric::{self, IpPrefix};
use topology::MacAddress;

use super::switch_context::SwitchContext;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    if site.nics().is_empty() {
        return Vec::new();
    }
    let everything: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let prefixes = everything.into_iter().filter_map(|address| IpPrefix::new(address, 0).ok());
    prefixes.map(|prefix| fabric::neighbour_answer(prefix, MacAddress::GATEWAY.0)).collect()
}
