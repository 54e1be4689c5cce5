//! `acl_punt`: what the controller wants to see. With discovery, that is its own probes and what
//! hosts say of themselves by ARP; the program forwards neither.

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
    let row = |kind| fabric::acl_punt(&kind, PRIORITY, PuntAction::Punt);
    kinds.map(row).into()
}
