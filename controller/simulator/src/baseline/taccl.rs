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

use std::cmp::Ordering;

use planner::{Flow, Input, Job, Policy, compression};
use topology::{Fabric, LinkId, SwitchId};

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
        busy: vec![0; input.fabric.links().len()],
    };
    let jobs = input.jobs.iter();
    jobs.map(|job| loads.place_job(job, routes, sight))
        .collect()
}

/// Units of load in all of a link's time.
const WHOLE: f64 = (1_u64 << 32) as f64;

/// Share of time, in units of 2^-32, that each directed link is busy with the flows placed so far.
/// Sums of whole numbers depend on no order, so that ways which are as congested compare equal.
struct Loads<'a> {
    fabric: &'a Fabric,
    busy: Vec<u64>,
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
            let path = self.least_congested(flow, rate(flow), routes, sight);
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

    /// One of the paths of a flow that are as little congested as any. Paths are counted from the
    /// last leaf back and never listed: between two leaves there may be thousands.
    fn least_congested(
        &self,
        flow: &Flow,
        rate: f64,
        routes: &Routes,
        sight: Sight,
    ) -> Vec<LinkId> {
        let from = self.fabric.leaf_of(flow.src);
        let largest = routes.backwards(flow, 0, |behind| {
            let loads = behind.iter();
            let loads = loads.map(|(link, rest)| self.with(*link, rate).max(*rest));
            loads.min().unwrap_or(u64::MAX)
        });
        let limit = largest.get(&from).copied().unwrap_or(u64::MAX);
        let onward = |link: LinkId, rest: Rest| rest.behind(self.with(link, rate), limit);
        let rests = routes.backwards(flow, Rest::END, |behind| {
            let rests = behind.iter().map(|(link, rest)| onward(*link, *rest));
            rests.fold(Rest::NONE, Rest::or)
        });
        let rest = |switch: SwitchId| rests.get(&switch).copied().unwrap_or(Rest::NONE);
        let mut before = match sight {
            Sight::Flows => 0,
            Sight::Jobs => ecmp::among(self.fabric, flow, rest(from).ways),
        };
        routes.walk(flow, |switch, links| {
            let chosen = links.iter().find(|link| {
                let next = self.fabric.switch_after(**link);
                let rest_behind = next.map_or(Rest::NONE, |next| onward(**link, rest(next)));
                let ways = match rest_behind.sum == rest(switch).sum {
                    true => rest_behind.ways,
                    false => 0,
                };
                let is_here = before < ways;
                before -= if is_here { 0 } else { ways };
                is_here
            });
            chosen.copied().unwrap_or(links[0])
        })
    }

    fn with(&self, link: LinkId, rate: f64) -> u64 {
        let share = rate / self.fabric.link(link).bandwidth.bytes_per_second();
        self.busy[link.index()].saturating_add((share * WHOLE).round() as u64)
    }
}

/// The least congested ways on from a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    /// Loads of the links of one, together.
    sum: u64,
    /// How many there are that come to this sum.
    ways: usize,
}

impl Rest {
    const END: Self = Self { sum: 0, ways: 1 };
    const NONE: Self = Self {
        sum: u64::MAX,
        ways: 0,
    };

    /// With a link before it that bears `load`, unless that is over the limit.
    fn behind(self, load: u64, limit: u64) -> Self {
        if load > limit || self.ways == 0 {
            return Self::NONE;
        }
        Self {
            sum: self.sum.saturating_add(load),
            ..self
        }
    }

    /// The better of two, or both where they are as good.
    fn or(self, other: Self) -> Self {
        match self.sum.cmp(&other.sum) {
            Ordering::Less => self,
            Ordering::Greater => other,
            Ordering::Equal => Self {
                ways: self.ways + other.ways,
                ..self
            },
        }
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
