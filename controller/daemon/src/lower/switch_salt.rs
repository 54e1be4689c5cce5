//! `switch_salt`: what a switch mixes into its hash. Without it, all flows that a leaf sends one
//! way would be sent one way by the next tier too, and half of its links would stay empty.

use p4::entry::TableEntry;
use p4::fabric;

use super::site::Site;

pub(super) fn entries(site: &Site<'_>) -> Vec<TableEntry> {
    vec![fabric::switch_salt(site.all.wiring.salt(site.switch))]
}
