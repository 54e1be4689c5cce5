//! Path tables: the hops up and down that all pairs of leaves share, capacities, and pods.
//!
//! Equal-cost segments between two leaves are not listed in advance. A segment climbs from the
//! first leaf until it is above the second, then descends; the hops up are one table for the whole
//! fabric, the hops down one small table for each leaf with traffic, built on first use.

use std::sync::OnceLock;

use crate::input_digest;
use crate::link_slopes::LinkSlopes;
use topology::{DownwardHops, Fabric, LinkId, SwitchHop, SwitchId, Tier, UpwardHops};

/// Two leaves and the number of links between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEnds {
    pub(crate) from: SwitchId,
    pub(crate) to: SwitchId,
    pub(crate) distance: u8,
}

/// Shared path tables of a fabric in its present state.
#[derive(Clone, Debug)]
pub(crate) struct PathTables {
    climbs: UpwardHops,
    /// By switch; filled for leaves that traffic goes to.
    descents: Vec<OnceLock<DownwardHops>>,
    /// Bytes per second, by link; those inside hosts last.
    capacities: Vec<f64>,
    /// Bytes per second of the usable links up, by switch.
    capacities_up: Vec<f64>,
    /// The switch that sends on each link; none for links of hosts.
    senders: Vec<Option<SwitchId>>,
    /// Whether each link sends higher levels first.
    serves_levels: Vec<bool>,
    pods: PodTable,
    slopes: LinkSlopes,
    fabric_digest: OnceLock<u64>,
}

impl PathTables {
    /// The tables of `fabric`.
    pub(crate) fn new(fabric: &Fabric) -> Self {
        let climbs = UpwardHops::new(fabric);
        let links = || fabric.link_ids().chain(fabric.intra_host_link_ids());
        let capacity = |link| fabric.link_bandwidth(link).bytes_per_second();
        let capacities: Vec<f64> = links().map(capacity).collect();
        Self {
            senders: fabric.links().iter().map(|link| link.from.node.switch()).collect(),
            serves_levels: links()
                .map(|link| fabric.link_scheduler(link).serves_levels())
                .collect(),
            pods: PodTable::new(fabric),
            slopes: LinkSlopes::new(fabric),
            descents: vec![OnceLock::new(); fabric.switches().len()],
            capacities_up: (0..fabric.switches().len())
                .map(|switch| {
                    let hops = climbs.hops_from(SwitchId::from(switch)).iter();
                    hops.map(|hop| capacities[hop.link.index()]).sum()
                })
                .collect(),
            capacities,
            climbs,
            fabric_digest: OnceLock::new(),
        }
    }

    /// The digest of `fabric`, of which these are the tables; computed once.
    pub(crate) fn digest_fabric(&self, fabric: &Fabric) -> u64 {
        *self.fabric_digest.get_or_init(|| input_digest::digest_fabric(fabric))
    }

    /// Number of links between NICs and switches.
    pub(crate) fn link_count(&self) -> usize {
        self.senders.len()
    }

    /// Number of switches.
    pub(crate) fn switch_count(&self) -> usize {
        self.descents.len()
    }

    /// Links up from a switch, ascending.
    pub(crate) fn hops_up(&self, switch: SwitchId) -> &[SwitchHop] {
        self.climbs.hops_from(switch)
    }

    /// Hops down to a leaf.
    pub(crate) fn descents_to(&self, leaf: SwitchId) -> &DownwardHops {
        self.descents[leaf.index()].get_or_init(|| DownwardHops::new(&self.climbs, leaf))
    }

    /// All segments between two leaves, ascending.
    pub(crate) fn list_segments(&self, ends: &LeafEnds) -> Vec<Vec<LinkId>> {
        let mut search =
            SegmentSearch { tables: self, ends, so_far: Vec::new(), found: Vec::new() };
        search.extend_from(ends.from, ends.distance);
        search.found
    }

    /// Whether a switch on a path to a leaf has several links to choose from.
    pub(crate) fn has_choice(&self, switch: SwitchId, leaf: SwitchId) -> bool {
        let down = self.descents_to(leaf).find_switch(switch);
        down.map_or(self.hops_up(switch), |(_, hops)| hops).len() > 1
    }

    /// Capacity of a link in bytes per second (`B_e`).
    pub(crate) fn link_capacity(&self, link: LinkId) -> f64 {
        self.capacities[link.index()]
    }

    /// Whether some links are inside hosts.
    pub(crate) fn describes_interconnects(&self) -> bool {
        self.capacities.len() > self.senders.len()
    }

    /// The switch that sends on a link; none for a link of a host. Passes over all links of all
    /// flows read this and [`PathTables::serves_levels`], which stay in the cache, and not the
    /// links of the fabric.
    pub(crate) fn sender(&self, link: LinkId) -> Option<SwitchId> {
        self.senders[link.index()]
    }

    /// Whether a link sends higher levels first.
    pub(crate) fn serves_levels(&self, link: LinkId) -> bool {
        self.serves_levels[link.index()]
    }

    /// Bytes per second that the usable links up from a switch carry.
    pub(crate) fn capacity_up(&self, switch: SwitchId) -> f64 {
        self.capacities_up[switch.index()]
    }

    /// Which links climb.
    pub(crate) fn slopes(&self) -> &LinkSlopes {
        &self.slopes
    }

    /// The pods.
    pub(crate) fn pods(&self) -> &PodTable {
        &self.pods
    }
}

/// Links that flows may share: one of a host, or those above a leaf or pod in one direction. Flows
/// that leave a leaf have the same links to choose from, and so have those that enter it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkArea(u32);

impl LinkArea {
    pub(crate) fn of_host_link(link: LinkId) -> Self {
        Self(link.index() as u32)
    }

    /// Its number, less than [`PathTables::area_count`].
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl PathTables {
    /// Number of areas: each link, then each switch and each pod in both directions.
    pub(crate) fn area_count(&self) -> usize {
        self.capacities.len() + 2 * (self.switch_count() + self.pods.pod_count())
    }

    /// The areas that paths between two leaves cross.
    pub(crate) fn for_each_area(&self, ends: &LeafEnds, mut visit: impl FnMut(LinkArea)) {
        let first = self.capacities.len();
        visit(LinkArea((first + 2 * ends.from.index()) as u32));
        visit(LinkArea((first + 2 * ends.to.index() + 1) as u32));
        if ends.distance > 2 {
            let first = first + 2 * self.switch_count();
            let [near, far] = [ends.from, ends.to].map(|leaf| self.pods.pod_of(leaf));
            near.into_iter().for_each(|pod| visit(LinkArea((first + 2 * pod as usize) as u32)));
            far.into_iter().for_each(|pod| visit(LinkArea((first + 2 * pod as usize + 1) as u32)));
        }
    }
}

/// A depth-first listing of all segments between two leaves.
struct SegmentSearch<'a> {
    tables: &'a PathTables,
    ends: &'a LeafEnds,
    so_far: Vec<LinkId>,
    found: Vec<Vec<LinkId>>,
}

impl SegmentSearch<'_> {
    /// Completes the links so far, which lead to `at`, with `left` more in every possible way.
    fn extend_from(&mut self, at: SwitchId, left: u8) {
        let (tables, to) = (self.tables, self.ends.to);
        if at == to && left == 0 {
            self.found.push(self.so_far.clone());
            return;
        }
        let hops = match tables.descents_to(to).find_switch(at) {
            Some((distance, hops)) if distance == left => hops,
            None if left > 1 => tables.hops_up(at),
            _ => return,
        };
        for hop in hops {
            self.so_far.push(hop.link);
            self.extend_from(hop.to, left - 1);
            self.so_far.pop();
        }
    }
}

/// Parts of a fabric that only core switches join: leaves and spines with cables among them.
#[derive(Clone, Debug)]
pub(crate) struct PodTable {
    /// By switch; cores are in none.
    pod_of: Vec<Option<u32>>,
    /// Bytes per second between each pod and the cores.
    capacities: Vec<f64>,
}

impl PodTable {
    fn new(fabric: &Fabric) -> Self {
        let switches = fabric.switches().len();
        let mut pods = Self { pod_of: vec![None; switches], capacities: Vec::new() };
        for leaf in fabric.switches_of_tier(Tier::Leaf) {
            if pods.pod_of[leaf.index()].is_none() {
                pods.fill_pod(fabric, leaf);
            }
        }
        pods
    }

    /// Collects everything that `leaf` reaches below the cores in a new pod.
    fn fill_pod(&mut self, fabric: &Fabric, leaf: SwitchId) {
        let pod = self.capacities.len() as u32;
        let mut capacity = 0.0;
        let mut reached = vec![leaf];
        self.pod_of[leaf.index()] = Some(pod);
        while let Some(switch) = reached.pop() {
            let links = fabric.up_links(switch).iter().chain(fabric.down_links(switch));
            for link in links {
                let Some(next) = fabric.switch_after(*link) else {
                    continue;
                };
                if fabric.switch(next).tier == Tier::Core {
                    let usable = f64::from(u8::from(fabric.is_usable(*link)));
                    capacity += usable * fabric.link(*link).bandwidth.bytes_per_second();
                } else if self.pod_of[next.index()].is_none() {
                    self.pod_of[next.index()] = Some(pod);
                    reached.push(next);
                }
            }
        }
        self.capacities.push(capacity);
    }

    /// The pod of a leaf or spine.
    pub(crate) fn pod_of(&self, switch: SwitchId) -> Option<u32> {
        self.pod_of[switch.index()]
    }

    /// Bytes per second that a pod may send to the cores; as many come back.
    pub(crate) fn pod_capacity(&self, pod: usize) -> f64 {
        self.capacities[pod]
    }

    /// Number of pods.
    pub(crate) fn pod_count(&self) -> usize {
        self.capacities.len()
    }
}
