//! Path selection (Crux §4.1): jobs in descending intensity; each flow takes, of its equal-cost
//! paths, the least congested at that moment. Then local search (`improve`).
//!
//! Congestion is the share of time that a link is busy. Flows that already have a usable path are
//! put there before anything is chosen, and leave it only in the local search, for the gain that
//! policy asks. The search ends where no move is worth its price, and what it looks at does not
//! depend on how the paths came to be; so planning again, given its own result, moves nothing.

pub(crate) mod improve;

use topology::LinkId;

use crate::intensity::Demand;
use crate::occupancy::{Occupancy, Share};
use crate::policy::{Paths, Policy};
use crate::previous::Previous;
use crate::traffic::{RoutableFlow, Traffic};

/// The order in which jobs choose: descending intensity, then id.
pub(crate) fn order(demands: &[Demand]) -> Vec<usize> {
    let mut jobs: Vec<usize> = (0..demands.len()).collect();
    let intensity = |job: usize| demands[job].intensity;
    jobs.sort_by(|a, b| intensity(*b).total_cmp(&intensity(*a)).then(a.cmp(b)));
    jobs
}

/// The path of every flow, empty where there is none. `demands` are those before paths.
pub(crate) fn select(
    traffic: &Traffic<'_>,
    demands: &[Demand],
    previous: &Previous<'_>,
    policy: &Policy,
) -> Vec<Vec<LinkId>> {
    let mut placement = Placement::new(traffic, demands);
    let mut kept = vec![false; traffic.flows.len()];
    for (position, flow) in traffic.flows.iter().enumerate() {
        if let Some(segment) = previous
            .path(flow)
            .and_then(|had| kept_segment(traffic, flow, had))
        {
            placement.place(position, segment);
            kept[position] = true;
        }
    }
    let order = order(demands);
    for flow in order.iter().flat_map(|job| largest_first(traffic, *job)) {
        if !kept[flow]
            && let Some(segment) = placement.least_congested(flow)
        {
            placement.place(flow, segment);
        }
    }
    match policy.paths {
        Paths::Greedy => {}
        Paths::Improved => improve::improve(&mut placement, &order, &kept, policy.move_gain_min),
    }
    placement.paths
}

/// Bytes per second that a flow averages while its job runs undisturbed.
pub(crate) fn rate(flow: &RoutableFlow<'_>, demand: &Demand) -> f64 {
    let seconds = demand.iteration_seconds;
    if seconds > 0.0 {
        flow.flow.bytes / seconds
    } else {
        0.0
    }
}

/// Flows of a job by descending bytes, then position: large ones are the hardest to place.
fn largest_first(traffic: &Traffic<'_>, job: usize) -> Vec<usize> {
    let mut flows: Vec<usize> = traffic.spans[job].clone().collect();
    let bytes = |flow: usize| traffic.flows[flow].flow.bytes;
    flows.sort_by(|a, b| bytes(*b).total_cmp(&bytes(*a)).then(a.cmp(b)));
    flows
}

/// The segment of the path that the flow had, if it still is one of its equal-cost ones.
fn kept_segment<'a>(
    traffic: &'a Traffic<'_>,
    flow: &RoutableFlow<'_>,
    had: &[LinkId],
) -> Option<&'a [LinkId]> {
    let [up, segment @ .., down] = had else {
        return None;
    };
    let same_ends = (*up, *down) == (flow.up, flow.down);
    let segments = traffic.segments(flow);
    let kept = segments.iter().find(|s| same_ends && s[..] == *segment)?;
    Some(kept)
}

/// Where the flows are so far, and how busy that makes the links.
pub(crate) struct Placement<'a> {
    traffic: &'a Traffic<'a>,
    demands: &'a [Demand],
    seconds_per_byte: Vec<f64>,
    occupancy: Occupancy,
    /// By flow; empty where it is on no path.
    paths: Vec<Vec<LinkId>>,
}

/// How congested a path is with the flow on it: largest load, then sum of loads. Host links are
/// left out, since all paths of a flow share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Congestion {
    largest: u64,
    sum: u64,
}

impl<'a> Placement<'a> {
    fn new(traffic: &'a Traffic<'a>, demands: &'a [Demand]) -> Self {
        let links = traffic.fabric.links().iter();
        let seconds_per_byte = links
            .map(|link| 1.0 / link.bandwidth.bytes_per_second())
            .collect();
        Self {
            traffic,
            demands,
            seconds_per_byte,
            occupancy: Occupancy::new(traffic.fabric),
            paths: vec![Vec::new(); traffic.flows.len()],
        }
    }

    /// Share of the link's time that the flow takes.
    fn share(&self, flow: usize, link: LinkId) -> Share {
        let flow = &self.traffic.flows[flow];
        let rate = rate(flow, &self.demands[flow.job]);
        Share::of(
            rate * self.seconds_per_byte[link.index()],
            flow.flow.bytes > 0.0,
        )
    }

    /// The least congested segment. Segments come in ascending order of their links, so the first
    /// of equals is the one with the smallest link ids.
    fn least_congested(&self, flow: usize) -> Option<&'a [LinkId]> {
        let segments = self.traffic.segments(&self.traffic.flows[flow]).iter();
        let weighed = segments.map(|s| (&s[..], self.congestion(flow, s)));
        let least = weighed.min_by(|a, b| a.1.cmp(&b.1))?;
        Some(least.0)
    }

    fn congestion(&self, flow: usize, segment: &[LinkId]) -> Congestion {
        let load = |link: &LinkId| self.occupancy.total(*link).0 + self.share(flow, *link).0;
        let (mut largest, mut sum) = (0, 0);
        for load in segment.iter().map(load) {
            largest = load.max(largest);
            sum += load;
        }
        Congestion { largest, sum }
    }

    fn place(&mut self, flow: usize, segment: &[LinkId]) {
        let route = &self.traffic.flows[flow];
        let path = Traffic::path(route, segment);
        for link in &path {
            let share = self.share(flow, *link);
            self.occupancy.add(*link, route.job as u32, share);
        }
        self.paths[flow] = path;
    }

    /// Takes a flow off its path, which is the answer.
    fn lift(&mut self, flow: usize) -> Vec<LinkId> {
        let path = std::mem::take(&mut self.paths[flow]);
        let job = self.traffic.flows[flow].job as u32;
        for link in &path {
            let share = self.share(flow, *link);
            self.occupancy.remove(*link, job, share);
        }
        path
    }
}
