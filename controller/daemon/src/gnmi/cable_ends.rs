//! From ports to cables: a cable works while both of its ends do, in whatever order they report.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, LinkId, SwitchId};

use crate::liveness::{FabricPart, PartHealth};

/// A port of a switch.
pub(super) type SwitchPort = (SwitchId, u32);

/// The cables of a fabric by their ends, and the ends that are down.
#[derive(Debug, Default)]
pub(super) struct CableEnds {
    by_port: BTreeMap<SwitchPort, LinkId>,
    ends: BTreeMap<LinkId, Vec<SwitchPort>>,
    down: BTreeSet<SwitchPort>,
}

impl CableEnds {
    /// Takes the cables of another fabric; `None` if they are those from before. Ports that are
    /// down stay so, and their cables are returned.
    pub(super) fn adopt_fabric(
        &mut self,
        fabric: &Fabric,
    ) -> Option<Vec<(FabricPart, PartHealth)>> {
        let mut by_port = BTreeMap::new();
        let mut ends: BTreeMap<LinkId, Vec<SwitchPort>> = BTreeMap::new();
        for switch in fabric.switch_ids() {
            for (&port, &link) in &fabric.switch(switch).ports {
                let cable = link.min(link.reverse());
                by_port.insert((switch, port), cable);
                ends.entry(cable).or_default().push((switch, port));
            }
        }
        if by_port == self.by_port {
            return None;
        }
        (self.by_port, self.ends) = (by_port, ends);
        self.down.retain(|port| self.by_port.contains_key(port));
        let cables: BTreeSet<LinkId> =
            self.down.iter().filter_map(|port| self.by_port.get(port).copied()).collect();
        let down = cables.into_iter().map(|cable| (FabricPart::Cable(cable), PartHealth::Down));
        Some(down.collect())
    }

    /// The health of a cable after one of its ends was seen; `None` for a port without a cable.
    pub(super) fn observe_port(
        &mut self,
        port: SwitchPort,
        health: PartHealth,
    ) -> Option<(FabricPart, PartHealth)> {
        match health {
            PartHealth::Up => self.down.remove(&port),
            PartHealth::Down => self.down.insert(port),
        };
        let cable = *self.by_port.get(&port)?;
        let is_down = self.ends.get(&cable)?.iter().any(|end| self.down.contains(end));
        let health = if is_down { PartHealth::Down } else { PartHealth::Up };
        Some((FabricPart::Cable(cable), health))
    }
}

#[cfg(test)]
mod tests {
    use topology::FabricNode;
    use topology::clos::{self, ClosSpec};

    use super::*;

    #[test]
    fn a_cable_is_down_while_one_of_its_ends_is() {
        let fabric = clos::build_clos("two by two", &ClosSpec::default()).unwrap();
        let mut cables = CableEnds::default();
        assert_eq!(cables.adopt_fabric(&fabric), Some(Vec::new()));
        let near = SwitchId(0);
        let (&port, &link) = fabric.switch(near).ports.last_key_value().unwrap();
        let far = fabric.link(link).to;
        let FabricNode::Switch(far_switch) = far.node else {
            panic!("the last port of a leaf leads to a spine");
        };
        let ends = [(near, port), (far_switch, far.port)];
        let cable = FabricPart::Cable(link.min(link.reverse()));
        let (up, down) = (PartHealth::Up, PartHealth::Down);
        for (end, seen, expected) in
            [(0, up, up), (0, down, down), (1, down, down), (0, up, down), (1, up, up)]
        {
            assert_eq!(cables.observe_port(ends[end], seen), Some((cable, expected)));
        }
        assert_eq!(cables.observe_port((near, 999), down), None, "nothing is attached there");
        // The same fabric changes nothing; one whose cables are others is told of those down.
        cables.observe_port(ends[0], down);
        assert_eq!(cables.adopt_fabric(&fabric), None);
        cables.by_port.pop_first();
        assert_eq!(cables.adopt_fabric(&fabric), Some(vec![(cable, down)]));
    }
}
