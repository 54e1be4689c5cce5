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
//! There are two readings:
//!
//! * On switches ([`schedule_jobs`]), as the Crux paper does to compare: switches serve levels, so
//!   the sorted list is split evenly into `K`, and inside a level rates are max-min fair. A job's
//!   iterations are equal coflows, so `Gamma` is that of a whole iteration on idle links and the
//!   order never changes.
//! * As the paper has it ([`schedule_as_coflows`]), which only hosts with a rate for each flow can
//!   do: MADD in the order of what is left of each coflow, decided anew whenever a flow begins or
//!   ends ([`fluid::ServiceDiscipline::Coflows`]).
//!
//! Ties: the job that came first. Paths are ECMP's.

use fluid::ServiceDiscipline;
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

/// ECMP's paths, and rates by MADD.
pub fn schedule_as_coflows(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    let schedule = ecmp::schedule_jobs(input, routes);
    Schedule { discipline: ServiceDiscipline::Coflows, ..schedule }
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
