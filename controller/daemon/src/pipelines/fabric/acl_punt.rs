//! `acl_punt`: the packets that switches send to the controller. With discovery, these are its own
//! probes and the hosts' ARP packets; the program forwards neither.

use std::num::NonZeroU16;

use p4::entry::TableEntry;
use p4::fabric::{self, ETHERTYPE_ARP, ETHERTYPE_PROBE, PuntAction, PuntMatch};

use super::switch_context::SwitchContext;

const PRIORITY: NonZeroU16 = NonZeroU16::MIN;

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    match site.shared.wiring.is_probed() {
        true => punt_rows(),
        false => Vec::new(),
    }
}

/// The rows that discovery needs on a switch.
pub(crate) fn punt_rows() -> Vec<TableEntry> {
    let kinds = [ETHERTYPE_PROBE, ETHERTYPE_ARP].map(PuntMatch::EtherType);
    kinds.map(|kind| fabric::acl_punt(&kind, PRIORITY, PuntAction::Punt)).into()
}
