//! A fabric that sprays, as the phases of a plan see it: links over which the same packets are spread
//! are one trunk.
//!
//! A switch that sprays sends an equal share of a connection over each of its links. All of them
//! then have the same load, and a job waits for their sum: the switches of a tier that share
//! neighbours act as one, with one link to each neighbour. So every flow has one path, and nothing
//! is left to choose but levels and start shifts.
//!
//! Where all leaves have the same spines this is exact. Where a cable has failed, the model is too good by
//! the traffic that the other leaves still spread over all their links: at most the share of one link.

use std::collections::BTreeMap;

use topology::groups::DisjointSets;
use topology::{
    AvailabilityChange, Bandwidth, Fabric, FabricNode, FabricParts, Link, LinkEndpoint, LinkId,
    Nic, Switch, SwitchId, Tier,
};

/// The fabric with trunks, and the links that each stands for.
#[derive(Clone, Debug)]
pub(crate) struct TrunkedFabric {
    pub(crate) fabric: Fabric,
    /// By link between NICs and switches.
    members: Vec<Vec<LinkId>>,
    /// Links of the original between NICs and switches.
    original_links: usize,
}

impl TrunkedFabric {
    /// The trunks of `fabric` where it sprays.
    pub(crate) fn new(fabric: &Fabric) -> Self {
        let merged = MergedSwitches::new(fabric);
        let mut builder = TrunkBuilder {
            fabric,
            parts: FabricParts {
                name: fabric.name().to_owned(),
                hosts: fabric.hosts().to_vec(),
                nics: fabric.nics().to_vec(),
                switches: merged.switches(fabric),
                ..FabricParts::default()
            },
            members: Vec::new(),
        };
        let dead = builder.add_host_cables(&merged);
        builder.add_trunks(&merged);
        let TrunkBuilder { parts, members, .. } = builder;
        let trunked = Fabric::new(parts);
        Self {
            fabric: trunked.with_changes(dead.into_iter().map(AvailabilityChange::LinkDown)),
            members,
            original_links: fabric.links().len(),
        }
    }

    /// The links of the original that a link stands for.
    pub(crate) fn members_of(&self, link: LinkId) -> Vec<LinkId> {
        match self.members.get(link.index()) {
            Some(members) => members.clone(),
            // Those inside hosts come last, in the same order in both.
            None => vec![LinkId::from(link.index() - self.members.len() + self.original_links)],
        }
    }
}

/// Switches that act as one, by the position of what they are merged into.
struct MergedSwitches {
    /// The first of the switches that became each one, ascending within leaves and the others.
    first: Vec<SwitchId>,
    /// By original switch.
    merged: Vec<SwitchId>,
}

impl MergedSwitches {
    /// Leaves stay as they are. Spines with a leaf in common are one, and so are cores with a spine
    /// of one such group in common.
    fn new(fabric: &Fabric) -> Self {
        let mut sets = DisjointSets::new(fabric.switches().len());
        for tier in [Tier::Leaf, Tier::Spine] {
            let mut first_above: BTreeMap<(usize, Tier), usize> = BTreeMap::new();
            for lower in fabric.switches_of_tier(tier) {
                let group = sets.find_root(lower.index());
                for above in usable_neighbours(fabric, lower) {
                    let key = (group, fabric.switch(above).tier);
                    let first = *first_above.entry(key).or_insert(above.index());
                    sets.join(first, above.index());
                }
            }
        }
        let roots: Vec<usize> =
            (0..fabric.switches().len()).map(|switch| sets.find_root(switch)).collect();
        let mut first = Vec::new();
        let mut known: BTreeMap<usize, SwitchId> = BTreeMap::new();
        let merged = roots.iter().zip(fabric.switch_ids()).map(|(root, switch)| {
            *known.entry(*root).or_insert_with(|| {
                first.push(switch);
                SwitchId::from(first.len() - 1)
            })
        });
        let merged = merged.collect();
        Self { first, merged }
    }

    /// The switches of the fabric with trunks, without ports.
    fn switches(&self, fabric: &Fabric) -> Vec<Switch> {
        let first = self.first.iter().map(|switch| fabric.switch(*switch));
        first.map(|switch| Switch { ports: BTreeMap::new(), ..switch.clone() }).collect()
    }
}

/// Switches above one, by links that may be used.
fn usable_neighbours(fabric: &Fabric, switch: SwitchId) -> impl Iterator<Item = SwitchId> + '_ {
    let links = fabric.up_links(switch).iter().filter(|link| fabric.is_usable(**link));
    links.filter_map(|link| fabric.switch_after(*link))
}

/// Builds the fabric with trunks.
struct TrunkBuilder<'a> {
    fabric: &'a Fabric,
    parts: FabricParts,
    members: Vec<Vec<LinkId>>,
}

impl TrunkBuilder<'_> {
    /// Adds a cable of two directions, each in place of some links.
    fn add_cable(&mut self, ends: [LinkEndpoint; 2], members: [Vec<LinkId>; 2]) -> LinkId {
        let id = LinkId::from(self.parts.links.len());
        let [a, b] = ends;
        for ((from, to), members) in [(a, b), (b, a)].into_iter().zip(members) {
            let link = LinkId::from(self.parts.links.len());
            if let Some(switch) = from.node.switch() {
                self.parts.switches[switch.index()].ports.insert(from.port, link);
            }
            self.parts.links.push(self.trunk_of([from, to], &members));
            self.members.push(members);
        }
        id
    }

    /// One link for several that carry equal shares: the slowest of them limits all.
    fn trunk_of(&self, [from, to]: [LinkEndpoint; 2], members: &[LinkId]) -> Link {
        let links = || members.iter().map(|link| self.fabric.link(*link));
        let slowest = links().map(|link| link.bandwidth.gbps()).fold(f64::INFINITY, f64::min);
        let first = self.fabric.link(members[0]);
        let together = Bandwidth::from_gbps(slowest * members.len() as f64);
        let fifo = links().map(|link| link.scheduler).find(|scheduler| !scheduler.serves_levels());
        Link {
            from,
            to,
            bandwidth: together.unwrap_or(first.bandwidth),
            scheduler: fifo.unwrap_or(first.scheduler),
            metres: first.metres,
        }
    }

    /// Adds the cables of all NICs; those returned may not be used.
    fn add_host_cables(&mut self, merged: &MergedSwitches) -> Vec<LinkId> {
        let mut dead = Vec::new();
        for nic in self.fabric.nic_ids() {
            let up = self.fabric.nic(nic).uplink;
            let Link { from, to, .. } = *self.fabric.link(up);
            let leaf = merged.merged[self.fabric.leaf_of(nic).index()];
            let to = LinkEndpoint { node: FabricNode::Switch(leaf), ..to };
            let uplink = self.add_cable([from, to], [vec![up], vec![up.reverse()]]);
            let of = &mut self.parts.nics[nic.index()];
            *of = Nic { uplink, ..of.clone() };
            if !self.fabric.is_usable(up) {
                dead.push(uplink);
            }
        }
        dead
    }

    /// Adds a trunk for all usable links between two switches.
    fn add_trunks(&mut self, merged: &MergedSwitches) {
        let mut trunks: BTreeMap<[SwitchId; 2], Vec<LinkId>> = BTreeMap::new();
        for lower in self.fabric.switch_ids() {
            for link in self.fabric.up_links(lower).iter().filter(|l| self.fabric.is_usable(**l)) {
                let ends = [Some(lower), self.fabric.switch_after(*link)];
                if let [Some(a), Some(b)] = ends.map(|end| Some(merged.merged[end?.index()])) {
                    trunks.entry([a, b]).or_default().push(*link);
                }
            }
        }
        for (ends, up) in trunks {
            let down = up.iter().map(|link| link.reverse()).collect();
            let ends = ends.map(|switch| self.free_port(switch));
            self.add_cable(ends, [up, down]);
        }
    }

    fn free_port(&self, switch: SwitchId) -> LinkEndpoint {
        let ports = &self.parts.switches[switch.index()].ports;
        let port = ports.last_key_value().map_or(1, |(port, _)| port + 1);
        LinkEndpoint { node: FabricNode::Switch(switch), port }
    }
}

#[cfg(test)]
mod tests {
    use topology::Forwarding;
    use topology::clos::{ClosSpec, build_clos};

    use super::*;

    fn spraying(spec: &ClosSpec) -> Fabric {
        build_clos("lab", spec).unwrap().with_forwarding(Forwarding::Spray)
    }

    #[test]
    fn spines_of_a_pod_become_one_with_a_trunk_to_each_leaf() {
        let two = ClosSpec { leaves: 4, spines: 3, hosts_per_leaf: 2, ..ClosSpec::default() };
        let fabric = spraying(&two);
        let trunked = TrunkedFabric::new(&fabric);
        assert_eq!(trunked.fabric.switches().len(), 5);
        let leaf = trunked.fabric.switch_named("leaf2").unwrap();
        let [trunk] = trunked.fabric.up_links(leaf) else { panic!("one link up") };
        let uplinks = fabric.up_links(fabric.switch_named("leaf2").unwrap());
        assert_eq!(trunked.members_of(*trunk), uplinks);
        let speeds = uplinks.iter().map(|link| fabric.link(*link).bandwidth.gbps()).sum::<f64>();
        assert_eq!(trunked.fabric.link(*trunk).bandwidth.gbps(), speeds);

        let three = spraying(&ClosSpec { pods: 2, cores: 6, ..two });
        let trunked = TrunkedFabric::new(&three);
        assert_eq!(trunked.fabric.switches_of_tier(Tier::Spine).count(), 2);
        assert_eq!(trunked.fabric.switches_of_tier(Tier::Core).count(), 1);
    }

    #[test]
    fn a_failed_uplink_makes_the_trunk_thinner_and_a_failed_nic_stays_so() {
        let fabric = spraying(&ClosSpec { leaves: 2, spines: 4, ..ClosSpec::default() });
        let leaf = fabric.switch_named("leaf1").unwrap();
        let uplink = fabric.up_links(leaf)[1];
        let nic = fabric.nic(fabric.host(0.into()).nics[0]).uplink;
        let failed = fabric.with_changes([uplink, nic].map(AvailabilityChange::LinkDown));
        let whole = TrunkedFabric::new(&fabric).fabric;
        let thin = TrunkedFabric::new(&failed).fabric;
        let gbps = |of: &Fabric, leaf| {
            of.link(of.up_links(of.switch_named(leaf).unwrap())[0]).bandwidth.gbps()
        };
        assert_eq!(gbps(&thin, "leaf1") * 4.0, gbps(&whole, "leaf1") * 3.0);
        assert_eq!(gbps(&thin, "leaf2"), gbps(&whole, "leaf2"));
        assert!(!thin.is_usable(thin.nic(thin.host(0.into()).nics[0]).uplink));
    }
}
