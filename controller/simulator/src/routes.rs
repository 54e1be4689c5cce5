//! The equal-cost paths of an input's flows, from NIC to NIC.
//!
//! Which links lead where is [`topology`]'s rule; here it is asked once for every leaf that
//! receives something, since all baselines want the same answers.

use std::collections::BTreeMap;

use planner::{Flow, Input};
use topology::{Fabric, LinkId, NextHops, SwitchId, next_hops};

/// Ways through a fabric towards every leaf that some flow ends at.
#[derive(Clone, Debug)]
pub struct Routes<'a> {
    fabric: &'a Fabric,
    towards: BTreeMap<SwitchId, NextHops>,
}

impl<'a> Routes<'a> {
    /// The ways that the flows of `input` may take.
    pub fn new(input: &'a Input) -> Self {
        let fabric = &input.fabric;
        let mut towards = BTreeMap::new();
        for flow in input.jobs.iter().flat_map(|job| &job.flows) {
            let leaf = fabric.leaf_of(flow.dst);
            towards
                .entry(leaf)
                .or_insert_with(|| next_hops(fabric, leaf));
        }
        Self { fabric, towards }
    }

    /// All equal-cost paths of a flow, ascending; none where there is no way.
    pub fn paths(&self, flow: &Flow) -> Vec<Vec<LinkId>> {
        let Some((up, down)) = self.ends(flow) else {
            return Vec::new();
        };
        let hops = self.towards.get(&self.fabric.leaf_of(flow.dst));
        let from = self.fabric.leaf_of(flow.src);
        let segments = hops.map_or_else(Vec::new, |hops| hops.paths(self.fabric, from));
        segments
            .iter()
            .map(|segment| [&[up], &segment[..], &[down]].concat())
            .collect()
    }

    /// The path of a flow on which every switch chooses for itself: `choose` gets the switch and
    /// the links it may take, ascending and never empty. Empty where there is no way.
    pub fn walk(&self, flow: &Flow, choose: impl Fn(SwitchId, &[LinkId]) -> LinkId) -> Vec<LinkId> {
        let (Some((up, down)), Some(hops)) = (
            self.ends(flow),
            self.towards.get(&self.fabric.leaf_of(flow.dst)),
        ) else {
            return Vec::new();
        };
        let mut path = vec![up];
        let mut at = self.fabric.leaf_of(flow.src);
        while at != hops.to() {
            let candidates = hops.at(at);
            if candidates.is_empty() {
                return Vec::new();
            }
            let link = choose(at, candidates);
            path.push(link);
            let Some(next) = self.fabric.switch_after(link) else {
                return Vec::new();
            };
            at = next;
        }
        path.push(down);
        path
    }

    /// The links of both hosts, if they may be used and the last leaf too.
    fn ends(&self, flow: &Flow) -> Option<(LinkId, LinkId)> {
        let up = self.fabric.nic(flow.src).uplink;
        let down = self.fabric.nic(flow.dst).uplink.reverse();
        (self.fabric.is_usable(up) && self.fabric.is_usable(down)).then_some((up, down))
    }
}
