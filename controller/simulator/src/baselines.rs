//! The schedulers that ours is compared with, each as its paper gives it.
//!
//! Every module states its equations, its source, and which way was taken where the source leaves
//! a choice open. `docs/algorithms/baselines.md` has the same for people who do not read code.

pub mod cassini;
pub mod ecmp;
pub mod sincronia;
pub mod taccl;
#[cfg(test)]
pub(crate) mod test_input;
pub mod varys;

use planner::Policy;

/// Classes of switches for jobs in `order` (the first served first), by job: what `compress` makes
/// of so many jobs and classes, on the levels that policy leaves to jobs.
fn compress_order(
    order: &[usize],
    policy: &Policy,
    compress: fn(usize, u8) -> Vec<u8>,
) -> Vec<u32> {
    let given = policy.job_levels();
    let count = u8::try_from(given.len()).unwrap_or(u8::MAX);
    let mut levels = vec![0; order.len()];
    for (job, class) in order.iter().zip(compress(order.len(), count)) {
        levels[*job] = u32::from(given[usize::from(class)]);
    }
    levels
}
