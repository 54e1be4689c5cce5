//! The optimal compression, as one minimum cut (`README.md` has the proof).
//!
//! Node (u, k), for k in 1..K, stands for "the class of u is at least k" and is true on the
//! source's side; (u, 0) is the source and (u, K) the sink. An edge u above v costs its weight when
//! both classes are equal; a job that leaves its present class costs one, and weights are scaled so
//! far up that all such ones together are less than the smallest difference between two cuts. Of
//! all minimum cuts the one with the most true nodes is taken: no job could be in a higher class,
//! and the answer does not depend on how the cut was found.

use super::Problem;
use super::min_cut::{INFINITE, Network};
use crate::contention::ContentionDag;

/// Binary digits of the total capacity of weights, half of what no flow can fill. All but those of
/// the factor for the least-change term are digits of the weights: 51 of them for 1,000 jobs.
const CAPACITY_DIGITS: u32 = 61;

/// The optimal classes by node.
pub fn classes(problem: &Problem<'_>) -> Vec<u8> {
    let grid = Grid {
        nodes: problem.dag.nodes,
        classes: usize::from(problem.classes.max(1)),
    };
    let mut network = Network::new(grid.vertices());
    grid.add_jobs(&mut network, &problem.present);
    grid.add_edges(&mut network, problem.dag);
    let is_true = network.largest_source_side(grid.source(), grid.sink());
    (0..grid.nodes)
        .map(|node| grid.class_of(node, &is_true))
        .collect()
}

/// Where the nodes (u, k) are in the network.
#[derive(Clone, Copy, Debug)]
struct Grid {
    nodes: usize,
    classes: usize,
}

impl Grid {
    fn vertices(self) -> usize {
        self.nodes * (self.classes - 1) + 2
    }

    fn source(self) -> usize {
        self.vertices() - 2
    }

    fn sink(self) -> usize {
        self.vertices() - 1
    }

    /// The vertex of (u, k).
    fn at(self, node: usize, k: usize) -> usize {
        match k {
            0 => self.source(),
            k if k == self.classes => self.sink(),
            k => node * (self.classes - 1) + k - 1,
        }
    }

    /// The chain of every job: leaving the present class costs one, and "at least k + 1" implies
    /// "at least k".
    fn add_jobs(self, network: &mut Network, present: &[Option<u8>]) {
        for (node, present) in present.iter().enumerate() {
            for k in 0..self.classes {
                let moves = present.is_some_and(|class| usize::from(class) != k);
                let (lower, upper) = (self.at(node, k), self.at(node, k + 1));
                let inner = k > 0 && k + 1 < self.classes;
                network.add(
                    lower,
                    upper,
                    u64::from(moves),
                    if inner { INFINITE } else { 0 },
                );
            }
        }
    }

    fn add_edges(self, network: &mut Network, dag: &ContentionDag) {
        let moves = dag.nodes as u64 + 1;
        let digits = CAPACITY_DIGITS - (u64::BITS - moves.leading_zeros());
        let steps = steps(dag.total_weight(), digits);
        for edge in &dag.edges {
            let weight = ((edge.weight * steps).round() as u64).max(1) * moves;
            for k in 0..self.classes {
                network.add(
                    self.at(edge.below, k),
                    self.at(edge.above, k + 1),
                    weight,
                    0,
                );
            }
            for k in 1..self.classes {
                network.add(self.at(edge.below, k), self.at(edge.above, k), INFINITE, 0);
            }
        }
    }

    fn class_of(self, node: usize, is_true: &[bool]) -> u8 {
        let count = (1..self.classes)
            .filter(|k| is_true[self.at(node, *k)])
            .count();
        u8::try_from(count).unwrap_or(u8::MAX)
    }
}

/// The power of two that scales weights of this `total` to integers of so many binary digits
/// together. A power of two, so that weights which sum to the same still do.
fn steps(total: f64, digits: u32) -> f64 {
    if total <= 0.0 {
        return 0.0;
    }
    let scale = f64::from(digits) - total.log2().ceil();
    scale.clamp(-1000.0, 1000.0).exp2()
}
