//! The input for one switch's tables: fabric, plan, and the switch's place in both.
//!
//! [`LoweringContext`] is built once per lowering, a [`SwitchContext`] once per switch; the modules
//! beside this one turn it into the rows of their tables. The decision: everything that more than
//! one table needs (usable next hops, the flows of each switch) is looked up here, so that tables
//! that refer to each other agree.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use p4::fabric::PortNumber;
use planner::Plan;
use topology::{Fabric, LinkId, NicId, SwitchId};

use super::job_classify::adoption_rules;
use super::numbering::FabricNumbering;
use super::plan_index::{PairLinks, PlanIndex, SwitchPlan};
use crate::pipelines::switch_routes::{LeafLinks, SwitchRoutes};

/// A fabric with its failures, and the plan on it.
pub(super) struct LoweringContext<'a> {
    pub(super) wiring: &'a FabricNumbering,
    pub(super) fabric: &'a Fabric,
    pub(super) plan: &'a Plan,
    /// The ways of the fabric to the leaves, by their positions in [`FabricNumbering::leaves`].
    pub(super) routes: &'a SwitchRoutes,
    /// The plan by switch.
    pub(super) index: &'a PlanIndex,
}

/// One switch of a [`LoweringContext`].
pub(super) struct SwitchContext<'a> {
    pub(super) shared: &'a LoweringContext<'a>,
    pub(super) switch: SwitchId,
}

/// Another leaf, or a class of them, from a switch that has a path to it.
#[derive(Clone, Debug)]
pub(super) struct ReachableLeaf<'a> {
    pub(super) links: LeafLinks<'a>,
    /// Links that may be used while everything works, ascending.
    pub(super) choices: &'a [LinkId],
    /// Whether the switch is a leaf itself.
    pub(super) is_from_leaf: bool,
}

/// The path of all packets from a switch to one NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NicPath {
    pub(super) nic: NicId,
    /// The number of the NIC in the tables.
    pub(super) id: u16,
    /// The links of the plan; several where flows between other pairs take other links.
    pub(super) links: Vec<LinkId>,
    /// The position of the leaves that the NIC is connected to.
    pub(super) leaf: usize,
    /// Whether pins of this switch lead to the NIC.
    pub(super) has_pins: bool,
}

impl ReachableLeaf<'_> {
    /// Whether the switch chooses the path of a pinned flow to the leaf: at the leaf where it
    /// enters, whose pins also name the job, and wherever there is more than one path.
    pub(super) fn chooses_path(&self) -> bool {
        let widest = self.choices.len().max(self.links.usable.len());
        self.is_from_leaf || widest > 1 || self.links.spread != self.links.usable
    }

    /// Whether there is a path that is named by this link.
    pub(super) fn has_path(&self, link: LinkId) -> bool {
        let LeafLinks { usable, standing, .. } = self.links;
        [self.choices, usable, standing].iter().any(|links| links.contains(&link))
    }
}

impl<'a> SwitchContext<'a> {
    /// The links to the leaf at a position, if there is a way.
    pub(super) fn links_to(&self, leaf: usize) -> Option<LeafLinks<'a>> {
        self.shared.routes.links(self.shared.fabric, self.switch, leaf)
    }

    /// The way to the leaf at a position, if there is one. Tables about leaves hold exactly those
    /// with a way, so no row of one refers to a row that another lacks.
    fn seen_at(&self, leaf: usize) -> Option<ReachableLeaf<'a>> {
        self.links_to(leaf).map(|links| self.seen_over(leaf, links))
    }

    /// The leaf at a position, over these links.
    pub(super) fn seen_over<'b>(&self, leaf: usize, links: LeafLinks<'b>) -> ReachableLeaf<'b>
    where
        'a: 'b,
    {
        let choices = self.shared.wiring.choices(self.switch, leaf);
        ReachableLeaf { links, choices, is_from_leaf: self.is_leaf() }
    }

    /// The leaves at which packets to a NIC arrive now, if there is a way to them.
    pub(super) fn seen_nic(&self, nic: NicId) -> Option<ReachableLeaf<'a>> {
        let fabric = self.shared.fabric;
        self.seen_at(fabric.destination_position(fabric.arrival_leaves(nic))?)
    }

    /// Whether this switch is a leaf.
    pub(super) fn is_leaf(&self) -> bool {
        self.shared.wiring.position(self.switch).is_some()
    }

    /// The NICs connected here, by port; none but at a leaf.
    pub(super) fn nics(&self) -> &'a [NicId] {
        self.shared.wiring.leaf(self.switch).map_or(&[], |leaf| &leaf.nics)
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

    /// The part of the plan that concerns this switch.
    pub(super) fn planned(&self) -> &'a SwitchPlan {
        self.shared.index.at(self.switch)
    }

    /// Whether pinned flows to a NIC leave this switch for another one.
    pub(super) fn has_flows_to(&self, nic: NicId) -> bool {
        let fabric = self.shared.fabric;
        self.planned().passing.iter().any(|flow| fabric.first_port(flow.dst) == nic)
    }

    /// The NICs that this switch sends to by a path of the plan whatever the port of the sender,
    /// those of the first jobs if table or selector have no room for all.
    ///
    /// A pin needs a five-tuple, so this is the one way to choose a path for packets whose port is
    /// unknown. Where flows to one NIC have several links, packets are spread over these.
    pub(super) fn nic_paths(&self) -> Vec<NicPath> {
        let SwitchPlan { passing, pairs, .. } = self.planned();
        if pairs.is_empty() {
            return Vec::new();
        }
        let fabric = self.shared.fabric;
        let pinned: BTreeSet<NicId> =
            passing.iter().map(|flow| fabric.first_port(flow.dst)).collect();
        let by_rank = self.planned().pairs_by_rank().into_iter();
        let paths =
            by_rank.filter_map(|(nic, pair)| self.nic_path(*nic, pair, pinned.contains(nic)));
        paths.take(self.shared.wiring.nic_paths_max(self.switch)).collect()
    }

    fn nic_path(&self, nic: NicId, pair: &PairLinks, has_pins: bool) -> Option<NicPath> {
        let wiring = self.shared.wiring;
        let fabric = self.shared.fabric;
        let leaf = fabric.destination_position(fabric.leaves_of(nic))?;
        let seen = self.seen_nic(nic).filter(ReachableLeaf::chooses_path)?;
        let links = pair.links.iter().copied();
        let links: Vec<LinkId> = links.filter(|link| seen.links.usable.contains(link)).collect();
        // The group of the leaf does the same.
        let is_spread = links.is_empty() || links == seen.links.spread;
        let id = wiring.nic_number(nic).filter(|_| !is_spread)?;
        Some(NicPath { nic, id, links, leaf, has_pins })
    }

    /// The ports of NICs with two by which this leaf sends to them.
    pub(super) fn arrival_ports(&self) -> Vec<NicId> {
        let fabric = self.shared.fabric;
        let bonds = self.nics().iter().filter(|port| fabric.nic(**port).bond.is_some());
        let used = bonds.filter(|port| fabric.arrival_port(self.switch, **port) == Some(**port));
        used.copied().collect()
    }

    /// The numbers of all jobs whose traffic enters the fabric here, or may through a rule.
    pub(super) fn entering_jobs(&self) -> BTreeSet<NonZeroU32> {
        let nics = self.nics();
        let sent = nics.iter().filter_map(|nic| self.shared.index.sent.get(nic)).flatten();
        let LoweringContext { fabric, plan, .. } = *self.shared;
        let rules = plan.rules.iter().filter(|rule| adoption_rules::is_rule_at(fabric, rule, nics));
        let adopted = rules.filter_map(|rule| NonZeroU32::new(plan.jobs.get(rule.job)?.number));
        sent.map(|sent| sent.job).chain(adopted).collect()
    }
}
