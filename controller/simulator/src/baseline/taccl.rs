//! TACCL\*: what the Crux paper (section 6.1) makes of TACCL (Shah et al., NSDI 2023) to compare
//! with it: communication sketches route each job over the least congested links, and the longer
//! transmission is served first.
//!
//! Jobs choose in the order in which they came. A flow takes the path whose busiest link is the
//! least busy with the flow on it, then the least busy in sum; the load of a link is the share of
//! time that the flows placed so far keep it busy, `bytes / (B_e * T_j)`, with `T_j` the iteration
//! alone as far as the hosts' links allow.
//!
//! "Each job chooses the least congested link" leaves open what its own flows see of each other:
//! see [`Sight`]. Nearly everything hangs on it.
//!
//! Left open there and chosen here: the distance of a job is the number of links of its longest
//! path; jobs of equal distance keep the order in which they came; the sorted list is split evenly
//! into the classes of the switches.

use planner::{Flow, Input, Job, Policy, compression};
use topology::{Fabric, LinkId};

use crate::baseline::{ecmp, levels};
use crate::demand::Demand;
use crate::routes::Routes;
use crate::schedule::Schedule;

/// What a flow knows of the loads when it chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The flows of its own job that chose before it, too: one flow after the other, the first of
    /// equal paths.
    Flows,
    /// Other jobs only: the flows of a job choose at once, by hash among equal paths.
    Jobs,
}

/// Paths over the least congested links, and classes by distance.
pub fn schedule(input: &Input, policy: &Policy, routes: &Routes, sight: Sight) -> Schedule {
    let paths = paths(input, routes, sight);
    Schedule::of_classes(&classes(&order(&paths), policy), paths)
}

/// Classes by job, of jobs in `order`: the list split evenly.
pub fn classes(order: &[usize], policy: &Policy) -> Vec<u32> {
    levels(order, policy, compression::balanced::classes)
}

/// Jobs by descending distance; `paths` by job, then by flow.
pub fn order(paths: &[Vec<Vec<LinkId>>]) -> Vec<usize> {
    let distance = |job: usize| paths[job].iter().map(Vec::len).max().unwrap_or(0);
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|job| (std::cmp::Reverse(distance(*job)), *job));
    order
}

/// The path of every flow by job, each the least congested when its turn comes; empty where there
/// is none.
pub fn paths(input: &Input, routes: &Routes, sight: Sight) -> Vec<Vec<Vec<LinkId>>> {
    let mut loads = Loads {
        fabric: &input.fabric,
        busy: vec![0.0; input.fabric.links().len()],
    };
    let jobs = input.jobs.iter();
    jobs.map(|job| loads.place_job(job, routes, sight))
        .collect()
}

/// Share of time that each directed link is busy with the flows placed so far.
struct Loads<'a> {
    fabric: &'a Fabric,
    busy: Vec<f64>,
}

impl Loads<'_> {
    fn place_job(&mut self, job: &Job, routes: &Routes, sight: Sight) -> Vec<Vec<LinkId>> {
        let seconds = job.iteration_seconds(host_seconds(self.fabric, job));
        let rate = |flow: &Flow| {
            if seconds > 0.0 {
                flow.bytes / seconds
            } else {
                0.0
            }
        };
        let mut paths = Vec::with_capacity(job.flows.len());
        for flow in &job.flows {
            let mut least = self.least_congested(routes.paths(flow), rate(flow));
            let chosen = match sight {
                Sight::Flows => 0,
                Sight::Jobs => ecmp::among(self.fabric, flow, least.len()),
            };
            let path = match least.is_empty() {
                true => Vec::new(),
                false => least.swap_remove(chosen),
            };
            if sight == Sight::Flows {
                self.add(&path, rate(flow));
            }
            paths.push(path);
        }
        if sight == Sight::Jobs {
            for (flow, path) in job.flows.iter().zip(&paths) {
                self.add(path, rate(flow));
            }
        }
        paths
    }

    fn add(&mut self, path: &[LinkId], rate: f64) {
        for link in path {
            self.busy[link.index()] = self.with(*link, rate);
        }
    }

    /// Those of `paths` that are as little congested as any, in their order.
    fn least_congested(&self, paths: Vec<Vec<LinkId>>, rate: f64) -> Vec<Vec<LinkId>> {
        let by_congestion =
            |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        let congestions = paths.iter().map(|path| self.congestion(path, rate));
        let congestions: Vec<(f64, f64)> = congestions.collect();
        let Some(least) = congestions.iter().copied().min_by(by_congestion) else {
            return Vec::new();
        };
        let weighed = paths.into_iter().zip(congestions);
        weighed
            .filter(|(_, congestion)| by_congestion(congestion, &least).is_eq())
            .map(|(path, _)| path)
            .collect()
    }

    /// Largest and summed load of the links between the hosts' own.
    fn congestion(&self, path: &[LinkId], rate: f64) -> (f64, f64) {
        let inner = &path[1..path.len() - 1];
        let loads = inner.iter().map(|link| self.with(*link, rate));
        loads.fold((0.0, 0.0), |(largest, sum), load| {
            (f64::max(largest, load), sum + load)
        })
    }

    fn with(&self, link: LinkId, rate: f64) -> f64 {
        self.busy[link.index()] + rate / self.fabric.link(link).bandwidth.bytes_per_second()
    }
}

/// Seconds of an iteration at the tightest host link, which no path can change.
fn host_seconds(fabric: &Fabric, job: &Job) -> f64 {
    let ends = |flow: &Flow| {
        let (up, down) = (fabric.nic(flow.src).uplink, fabric.nic(flow.dst).uplink);
        vec![up, down.reverse()]
    };
    let ends: Vec<Vec<LinkId>> = job.flows.iter().map(ends).collect();
    Demand::new(fabric, job, &ends).bottleneck_seconds()
}

#[cfg(test)]
mod tests;
