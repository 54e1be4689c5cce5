//! The equal-cost paths of flows, from NIC to NIC.
//!
//! The rule for next hops is in [`topology`]. It is evaluated once for every leaf that receives
//! traffic and kept, because all baselines need the same result, also at later events of an
//! unchanged fabric.

use std::collections::{BTreeMap, VecDeque};

use planner::{Flow, Job, PlanInput};
use topology::{Fabric, LinkId, NextHops, NicId, SwitchId, next_hops};

use crate::switch_hash::SwitchHash;

/// Ways through a fabric towards every leaf that some flow of a known job ends at.
#[derive(Clone, Debug)]
pub struct EqualCostRoutes {
    fabric: Fabric,
    towards: BTreeMap<SwitchId, NextHops>,
    hash: SwitchHash,
}

impl EqualCostRoutes {
    /// Those of no job yet.
    pub fn new(fabric: &Fabric) -> Self {
        let hash = SwitchHash::default();
        Self { fabric: fabric.clone(), towards: BTreeMap::new(), hash }
    }

    /// With switches that hash like that where a flow follows its hash.
    #[must_use]
    pub fn with_hash(self, hash: SwitchHash) -> Self {
        Self { hash, ..self }
    }

    /// How its switches hash.
    pub fn hash(&self) -> SwitchHash {
        self.hash
    }

    /// The ways that the flows of `input` may take.
    pub fn for_input(input: &PlanInput) -> Self {
        let mut routes = Self::new(&input.fabric);
        input.jobs.iter().for_each(|job| routes.add_job(job));
        routes
    }

    /// The ways that the flows of `job` may take, too.
    pub fn add_job(&mut self, job: &Job) {
        let Self { fabric, towards, .. } = self;
        for flow in &job.flows {
            let leaf = fabric.leaf_of(flow.dst);
            towards.entry(leaf).or_insert_with(|| next_hops(fabric, leaf));
        }
    }

    /// The path of a flow on which every switch chooses for itself: `choose` gets the switch and
    /// the links it may take, ascending and never empty. Empty where there is no way.
    pub fn choose_path(
        &self,
        flow: &Flow,
        mut choose: impl FnMut(SwitchId, &[LinkId]) -> LinkId,
    ) -> Vec<LinkId> {
        let Some((up, hops, down)) = self.ways(flow) else {
            return Vec::new();
        };
        let mut path = vec![up];
        let mut at = self.fabric.leaf_of(flow.src);
        while !hops.destination().contains(at) {
            let candidates = hops.links_at(at);
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

    /// All paths of a flow, in ascending order of their links; none where there is no way.
    pub fn all_paths(&self, flow: &Flow) -> Vec<Vec<LinkId>> {
        let Some((up, hops, down)) = self.ways(flow) else {
            return Vec::new();
        };
        let between = hops.paths_from(&self.fabric, self.fabric.leaf_of(flow.src));
        between.into_iter().map(|links| [&[up], &links[..], &[down]].concat()).collect()
    }

    /// A value for every switch that a flow may pass, worked out from its last leaf back: that leaf
    /// has `end`, any other what `join` makes of the links it may take, ascending, each with the
    /// value of the switch behind it.
    pub fn fold_backwards<V: Copy>(
        &self,
        flow: &Flow,
        end: V,
        join: impl Fn(&[(LinkId, V)]) -> V,
    ) -> BTreeMap<SwitchId, V> {
        let to = self.fabric.leaf_of(flow.dst);
        let mut values = BTreeMap::from([(to, end)]);
        if let Some(hops) = self.towards.get(&to) {
            self.value_at(self.fabric.leaf_of(flow.src), hops, &join, &mut values);
        }
        values
    }

    fn value_at<V: Copy>(
        &self,
        at: SwitchId,
        hops: &NextHops,
        join: &impl Fn(&[(LinkId, V)]) -> V,
        values: &mut BTreeMap<SwitchId, V>,
    ) -> V {
        if let Some(known) = values.get(&at) {
            return *known;
        }
        let links = hops.links_at(at).iter();
        let behind: Vec<(LinkId, V)> = links
            .filter_map(|link| {
                let next = self.fabric.switch_after(*link)?;
                Some((*link, self.value_at(next, hops, join, values)))
            })
            .collect();
        let value = join(&behind);
        values.insert(at, value);
        value
    }

    /// A path for each flow of a job: those of a NIC pair take the paths of the pair in turn, in
    /// the order into which `order` puts them.
    pub fn paths_in_turn(
        &self,
        job: &Job,
        mut order: impl FnMut(Vec<Vec<LinkId>>) -> Vec<Vec<LinkId>>,
    ) -> Vec<Vec<LinkId>> {
        // The paths of each pair, of which the front one is next.
        let mut pairs: BTreeMap<(NicId, NicId), VecDeque<Vec<LinkId>>> = BTreeMap::new();
        let path_of = |flow: &Flow| {
            let ordered = || order(self.all_paths(flow)).into();
            let paths = pairs.entry((flow.src, flow.dst)).or_insert_with(ordered);
            let next = paths.pop_front().unwrap_or_default();
            paths.push_back(next.clone());
            next
        };
        job.flows.iter().map(path_of).collect()
    }

    /// The link of the sender, the ways between the leaves, and the link of the receiver.
    fn ways(&self, flow: &Flow) -> Option<(LinkId, &NextHops, LinkId)> {
        let (up, down) = self.host_links(flow)?;
        Some((up, self.towards.get(&self.fabric.leaf_of(flow.dst))?, down))
    }

    /// The links of both hosts, if they may be used and the last leaf too.
    fn host_links(&self, flow: &Flow) -> Option<(LinkId, LinkId)> {
        let up = self.fabric.nic(flow.src).uplink;
        let down = self.fabric.nic(flow.dst).uplink.reverse();
        (self.fabric.is_usable(up) && self.fabric.is_usable(down)).then_some((up, down))
    }
}
