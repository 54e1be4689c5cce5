//! Small fabrics of tests, from a line of text.

use std::collections::BTreeMap;

use crate::draft::FabricDraft;
use crate::fabric::{Fabric, Tier};
use crate::ids::SwitchId;
use crate::units::Bandwidth;

/// A fabric from its leaves, spines and cores, its hosts with the leaf of each NIC, and the cables
/// between switches: `"l1 l2"`, `"s1"`, `""`, `"a:l1,l2 b:l2"`, `"l1-s1 l2-s1"`. All links have
/// 100 Gb/s.
pub(crate) fn wired_fabric(switches: [&str; 3], hosts: &str, cables: &str) -> Fabric {
    let speed = Bandwidth::from_gbps(100.0).unwrap();
    let mut draft = FabricDraft::with_name("wired");
    let mut ids: BTreeMap<&str, SwitchId> = BTreeMap::new();
    for (tier, names) in [Tier::Leaf, Tier::Spine, Tier::Core].into_iter().zip(switches) {
        let names: Vec<&str> = names.split_whitespace().collect();
        let added = draft.add_switches(tier, names.len());
        draft.rename_switches(&added, names.iter().map(|name| (*name).to_owned()));
        ids.extend(names.into_iter().zip(added));
    }
    for host in hosts.split_whitespace() {
        let (name, leaves) = host.split_once(':').unwrap();
        let leaves: Vec<SwitchId> = leaves.split(',').map(|leaf| ids[leaf]).collect();
        draft.add_host(name.to_owned(), 8, &leaves, speed);
    }
    for cable in cables.split_whitespace() {
        let (lower, upper) = cable.split_once('-').unwrap();
        draft.connect_switches(ids[lower], ids[upper], speed);
    }
    draft.into_fabric()
}
