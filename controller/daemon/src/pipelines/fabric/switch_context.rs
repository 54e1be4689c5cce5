//! The input for one switch's tables: fabric, plan, and the switch's place in both.
//!
//! [`LoweringContext`] is built once per lowering, a [`SwitchContext`] once per switch; the modules
//! beside this one turn it into the rows of their tables. The decision: everything that more than
//! one table needs (usable next hops, the flows of each switch) is computed here in one pass, so
//! that tables that refer to each other agree.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use p4::fabric::{IpPrefix, PortNumber};
use planner::{Plan, PlannedFlow};
use topology::{AvailabilityChange, Fabric, LinkId, NextHops, NicId, SwitchId, next_hops};

use super::job_classify::{SentFlow, adoption_rules, sent_flows};
use super::numbering::{FabricNumbering, LeafWiring};

/// A fabric with its failures, and the plan on it.
pub(super) struct LoweringContext<'a> {
    pub(super) wiring: &'a FabricNumbering,
    pub(super) fabric: &'a Fabric,
    pub(super) plan: &'a Plan,
    /// Usable next hops to each leaf, in the order of [`FabricNumbering::leaves`].
    hops: Vec<NextHops>,
    /// Next hops that work, drained or not; none if nothing is drained.
    standing: Option<Vec<NextHops>>,
    /// Pinned flows by the switches on their path, with the link each leaves by.
    hops_of_flows: BTreeMap<SwitchId, Vec<(&'a PlannedFlow, LinkId)>>,
    /// The flows that jobs send from each NIC, in the order of the plan.
    pub(super) sent: BTreeMap<NicId, Vec<SentFlow>>,
    /// Flows without a port, by the switches on their path and the NIC that receives them.
    pair_links: BTreeMap<SwitchId, BTreeMap<NicId, PairLinks>>,
}

/// The links by which flows without a port leave a switch for one NIC.
#[derive(Clone, Debug, Default)]
struct PairLinks {
    /// The rank of the first of their jobs.
    rank: u32,
    links: BTreeSet<LinkId>,
}

/// The path of all packets from a switch to one NIC.
pub(super) struct NicPath<'a> {
    /// The number of the NIC in the tables.
    pub(super) id: u16,
    /// Its address.
    pub(super) prefix: IpPrefix,
    /// The links of the plan; several where flows between other pairs take other links.
    pub(super) links: Vec<LinkId>,
    /// The leaf that the NIC is connected to.
    pub(super) seen: ReachableLeaf<'a>,
    /// Whether pins of this switch lead to the NIC.
    pub(super) has_pins: bool,
}

impl<'a> LoweringContext<'a> {
    pub(super) fn new(wiring: &'a FabricNumbering, fabric: &'a Fabric, plan: &'a Plan) -> Self {
        let leaves = wiring.leaves().iter();
        let hops =
            |fabric: &Fabric| leaves.clone().map(|leaf| next_hops(fabric, leaf.switch)).collect();
        let mut context = Self {
            wiring,
            fabric,
            plan,
            hops: hops(fabric),
            standing: without_drains(fabric).map(|fabric| hops(&fabric)),
            hops_of_flows: BTreeMap::new(),
            sent: sent_flows(plan),
            pair_links: BTreeMap::new(),
        };
        for flow in &plan.flows {
            context.index_flow(flow);
        }
        context
    }

    /// Adds a pinned flow to the indexes by switch.
    fn index_flow(&mut self, flow: &'a PlannedFlow) {
        let Some(job) = self.plan.jobs.get(flow.job).filter(|_| flow.pinned) else {
            return;
        };
        for &link in flow.links.iter() {
            let Some(switch) = self.fabric.link(link).from.node.switch() else {
                continue;
            };
            if flow.udp_src_port.is_some() {
                self.hops_of_flows.entry(switch).or_default().push((flow, link));
            } else if self.fabric.switch_after(link).is_some() {
                let to_nics = self.pair_links.entry(switch).or_default();
                let pair = to_nics
                    .entry(flow.dst)
                    .or_insert_with(|| PairLinks { rank: job.rank, ..PairLinks::default() });
                pair.rank = pair.rank.min(job.rank);
                pair.links.insert(link);
            }
        }
    }

    /// The number of a flow's job; the planner gives none that is 0.
    pub(super) fn job_number(&self, flow: &PlannedFlow) -> Option<NonZeroU32> {
        NonZeroU32::new(self.plan.jobs.get(flow.job)?.number)
    }
}

/// The fabric without its drains, if it has any.
fn without_drains(fabric: &Fabric) -> Option<Fabric> {
    let cables = fabric.cables();
    let drained: Vec<LinkId> = cables.filter(|link| fabric.is_drained(*link)).collect();
    let of_links = drained.iter().map(|link| AvailabilityChange::UndrainLink(*link));
    let of_switches = fabric.switch_ids().map(AvailabilityChange::UndrainSwitch);
    (!drained.is_empty()).then(|| fabric.with_changes(of_links.chain(of_switches)))
}

/// One switch of a [`LoweringContext`].
pub(super) struct SwitchContext<'a> {
    pub(super) shared: &'a LoweringContext<'a>,
    pub(super) switch: SwitchId,
}

/// Another leaf, from a switch that has a path to it.
#[derive(Clone, Debug)]
pub(super) struct ReachableLeaf<'a> {
    pub(super) leaf: &'a LeafWiring,
    /// Links that may be used towards it, ascending, at least one. If all are drained, those that
    /// work: draining the last path must not disconnect the leaf.
    pub(super) usable: &'a [LinkId],
    /// Links that packets without a pin take. A core whose own cable to the leaf is drained keeps
    /// using it: it gets packets for the leaf only from switches without the drain yet.
    pub(super) spread: &'a [LinkId],
    /// Links that work towards it, drained or not, ascending.
    pub(super) standing: &'a [LinkId],
    /// Links that may be used while everything works, ascending.
    pub(super) choices: &'a [LinkId],
}

impl<'a> SwitchContext<'a> {
    /// The other leaves that this switch has a path to, by id. Tables about leaves hold exactly
    /// these, so no row of one refers to a row that another lacks.
    pub(super) fn reachable_leaves(&self) -> impl Iterator<Item = ReachableLeaf<'a>> {
        let switch = self.switch;
        let standing = self.shared.standing.as_ref().unwrap_or(&self.shared.hops);
        let hops = self.shared.hops.iter().zip(standing);
        let leaves = self.shared.wiring.leaves().iter().zip(hops);
        let is_leaf = self.as_leaf().is_some();
        let seen = leaves.map(move |(leaf, (usable, standing))| {
            let is_detour = usable.distance(switch) > standing.distance(switch);
            let (usable, standing) = (usable.links_at(switch), standing.links_at(switch));
            let usable = if usable.is_empty() { standing } else { usable };
            ReachableLeaf {
                leaf,
                usable,
                spread: if is_detour && !is_leaf { standing } else { usable },
                standing,
                choices: leaf.choices.links_at(switch),
            }
        });
        // A leaf has no next hop towards itself.
        seen.filter(|seen| !seen.usable.is_empty())
    }

    /// This switch as a leaf, if it is one.
    pub(super) fn as_leaf(&self) -> Option<&'a LeafWiring> {
        self.shared.wiring.leaf(self.switch)
    }

    /// The NICs connected here, by port; none but at a leaf.
    pub(super) fn nics(&self) -> impl Iterator<Item = NicId> + 'a {
        self.as_leaf().into_iter().flat_map(|leaf| leaf.nics.iter().copied())
    }

    /// Links that leave this switch, by port.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + 'a {
        self.shared.fabric.switch(self.switch).ports.values().copied()
    }

    /// Links that lead to other switches, by port.
    pub(super) fn fabric_links(&self) -> impl Iterator<Item = LinkId> + 'a {
        let fabric = self.shared.fabric;
        self.links().filter(move |link| fabric.switch_after(*link).is_some())
    }

    /// The port at which a link leaves this switch.
    pub(super) fn port(&self, link: LinkId) -> Option<PortNumber> {
        self.shared.wiring.port(link)
    }

    /// Whether this switch chooses the path of a pinned flow to `leaf`: at the leaf where it
    /// enters, whose pins also name the job, and wherever there is more than one path.
    pub(super) fn chooses_path(&self, leaf: &ReachableLeaf<'_>) -> bool {
        let widest = leaf.choices.len().max(leaf.usable.len());
        self.as_leaf().is_some() || widest > 1 || leaf.spread != leaf.usable
    }

    /// Pinned flows that leave this switch for another one, with the link each takes.
    pub(super) fn passing_flows(&self) -> impl Iterator<Item = (&'a PlannedFlow, LinkId)> {
        let fabric = self.shared.fabric;
        let hops = self.shared.hops_of_flows.get(&self.switch);
        hops.into_iter()
            .flatten()
            .copied()
            .filter(move |(_, link)| fabric.switch_after(*link).is_some())
    }

    /// The NICs that this switch sends to by a path of the plan whatever the port of the sender,
    /// those of the first jobs if table or selector have no room for all.
    ///
    /// A pin needs a five-tuple, so this is the one way to choose a path for packets whose port is
    /// unknown. Where flows to one NIC have several links, packets are spread over these.
    pub(super) fn nic_paths(&self) -> Vec<NicPath<'a>> {
        let Some(to_nics) = self.shared.pair_links.get(&self.switch) else {
            return Vec::new();
        };
        let passing = self.passing_flows();
        let pinned: BTreeSet<NicId> = passing.map(|(flow, _)| flow.dst).collect();
        let leaves = self.reachable_leaves().filter(|seen| self.chooses_path(seen));
        let leaves: BTreeMap<SwitchId, ReachableLeaf<'a>> =
            leaves.map(|seen| (seen.leaf.switch, seen)).collect();
        let mut by_rank: Vec<(&NicId, &PairLinks)> = to_nics.iter().collect();
        by_rank.sort_by_key(|(nic, pair)| (pair.rank, **nic));
        let paths = by_rank.into_iter().filter_map(|(nic, pair)| {
            let seen = leaves.get(&self.shared.fabric.leaf_of(*nic))?.clone();
            let links = pair.links.iter().copied();
            let links: Vec<LinkId> = links.filter(|link| seen.usable.contains(link)).collect();
            // The group of the leaf does the same.
            let is_spread = links.is_empty() || links == seen.spread;
            Some(NicPath {
                id: self.shared.wiring.nic_number(*nic).filter(|_| !is_spread)?,
                prefix: IpPrefix::from(self.shared.fabric.nic(*nic).ip),
                links,
                seen,
                has_pins: pinned.contains(nic),
            })
        });
        paths.take(self.shared.wiring.nic_paths_max(self.switch)).collect()
    }

    /// The numbers of all jobs whose traffic enters the fabric here, or may through a rule.
    pub(super) fn entering_jobs(&self) -> BTreeSet<NonZeroU32> {
        let sent = self.nics().filter_map(|nic| self.shared.sent.get(&nic)).flatten();
        let plan = self.shared.plan;
        let nics: Vec<NicId> = self.nics().collect();
        let rules = plan.rules.iter().filter(|rule| adoption_rules::is_rule_at(rule, &nics));
        let adopted = rules.filter_map(|rule| NonZeroU32::new(plan.jobs.get(rule.job)?.number));
        sent.map(|sent| sent.job).chain(adopted).collect()
    }
}
