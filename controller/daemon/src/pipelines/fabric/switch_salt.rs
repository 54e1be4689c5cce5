//! `switch_salt`: what a switch mixes into its hash, and which bits of the hash it uses. Salts
//! alone are not enough: CRC-32 is linear, so all flows that a leaf sends over one link would take
//! one link of the next tier too, and half of its links would stay empty. Tiers that use different
//! bits choose independently. `spraying`, on a fabric that sprays: by how much the choice grows from one
//! packet of a connection to the next.

use p4::entry::TableEntry;
use p4::fabric::{self, HashSlice};
use topology::Tier;

use super::switch_context::SwitchContext;

pub(super) fn build_salts(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let salt = site.shared.wiring.salt(site.switch);
    vec![fabric::switch_salt(salt, slice_of(site))]
}

pub(super) fn build_strides(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let sprays = site.shared.fabric.forwarding().sprays();
    sprays.then(|| fabric::spraying(slice_of(site))).into_iter().collect()
}

fn slice_of(site: &SwitchContext<'_>) -> HashSlice {
    match site.shared.fabric.switch(site.switch).tier {
        Tier::Leaf => HashSlice::FIRST,
        Tier::Spine => HashSlice::SECOND,
        Tier::Core => HashSlice::THIRD,
    }
}
