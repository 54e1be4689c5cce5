//! The schedulers that ours is compared with, each as its paper gives it.
//!
//! Every module states its equations, its source, and which way was taken where the source leaves
//! a choice open. `docs/algorithms/baselines.md` describes the same without code.

pub mod cassini;
pub mod ecmp;
pub mod mltcp;
pub mod sincronia;
pub mod spray;
pub mod taccl;
#[cfg(test)]
pub(crate) mod test_input;
pub mod varys;

use planner::Policy;

/// Levels by job, for jobs in `order` (the first served first): `compress` maps the places of the
/// order to the levels that the policy leaves to jobs.
fn compress_order(
    order: &[usize],
    policy: &Policy,
    compress: fn(usize, u8) -> Vec<u8>,
) -> Vec<u32> {
    let given = policy.job_levels();
    let count = u8::try_from(given.len()).unwrap_or(u8::MAX);
    let mut levels = vec![0; order.len()];
    for (job, level) in order.iter().zip(compress(order.len(), count)) {
        levels[*job] = u32::from(given[usize::from(level)]);
    }
    levels
}
