//! Path selection (Crux §4.1): jobs in descending intensity; each flow takes, of its equal-cost
//! paths, the least congested at that moment.
//!
//! Congestion is the share of time that a link is busy. A flow that already has a path stays on it
//! unless the best one makes its busiest link idler by the policy's threshold. Every choice depends
//! only on choices made before it in the same pass, and the order depends on nothing of a previous
//! plan; so a second pass, given the first one's result, meets the same loads and repeats every
//! choice. That is why planning is stable.

use std::cmp::Ordering;

use topology::LinkId;

use crate::intensity::Demand;
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
    move_gain_min: f64,
) -> Vec<Vec<LinkId>> {
    let mut paths = vec![Vec::new(); traffic.flows.len()];
    let mut loads = Loads::new(traffic);
    for job in order(demands) {
        for flow in largest_first(traffic, job) {
            let route = &traffic.flows[flow];
            let rate = rate(route, &demands[job]);
            let had = previous.path(route);
            if let Some(segment) = loads.choose(route, rate, had, move_gain_min) {
                paths[flow] = Traffic::path(route, segment);
                loads.place(&paths[flow], rate);
            }
        }
    }
    paths
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

/// Share of time that each directed link is busy with the flows placed so far.
struct Loads<'a> {
    traffic: &'a Traffic<'a>,
    busy: Vec<f64>,
    seconds_per_byte: Vec<f64>,
}

/// How congested a path is with the flow on it: largest load, then sum of loads. Host links are
/// left out, since all paths of a flow share them.
#[derive(Clone, Copy, Debug)]
struct Congestion {
    largest: f64,
    sum: f64,
}

impl Congestion {
    fn compare(&self, other: &Self) -> Ordering {
        self.largest
            .total_cmp(&other.largest)
            .then(self.sum.total_cmp(&other.sum))
    }
}

impl<'a> Loads<'a> {
    fn new(traffic: &'a Traffic<'_>) -> Self {
        let links = traffic.fabric.links().iter();
        let seconds_per_byte = links
            .map(|link| 1.0 / link.bandwidth.bytes_per_second())
            .collect();
        Self {
            traffic,
            busy: vec![0.0; traffic.fabric.links().len()],
            seconds_per_byte,
        }
    }

    /// The segment that the flow takes; none without a path.
    fn choose(
        &self,
        flow: &RoutableFlow<'_>,
        rate: f64,
        had: Option<&[LinkId]>,
        move_gain_min: f64,
    ) -> Option<&'a Vec<LinkId>> {
        let (best, least) = self.least_congested(flow, rate)?;
        let Some((kept, congestion)) = self.kept(flow, rate, had) else {
            return Some(best);
        };
        let gain = congestion.largest - least.largest;
        let moves = gain >= move_gain_min && kept != best;
        Some(if moves { best } else { kept })
    }

    /// The least congested segment. Segments come in ascending order of their links, so the first
    /// of equals is the one with the smallest link ids.
    fn least_congested(
        &self,
        flow: &RoutableFlow<'_>,
        rate: f64,
    ) -> Option<(&'a Vec<LinkId>, Congestion)> {
        let weighed = self
            .segments(flow)
            .iter()
            .map(|s| (s, self.congestion(s, rate)));
        weighed.min_by(|a, b| a.1.compare(&b.1))
    }

    /// The segment the flow had, if it still is one of its equal-cost ones.
    fn kept(
        &self,
        flow: &RoutableFlow<'_>,
        rate: f64,
        had: Option<&[LinkId]>,
    ) -> Option<(&'a Vec<LinkId>, Congestion)> {
        let [up, segment @ .., down] = had? else {
            return None;
        };
        let same_ends = (*up, *down) == (flow.up, flow.down);
        let kept = self
            .segments(flow)
            .iter()
            .find(|s| same_ends && s[..] == *segment)?;
        Some((kept, self.congestion(kept, rate)))
    }

    fn segments(&self, flow: &RoutableFlow<'_>) -> &'a [Vec<LinkId>] {
        if flow.has_path {
            &self.traffic.pairs[flow.pair].segments
        } else {
            &[]
        }
    }

    fn congestion(&self, segment: &[LinkId], rate: f64) -> Congestion {
        let load = |link: &LinkId| self.with(*link, rate);
        let start = Congestion {
            largest: 0.0,
            sum: 0.0,
        };
        segment
            .iter()
            .map(load)
            .fold(start, |so_far, load| Congestion {
                largest: so_far.largest.max(load),
                sum: so_far.sum + load,
            })
    }

    fn with(&self, link: LinkId, rate: f64) -> f64 {
        self.busy[link.index()] + rate * self.seconds_per_byte[link.index()]
    }

    fn place(&mut self, path: &[LinkId], rate: f64) {
        for link in path {
            self.busy[link.index()] = self.with(*link, rate);
        }
    }
}
