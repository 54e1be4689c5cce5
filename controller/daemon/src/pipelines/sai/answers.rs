//! What travels against a flow: acknowledgements and congestion notifications of its receiver.
//!
//! SAI P4 matches no opcode of RoCEv2, so answers cannot have a level of their own. A sender's
//! window waits for them all the same. The decision: where no flow is planned from a receiver to
//! its sender, the receiver's leaf gives that pair the level of the job and leads it over the path
//! of the flow, on whose links the plan has spread the jobs. Where a flow is planned, answers
//! share its path and its level.

use std::collections::BTreeSet;

use planner::{Plan, PlannedFlow};
use topology::{Fabric, LinkId, NicId};

/// The pairs of NICs between which a plan has flows.
pub(super) struct AnsweredPairs(BTreeSet<[NicId; 2]>);

impl AnsweredPairs {
    pub(super) fn new(fabric: &Fabric, plan: &Plan) -> Self {
        let pairs = plan.flows.iter().map(|flow| fabric.first_ports([flow.src, flow.dst]));
        Self(pairs.collect())
    }

    /// Whether only answers travel from the receiver of a flow to its sender.
    pub(super) fn has_no_flow_back(&self, fabric: &Fabric, flow: &PlannedFlow) -> bool {
        let [src, dst] = fabric.first_ports([flow.src, flow.dst]);
        !self.0.contains(&[dst, src])
    }
}

/// The link by which answers leave the leaf of a flow's receiver if they take the flow's path: the
/// other direction of the one by which the flow comes to that leaf.
pub(super) fn link_back(fabric: &Fabric, flow: &PlannedFlow) -> Option<LinkId> {
    let leaf = fabric.leaf_of(flow.dst);
    let mut links = flow.links.iter();
    let arrival = links.find(|link| fabric.switch_after(**link) == Some(leaf))?;
    Some(arrival.reverse())
}
