//! The paths assigned so far, and the load of the links that follows.
//!
//! A job has a slot for as long as it exists, whatever jobs come and go beside it.

use std::cell::Cell;
use std::sync::Arc;

use topology::{Fabric, LinkId, LinkPath, SwitchId};

use super::mean_rate;
use crate::input::Job;
use crate::link_occupancy::{LinkOccupancy, LinkShare};
use crate::network_demand::NetworkDemand;
use crate::path_tables::LeafEnds;
use crate::path_tables::PathTables;
use crate::routes::{FlowRoute, LeafPair};
use crate::segment_search::{PathSegment, SegmentSearch};
use crate::traffic::{IndexedTraffic, JobRoutes};

/// A flow: the slot of its job and its position there.
pub(crate) type FlowSlot = (usize, usize);

/// By what a flow chooses among its equal-cost paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathRule {
    /// The load of all jobs (Crux §4.1).
    LeastCongested,
    /// The load of other jobs, and what its own job loads a link with beyond what its tightest link
    /// has to bear anyway: flows that wait for their NIC in any case leave other jobs alone. Of
    /// equals, the load of all.
    LeastContended,
}

/// The state that choosing paths reads and changes.
#[derive(Clone, Debug)]
pub(crate) struct PathAssignment {
    tables: Arc<PathTables>,
    search: SegmentSearch,
    occupancy: LinkOccupancy,
    /// What the job whose flows choose loads each link with, where the rule asks for that; else
    /// empty, and zero between jobs.
    own_loads: Vec<u64>,
    job_slots: Vec<Option<AssignedJob>>,
}

/// A job with the paths of its flows.
#[derive(Clone, Debug)]
struct AssignedJob {
    routes: Arc<JobRoutes>,
    /// Bytes per second of each flow; none for a flow that sends nothing.
    rates: Vec<Option<f64>>,
    /// Empty where a flow is on no path.
    paths: Vec<LinkPath>,
}

impl PathAssignment {
    /// No jobs yet.
    pub(crate) fn new(fabric: &Fabric, tables: &Arc<PathTables>) -> Self {
        Self {
            search: SegmentSearch::new(fabric.switches().len()),
            occupancy: LinkOccupancy::new(fabric),
            own_loads: Vec::new(),
            job_slots: Vec::new(),
            tables: Arc::clone(tables),
        }
    }

    /// A slot for a job, none of whose flows is on a path yet.
    pub(crate) fn add_job(&mut self, job: &Job, routes: &Arc<JobRoutes>) -> usize {
        let rate =
            |bytes: f64| (bytes > 0.0).then(|| mean_rate(bytes, routes.demand.iteration_seconds));
        let assigned = AssignedJob {
            rates: job.flows.iter().map(|flow| rate(flow.bytes)).collect(),
            paths: vec![LinkPath::EMPTY; job.flows.len()],
            routes: Arc::clone(routes),
        };
        let free = self.job_slots.iter().position(Option::is_none);
        let job_slot = free.unwrap_or(self.job_slots.len());
        if job_slot == self.job_slots.len() {
            self.job_slots.push(None);
        }
        self.job_slots[job_slot] = Some(assigned);
        job_slot
    }

    /// Removes a job and its flows.
    pub(crate) fn remove_job(&mut self, job_slot: usize) {
        for flow in 0..self.job_at(job_slot).paths.len() {
            self.unassign_path((job_slot, flow));
        }
        self.job_slots[job_slot] = None;
    }

    fn job_at(&self, job_slot: usize) -> &AssignedJob {
        self.job_slots[job_slot].as_ref().expect("a slot is freed only with its job")
    }

    /// The paths of all flows of the jobs in `job_slots`.
    pub(crate) fn paths_of(&self, job_slots: impl IntoIterator<Item = usize>) -> Vec<LinkPath> {
        let paths = job_slots.into_iter().map(|job_slot| &self.job_at(job_slot).paths);
        paths.flatten().copied().collect()
    }

    /// Assigns other paths to the flows of a job where they differ.
    pub(crate) fn replace_paths(&mut self, job_slot: usize, paths: impl Iterator<Item = LinkPath>) {
        for (flow, path) in paths.enumerate() {
            if self.job_at(job_slot).paths[flow] != path {
                self.unassign_path((job_slot, flow));
                self.assign_path((job_slot, flow), path);
            }
        }
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
        }
    }

    /// Assigns a path to each flow of a job without one, the largest first.
    pub(crate) fn assign_remaining(&mut self, job_slot: usize, rule: PathRule) {
        let routes = Arc::clone(&self.job_at(job_slot).routes);
        if rule != PathRule::LeastCongested {
            self.own_loads.resize(self.tables.link_count(), 0);
            (0..routes.flows.len()).for_each(|flow| self.count_own_load((job_slot, flow)));
        }
        for flow in &routes.largest_first {
            let is_assigned = !self.job_at(job_slot).paths[*flow].is_empty();
            if routes.flows[*flow].has_path && !is_assigned {
                let segment = self.best_segment((job_slot, *flow), rule);
                let path = IndexedTraffic::full_path(&routes.flows[*flow], &segment);
                self.assign_path((job_slot, *flow), path);
                if rule != PathRule::LeastCongested {
                    self.count_own_load((job_slot, *flow));
                }
            }
        }
        if rule != PathRule::LeastCongested {
            let Self { job_slots, own_loads, .. } = self;
            let paths = job_slots[job_slot].iter().flat_map(|assigned| &assigned.paths);
            paths.flatten().for_each(|link| own_loads[link.index()] = 0);
        }
    }

    /// Adds a flow to the load of its own job.
    fn count_own_load(&mut self, flow: FlowSlot) {
        let Self { tables, job_slots, own_loads, .. } = self;
        let Some(assigned) = &job_slots[flow.0] else { return };
        let share = FlowShare::new(tables, assigned.rates[flow.1]);
        for link in &assigned.paths[flow.1] {
            own_loads[link.index()] += share.on(*link).0;
        }
    }

    /// The segment that a flow takes by a rule.
    fn best_segment(&mut self, flow: FlowSlot, rule: PathRule) -> PathSegment {
        let (_, pair) = self.route_of(flow);
        if !pair.crosses_fabric() {
            return PathSegment::EMPTY;
        }
        let assigned = self.job_at(flow.0);
        let (ends, rate) = (pair.ends, assigned.rates[flow.1]);
        let unavoidable = tightest_share(&assigned.routes.demand).0;
        let Self { tables, search, occupancy, own_loads, .. } = self;
        let share = FlowShare::new(tables, rate);
        search.find_least_loaded(tables, &ends, |link| {
            let added = share.on(link).0;
            let total = occupancy.share_of(link).0 + added;
            match rule {
                PathRule::LeastCongested => total,
                PathRule::LeastContended => {
                    let own = own_loads[link.index()] + added;
                    let contended = (total - own) + own.saturating_sub(unavoidable);
                    first_before_second(contended, total)
                }
            }
        })
    }

    fn route_of(&self, flow: FlowSlot) -> (FlowRoute, &LeafPair) {
        let routes = &self.job_at(flow.0).routes;
        let route = routes.flows[flow.1];
        (route, &routes.pairs[route.pair])
    }

    /// Assigns a path to a flow without one.
    pub(super) fn assign_path(&mut self, flow: FlowSlot, path: LinkPath) {
        let Self { tables, occupancy, job_slots, .. } = self;
        let Some(assigned) = &mut job_slots[flow.0] else { return };
        let share = FlowShare::new(tables, assigned.rates[flow.1]);
        path.iter().for_each(|link| occupancy.add_share(*link, share.on(*link)));
        assigned.paths[flow.1] = path;
    }

    /// Removes a flow from its path.
    fn unassign_path(&mut self, flow: FlowSlot) {
        let Self { tables, occupancy, job_slots, .. } = self;
        let Some(assigned) = &mut job_slots[flow.0] else { return };
        let share = FlowShare::new(tables, assigned.rates[flow.1]);
        let path = std::mem::replace(&mut assigned.paths[flow.1], LinkPath::EMPTY);
        path.iter().for_each(|link| occupancy.remove_share(*link, share.on(*link)));
    }
}

/// Share of its time that the tightest link of a job is busy at best.
fn tightest_share(demand: &NetworkDemand) -> LinkShare {
    LinkShare::from_fraction(demand.bottleneck_seconds / demand.iteration_seconds)
}

/// Two loads of a link as one number that orders by the first, then by the second. Sums of so many
/// as a path has links keep that order: 2^-16 of a link up to 64 links, and 2^-20 up to 64 Ki.
fn first_before_second(first: u64, second: u64) -> u64 {
    let first = (first >> 16).min((1 << 22) - 1);
    let second = (second >> 12).min((1 << 36) - 1);
    first << 40 | second
}

/// Share of a link's time that a flow takes, computed once for each speed.
struct FlowShare<'a> {
    tables: &'a PathTables,
    /// Bytes per second; none if it sends nothing.
    rate: Option<f64>,
    /// The last capacity, and the share of it: consecutive links mostly have the same speed.
    last: Cell<(f64, LinkShare)>,
}

impl<'a> FlowShare<'a> {
    fn new(tables: &'a PathTables, rate: Option<f64>) -> Self {
        Self { tables, rate, last: Cell::new((0.0, LinkShare(0))) }
    }

    fn on(&self, link: LinkId) -> LinkShare {
        let capacity = self.tables.link_capacity(link);
        if self.last.get().0 != capacity {
            let share = self.rate.map(|rate| LinkShare::from_fraction(rate / capacity));
            self.last.set((capacity, share.unwrap_or(LinkShare(0))));
        }
        self.last.get().1
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
