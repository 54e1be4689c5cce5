//! The paths assigned so far, and the load of the links that follows.
//!
//! A job has a slot for as long as it exists, whatever jobs come and go beside it. Changes carry a
//! logical time: a group of flows is examined again only if something that it depends on changed
//! after its last examination.

use std::cell::Cell;
use std::sync::Arc;

use topology::{Fabric, LinkId, LinkPath, SwitchId, Tier};

use super::mean_rate;
use crate::input::Job;
use crate::link_occupancy::{LinkOccupancy, LinkShare};
use crate::path_tables::PathTables;
use crate::segment_search::{LeafEnds, PathSegment, SegmentSearch};
use crate::traffic::{FlowRoute, IndexedTraffic, JobRoutes, LeafPair};

/// A flow: the slot of its job and its position there.
pub(crate) type FlowSlot = (usize, usize);

/// The state that choosing paths reads and changes.
#[derive(Clone, Debug)]
pub(crate) struct PathAssignment {
    pub(super) tables: Arc<PathTables>,
    search: SegmentSearch,
    pub(super) occupancy: LinkOccupancy,
    pub(super) job_slots: Vec<Option<AssignedJob>>,
    pub(super) changes: LoadChanges,
}

/// A job with the paths of its flows.
#[derive(Clone, Debug)]
pub(crate) struct AssignedJob {
    pub(super) routes: Arc<JobRoutes>,
    /// Bytes per second of each flow; none for a flow that sends nothing.
    rates: Vec<Option<f64>>,
    /// Empty where a flow is on no path.
    pub(crate) paths: Vec<LinkPath>,
    /// Which flows had their path before this plan.
    pub(super) was_running: Vec<bool>,
    /// Logical time of the last examination of each group; 0 is never.
    pub(super) examined_at: Vec<u32>,
}

impl AssignedJob {
    /// Flows that have several paths.
    pub(super) fn choice_count(&self) -> usize {
        self.routes.groups.iter().map(Vec::len).sum()
    }
}

impl PathAssignment {
    /// No jobs yet.
    pub(crate) fn new(fabric: &Fabric, tables: &Arc<PathTables>) -> Self {
        Self {
            search: SegmentSearch::new(fabric.switches().len()),
            occupancy: LinkOccupancy::new(fabric),
            job_slots: Vec::new(),
            changes: LoadChanges::new(fabric, tables),
            tables: Arc::clone(tables),
        }
    }

    /// A slot for a job, none of whose flows is on a path yet.
    pub(crate) fn add_job(&mut self, job: &Job, routes: &Arc<JobRoutes>) -> usize {
        let assigned = AssignedJob {
            rates: job
                .flows
                .iter()
                .map(|flow| (flow.bytes > 0.0).then(|| mean_rate(flow.bytes, &routes.demand)))
                .collect(),
            paths: vec![LinkPath::EMPTY; job.flows.len()],
            was_running: vec![false; job.flows.len()],
            examined_at: vec![0; routes.groups.len()],
            routes: Arc::clone(routes),
        };
        let free = self.job_slots.iter().position(Option::is_none);
        let job_slot = free.unwrap_or(self.job_slots.len());
        if job_slot == self.job_slots.len() {
            self.job_slots.push(None);
            self.changes.moved_at.push(0);
        }
        self.job_slots[job_slot] = Some(assigned);
        job_slot
    }

    /// Removes a job and its flows.
    pub(crate) fn remove_job(&mut self, job_slot: usize) {
        for flow in 0..self.job_at(job_slot).paths.len() {
            let path = self.unassign_path((job_slot, flow));
            self.changes.mark_idler(path.without_host_links());
        }
        self.job_slots[job_slot] = None;
    }

    /// The job in an occupied slot.
    pub(crate) fn job_at(&self, job_slot: usize) -> &AssignedJob {
        self.job_slots[job_slot].as_ref().expect("a slot is freed only with its job")
    }

    pub(super) fn job_at_mut(&mut self, job_slot: usize) -> &mut AssignedJob {
        self.job_slots[job_slot].as_mut().expect("a slot is freed only with its job")
    }

    /// The paths of all flows of the jobs in `job_slots`.
    pub(crate) fn paths_of(&self, job_slots: impl IntoIterator<Item = usize>) -> Vec<LinkPath> {
        let paths = job_slots.into_iter().map(|job_slot| &self.job_at(job_slot).paths);
        paths.flatten().copied().collect()
    }

    /// Assigns other paths to the flows of a job where they differ; its groups then count as never
    /// examined.
    pub(crate) fn replace_paths(&mut self, job_slot: usize, paths: impl Iterator<Item = LinkPath>) {
        let mut is_changed = false;
        for (flow, path) in paths.enumerate() {
            if self.job_at(job_slot).paths[flow] != path {
                let had = self.unassign_path((job_slot, flow));
                self.assign_path((job_slot, flow), path);
                self.record_move(job_slot, had.without_host_links(), path.without_host_links());
                is_changed = true;
            }
        }
        if is_changed {
            self.job_at_mut(job_slot).examined_at.fill(0);
        }
    }

    /// Whether all flows of a job had their paths before this plan.
    pub(super) fn is_running(&self, job_slot: usize) -> bool {
        self.job_at(job_slot).was_running.iter().all(|was_running| *was_running)
    }

    /// Assigns its previous path to a flow, if that still is one of its equal-cost paths.
    pub(crate) fn keep_path(
        &mut self,
        fabric: &Fabric,
        flow: FlowSlot,
        previous: Option<LinkPath>,
    ) {
        let Some(path) = previous else { return };
        let (route, pair) = self.route_of(flow);
        if is_usable_path(fabric, &route, pair, &path) {
            self.assign_path(flow, path);
            self.changes.mark_busier(path.without_host_links());
            self.job_at_mut(flow.0).was_running[flow.1] = true;
        }
    }

    /// From now on every flow that has a path counts as running on it.
    pub(crate) fn mark_all_running(&mut self) {
        for AssignedJob { was_running, paths, .. } in self.job_slots.iter_mut().flatten() {
            for (was_running, path) in was_running.iter_mut().zip(paths) {
                *was_running = !path.is_empty();
            }
        }
    }

    /// Assigns the least congested path to each flow of a job without one, the largest first.
    pub(crate) fn assign_remaining(&mut self, job_slot: usize) {
        let routes = Arc::clone(&self.job_at(job_slot).routes);
        for flow in &routes.largest_first {
            let is_assigned = !self.job_at(job_slot).paths[*flow].is_empty();
            if routes.flows[*flow].has_path && !is_assigned {
                let segment = self.least_congested_segment((job_slot, *flow));
                self.assign_path((job_slot, *flow), self.full_path((job_slot, *flow), &segment));
                self.changes.mark_busier(&segment);
            }
        }
    }

    fn least_congested_segment(&mut self, flow: FlowSlot) -> PathSegment {
        let (_, pair) = self.route_of(flow);
        if !pair.crosses_fabric() {
            return PathSegment::EMPTY;
        }
        let (ends, flows) = (pair.ends, [flow.1]);
        let assigned = self.job_slots[flow.0].as_ref();
        let rates = assigned.map_or(&[][..], |assigned| &assigned.rates);
        let shares = FlowShares::new(&self.tables, rates, &flows);
        let occupancy = &self.occupancy;
        self.search.find_least_loaded(&self.tables, &ends, |link| {
            (occupancy.total_share(link) + shares.share_on(link)).0
        })
    }

    fn route_of(&self, flow: FlowSlot) -> (FlowRoute, &LeafPair) {
        let routes = &self.job_at(flow.0).routes;
        let route = routes.flows[flow.1];
        (route, &routes.pairs[route.pair])
    }

    /// The whole path of a flow over a segment.
    pub(super) fn full_path(&self, flow: FlowSlot, segment: &[LinkId]) -> LinkPath {
        IndexedTraffic::full_path(&self.job_at(flow.0).routes.flows[flow.1], segment)
    }

    /// Shares of link time that the flows take together.
    pub(super) fn shares_of<'s>(&'s self, job_slot: usize, flows: &'s [usize]) -> FlowShares<'s> {
        FlowShares::new(&self.tables, &self.job_at(job_slot).rates, flows)
    }

    /// Assigns a path to a flow without one.
    pub(super) fn assign_path(&mut self, flow: FlowSlot, path: LinkPath) {
        let Some(assigned) = &mut self.job_slots[flow.0] else {
            return;
        };
        let flows = [flow.1];
        let shares = FlowShares::new(&self.tables, &assigned.rates, &flows);
        for link in &path {
            self.occupancy.add_share(*link, flow.0 as u32, shares.share_on(*link));
        }
        assigned.paths[flow.1] = path;
    }

    /// Removes a flow from its path and returns that path.
    pub(super) fn unassign_path(&mut self, flow: FlowSlot) -> LinkPath {
        let Some(assigned) = &mut self.job_slots[flow.0] else {
            return LinkPath::EMPTY;
        };
        let flows = [flow.1];
        let shares = FlowShares::new(&self.tables, &assigned.rates, &flows);
        let path = std::mem::replace(&mut assigned.paths[flow.1], LinkPath::EMPTY);
        for link in &path {
            self.occupancy.remove_share(*link, flow.0 as u32, shares.share_on(*link));
        }
        path
    }
}

/// Whether a path is one of the equal-cost paths of a flow.
pub(super) fn is_usable_path(
    fabric: &Fabric,
    route: &FlowRoute,
    pair: &LeafPair,
    path: &LinkPath,
) -> bool {
    let same_ends = path.first() == Some(&route.up) && path.last() == Some(&route.down);
    route.has_path && same_ends && is_valid_segment(fabric, &pair.ends, path.without_host_links())
}

/// Whether `links` lead from one leaf to the other over usable links, as many as the ends are
/// apart, up and then down, and never up from a switch with a cable to the second leaf.
fn is_valid_segment(fabric: &Fabric, ends: &LeafEnds, links: &[LinkId]) -> bool {
    let mut at = ends.from;
    let mut descends = false;
    for link in links {
        let is_known = link.index() < fabric.links().len() && fabric.is_usable(*link);
        let Some(next) = is_known.then(|| fabric.switch_after(*link)).flatten() else {
            return false;
        };
        let (here, there) = (fabric.switch(at).tier, fabric.switch(next).tier);
        let (goes_up, goes_down) = (there > here, there < here);
        let is_allowed = goes_down || (goes_up && !descends && !is_cabled_to(fabric, at, ends));
        if fabric.link(*link).from.node.switch() != Some(at) || !is_allowed {
            return false;
        }
        (at, descends) = (next, goes_down);
    }
    at == ends.to && links.len() == usize::from(ends.distance)
}

/// Whether a switch above the first leaf has a cable to the second one, usable or not.
fn is_cabled_to(fabric: &Fabric, switch: SwitchId, ends: &LeafEnds) -> bool {
    let mut above = fabric.up_links(ends.to).iter().filter_map(|link| fabric.switch_after(*link));
    switch != ends.from && above.any(|above| above == switch)
}

/// Share of a link's time that some flows of one job take together, computed once for each speed.
#[derive(Debug)]
pub(super) struct FlowShares<'a> {
    tables: &'a PathTables,
    rates: &'a [Option<f64>],
    flows: &'a [usize],
    /// The last capacity, and the share of it: consecutive links mostly have the same speed.
    last: Cell<(f64, LinkShare)>,
}

impl<'a> FlowShares<'a> {
    fn new(tables: &'a PathTables, rates: &'a [Option<f64>], flows: &'a [usize]) -> Self {
        let last = Cell::new((0.0, LinkShare(0)));
        Self { tables, rates, flows, last }
    }

    /// The share of `link`.
    pub(super) fn share_on(&self, link: LinkId) -> LinkShare {
        let capacity = self.tables.link_capacity(link);
        if self.last.get().0 != capacity {
            let rates = self.flows.iter().filter_map(|flow| self.rates[*flow]);
            let share = rates.map(|rate| LinkShare::from_fraction(rate / capacity)).sum();
            self.last.set((capacity, share));
        }
        self.last.get().1
    }
}

/// Logical times of load changes, as far as choices depend on them.
///
/// A link that became busier concerns only the flows on it. A link that became idler concerns every
/// flow that could move there; those are distinguished by area, which is a leaf, or a pod for links
/// to cores, and a direction.
#[derive(Clone, Debug)]
pub(crate) struct LoadChanges {
    now: u32,
    /// The area of each link; none for links without alternatives.
    area_of_link: Vec<Option<u32>>,
    /// By area.
    idler_at: Vec<u32>,
    /// By link.
    busier_at: Vec<u32>,
    /// When flows of the job on each slot last moved.
    moved_at: Vec<u32>,
}

impl LoadChanges {
    fn new(fabric: &Fabric, tables: &PathTables) -> Self {
        let links = fabric.links().len();
        let areas = 2 * (fabric.switches().len() + tables.pods().pod_count());
        Self {
            now: 1,
            area_of_link: (0..links)
                .map(|link| {
                    let link = fabric.link(LinkId::from(link));
                    let (from, to) = (link.from.node.switch()?, link.to.node.switch()?);
                    let goes_up = fabric.switch(from).tier < fabric.switch(to).tier;
                    let lower = if goes_up { from } else { to };
                    let place = match fabric.switch(lower).tier {
                        Tier::Leaf => lower.index(),
                        _ => fabric.switches().len() + tables.pods().pod_of(lower)? as usize,
                    };
                    Some((2 * place + usize::from(goes_up)) as u32)
                })
                .collect(),
            idler_at: vec![1; areas],
            busier_at: vec![0; links],
            moved_at: Vec::new(),
        }
    }

    /// When a link up from (or down to) a leaf or pod last became idler, by place in `idler_at`.
    fn last_idler(&self, place: usize, goes_up: bool) -> u32 {
        self.idler_at[2 * place + usize::from(goes_up)]
    }

    fn mark_busier(&mut self, links: &[LinkId]) {
        self.now += 1;
        links.iter().for_each(|link| self.busier_at[link.index()] = self.now);
    }

    fn mark_idler(&mut self, links: &[LinkId]) {
        self.now += 1;
        for area in links.iter().filter_map(|link| self.area_of_link[link.index()]) {
            self.idler_at[area as usize] = self.now;
        }
    }
}

impl PathAssignment {
    /// A flow left one segment for another.
    pub(super) fn record_move(&mut self, job_slot: usize, from: &[LinkId], to: &[LinkId]) {
        self.changes.mark_idler(from);
        self.changes.mark_busier(to);
        self.changes.moved_at[job_slot] = self.changes.now;
    }

    /// Whether anything changed for a group of flows since its last examination, which is now.
    pub(super) fn examine_if_changed(&mut self, job_slot: usize, group: usize) -> bool {
        let seen = self.job_at(job_slot).examined_at[group];
        let is_stale = self.last_change(job_slot, group) > seen || seen == 0;
        if is_stale {
            let now = self.changes.now;
            self.job_at_mut(job_slot).examined_at[group] = now;
        }
        is_stale
    }

    /// Logical time of the last change that the best paths of a group depend on.
    fn last_change(&self, job_slot: usize, group: usize) -> u32 {
        let (assigned, changes) = (self.job_at(job_slot), &self.changes);
        let flows = &assigned.routes.groups[group];
        let links = flows.iter().flat_map(|flow| assigned.paths[*flow].without_host_links());
        let busier = links.map(|link| changes.busier_at[link.index()]).max().unwrap_or(0);
        let pair =
            flows.first().map(|flow| &assigned.routes.pairs[assigned.routes.flows[*flow].pair]);
        let idler = pair.map_or(0, |pair| self.idler_between(&pair.ends));
        changes.moved_at[job_slot].max(busier).max(idler)
    }

    /// Logical time at which a link between two leaves last became idler.
    fn idler_between(&self, ends: &LeafEnds) -> u32 {
        let (changes, pods) = (&self.changes, self.tables.pods());
        let leaves = changes
            .last_idler(ends.from.index(), true)
            .max(changes.last_idler(ends.to.index(), false));
        match (pods.pod_of(ends.from), pods.pod_of(ends.to)) {
            (Some(near), Some(far)) if ends.distance > 2 => {
                let first_pod = changes.idler_at.len() / 2 - pods.pod_count();
                leaves
                    .max(changes.last_idler(first_pod + near as usize, true))
                    .max(changes.last_idler(first_pod + far as usize, false))
            }
            _ => leaves,
        }
    }
}
