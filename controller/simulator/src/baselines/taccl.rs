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
//! see [`LoadVisibility`]. Nearly everything hangs on it.
//!
//! Left open there and chosen here: the distance of a job is the number of links of its longest
//! path; jobs of equal distance keep the order in which they came; the sorted list is split evenly
//! into the levels of the switches.

use std::cmp::{Ordering, Reverse};

use planner::{Flow, Job, PlanInput, Policy, compression};
use topology::{Fabric, LinkId, SwitchId};

use crate::baselines::{compress_order, ecmp};
use crate::demand::LinkDemand;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// Which loads a flow takes into account when it chooses its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadVisibility {
    /// The flows of its own job that chose before it, too: one flow after the other, the first of
    /// equal paths.
    AllFlows,
    /// Other jobs only: the flows of a job choose at once, by hash among equal paths.
    OtherJobs,
}

/// Paths over the least congested links, and levels by distance.
pub fn schedule_jobs(
    input: &PlanInput,
    policy: &Policy,
    routes: &EqualCostRoutes,
    visibility: LoadVisibility,
) -> Schedule {
    let paths = choose_paths(input, routes, visibility);
    Schedule::from_levels(&assign_levels(&order_jobs(&paths), policy), paths)
}

/// Classes by job, of jobs in `order`: the list split evenly.
pub fn assign_levels(order: &[usize], policy: &Policy) -> Vec<u32> {
    compress_order(order, policy, compression::balanced::balanced_levels)
}

/// Jobs by descending distance; `paths` by job, then by flow.
pub fn order_jobs(paths: &[Vec<Vec<LinkId>>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|job| {
        let distance = paths[*job].iter().map(Vec::len).max().unwrap_or(0);
        (Reverse(distance), *job)
    });
    order
}

/// The path of every flow by job, each the least congested when its turn comes; empty for a flow
/// without a path.
pub fn choose_paths(
    input: &PlanInput,
    routes: &EqualCostRoutes,
    visibility: LoadVisibility,
) -> Vec<Vec<Vec<LinkId>>> {
    let mut loads = LinkLoads { fabric: &input.fabric, busy: vec![0; input.fabric.links().len()] };
    let jobs = input.jobs.iter();
    jobs.map(|job| loads.route_job(job, routes, visibility)).collect()
}

/// Units of load in all of a link's time.
const WHOLE: f64 = (1_u64 << 32) as f64;

/// Share of time, in units of 2^-32, that each directed link is busy with the flows placed so far.
/// Sums of whole numbers depend on no order, so that ways which are as congested compare equal.
struct LinkLoads<'a> {
    fabric: &'a Fabric,
    busy: Vec<u64>,
}

impl LinkLoads<'_> {
    fn route_job(
        &mut self,
        job: &Job,
        routes: &EqualCostRoutes,
        visibility: LoadVisibility,
    ) -> Vec<Vec<LinkId>> {
        let seconds = job.iteration_seconds(host_seconds(self.fabric, job));
        let rate = |flow: &Flow| {
            if seconds > 0.0 { flow.bytes / seconds } else { 0.0 }
        };
        let mut paths = Vec::with_capacity(job.flows.len());
        for flow in &job.flows {
            let path = self.least_congested_path(flow, rate(flow), routes, visibility);
            if visibility == LoadVisibility::AllFlows {
                self.add_path(&path, rate(flow));
            }
            paths.push(path);
        }
        if visibility == LoadVisibility::OtherJobs {
            for (flow, path) in job.flows.iter().zip(&paths) {
                self.add_path(path, rate(flow));
            }
        }
        paths
    }

    fn add_path(&mut self, path: &[LinkId], rate: f64) {
        for link in path {
            self.busy[link.index()] = self.load_with(*link, rate);
        }
    }

    /// One of the paths of a flow that are as little congested as any. Paths are counted from the
    /// last leaf back and never listed: between two leaves there may be thousands.
    fn least_congested_path(
        &self,
        flow: &Flow,
        rate: f64,
        routes: &EqualCostRoutes,
        visibility: LoadVisibility,
    ) -> Vec<LinkId> {
        let from = self.fabric.leaf_of(flow.src);
        let largest = routes.fold_backwards(flow, 0, |behind| {
            let loads = behind.iter().map(|(link, rest)| self.load_with(*link, rate).max(*rest));
            loads.min().unwrap_or(u64::MAX)
        });
        let limit = largest.get(&from).copied().unwrap_or(u64::MAX);
        let onward =
            |link: LinkId, rest: OnwardPaths| rest.with_link(self.load_with(link, rate), limit);
        let rests = routes.fold_backwards(flow, OnwardPaths::END, |behind| {
            let rests = behind.iter().map(|(link, rest)| onward(*link, *rest));
            rests.fold(OnwardPaths::NONE, OnwardPaths::merge_best)
        });
        let rest = |switch: SwitchId| rests.get(&switch).copied().unwrap_or(OnwardPaths::NONE);
        let mut before = match visibility {
            LoadVisibility::AllFlows => 0,
            LoadVisibility::OtherJobs => ecmp::choose_at_leaf(self.fabric, flow, rest(from).count),
        };
        routes.choose_path(flow, |switch, links| {
            let chosen = links.iter().find(|link| {
                let next = self.fabric.switch_after(**link);
                let rest_behind = next.map_or(OnwardPaths::NONE, |next| onward(**link, rest(next)));
                let ways = match rest_behind.sum == rest(switch).sum {
                    true => rest_behind.count,
                    false => 0,
                };
                let is_here = before < ways;
                before -= if is_here { 0 } else { ways };
                is_here
            });
            chosen.copied().unwrap_or(links[0])
        })
    }

    fn load_with(&self, link: LinkId, rate: f64) -> u64 {
        let share = rate / self.fabric.link(link).bandwidth.bytes_per_second();
        self.busy[link.index()].saturating_add((share * WHOLE).round() as u64)
    }
}

/// The least congested ways on from a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OnwardPaths {
    /// Loads of the links of one, together.
    sum: u64,
    /// How many there are that come to this sum.
    count: usize,
}

impl OnwardPaths {
    const END: Self = Self { sum: 0, count: 1 };
    const NONE: Self = Self { sum: u64::MAX, count: 0 };

    /// With a link before it that bears `load`, unless that is over the limit.
    fn with_link(self, load: u64, limit: u64) -> Self {
        if load > limit || self.count == 0 {
            return Self::NONE;
        }
        Self { sum: self.sum.saturating_add(load), ..self }
    }

    /// The better of two, or both where they are as good.
    fn merge_best(self, other: Self) -> Self {
        match self.sum.cmp(&other.sum) {
            Ordering::Less => self,
            Ordering::Greater => other,
            Ordering::Equal => Self { count: self.count + other.count, ..self },
        }
    }
}

/// Seconds of an iteration at the tightest host link, which no path can change.
fn host_seconds(fabric: &Fabric, job: &Job) -> f64 {
    let flows = job.flows.iter();
    let host_links: Vec<Vec<LinkId>> = flows
        .map(|flow| vec![fabric.nic(flow.src).uplink, fabric.nic(flow.dst).uplink.reverse()])
        .collect();
    LinkDemand::new(fabric, job, &host_links).bottleneck_seconds()
}

#[cfg(test)]
mod tests;
