//! Interference groups: sets of jobs on the network that do not influence each other.
//!
//! A link is contended only if all flows on it together could ask for more than its capacity, each
//! as fast as the narrowest link of its path allows. Jobs that share a contended link are in one
//! group, directly or through other jobs. All other links are left out: no rate depends on them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

use fluid::JobGrid;
use planner::{Flow, Job};
use topology::groups::DisjointSets;
use topology::{Fabric, LinkId};

use crate::schedule::{Schedule, ScheduledJob};

/// Which flows can delay the flows of a job: in reality, all that share a link. The others isolate
/// what each part of it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InterferenceModel {
    /// All flows that share a link with it, its own other flows included.
    #[default]
    AllJobs,
    /// Its own flows alone, as if no other job sent anything.
    OwnFlows,
    /// None: each flow is as fast as the narrowest link of its path.
    Disabled,
}

/// A job on the network: what an iteration computes, and what it sends over contended links.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobTraffic {
    /// Number of the job.
    pub(super) job: u32,
    /// Seconds of computation.
    pub(super) compute_seconds: f64,
    /// Fraction of it after which communication begins.
    pub(super) overlap_from: f64,
    /// Its level among those that it meets: dense, the highest is served first.
    pub(super) level: u32,
    /// Where in its cycle it stands when time begins: seconds until its first iteration.
    pub(super) offset_seconds: f64,
    /// The grid that it is held to, if it is.
    pub(super) grid: Option<JobGrid>,
    /// Seconds of the slowest of its uncontended flows.
    pub(super) uncontended_seconds: f64,
    /// Its other flows.
    pub(super) contended_flows: Vec<ContendedFlow>,
}

/// A flow that other flows may slow down.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContendedFlow {
    /// The links that limit it, along its path.
    pub(super) links: Vec<LinkId>,
    /// Bytes of an iteration.
    pub(super) bytes: f64,
}

/// A job and what its scheduler decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkJob<'a> {
    pub(super) number: u32,
    pub(super) job: &'a Job,
    pub(super) decision: &'a ScheduledJob,
}

impl<'a> NetworkJob<'a> {
    /// Jobs by number as `schedule` has them, but for those without a path.
    pub(super) fn connected_jobs(
        jobs: impl Iterator<Item = (u32, &'a Job)>,
        schedule: &'a Schedule,
    ) -> Vec<Self> {
        let scheduled = jobs.zip(&schedule.jobs);
        scheduled
            .filter(|(_, decided)| decided.is_connected())
            .map(|((number, job), decided)| Self { number, job, decision: decided })
            .collect()
    }
}

impl JobTraffic {
    /// Seconds of an iteration without contention, its own flows included.
    pub(super) fn uncontended_iteration(&self) -> f64 {
        let sent = self.overlap_from * self.compute_seconds + self.uncontended_seconds;
        self.compute_seconds.max(sent)
    }
}

/// The interference groups of `jobs`, all of whose flows have paths; members in the order given.
pub(super) fn find_groups(
    fabric: &Fabric,
    jobs: &[NetworkJob<'_>],
    model: InterferenceModel,
) -> Vec<Vec<JobTraffic>> {
    let mut groups = match model {
        InterferenceModel::AllJobs => group_by_links(&LinkLimits::new(fabric, jobs), jobs),
        InterferenceModel::OwnFlows => jobs
            .iter()
            .map(|job| vec![LinkLimits::new(fabric, slice::from_ref(job)).job_traffic(job)])
            .collect(),
        InterferenceModel::Disabled => {
            let free = LinkLimits::new(fabric, &[]);
            jobs.iter().map(|job| vec![free.job_traffic(job)]).collect()
        }
    };
    groups.iter_mut().for_each(|members| compact_levels(members));
    groups
}

/// Jobs that share contended links, directly or through other jobs.
fn group_by_links(limits: &LinkLimits<'_>, jobs: &[NetworkJob<'_>]) -> Vec<Vec<JobTraffic>> {
    let mut sets = DisjointSets::new(jobs.len());
    let mut first_on: BTreeMap<LinkId, usize> = BTreeMap::new();
    let mut movers = Vec::with_capacity(jobs.len());
    for (place, scheduled) in jobs.iter().enumerate() {
        let mover = limits.job_traffic(scheduled);
        let links = mover.contended_flows.iter().flat_map(|stream| &stream.links);
        for link in links.filter(|link| limits.is_contended(**link)) {
            sets.join(place, *first_on.entry(*link).or_insert(place));
        }
        movers.push(mover);
    }
    let mut by_set: BTreeMap<usize, Vec<JobTraffic>> = BTreeMap::new();
    for (place, mover) in movers.into_iter().enumerate() {
        by_set.entry(sets.find_root(place)).or_default().push(mover);
    }
    by_set.into_values().collect()
}

/// Makes levels dense: only their order matters, and that only within a group.
fn compact_levels(members: &mut [JobTraffic]) {
    let mut levels: Vec<u32> = members.iter().map(|member| member.level).collect();
    levels.sort_unstable();
    levels.dedup();
    for member in members {
        let below = levels.partition_point(|level| *level < member.level);
        member.level = u32::try_from(below).unwrap_or(u32::MAX);
    }
}

/// How fast flows can be, and which links that fills.
struct LinkLimits<'a> {
    fabric: &'a Fabric,
    /// The highest possible demand on each link, bytes/s.
    max_demand: Vec<f64>,
}

/// Rounding does not fill a link.
const FULL: f64 = 1.0 + 1e-9;

impl<'a> LinkLimits<'a> {
    fn new(fabric: &'a Fabric, jobs: &[NetworkJob<'_>]) -> Self {
        let mut limits = Self { fabric, max_demand: vec![0.0; fabric.capacity_link_count()] };
        for (_, path) in jobs.iter().flat_map(|job| sending_flows(fabric, job)) {
            let most = limits.max_rate(&path);
            for link in path.iter() {
                limits.max_demand[link.index()] += most;
            }
        }
        limits
    }

    fn link_capacity(&self, link: LinkId) -> f64 {
        self.fabric.link_bandwidth(link).bytes_per_second()
    }

    /// The rate of a flow that has its path for itself.
    fn max_rate(&self, path: &[LinkId]) -> f64 {
        let capacities = path.iter().map(|link| self.link_capacity(*link));
        capacities.fold(f64::INFINITY, f64::min)
    }

    fn is_contended(&self, link: LinkId) -> bool {
        self.max_demand[link.index()] > self.link_capacity(link) * FULL
    }

    fn job_traffic(&self, scheduled: &NetworkJob<'_>) -> JobTraffic {
        let NetworkJob { number, job, decision: decided } = scheduled;
        let mut uncontended_seconds: f64 = 0.0;
        let mut streams = Vec::new();
        for (flow, path) in sending_flows(self.fabric, scheduled) {
            match self.contended_flow(flow, &path) {
                Some(stream) => streams.push(stream),
                None => {
                    uncontended_seconds =
                        uncontended_seconds.max(flow.bytes / self.max_rate(&path));
                }
            }
        }
        let mut mover = JobTraffic {
            job: *number,
            compute_seconds: job.compute_seconds,
            overlap_from: job.overlap_from,
            level: decided.level,
            offset_seconds: decided.start_shift_seconds,
            grid: decided.grid,
            uncontended_seconds,
            contended_flows: streams,
        };
        if decided.grid.is_none() && decided.start_shift_seconds == 0.0 {
            mover.offset_seconds = cycle_phase(*number) * mover.uncontended_iteration();
        }
        mover
    }

    /// The links that limit a flow, if one of them is contended.
    fn contended_flow(&self, flow: &Flow, path: &[LinkId]) -> Option<ContendedFlow> {
        let mut links: Vec<LinkId> = path.to_vec();
        links.retain(|link| self.is_contended(*link));
        if links.is_empty() {
            return None;
        }
        let most = self.max_rate(path);
        if self.max_rate(&links) > most {
            let narrowest = path.iter().find(|link| self.link_capacity(**link) <= most);
            links.extend(narrowest);
        }
        let bytes = flow.bytes;
        Some(ContendedFlow { links, bytes })
    }
}

/// Flows that send something, with the links that they cross.
fn sending_flows<'a>(
    fabric: &'a Fabric,
    scheduled: &'a NetworkJob<'_>,
) -> impl Iterator<Item = (&'a Flow, Cow<'a, [LinkId]>)> {
    let flows = scheduled.job.flows.iter().zip(&scheduled.decision.paths);
    let sending = flows.filter(|(flow, _)| flow.bytes > 0.0);
    sending.map(|(flow, path)| (flow, flow.crossed_links(fabric, path)))
}

/// Jobs come at any moment of each other's cycles: multiples of the golden ratio spread evenly.
fn cycle_phase(job: u32) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (f64::from(job) * GOLDEN).fract()
}
