//! The equal-cost paths of flows, from NIC to NIC.
//!
//! Which links lead where is [`topology`]'s rule; here it is asked once for every leaf that
//! receives something, since all baselines want the same answers, and want them again at the next
//! event of a fabric that has not changed.

use std::collections::BTreeMap;

use planner::{Flow, Input, Job};
use topology::{Fabric, LinkId, NextHops, SwitchId, next_hops};

/// Ways through a fabric towards every leaf that some flow of a known job ends at.
#[derive(Clone, Debug)]
pub struct Routes {
    fabric: Fabric,
    towards: BTreeMap<SwitchId, NextHops>,
}

impl Routes {
    /// Those of no job yet.
    pub fn new(fabric: &Fabric) -> Self {
        Self {
            fabric: fabric.clone(),
            towards: BTreeMap::new(),
        }
    }

    /// The ways that the flows of `input` may take.
    pub fn of(input: &Input) -> Self {
        let mut routes = Self::new(&input.fabric);
        input.jobs.iter().for_each(|job| routes.learn(job));
        routes
    }

    /// The ways that the flows of `job` may take, too.
    pub fn learn(&mut self, job: &Job) {
        let Self { fabric, towards } = self;
        for flow in &job.flows {
            let leaf = fabric.leaf_of(flow.dst);
            towards
                .entry(leaf)
                .or_insert_with(|| next_hops(fabric, leaf));
        }
    }

    /// All equal-cost paths of a flow, ascending; none where there is no way.
    pub fn paths(&self, flow: &Flow) -> Vec<Vec<LinkId>> {
        let Some((up, down)) = self.ends(flow) else {
            return Vec::new();
        };
        let hops = self.towards.get(&self.fabric.leaf_of(flow.dst));
        let from = self.fabric.leaf_of(flow.src);
        let segments = hops.map_or_else(Vec::new, |hops| hops.paths(&self.fabric, from));
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
