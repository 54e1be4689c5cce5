//! Which buffers wait for which: the channel dependency graph of a fabric's routes (Dally and
//! Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection Networks", IEEE
//! Transactions on Computers C-36, 1987).
//!
//! Under priority flow control (IEEE 802.1Qbb) a full buffer pauses the link that fills it. So the
//! buffer behind link `a` waits for the one behind link `b` if packets of one lossless class arrive
//! over `a` and leave over `b`. A deadlock needs a cycle of such waits (Hu et al., "Deadlocks in
//! Datacenter Networks: Why Do They Form, and How to Avoid Them", HotNets 2016), and routes without
//! one never stop for good. A graph is of one class: others have buffers of their own.
//!
//! The decision: exact, and only for those who need it. Routes that climb and then descend have no
//! cycle (a link up waits only for links that start higher or go down, a link down only for links
//! that start lower), so a caller that knows that much of its routes need not build the graph.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::{Fabric, Tier};
use crate::ids::LinkId;
use crate::paths::NextHops;

/// For each link, the links that the buffer behind it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferDependencyGraph {
    waits_for: BTreeMap<LinkId, BTreeSet<LinkId>>,
}

/// Links each of whose buffers waits for the next, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferCycle {
    links: Vec<LinkId>,
}

impl BufferDependencyGraph {
    /// Adds the waits along a path.
    pub fn add_path(&mut self, links: &[LinkId]) {
        for turn in links.windows(2) {
            self.add_turn(turn[0], turn[1]);
        }
    }

    /// Packets that arrive over `from` leave over `to`.
    pub fn add_turn(&mut self, from: LinkId, to: LinkId) {
        self.waits_for.entry(from).or_default().insert(to);
    }

    /// Adds the waits of all packets that go to one leaf, from every leaf with hosts, if each
    /// switch may send them by any of several `routes` to that leaf: those before a failure and
    /// those after it, while only some switches have been written.
    pub fn add_routes(&mut self, fabric: &Fabric, routes: &[&NextHops]) {
        let mut seen: BTreeSet<LinkId> = BTreeSet::new();
        let leaves = fabric.switches_of_tier(Tier::Leaf);
        let senders = leaves.filter(|leaf| fabric.nics_on(*leaf).next().is_some());
        let mut reached: Vec<LinkId> = senders
            .flat_map(|leaf| routes.iter().flat_map(move |hops| hops.links_at(leaf)))
            .copied()
            .filter(|link| seen.insert(*link))
            .collect();
        while let Some(link) = reached.pop() {
            let Some(at) = fabric.switch_after(link) else { continue };
            for next in routes.iter().flat_map(|hops| hops.links_at(at)) {
                self.add_turn(link, *next);
                if seen.insert(*next) {
                    reached.push(*next);
                }
            }
        }
    }

    /// Whether packets that arrive over `from` may leave over `to`.
    pub fn has_turn(&self, from: LinkId, to: LinkId) -> bool {
        self.waits_for.get(&from).is_some_and(|waits| waits.contains(&to))
    }

    /// A cycle, if there is one: the same for the same graph.
    pub fn find_cycle(&self) -> Option<BufferCycle> {
        let mut finished: BTreeSet<LinkId> = BTreeSet::new();
        for start in self.waits_for.keys() {
            if finished.contains(start) {
                continue;
            }
            // A depth-first search with a stack of its own: a path may be as long as the fabric
            // has links.
            let mut path = vec![(*start, self.waits_of(*start))];
            let mut on_path = BTreeSet::from([*start]);
            while let Some((link, waits)) = path.last_mut() {
                let Some(next) = waits.next() else {
                    on_path.remove(link);
                    finished.insert(*link);
                    path.pop();
                    continue;
                };
                if on_path.contains(&next) {
                    let links = path.iter().map(|(link, _)| *link);
                    return Some(BufferCycle::starting_lowest(
                        links.skip_while(|link| *link != next).collect(),
                    ));
                }
                if !finished.contains(&next) {
                    on_path.insert(next);
                    path.push((next, self.waits_of(next)));
                }
            }
        }
        None
    }

    fn waits_of(&self, link: LinkId) -> impl Iterator<Item = LinkId> + '_ {
        self.waits_for.get(&link).into_iter().flatten().copied()
    }
}

impl BufferCycle {
    fn starting_lowest(mut links: Vec<LinkId>) -> Self {
        let lowest = (0..links.len()).min_by_key(|at| links[*at]).unwrap_or(0);
        links.rotate_left(lowest);
        Self { links }
    }

    /// Its links, each waiting for the next, the lowest first.
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }

    /// Whether the wait of one link for another is part of it.
    pub fn has_turn(&self, from: LinkId, to: LinkId) -> bool {
        let nexts = self.links.iter().cycle().skip(1);
        self.links.iter().zip(nexts).any(|turn| turn == (&from, &to))
    }

    /// The cycle link by link, the first one again at its end.
    pub fn name_in(&self, fabric: &Fabric) -> String {
        let links = self.links.iter().chain(self.links.first());
        links.map(|link| fabric.link_name(*link)).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a path climbs from tier to tier and then descends, from its first switch to its last.
/// Routes of such paths have no cycle.
pub fn is_valley_free(fabric: &Fabric, links: &[LinkId]) -> bool {
    let mut descends = false;
    links.iter().all(|link| {
        let ends = [fabric.link(*link).from.node, fabric.link(*link).to.node];
        let [Some(from), Some(to)] = ends.map(|node| node.switch()) else {
            return true;
        };
        let (from, to) = (fabric.switch(from).tier, fabric.switch(to).tier);
        let climbs = to > from;
        let is_in_order = from != to && !(climbs && descends);
        descends |= !climbs;
        is_in_order
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clos::{self, ClosSpec};
    use crate::paths::next_hops;

    fn lab() -> Fabric {
        clos::build_clos("lab", &ClosSpec::default()).unwrap()
    }

    fn path(fabric: &Fabric, names: &[&str]) -> Vec<LinkId> {
        let cables = names.windows(2).map(|pair| format!("{}-{}", pair[0], pair[1]));
        cables.map(|cable| fabric.links_named(&cable)[0]).collect()
    }

    fn with_equal_cost_routes(fabric: &Fabric) -> BufferDependencyGraph {
        let mut graph = BufferDependencyGraph::default();
        for leaf in fabric.switches_of_tier(Tier::Leaf) {
            graph.add_routes(fabric, &[&next_hops(fabric, leaf)]);
        }
        graph
    }

    #[test]
    fn two_valleys_make_a_cycle_which_is_named_link_by_link() {
        let lab = lab();
        let mut graph = with_equal_cost_routes(&lab);
        assert_eq!(graph.find_cycle(), None);
        // One valley waits for nothing that waits for it.
        let first = path(&lab, &["leaf1", "spine1", "leaf2", "spine2", "leaf3"]);
        graph.add_path(&first);
        assert_eq!(graph.find_cycle(), None);
        let second = path(&lab, &["leaf1", "spine2", "leaf4", "spine1", "leaf3"]);
        graph.add_path(&second);
        let cycle = graph.find_cycle().unwrap();
        assert_eq!(
            cycle.name_in(&lab),
            "spine1:2>leaf2:4, leaf2:5>spine2:2, spine2:4>leaf4:5, leaf4:4>spine1:4, \
             spine1:2>leaf2:4"
        );
        assert!(cycle.has_turn(first[1], first[2]) && cycle.has_turn(second[1], second[2]));
        assert!(!cycle.has_turn(first[0], first[1]));
        assert!([first, second].iter().all(|path| !is_valley_free(&lab, path)));
    }

    #[test]
    fn links_between_switches_of_a_tier_can_make_a_cycle() {
        let mut document = crate::spec::explicit_document(&lab());
        for (a, b) in [("leaf1:9", "leaf2:9"), ("leaf2:10", "leaf3:9"), ("leaf3:10", "leaf1:10")] {
            document.links.push(crate::spec::LinkDocument {
                a: a.to_owned(),
                b: b.to_owned(),
                ..document.links[12].clone()
            });
        }
        let fabric = Fabric::try_from(&document).unwrap();
        let mut graph = with_equal_cost_routes(&fabric);
        assert_eq!(graph.find_cycle(), None);
        for names in [["leaf1", "leaf2", "leaf3"], ["leaf2", "leaf3", "leaf1"]] {
            assert!(!is_valley_free(&fabric, &path(&fabric, &names)));
            graph.add_path(&path(&fabric, &names));
            assert_eq!(graph.find_cycle(), None);
        }
        graph.add_path(&path(&fabric, &["leaf3", "leaf1", "leaf2"]));
        assert_eq!(graph.find_cycle().unwrap().links().len(), 3);
    }
}
