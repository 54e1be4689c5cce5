//! Who meets whom: the jobs on the network in neighbourhoods that feel nothing of each other.
//!
//! A link hinders somebody only if all flows on it together could ask for more than it has, each
//! as fast as the narrowest link of its path lets it. Jobs that share such a link meet, and so do
//! those that meet the same job. All other links are left out: no rate depends on them.

use std::collections::BTreeMap;
use std::slice;

use planner::{Flow, Job};
use topology::{Fabric, LinkId};

use crate::schedule::{Schedule, ScheduledJob};

/// Who can hold up the flows of a job: everyone who shares a link, in truth. Less of that shows
/// what each part of it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hindrance {
    /// Whoever shares a link with it, its own other flows as well.
    #[default]
    Everyone,
    /// Its own flows alone, as if no other job sent anything.
    Itself,
    /// Nobody: each flow is as fast as the narrowest link of its path.
    Nobody,
}

/// A job on the network: what an iteration computes, and what it sends where somebody may hinder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mover {
    /// Its number.
    pub(super) job: u32,
    /// Seconds of computation.
    pub(super) compute_seconds: f64,
    /// Fraction of it after which communication begins.
    pub(super) overlap_from: f64,
    /// Its class among those that it meets: dense, the highest is served first.
    pub(super) class: u32,
    /// Where in its cycle it stands when time begins: seconds until its first iteration.
    pub(super) offset_seconds: f64,
    /// The grid that it is held to (CASSINI).
    pub(super) period_seconds: Option<f64>,
    /// Seconds of the slowest of its flows that nobody hinders.
    pub(super) unhindered_seconds: f64,
    /// Its other flows.
    pub(super) streams: Vec<Stream>,
}

/// A flow that may be hindered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stream {
    /// The links that limit it, along its path.
    pub(super) links: Vec<LinkId>,
    /// Bytes of an iteration.
    pub(super) bytes: f64,
}

/// A job and what its scheduler decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheduled<'a> {
    pub(super) number: u32,
    pub(super) job: &'a Job,
    pub(super) decided: &'a ScheduledJob,
}

impl<'a> Scheduled<'a> {
    /// Jobs by number as `schedule` has them, but for those without a path.
    pub(super) fn all(
        jobs: impl Iterator<Item = (u32, &'a Job)>,
        schedule: &'a Schedule,
    ) -> Vec<Self> {
        let scheduled = jobs.zip(&schedule.jobs);
        scheduled
            .filter(|(_, decided)| decided.is_connected())
            .map(|((number, job), decided)| Self {
                number,
                job,
                decided,
            })
            .collect()
    }
}

impl Mover {
    /// Seconds of an iteration that nobody hinders, itself included.
    pub(super) fn free_seconds(&self) -> f64 {
        let sent = self.overlap_from * self.compute_seconds + self.unhindered_seconds;
        self.compute_seconds.max(sent)
    }
}

/// The neighbourhoods of `jobs`, all of whose flows have paths; members in the order given.
pub(super) fn neighbourhoods(
    fabric: &Fabric,
    jobs: &[Scheduled<'_>],
    hindrance: Hindrance,
) -> Vec<Vec<Mover>> {
    let mut neighbourhoods = match hindrance {
        Hindrance::Everyone => meetings(&Limits::new(fabric, jobs), jobs),
        Hindrance::Itself => {
            let alone = |job| vec![Limits::new(fabric, slice::from_ref(job)).mover(job)];
            jobs.iter().map(alone).collect()
        }
        Hindrance::Nobody => {
            let free = Limits::new(fabric, &[]);
            jobs.iter().map(|job| vec![free.mover(job)]).collect()
        }
    };
    neighbourhoods.iter_mut().for_each(|members| rank(members));
    neighbourhoods
}

/// Jobs that share links which hinder them, directly or through others.
fn meetings(limits: &Limits<'_>, jobs: &[Scheduled<'_>]) -> Vec<Vec<Mover>> {
    let mut sets = Sets::new(jobs.len());
    let mut first_on: BTreeMap<LinkId, usize> = BTreeMap::new();
    let mut movers = Vec::with_capacity(jobs.len());
    for (place, scheduled) in jobs.iter().enumerate() {
        let mover = limits.mover(scheduled);
        let links = mover.streams.iter().flat_map(|stream| &stream.links);
        for link in links.filter(|link| limits.hinders(**link)) {
            sets.join(place, *first_on.entry(*link).or_insert(place));
        }
        movers.push(mover);
    }
    let mut by_set: BTreeMap<usize, Vec<Mover>> = BTreeMap::new();
    for (place, mover) in movers.into_iter().enumerate() {
        by_set.entry(sets.root(place)).or_default().push(mover);
    }
    by_set.into_values().collect()
}

/// Makes classes dense: only their order matters, and that only among those who meet.
fn rank(members: &mut [Mover]) {
    let mut classes: Vec<u32> = members.iter().map(|member| member.class).collect();
    classes.sort_unstable();
    classes.dedup();
    for member in members {
        let below = classes.partition_point(|class| *class < member.class);
        member.class = u32::try_from(below).unwrap_or(u32::MAX);
    }
}

/// How fast flows can be, and which links that fills.
struct Limits<'a> {
    fabric: &'a Fabric,
    /// What could be asked of each link, bytes/s.
    asked: Vec<f64>,
}

/// Rounding does not fill a link.
const FULL: f64 = 1.0 + 1e-9;

impl<'a> Limits<'a> {
    fn new(fabric: &'a Fabric, jobs: &[Scheduled<'_>]) -> Self {
        let mut limits = Self {
            fabric,
            asked: vec![0.0; fabric.links().len()],
        };
        for (_, path) in jobs.iter().flat_map(sending) {
            let most = limits.most(path);
            for link in path {
                limits.asked[link.index()] += most;
            }
        }
        limits
    }

    fn capacity(&self, link: LinkId) -> f64 {
        self.fabric.link(link).bandwidth.bytes_per_second()
    }

    /// The rate of a flow that has its path for itself.
    fn most(&self, path: &[LinkId]) -> f64 {
        let capacities = path.iter().map(|link| self.capacity(*link));
        capacities.fold(f64::INFINITY, f64::min)
    }

    fn hinders(&self, link: LinkId) -> bool {
        self.asked[link.index()] > self.capacity(link) * FULL
    }

    fn mover(&self, scheduled: &Scheduled<'_>) -> Mover {
        let Scheduled {
            number,
            job,
            decided,
        } = scheduled;
        let mut unhindered_seconds: f64 = 0.0;
        let mut streams = Vec::new();
        for (flow, path) in sending(scheduled) {
            match self.stream(flow, path) {
                Some(stream) => streams.push(stream),
                None => unhindered_seconds = unhindered_seconds.max(flow.bytes / self.most(path)),
            }
        }
        let mut mover = Mover {
            job: *number,
            compute_seconds: job.compute_seconds,
            overlap_from: job.overlap_from,
            class: decided.class,
            offset_seconds: decided.start_shift_seconds,
            period_seconds: decided.period_seconds,
            unhindered_seconds,
            streams,
        };
        if decided.period_seconds.is_none() && decided.start_shift_seconds == 0.0 {
            mover.offset_seconds = phase(*number) * mover.free_seconds();
        }
        mover
    }

    /// The links that limit a flow, if one of them hinders it.
    fn stream(&self, flow: &Flow, path: &[LinkId]) -> Option<Stream> {
        let mut links: Vec<LinkId> = path.to_vec();
        links.retain(|link| self.hinders(*link));
        if links.is_empty() {
            return None;
        }
        let most = self.most(path);
        if self.most(&links) > most {
            let narrowest = path.iter().find(|link| self.capacity(**link) <= most);
            links.extend(narrowest);
        }
        let bytes = flow.bytes;
        Some(Stream { links, bytes })
    }
}

/// Flows that send something, with their paths.
fn sending<'a>(scheduled: &'a Scheduled<'_>) -> impl Iterator<Item = (&'a Flow, &'a [LinkId])> {
    let flows = scheduled.job.flows.iter().zip(&scheduled.decided.paths);
    flows
        .filter(|(flow, _)| flow.bytes > 0.0)
        .map(|(flow, path)| (flow, &path[..]))
}

/// Jobs come at any moment of each other's cycles: multiples of the golden ratio spread evenly.
fn phase(job: u32) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (f64::from(job) * GOLDEN).fract()
}

/// Disjoint sets, each by its smallest member.
struct Sets {
    parents: Vec<usize>,
}

impl Sets {
    fn new(members: usize) -> Self {
        Self {
            parents: (0..members).collect(),
        }
    }

    fn root(&self, member: usize) -> usize {
        let mut root = member;
        while self.parents[root] != root {
            root = self.parents[root];
        }
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }
}
