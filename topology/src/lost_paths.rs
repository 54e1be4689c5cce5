//! What a change of availability leaves without a path, and what carried it until then.
//!
//! Drains are judged by it: a drain that takes the last path of NICs that had one does not empty
//! the part, because switches keep sending over it what has no other way.

use std::collections::BTreeSet;

use crate::fabric::{Fabric, Tier};
use crate::finding::count_noun;
use crate::ids::{LinkId, NicId, SwitchId};
use crate::paths::next_hops;

/// Pairs of leaves or NICs that a text names.
const NAMED: usize = 3;

/// NICs and pairs of leaves that have a path in one fabric and none in another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPaths {
    /// NICs without any path: their cables or leaves cannot be used any more.
    pub nics: BTreeSet<NicId>,
    /// Pairs of other leaves with hosts, the lower id first.
    pub pairs: BTreeSet<(SwitchId, SwitchId)>,
    /// The links that carried them, in the direction of their packets.
    pub links: BTreeSet<LinkId>,
}

impl LostPaths {
    /// What has a path in `before` and none in `after`, a fabric of the same parts.
    pub fn between(before: &Fabric, after: &Fabric) -> Self {
        let mut lost = Self::default();
        for nic in before.host_nics() {
            let uplinks = || before.ports_of(nic).map(|port| before.nic(port).uplink);
            let usable = |fabric: &Fabric| uplinks().any(|uplink| fabric.is_usable(uplink));
            if usable(before) && !usable(after) {
                lost.nics.insert(nic);
                let carried = uplinks().filter(|uplink| before.is_usable(*uplink));
                lost.links.extend(carried.flat_map(|uplink| [uplink, uplink.reverse()]));
            }
        }
        let has_hosts = |leaf: &SwitchId| {
            after.nics_on(*leaf).any(|nic| after.is_usable(after.nic(nic).uplink))
        };
        let leaves: Vec<SwitchId> = after.switches_of_tier(Tier::Leaf).filter(has_hosts).collect();
        for to in &leaves {
            lost.add_pairs_to(*to, &leaves, [before, after]);
        }
        lost
    }

    /// Whether everything that had a path has one.
    pub fn is_empty(&self) -> bool {
        self.nics.is_empty() && self.pairs.is_empty()
    }

    /// Names the NICs and the pairs, the first of each.
    pub fn describe(&self, fabric: &Fabric) -> String {
        let nic = |nic: &NicId| {
            let nic = fabric.nic(*nic);
            format!("{}:{}", fabric.host(nic.host).name, nic.index)
        };
        let pair = |(a, b): &(SwitchId, SwitchId)| {
            format!("{} and {}", fabric.switch(*a).name, fabric.switch(*b).name)
        };
        let nics: Vec<String> = self.nics.iter().map(nic).collect();
        let pairs: Vec<String> = self.pairs.iter().map(pair).collect();
        let nics = name_some(&count_noun(nics.len(), "NIC"), &nics);
        let pairs = name_some(&format!("{} of leaves", count_noun(pairs.len(), "pair")), &pairs);
        [nics, pairs].into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn add_pairs_to(&mut self, to: SwitchId, leaves: &[SwitchId], [before, after]: [&Fabric; 2]) {
        let [had, has] = [before, after].map(|fabric| next_hops(fabric, to));
        let is_cut =
            |from: &&SwitchId| had.distance(**from).is_some() && has.distance(**from).is_none();
        let mut open: Vec<SwitchId> = leaves.iter().filter(is_cut).copied().collect();
        self.pairs.extend(open.iter().map(|from| (to.min(*from), to.max(*from))));
        let mut carried = BTreeSet::new();
        while let Some(switch) = open.pop() {
            for link in had.links_at(switch) {
                if carried.insert(*link) {
                    open.extend(before.switch_after(*link));
                }
            }
        }
        self.links.extend(carried);
    }
}

/// How many there are, and the first of their names; nothing without any.
fn name_some(count: &str, names: &[String]) -> Option<String> {
    let shown = names.get(..NAMED).unwrap_or(names).join(", ");
    let more = if names.len() > NAMED { ", ..." } else { "" };
    (!names.is_empty()).then(|| format!("{count} ({shown}{more})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::fabric::AvailabilityChange;

    fn drained(fabric: &Fabric, names: &[&str]) -> Fabric {
        fabric.with_changes(names.iter().map(|name| match fabric.switch_named(name) {
            Some(switch) => AvailabilityChange::DrainSwitch(switch),
            None => AvailabilityChange::DrainLink(fabric.links_named(name)[0]),
        }))
    }

    #[test]
    fn the_last_of_several_spines_takes_the_paths_between_leaves() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let lost = LostPaths::between(&fabric, &drained(&fabric, &["spine1"]));
        assert!(lost.is_empty() && lost.links.is_empty());
        let lost = LostPaths::between(&fabric, &drained(&fabric, &["spine1", "spine2"]));
        assert_eq!((lost.pairs.len(), lost.nics.len()), (6, 0));
        // Each leaf has two links up, and each spine four down.
        assert_eq!(lost.links.len(), 16);
        assert_eq!(
            lost.describe(&fabric),
            "6 pairs of leaves (leaf1 and leaf2, leaf1 and leaf3, leaf1 and leaf4, ...)"
        );
    }

    #[test]
    fn a_drained_leaf_takes_the_paths_of_its_nics() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let lost = LostPaths::between(&fabric, &drained(&fabric, &["leaf2"]));
        assert_eq!((lost.pairs.len(), lost.nics.len()), (0, 3));
        assert_eq!(lost.describe(&fabric), "3 NICs (h4:0, h5:0, h6:0)");
    }

    #[test]
    fn only_what_had_a_path_is_lost() {
        let fabric = clos::build_clos("lab", &ClosSpec::default()).unwrap();
        let cut = fabric.links_named("leaf1-spine2")[0];
        let failed = fabric.with_changes([AvailabilityChange::LinkDown(cut)]);
        let both = drained(&failed, &["leaf1-spine1"]);
        let lost = LostPaths::between(&failed, &both);
        let leaf1 = fabric.switch_named("leaf1").unwrap();
        assert!(lost.pairs.iter().all(|(a, b)| [*a, *b].contains(&leaf1)));
        assert_eq!(lost.pairs.len(), 3);
        assert!(LostPaths::between(&both, &both).is_empty());
    }
}
