//! The input in dense ordinals: jobs by id, flows by job, and the properties of every flow that do
//! not depend on its path.
//!
//! The phases of a plan use these ordinals for jobs and flows. They are also the positions in the
//! plan; names return only there. The properties of one job ([`JobRoutes`]) are computed once per
//! job and shared, so that a plan after a small change does not compute them again.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use topology::{Fabric, LinkId, LinkPath, SwitchId};

use crate::bounds::LoadLowerBound;
use crate::input::{Flow, Job, PlanInput};
use crate::input_digest;
use crate::network_demand::{DemandFrom, NetworkDemand};
use crate::path_tables::{LeafEnds, LinkArea, PathTables};
use crate::routes::{FlowRoute, LeafPair};
use crate::segment_survey::SegmentSurvey;

/// Jobs and flows of an input by ordinal, with the paths that each flow could take.
#[derive(Debug)]
pub(crate) struct IndexedTraffic<'a> {
    /// The fabric they are in.
    pub(crate) fabric: &'a Fabric,
    /// The paths through it.
    pub(crate) tables: Arc<PathTables>,
    /// Jobs in the order of their ids.
    pub(crate) jobs: Vec<&'a Job>,
    /// Routes of the flows of each job.
    pub(crate) routes: Vec<Arc<JobRoutes>>,
    /// Flows by job, then in the order of the job's flows: their order in the plan.
    pub(crate) flows: Vec<RoutableFlow<'a>>,
    /// The flows of each job.
    pub(crate) spans: Vec<Range<usize>>,
}

/// A flow with its routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutableFlow<'a> {
    /// The flow.
    pub(crate) flow: &'a Flow,
    /// Its job.
    pub(crate) job: usize,
    /// Its properties on any path.
    route: FlowRoute,
}

impl Deref for RoutableFlow<'_> {
    type Target = FlowRoute;

    fn deref(&self) -> &FlowRoute {
        &self.route
    }
}

/// Routes of the flows of one job, and its least demand on the network.
#[derive(Clone, Debug)]
pub(crate) struct JobRoutes {
    /// In the order of the job's flows.
    pub(crate) flows: Vec<FlowRoute>,
    /// Pairs of leaves that the flows join, each once.
    pub(crate) pairs: Vec<LeafPair>,
    /// Flows by descending bytes, then position: large ones are the hardest to place.
    pub(crate) largest_first: Vec<usize>,
    /// The demand on the best spread over all paths.
    pub(crate) demand: NetworkDemand,
    /// Where the flows that send may share links with others, ascending.
    pub(crate) areas: Vec<LinkArea>,
    /// Digest of the job.
    pub(crate) digest: u64,
}

impl<'a> IndexedTraffic<'a> {
    /// The dense view of `input`.
    pub(crate) fn new(input: &'a PlanInput) -> Self {
        Self::of_jobs(&input.fabric, &input.jobs)
    }

    /// The dense view of `jobs` on `fabric`.
    pub(crate) fn of_jobs(fabric: &'a Fabric, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        let tables = Arc::new(PathTables::new(fabric));
        let mut jobs: Vec<&Job> = jobs.into_iter().collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let mut route_finder = RouteFinder::new(fabric, &tables);
        let routes = jobs.iter().map(|job| Arc::new(route_finder.job_routes(job))).collect();
        Self::from_routes(fabric, tables, jobs, routes)
    }

    /// Flows of some jobs.
    pub(crate) fn count_flows(&self, jobs: &[usize]) -> usize {
        jobs.iter().map(|job| self.spans[*job].len()).sum()
    }

    /// `jobs`, in the order of their ids, with the `routes` already known.
    pub(crate) fn from_routes(
        fabric: &'a Fabric,
        tables: Arc<PathTables>,
        jobs: Vec<&'a Job>,
        routes: Vec<Arc<JobRoutes>>,
    ) -> Self {
        let mut flows = Vec::with_capacity(jobs.iter().map(|job| job.flows.len()).sum());
        let mut spans = Vec::with_capacity(jobs.len());
        for (job, (flows_of_job, routes)) in jobs.iter().map(|j| &j.flows).zip(&routes).enumerate()
        {
            let start = flows.len();
            let with_routes = flows_of_job.iter().zip(&routes.flows);
            flows.extend(with_routes.map(|(flow, route)| RoutableFlow {
                flow,
                job,
                route: *route,
            }));
            spans.push(start..flows.len());
        }
        Self { fabric, tables, jobs, routes, flows, spans }
    }

    /// The two leaves that a flow joins.
    pub(crate) fn leaf_pair(&self, flow: &RoutableFlow<'_>) -> &LeafPair {
        &self.routes[flow.job].pairs[flow.pair]
    }

    /// All equal-cost segments of a flow, ascending; none without a path. The list has
    /// one entry for each path and is made on first use, for searches that evaluate each of them.
    pub(crate) fn segments(&self, flow: &RoutableFlow<'_>) -> &[Vec<LinkId>] {
        if !flow.has_path {
            return &[];
        }
        let pair = self.leaf_pair(flow);
        pair.segments.get_or_init(|| self.tables.list_segments(&pair.ends))
    }

    /// Visits all links that a flow crosses on a path: those of the path, then those inside hosts.
    /// Passes over all flows come here, and most fabrics describe nothing inside hosts.
    #[inline]
    pub(crate) fn for_each_link(
        &self,
        flow: &Flow,
        path: &LinkPath,
        mut visit: impl FnMut(LinkId),
    ) {
        path.iter().for_each(|link| visit(*link));
        if self.tables.describes_interconnects() && !path.is_empty() {
            flow.intra_host_links(self.fabric).for_each(visit);
        }
    }

    /// The whole path of a flow over one of its segments.
    pub(crate) fn full_path(flow: &FlowRoute, segment: &[LinkId]) -> LinkPath {
        let start = LinkPath::EMPTY.with_link(flow.up);
        let middle = segment.iter().fold(start, |path, link| path.with_link(*link));
        middle.with_link(flow.down)
    }
}

/// Computes the routes of the flows of jobs in one fabric.
pub(crate) struct RouteFinder<'a> {
    fabric: &'a Fabric,
    tables: &'a PathTables,
    survey: SegmentSurvey,
    lower_bound: LoadLowerBound<'a>,
}

impl<'a> RouteFinder<'a> {
    pub(crate) fn new(fabric: &'a Fabric, tables: &'a PathTables) -> Self {
        Self {
            fabric,
            tables,
            survey: SegmentSurvey::new(fabric.switches().len()),
            lower_bound: LoadLowerBound::new(fabric, tables),
        }
    }

    /// Routes of the flows of `job`.
    pub(crate) fn job_routes(&mut self, job: &Job) -> JobRoutes {
        let mut known = BTreeMap::new();
        let mut pairs = Vec::new();
        let mut flows = Vec::with_capacity(job.flows.len());
        for flow in &job.flows {
            let ends = (self.fabric.leaf_of(flow.src), self.fabric.leaf_of(flow.dst));
            let pair = *known.entry(ends).or_insert_with(|| {
                pairs.push(self.leaf_pair(ends.0, ends.1));
                pairs.len() - 1
            });
            flows.push(self.flow_route(flow, pair, &pairs));
        }
        self.lower_bound.clear();
        let demands = job.flow_starts().into_iter().map(|start_seconds| {
            for (flow, route) in job.flows.iter().zip(&flows) {
                if job.flow_start_seconds(flow) == start_seconds {
                    let inside = flow.intra_host_links(self.fabric);
                    self.lower_bound.add_flow(route, &pairs[route.pair], inside, flow.bytes);
                }
            }
            DemandFrom { start_seconds, tightest: (self.lower_bound.max_load(), None) }
        });
        JobRoutes {
            demand: NetworkDemand::new(job, demands),
            largest_first: largest_first(job),
            areas: link_areas(self.fabric, job, &flows, &pairs, self.tables),
            digest: input_digest::digest_job(job),
            flows,
            pairs,
        }
    }

    fn flow_route(&self, flow: &Flow, pair: usize, pairs: &[LeafPair]) -> FlowRoute {
        let fabric = self.fabric;
        let up = fabric.nic(flow.src).uplink;
        let down = fabric.nic(flow.dst).uplink.reverse();
        let hosts_connected = fabric.is_usable(up) && fabric.is_usable(down);
        let has_two_ends =
            pairs[pair].crosses_fabric() && fabric.leaves_of(flow.dst).only_leaf().is_none();
        let has_path = hosts_connected && pairs[pair].is_joined;
        FlowRoute { up, down, pair, has_path, has_two_ends }
    }

    fn leaf_pair(&mut self, from: SwitchId, to: SwitchId) -> LeafPair {
        let distance = self.survey.leaf_distance(self.tables, from, to);
        let ends = LeafEnds { from, to, distance: distance.unwrap_or(0) };
        let mut pair = LeafPair {
            ends,
            is_joined: distance.is_some(),
            has_choice: false,
            unavoidable: Vec::new(),
            capacity: 0.0,
            widest: 0.0,
            segments: OnceLock::new(),
        };
        if ends.distance > 0 {
            let layers = self.survey.link_layers(self.tables, &ends);
            let outer = [layers.first(), layers.last()].into_iter().flatten();
            pair.capacity = outer
                .map(|links| links.iter().map(|link| self.tables.link_capacity(*link)).sum())
                .fold(f64::INFINITY, f64::min);
            pair.has_choice = layers.iter().any(|links| links.len() > 1);
            let only = layers.iter().filter(|links| links.len() == 1);
            pair.unavoidable = only.flatten().copied().collect();
            pair.widest = self
                .survey
                .widest_capacity(self.tables, &ends, |link| self.tables.link_capacity(link));
        }
        pair
    }
}

/// Where the flows that send may share links.
fn link_areas(
    fabric: &Fabric,
    job: &Job,
    flows: &[FlowRoute],
    pairs: &[LeafPair],
    tables: &PathTables,
) -> Vec<LinkArea> {
    let mut areas = Vec::new();
    let mut is_used = vec![false; pairs.len()];
    for (route, flow) in flows.iter().zip(&job.flows).filter(|(_, flow)| flow.bytes > 0.0) {
        areas.extend([route.up, route.down].map(LinkArea::of_host_link));
        areas.extend(flow.intra_host_links(fabric).map(LinkArea::of_host_link));
        is_used[route.pair] |= route.has_path;
    }
    let used =
        pairs.iter().zip(is_used).filter(|(pair, is_used)| *is_used && pair.crosses_fabric());
    for LeafPair { ends, .. } in used.map(|(pair, _)| pair) {
        tables.for_each_area(ends, |area| areas.push(area));
    }
    areas.sort_unstable();
    areas.dedup();
    areas
}

fn largest_first(job: &Job) -> Vec<usize> {
    let mut flows: Vec<usize> = (0..job.flows.len()).collect();
    flows.sort_by(|a, b| job.flows[*b].bytes.total_cmp(&job.flows[*a].bytes).then(a.cmp(b)));
    flows
}
