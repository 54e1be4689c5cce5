//! What a plan asks of each switch: the flows that pass it, the pairs of NICs that have a path of
//! their own there, and what the NICs of a leaf send.
//!
//! Made once for a lowering; the modules beside this one look up the switch they make rows for. The
//! decision: everything of a plan that a row may follow from is here, by switch, so that two
//! indexes say which switches have the same rows under two plans. Ranks count by their order at a
//! switch: a job that arrives or departs elsewhere changes nearly all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use planner::{Plan, PlannedFlow, PlannedJob, PlannedRule};
use topology::{Fabric, LinkId, NicId, SwitchId};

use super::job_classify::{self, SentFlow, sent_flows};

/// A plan by switch.
#[derive(Debug, Default)]
pub(super) struct PlanIndex {
    common: CommonInputs,
    switches: Vec<SwitchPlan>,
    /// The flows that jobs send from each NIC, in the order of the plan.
    pub(super) sent: BTreeMap<NicId, Vec<SentFlow>>,
}

/// What rows of all leaves may follow from.
#[derive(Debug, Default, PartialEq)]
struct CommonInputs {
    levels: u8,
    /// The rules, each with the number and the level of its job.
    rules: Vec<(PlannedRule, Option<(u32, u8)>)>,
}

/// The part of a plan that concerns one switch, without what the NICs of a leaf send.
#[derive(Debug, Default)]
pub(super) struct SwitchPlan {
    /// Pinned flows that leave the switch for another one, in the order of the plan.
    pub(super) passing: Vec<PassingFlow>,
    /// Flows without a port, by the NIC that receives them, whichever port of it.
    pub(super) pairs: BTreeMap<NicId, PairLinks>,
    /// Pairs of NICs whose flows of no job are counted, at the leaf of the first.
    counted: Vec<(NicId, NicId)>,
    /// The positions of the leaves that passing flows and pairs lead to: all of a NIC, and those that
    /// it is reached by now.
    leaves: BTreeSet<usize>,
}

/// A pinned flow at a switch on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassingFlow {
    pub(super) src: NicId,
    pub(super) dst: NicId,
    pub(super) udp_src_port: u16,
    /// The number of its job.
    pub(super) job: NonZeroU32,
    /// The link by which it leaves.
    pub(super) link: LinkId,
}

/// The links by which flows without a port leave a switch for one NIC.
#[derive(Clone, Debug, Default)]
pub(super) struct PairLinks {
    /// The rank of the first of their jobs.
    pub(super) rank: u32,
    pub(super) links: BTreeSet<LinkId>,
}

impl PlanIndex {
    pub(super) fn new(fabric: &Fabric, plan: &Plan) -> Self {
        let rules = plan.rules.iter().map(|rule| {
            let job = plan.jobs.get(rule.job).map(|job| (job.number, job.level));
            (rule.clone(), job)
        });
        let common = CommonInputs { levels: plan.levels, rules: rules.collect() };
        let switches = fabric.switch_ids().map(|_| SwitchPlan::default()).collect();
        let mut index = Self { common, switches, sent: sent_flows(fabric, plan) };
        for flow in plan.flows.iter().filter(|flow| flow.pinned) {
            if let Some(job) = plan.jobs.get(flow.job) {
                index.add_flow(fabric, flow, job);
            }
        }
        for pair in &plan.counted_pairs {
            index.switches[fabric.leaf_of(pair.0).index()].counted.push(*pair);
        }
        index
    }

    /// Adds a pinned flow to the switches that it passes.
    fn add_flow(&mut self, fabric: &Fabric, flow: &PlannedFlow, job: &PlannedJob) {
        let leaves = [fabric.leaves_of(flow.dst), fabric.arrival_leaves(flow.dst)];
        let leaves = leaves.map(|leaves| fabric.destination_position(leaves));
        for &link in flow.links.iter().filter(|link| fabric.switch_after(**link).is_some()) {
            let Some(switch) = fabric.link(link).from.node.switch() else {
                continue;
            };
            let switch = &mut self.switches[switch.index()];
            switch.leaves.extend(leaves.into_iter().flatten());
            match (flow.udp_src_port, NonZeroU32::new(job.number)) {
                (Some(udp_src_port), Some(job)) => {
                    let (src, dst) = (flow.src, flow.dst);
                    switch.passing.push(PassingFlow { src, dst, udp_src_port, job, link });
                }
                // The planner gives no job the number 0.
                (Some(_), None) => {}
                (None, _) => {
                    let pair = switch
                        .pairs
                        .entry(fabric.first_port(flow.dst))
                        .or_insert_with(|| PairLinks { rank: job.rank, links: BTreeSet::new() });
                    pair.rank = pair.rank.min(job.rank);
                    pair.links.insert(link);
                }
            }
        }
    }

    /// The part of the plan that concerns a switch.
    pub(super) fn at(&self, switch: SwitchId) -> &SwitchPlan {
        &self.switches[switch.index()]
    }

    /// Whether all that rows of a switch with these NICs may follow from is the same in both.
    pub(super) fn is_same_at(&self, other: &Self, switch: SwitchId, nics: &[NicId]) -> bool {
        let [now, before] = [self, other].map(|index| index.switches.get(switch.index()));
        self.common == other.common
            && now.zip(before).is_some_and(|(now, before)| now.asks_for_same(before))
            && job_classify::is_same_at([&self.sent, &other.sent], nics)
    }
}

impl SwitchPlan {
    /// Whether flows or pairs lead from the switch to the leaf at a position.
    pub(super) fn leads_to(&self, leaf: usize) -> bool {
        self.leaves.contains(&leaf)
    }

    /// The NICs of the pairs, that of the first job first, with the links to each.
    pub(super) fn pairs_by_rank(&self) -> Vec<(&NicId, &PairLinks)> {
        let mut pairs: Vec<(&NicId, &PairLinks)> = self.pairs.iter().collect();
        pairs.sort_by_key(|(nic, pair)| (pair.rank, **nic));
        pairs
    }

    /// Whether rows follow alike from both.
    fn asks_for_same(&self, other: &Self) -> bool {
        self.passing == other.passing
            && self.counted == other.counted
            && self.leaves == other.leaves
            && self.links_by_rank().eq(other.links_by_rank())
    }

    fn links_by_rank(&self) -> impl Iterator<Item = (&NicId, &BTreeSet<LinkId>)> {
        self.pairs_by_rank().into_iter().map(|(nic, pair)| (nic, &pair.links))
    }
}
