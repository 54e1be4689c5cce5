//! What one switch's tables are made from: the fabric, the plan, and where the switch stands.
//!
//! [`Situation`] is made once per lowering, a [`SwitchContext`] once per switch; the modules beside
//! this one turn a site into the rows of their table. The decision: everything that more than one
//! table needs (usable next hops, which flows concern which switch) is found here in one pass, so
//! that tables that refer to each other are made from the same facts.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use p4::fabric::PortNumber;
use planner::{Plan, PlannedFlow};
use topology::{AvailabilityChange, Fabric, LinkId, NextHops, NicId, SwitchId, next_hops};

use super::job_classify::adoption_rules;
use super::numbering::{FabricNumbering, LeafWiring};

/// A fabric as it is, and what is planned on it.
pub(super) struct LoweringContext<'a> {
    pub(super) wiring: &'a FabricNumbering,
    pub(super) fabric: &'a Fabric,
    pub(super) plan: &'a Plan,
    /// Usable ways to each leaf, in the order of [`FabricNumbering::number_leaves`].
    hops: Vec<NextHops>,
    /// Ways that work, drained or not; nothing where nothing is drained.
    standing: Option<Vec<NextHops>>,
    /// Pinned flows by the switches on their way, with the link each leaves by.
    hops_of_flows: BTreeMap<SwitchId, Vec<(&'a PlannedFlow, LinkId)>>,
    /// What the jobs send from each NIC, in the order of the plan.
    sent: BTreeMap<NicId, Vec<SentFlow>>,
}

/// A flow of a job, where it enters the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SentFlow {
    pub(super) job: NonZeroU32,
    /// Where it goes.
    pub(super) to: NicId,
    pub(super) udp_src_port: u16,
    /// Whether a pin tells its job.
    pub(super) pinned: bool,
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
            sent: BTreeMap::new(),
        };
        for flow in &plan.flows {
            context.index_flow(flow);
        }
        context
    }

    /// Files a flow under the switches and NICs that it concerns.
    fn index_flow(&mut self, flow: &'a PlannedFlow) {
        let Some(job) = self.job_number(flow) else {
            return;
        };
        let sent =
            SentFlow { job, to: flow.dst, udp_src_port: flow.udp_src_port, pinned: flow.pinned };
        self.sent.entry(flow.src).or_default().push(sent);
        for &link in flow.links.iter().filter(|_| flow.pinned) {
            if let Some(switch) = self.fabric.link(link).from.node.switch() {
                self.hops_of_flows.entry(switch).or_default().push((flow, link));
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
    let switches = fabric.switch_ids();
    let undrain = drained.iter().map(|link| AvailabilityChange::UndrainLink(*link));
    let undrain = undrain.chain(switches.map(AvailabilityChange::UndrainSwitch));
    (!drained.is_empty()).then(|| fabric.with_changes(undrain))
}

/// One switch of a [`Situation`].
pub(super) struct SwitchContext<'a> {
    pub(super) shared: &'a LoweringContext<'a>,
    pub(super) switch: SwitchId,
}

/// Another leaf, seen from a switch that has a way to it.
pub(super) struct ReachableLeaf<'a> {
    pub(super) leaf: &'a LeafWiring,
    /// Links that may be used towards it, ascending, at least one. Where all are drained, those
    /// that work: to drain the last way is not to cut it.
    pub(super) usable: &'a [LinkId],
    /// Links that packets without a pin take. A spine whose own cable to the leaf is drained still
    /// has the nearest way, and gets packets for it only from who does not know of the drain yet:
    /// led on over a core, they might come back.
    pub(super) spread: &'a [LinkId],
    /// Links that work towards it, drained or not, ascending.
    pub(super) standing: &'a [LinkId],
    /// Links that may be used while everything works, ascending.
    pub(super) choices: &'a [LinkId],
}

impl<'a> SwitchContext<'a> {
    /// The other leaves that this switch has a way to, by id. Tables about leaves hold exactly
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

    /// Whether a flow to `leaf` is told here which way to go: at the leaf where it enters, whose
    /// pins also name the job, and wherever there is more than one way.
    pub(super) fn chooses_path(&self, leaf: &ReachableLeaf<'_>) -> bool {
        let widest = leaf.choices.len().max(leaf.usable.len());
        self.as_leaf().is_some() || widest > 1 || leaf.spread != leaf.usable
    }

    /// Pinned flows that leave this switch for another one, with the link each takes.
    pub(super) fn passing_flows(&self) -> impl Iterator<Item = (&'a PlannedFlow, LinkId)> {
        let fabric = self.shared.fabric;
        let flows = self.shared.hops_of_flows.get(&self.switch);
        let flows = flows.into_iter().flatten().copied();
        flows.filter(move |(_, link)| fabric.switch_after(*link).is_some())
    }

    /// What the jobs send from a NIC.
    pub(super) fn sent_from(&self, nic: NicId) -> &'a [SentFlow] {
        self.shared.sent.get(&nic).map_or(&[], Vec::as_slice)
    }

    /// The numbers of all jobs whose traffic enters the fabric here, or may by a rule.
    pub(super) fn entering_jobs(&self) -> BTreeSet<NonZeroU32> {
        let sent = self.nics().flat_map(|nic| self.sent_from(nic));
        let plan = self.shared.plan;
        let nics: Vec<NicId> = self.nics().collect();
        let rules = plan.rules.iter().filter(|rule| adoption_rules::is_rule_at(rule, &nics));
        let adopted = rules.filter_map(|rule| NonZeroU32::new(plan.jobs.get(rule.job)?.number));
        sent.map(|sent| sent.job).chain(adopted).collect()
    }
}
