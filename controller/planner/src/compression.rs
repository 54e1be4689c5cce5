//! Priority compression (Crux §4.3): from an order of jobs to the few levels that switches have.
//!
//! `docs/algorithms/compression.md` is the essay: the problem, the exact method with its proof, and
//! what it costs. Every method takes the contention DAG, whose nodes are in descending priority,
//! and gives every node a level such that no edge leads to a higher one.

pub mod balanced;
pub mod exact;
mod least_change;
mod min_cut;
pub mod sampled;
pub mod sincronia;

use crate::contention::ContentionDag;
use crate::policy::CompressionMethod;

/// A compression to make.
#[derive(Clone, Debug)]
pub struct CompressionProblem<'a> {
    /// The contention DAG to cut.
    pub dag: &'a ContentionDag,
    /// `K`: number of levels, at least one.
    pub level_count: u8,
    /// The level that each node has now, if any: of equal optima the exact method takes the one
    /// that moves the fewest.
    pub current_levels: Vec<Option<u8>>,
}

/// The level of every node, `0..problem.levels`, the highest served first.
pub fn compress_priorities(problem: &CompressionProblem<'_>, method: CompressionMethod) -> Vec<u8> {
    let (dag, levels) = (problem.dag, problem.level_count);
    match method {
        CompressionMethod::Exact => exact::exact_levels(problem),
        CompressionMethod::Sampled => sampled::sampled_levels(dag, levels, sampled::SEED),
        CompressionMethod::Sincronia => sincronia::sincronia_levels(dag.nodes, levels),
        CompressionMethod::Balanced => balanced::balanced_levels(dag.nodes, levels),
    }
}
