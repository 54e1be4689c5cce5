//! Varys (Chowdhury, Zhong and Stoica, "Efficient Coflow Scheduling with Varys", SIGCOMM 2014):
//! smallest effective bottleneck first (SEBF).
//!
//! The effective bottleneck of coflow `c` is the time that it would take alone (its Eq. 1):
//!
//! ```text
//! Gamma_c = max over links e of  (remaining bytes of c on e) / (free capacity of e)
//! ```
//!
//! Coflows are served in ascending `Gamma`. The paper allocates by MADD (each flow gets its
//! remaining bytes over `Gamma`, so that all flows of a coflow end together) and gives what is left
//! over to the next ones.
//!
//! Left open there and chosen here, as the Crux paper does to compare: switches serve levels, so
//! the sorted list is split evenly into `K`, and inside a level rates are max-min fair instead of
//! MADD. A job's iterations are equal coflows, so `Gamma` is that of a whole iteration on idle
//! links and the order never changes. Ties: the job that came first. Paths are ECMP's.

use planner::{PlanInput, Policy, compression};

use crate::baselines::{compress_order, ecmp};
use crate::demand::LinkDemand;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// ECMP's paths, and levels by ascending `Gamma`.
pub fn schedule_jobs(input: &PlanInput, policy: &Policy, routes: &EqualCostRoutes) -> Schedule {
    let paths = ecmp::hash_paths(input, routes);
    let order = order_coflows(&LinkDemand::for_jobs(input, &paths));
    Schedule::from_levels(&assign_levels(&order, policy), paths)
}

/// Classes by job, of jobs in `order`: the list split evenly.
pub fn assign_levels(order: &[usize], policy: &Policy) -> Vec<u32> {
    compress_order(order, policy, compression::balanced::balanced_levels)
}

/// The order of the coflows with these `demands`, the smallest effective bottleneck first.
pub fn order_coflows(demands: &[LinkDemand]) -> Vec<usize> {
    let gammas: Vec<f64> = demands.iter().map(LinkDemand::bottleneck_seconds).collect();
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| gammas[*a].total_cmp(&gammas[*b]).then(a.cmp(b)));
    order
}

#[cfg(test)]
mod tests;
