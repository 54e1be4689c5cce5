//! The optimal compression, by small minimum cuts (`docs/algorithms/compression.md` has the proof).
//!
//! What is lost, the weight of edges inside a level, is an L-natural-convex function of the
//! levels: if raising or lowering no set of jobs by one level lowers it, nothing does. So from any
//! levels that respect the edges, the best set to raise is found by a cut and raised until there
//! is none, and then the best set to lower. The cuts are small: one vertex per job, and an arc only
//! for an edge whose levels are equal or next to each other.
//!
//! Of all optima the one that moves the fewest jobs from their present levels is taken, and of
//! those the one with the highest levels. It does not depend on where the search began.

use super::CompressionProblem;
use super::least_change::{OptimumRange, least_change};
use super::min_cut::{CutNetwork, CutSide, INFINITE};
use crate::contention::{ContentionDag, ContentionEdge};

/// Binary digits of the total capacity of weights, half of what no flow can fill. All but those of
/// the factor for the least-change term are digits of the weights: 51 of them for 1,000 jobs.
const CAPACITY_DIGITS: u32 = 61;

/// An edge with its weight as a whole number.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightedArc {
    pub(super) above: usize,
    pub(super) below: usize,
    pub(super) weight: u64,
}

/// The optimal levels by node.
pub fn exact_levels(problem: &CompressionProblem<'_>) -> Vec<u8> {
    let mut levels = vec![0; problem.dag.nodes];
    let arcs = integer_weights(problem.dag);
    for part in split_components(problem.dag.nodes, arcs) {
        let present = part.nodes.iter().map(|node| problem.current_levels[*node]);
        let highest = problem.level_count.max(1) - 1;
        for (node, level) in
            part.nodes.iter().zip(part.optimal_levels(&present.collect::<Vec<_>>(), highest))
        {
            levels[*node] = level;
        }
    }
    levels
}

/// Weights as whole numbers, scaled by a power of two so that weights which sum to the same still
/// do.
fn integer_weights(dag: &ContentionDag) -> Vec<WeightedArc> {
    let moves = dag.nodes as u64 + 1;
    let digits = CAPACITY_DIGITS - (u64::BITS - moves.leading_zeros());
    let steps = weight_scale(dag.total_weight(), digits);
    let arc = |edge: &ContentionEdge| WeightedArc {
        above: edge.above,
        below: edge.below,
        weight: ((edge.weight * steps).round() as u64).max(1),
    };
    dag.edges.iter().map(arc).collect()
}

/// The power of two that scales weights of this `total` to integers of so many binary digits
/// together.
fn weight_scale(total: f64, digits: u32) -> f64 {
    if total <= 0.0 {
        return 0.0;
    }
    let scale = f64::from(digits) - total.log2().ceil();
    scale.clamp(-1000.0, 1000.0).exp2()
}

/// Jobs that edges join, directly or over others: each part is compressed by itself.
struct DagComponent {
    /// Nodes of the whole, ascending, so that edges still lead from smaller to larger.
    nodes: Vec<usize>,
    /// Edges between positions in `nodes`.
    arcs: Vec<WeightedArc>,
}

fn split_components(nodes: usize, arcs: Vec<WeightedArc>) -> Vec<DagComponent> {
    let mut leader: Vec<usize> = (0..nodes).collect();
    for arc in &arcs {
        let (a, b) = (find_root(&mut leader, arc.above), find_root(&mut leader, arc.below));
        leader[a.max(b)] = a.min(b);
    }
    let mut parts: Vec<DagComponent> = Vec::new();
    let mut place = vec![(0, 0); nodes];
    for node in 0..nodes {
        let leader = find_root(&mut leader, node);
        let part = if leader == node {
            parts.push(DagComponent { nodes: Vec::new(), arcs: Vec::new() });
            parts.len() - 1
        } else {
            place[leader].0
        };
        place[node] = (part, parts[part].nodes.len());
        parts[part].nodes.push(node);
    }
    for arc in arcs {
        let ((part, above), (_, below)) = (place[arc.above], place[arc.below]);
        parts[part].arcs.push(WeightedArc { above, below, ..arc });
    }
    parts
}

fn find_root(leader: &mut [usize], mut node: usize) -> usize {
    while leader[node] != node {
        leader[node] = leader[leader[node]];
        node = leader[node];
    }
    node
}

impl DagComponent {
    fn optimal_levels(&self, present: &[Option<u8>], highest: u8) -> Vec<u8> {
        let mut search = LevelSearch {
            arcs: &self.arcs,
            levels: self.initial_levels(present, highest),
            highest,
        };
        search.move_to_highest_optimum();
        let most = search.levels.clone();
        if present.iter().all(Option::is_none) {
            return most;
        }
        if let Some(present) = present.iter().copied().collect::<Option<Vec<u8>>>()
            && search.lost_weight(&present) == Some(search.lost_weight(&most).unwrap_or(0))
            && present.iter().all(|level| *level <= highest)
        {
            return present;
        }
        search.move_to_lowest_optimum();
        let bounds = OptimumRange { lowest: search.levels, highest: most };
        least_change(&self.arcs, &bounds, present)
    }

    /// Levels that respect the edges: the present ones where they do; with none, an even split.
    fn initial_levels(&self, present: &[Option<u8>], highest: u8) -> Vec<u8> {
        let (nodes, levels) = (present.len(), usize::from(highest) + 1);
        let even = |node: usize| highest - u8::try_from(node * levels / nodes).unwrap_or(0);
        let is_new = present.iter().all(Option::is_none);
        let wish = |node: usize| match present[node] {
            None if is_new => even(node),
            level => level.unwrap_or(highest).min(highest),
        };
        let mut start: Vec<u8> = (0..nodes).map(wish).collect();
        // Edges lead to larger numbers, and are sorted by where they begin.
        for arc in &self.arcs {
            start[arc.below] = start[arc.below].min(start[arc.above]);
        }
        start
    }
}

/// A search by sets of jobs that are raised or lowered together.
struct LevelSearch<'a> {
    arcs: &'a [WeightedArc],
    levels: Vec<u8>,
    highest: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveDirection {
    Up,
    Down,
}

impl LevelSearch<'_> {
    /// Of the optima the one with the highest levels: raising the largest of the best sets ends at
    /// or above it, and lowering the smallest of the best ones ends there.
    fn move_to_highest_optimum(&mut self) {
        while self.move_best_set(MoveDirection::Up, CutSide::Largest) {}
        while self.move_best_set(MoveDirection::Down, CutSide::Smallest) {}
    }

    /// From the highest optimum to the lowest.
    fn move_to_lowest_optimum(&mut self) {
        while self.move_best_set(MoveDirection::Down, CutSide::Largest) {}
    }

    /// Weight of the edges inside levels; none if an edge leads to a higher level.
    fn lost_weight(&self, levels: &[u8]) -> Option<u64> {
        let lost = self.arcs.iter().map(|arc| match levels[arc.above].cmp(&levels[arc.below]) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(arc.weight),
            std::cmp::Ordering::Greater => Some(0),
        });
        lost.sum()
    }

    /// Moves the best set by one level; whether there was one. Of equally good sets, the largest or
    /// the smallest.
    ///
    /// Inside a level, a job that moves takes along the end of the edge that must not be left
    /// behind, and gains the weight if the other stays. Between neighbouring levels, an edge whose
    /// ends come together loses its weight.
    fn move_best_set(&mut self, direction: MoveDirection, side: CutSide) -> bool {
        let nodes = self.levels.len();
        let (source, sink) = (nodes, nodes + 1);
        let mut network = CutNetwork::new(nodes + 2);
        let mut gains = vec![0_i64; nodes];
        for arc in self.arcs {
            // Who may move only with the other, or at a loss, and the other.
            let (mover, other) = match direction {
                MoveDirection::Up => (arc.below, arc.above),
                MoveDirection::Down => (arc.above, arc.below),
            };
            match self.levels[arc.above] - self.levels[arc.below] {
                0 => {
                    network.add_arc(mover, other, INFINITE, 0);
                    gains[other] += arc.weight as i64;
                    gains[mover] -= arc.weight as i64;
                }
                1 => network.add_arc(mover, other, arc.weight, 0),
                _ => {}
            }
        }
        let end = match direction {
            MoveDirection::Up => self.highest,
            MoveDirection::Down => 0,
        };
        for (node, gain) in gains.into_iter().enumerate() {
            if self.levels[node] == end {
                network.add_arc(node, sink, INFINITE, 0);
            }
            match gain {
                0.. => network.add_arc(source, node, gain.unsigned_abs(), 0),
                _ => network.add_arc(node, sink, gain.unsigned_abs(), 0),
            }
        }
        let moves = network.source_side(source, sink, side);
        let mut moved = false;
        for (level, _) in self.levels.iter_mut().zip(&moves).filter(|(_, moves)| **moves) {
            moved = true;
            match direction {
                MoveDirection::Up => *level += 1,
                MoveDirection::Down => *level -= 1,
            }
        }
        moved
    }
}
