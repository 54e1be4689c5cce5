//! `acl_punt` and `acl_punt6`: the packets that switches send to the controller. With discovery,
//! these are its own probes and what hosts send of ARP and neighbour discovery and the leaf does
//! not answer; the program forwards none of them.

use std::num::NonZeroU16;

use p4::entry::TableEntry;
use p4::fabric::{self, ETHERTYPE_ARP, ETHERTYPE_PROBE, PuntAction, PuntMatch};

use super::switch_context::SwitchContext;

/// ICMPv6 types of neighbour discovery (RFC 4861 §4.3, §4.4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const PRIORITY: NonZeroU16 = NonZeroU16::MIN;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    if site.shared.wiring.reports.probes { punt_rows() } else { Vec::new() }
}

/// The rows that discovery needs on a switch.
pub(crate) fn punt_rows() -> Vec<TableEntry> {
    let kinds = [
        PuntMatch::EtherType(ETHERTYPE_PROBE),
        PuntMatch::EtherType(ETHERTYPE_ARP),
        PuntMatch::Icmpv6(SOLICITATION),
        PuntMatch::Icmpv6(ADVERTISEMENT),
    ];
    kinds.map(|kind| fabric::acl_punt(&kind, PRIORITY, PuntAction::Punt)).into()
}
