//! Of the optimal levels, those that move the fewest jobs: one minimum cut over the jobs that have
//! a choice.
//!
//! Whether a job moves is not a convex function of its level, so this needs a vertex for every
//! level: (u, k) stands for "the level of u is at least k" and is true on the source's side. All
//! optima lie between the lowest and the highest; only jobs whose levels differ there take part,
//! with the levels in between, and as a rule they are few. An edge u above v costs its weight when
//! both levels are equal; a job that leaves its present level costs one, and weights are multiplied
//! so that all such ones together are less than the smallest weight.

use super::exact::WeightedArc;
use super::min_cut::{CutNetwork, CutSide, INFINITE};

/// The lowest and the highest optimum.
#[derive(Clone, Debug)]
pub(super) struct OptimumRange {
    pub(super) lowest: Vec<u8>,
    pub(super) highest: Vec<u8>,
}

/// The optimal levels that move the fewest jobs, and of those the highest.
pub(super) fn least_change(
    arcs: &[WeightedArc],
    bounds: &OptimumRange,
    present: &[Option<u8>],
) -> Vec<u8> {
    let grid = LevelGrid::new(bounds);
    let mut network = CutNetwork::new(grid.sink + 1);
    for (node, present) in present.iter().enumerate() {
        grid.add_job(&mut network, node, *present);
    }
    let moves = present.len() as u64 + 1;
    for arc in arcs {
        grid.add_edge(&mut network, arc, arc.weight * moves);
    }
    let is_true = network.source_side(grid.source, grid.sink, CutSide::Largest);
    (0..present.len()).map(|node| grid.level_of(node, &is_true)).collect()
}

/// Where the vertices (u, k) are.
struct LevelGrid<'a> {
    range: &'a OptimumRange,
    /// The vertex of (u, least level of u + 1).
    first: Vec<usize>,
    source: usize,
    sink: usize,
}

impl<'a> LevelGrid<'a> {
    fn new(bounds: &'a OptimumRange) -> Self {
        let mut vertices = 0;
        let ranges = bounds.lowest.iter().zip(&bounds.highest);
        let first = ranges.map(|(least, most)| {
            let first = vertices;
            vertices += usize::from(most - least);
            first
        });
        Self { first: first.collect(), range: bounds, source: vertices, sink: vertices + 1 }
    }

    /// The vertex of (u, k).
    fn vertex_of(&self, node: usize, k: u8) -> usize {
        let (least, most) = (self.range.lowest[node], self.range.highest[node]);
        match k {
            k if k <= least => self.source,
            k if k > most => self.sink,
            k => self.first[node] + usize::from(k - least) - 1,
        }
    }

    /// Leaving the present level costs one, and "at least k + 1" implies "at least k".
    fn add_job(&self, network: &mut CutNetwork, node: usize, present: Option<u8>) {
        let (least, most) = (self.range.lowest[node], self.range.highest[node]);
        if least == most {
            return;
        }
        for k in least..=most {
            let moves = present.is_some_and(|level| level != k);
            let inner = least < k && k < most;
            let back = if inner { INFINITE } else { 0 };
            network.add_arc(
                self.vertex_of(node, k),
                self.vertex_of(node, k + 1),
                u64::from(moves),
                back,
            );
        }
    }

    fn add_edge(&self, network: &mut CutNetwork, arc: &WeightedArc, weight: u64) {
        let OptimumRange { lowest: least, highest: most } = self.range;
        // Separated in every optimum, or both at the same level in all of them: nothing to decide.
        let is_separated = least[arc.above] > most[arc.below];
        let is_fixed = [arc.above, arc.below].iter().all(|node| least[*node] == most[*node]);
        if is_separated || is_fixed {
            return;
        }
        for k in least[arc.below]..=most[arc.below] {
            let below = self.vertex_of(arc.below, k);
            let (same, next) = (self.vertex_of(arc.above, k), self.vertex_of(arc.above, k + 1));
            if below != next && next != self.source {
                network.add_arc(below, next, weight, 0);
            }
            if below != same && same != self.source {
                network.add_arc(below, same, INFINITE, 0);
            }
        }
    }

    fn level_of(&self, node: usize, is_true: &[bool]) -> u8 {
        let (least, most) = (self.range.lowest[node], self.range.highest[node]);
        let above = (least + 1..=most).filter(|k| is_true[self.vertex_of(node, *k)]).count();
        least + u8::try_from(above).unwrap_or(0)
    }
}
