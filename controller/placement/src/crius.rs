//! Crius (Xue et al., arXiv 2403.16125; as Arena at `EuroSys` 2026): large models on several kinds
//! of GPU, whose number, kind and parallelism the scheduler chooses together.
//!
//! The joint space is divided into [`CriusCell`]s, small enough that one estimate stands for all
//! plans in it. From the bottom:
//!
//! ```text
//! layers, gpu_kinds     what a model computes and sends, what a kind of GPU can do
//! kernels               how long a layer computes on one GPU
//! partition             cuts into stages, and GPUs for each
//! pipeline, collectives how long an iteration and a transfer take
//! estimate, calibration a Cell's best-looking plan, timed; how far that is off
//! tuner                 the plan that is run, once a Cell is chosen
//! search                room for a job: merge, spread, halve, move; faster jobs on idle GPUs
//! policy                rounds of all that
//! ```
//!
//! The scheduler sees speeds only ([`super::throughput`]), estimated or measured, and the deadlines
//! of jobs ([`super::deadline`]).
//! `docs/algorithms/crius.md` is the essay.

pub mod calibration;
pub mod collectives;
pub mod estimate;
pub mod gpu_kinds;
pub mod kernels;
pub mod layers;
pub mod partition;
pub mod pipeline;
mod policy;
pub mod search;
pub mod tuner;

pub use policy::{CriusAbilities, CriusPolicy};

/// A part of the joint space of schedules and plans (Crius): so many GPUs of one kind, and so
/// many pipeline stages. Only the data and tensor parallelism inside each stage is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CriusCell {
    /// Number of hosts used.
    pub hosts: u32,
    /// GPUs of each host.
    pub gpus_per_host: u32,
    /// Pipeline stages.
    pub stages: u32,
}

impl CriusCell {
    /// The Cells of a job on these GPUs: 1, 2, 4, .. stages, up to one for every GPU.
    pub fn for_gpus(hosts: u32, gpus_per_host: u32) -> impl Iterator<Item = Self> {
        let powers = (0..u32::BITS).map(|power| 1_u32 << power);
        let stages = powers.take_while(move |stages| *stages <= hosts * gpus_per_host);
        stages.map(move |stages| Self { hosts, gpus_per_host, stages })
    }

    /// Number of its GPUs.
    pub fn gpu_count(&self) -> u32 {
        self.hosts * self.gpus_per_host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_gpus_have_one_cell_more_than_their_logarithm() {
        for (hosts, gpus_per_host, cells) in [(1, 1, 1), (1, 4, 3), (4, 2, 4), (2, 8, 5)] {
            assert_eq!(CriusCell::for_gpus(hosts, gpus_per_host).count(), cells);
        }
    }
}
