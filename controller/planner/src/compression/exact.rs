//! The optimal compression, by small minimum cuts (`docs/algorithms/compression.md` has the proof).
//!
//! The loss, the weight of edges inside a level, is an L-natural-convex function of the
//! levels: if raising or lowering no set of jobs by one level lowers it, nothing does. So from any
//! levels that respect the edges, a cut finds the best set to raise, which is raised until there is
//! none, and then the best set to lower. The cuts are small: one vertex per job, and an arc only
//! for an edge whose levels are equal or next to each other.
//!
//! Of all optima the one that moves the fewest jobs from their present levels is taken, and of
//! those the one with the highest levels. It does not depend on where the search began.

use topology::groups::DisjointSets;

use super::CompressionProblem;
use super::least_change::{OptimumRange, least_change};
use super::min_cut::{CutNetwork, CutSide, INFINITE};
use crate::contention::ContentionDag;

/// Binary digits of the total capacity of all weights, one less than those of `INFINITE`. The
/// factor of the least-change term takes some; the rest are digits of the weights: 51 for 1,000
/// jobs.
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
    let highest = problem.level_count.max(1) - 1;
    for component in split_components(problem.dag.nodes, arcs) {
        let present: Vec<Option<u8>> =
            component.nodes.iter().map(|node| problem.current_levels[*node]).collect();
        let optimal = component.optimal_levels(&present, highest);
        for (node, level) in component.nodes.iter().zip(optimal) {
            levels[*node] = level;
        }
    }
    levels
}

/// Weights as whole numbers, scaled by a power of two so that equal sums of weights stay equal.
fn integer_weights(dag: &ContentionDag) -> Vec<WeightedArc> {
    let moves = dag.nodes as u64 + 1;
    let digits = CAPACITY_DIGITS - (u64::BITS - moves.leading_zeros());
    let steps = weight_scale(dag.total_weight(), digits);
    dag.edges
        .iter()
        .map(|edge| WeightedArc {
            above: edge.above,
            below: edge.below,
            weight: ((edge.weight * steps).round() as u64).max(1),
        })
        .collect()
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

/// Jobs that edges join, directly or through others; each component is compressed separately.
struct DagComponent {
    /// Nodes of the whole, ascending, so that edges still lead from smaller to larger.
    nodes: Vec<usize>,
    /// Edges between positions in `nodes`.
    arcs: Vec<WeightedArc>,
}

fn split_components(nodes: usize, arcs: Vec<WeightedArc>) -> Vec<DagComponent> {
    let mut sets = DisjointSets::new(nodes);
    for arc in &arcs {
        sets.join(arc.above, arc.below);
    }
    let mut components: Vec<DagComponent> = sets
        .into_sets()
        .into_iter()
        .map(|nodes| DagComponent { nodes, arcs: Vec::new() })
        .collect();
    let mut place = vec![(0, 0); nodes];
    for (component, DagComponent { nodes, .. }) in components.iter().enumerate() {
        for (position, node) in nodes.iter().enumerate() {
            place[*node] = (component, position);
        }
    }
    for arc in arcs {
        let ((component, above), (_, below)) = (place[arc.above], place[arc.below]);
        components[component].arcs.push(WeightedArc { above, below, ..arc });
    }
    components
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
        let is_new = present.iter().all(Option::is_none);
        let mut start: Vec<u8> = (0..nodes)
            .map(|node| match present[node] {
                None if is_new => highest - u8::try_from(node * levels / nodes).unwrap_or(0),
                level => level.unwrap_or(highest).min(highest),
            })
            .collect();
        // One pass is enough: edges lead to larger numbers and are sorted by where they begin.
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
    /// Moves to the optimum with the highest levels: raising the largest of the best sets ends at
    /// or above it, and lowering the smallest of the best ones ends there.
    fn move_to_highest_optimum(&mut self) {
        while self.move_best_set(MoveDirection::Up, CutSide::Largest) {}
        while self.move_best_set(MoveDirection::Down, CutSide::Smallest) {}
    }

    /// Moves from the highest optimum to the lowest.
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

    /// Moves the best set by one level and returns whether there was one. Of equally good sets, the
    /// largest or the smallest.
    ///
    /// Inside a level, a job moves together with the end of the edge that must not be left behind,
    /// and gains the weight if the other end stays. Between neighbouring levels, an edge whose
    /// ends come together loses its weight.
    fn move_best_set(&mut self, direction: MoveDirection, side: CutSide) -> bool {
        let nodes = self.levels.len();
        let (source, sink) = (nodes, nodes + 1);
        let mut network = CutNetwork::new(nodes + 2);
        let mut gains = vec![0_i64; nodes];
        for arc in self.arcs {
            // `mover` may move only with `other`, or at a loss.
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
