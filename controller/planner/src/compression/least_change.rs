//! Of the optimal classes, those that move the fewest jobs: one minimum cut over the jobs that have
//! a choice.
//!
//! Whether a job moves is no convex function of its class, so this needs a vertex for every class:
//! (u, k) stands for "the class of u is at least k" and is true on the source's side. All optima
//! lie between the lowest and the highest; only jobs whose classes differ there take part, with the
//! classes in between, and as a rule they are few. An edge u above v costs its weight when both
//! classes are equal; a job that leaves its present class costs one, and weights are multiplied so
//! that all such ones together are less than the smallest weight.

use super::exact::Arc;
use super::min_cut::{INFINITE, Network, Side};

/// The lowest and the highest optimum.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) least: Vec<u8>,
    pub(super) most: Vec<u8>,
}

/// The optimal classes that move the fewest jobs, and of those the highest.
pub(super) fn least_change(arcs: &[Arc], bounds: &Bounds, present: &[Option<u8>]) -> Vec<u8> {
    let grid = Grid::new(bounds);
    let mut network = Network::new(grid.sink + 1);
    for (node, present) in present.iter().enumerate() {
        grid.add_job(&mut network, node, *present);
    }
    let moves = present.len() as u64 + 1;
    for arc in arcs {
        grid.add_edge(&mut network, arc, arc.weight * moves);
    }
    let is_true = network.source_side(grid.source, grid.sink, Side::Largest);
    (0..present.len())
        .map(|node| grid.class_of(node, &is_true))
        .collect()
}

/// Where the vertices (u, k) are.
struct Grid<'a> {
    bounds: &'a Bounds,
    /// The vertex of (u, least class of u + 1).
    first: Vec<usize>,
    source: usize,
    sink: usize,
}

impl<'a> Grid<'a> {
    fn new(bounds: &'a Bounds) -> Self {
        let mut vertices = 0;
        let ranges = bounds.least.iter().zip(&bounds.most);
        let first = ranges.map(|(least, most)| {
            let first = vertices;
            vertices += usize::from(most - least);
            first
        });
        Self {
            first: first.collect(),
            bounds,
            source: vertices,
            sink: vertices + 1,
        }
    }

    /// The vertex of (u, k).
    fn at(&self, node: usize, k: u8) -> usize {
        let (least, most) = (self.bounds.least[node], self.bounds.most[node]);
        match k {
            k if k <= least => self.source,
            k if k > most => self.sink,
            k => self.first[node] + usize::from(k - least) - 1,
        }
    }

    /// Leaving the present class costs one, and "at least k + 1" implies "at least k".
    fn add_job(&self, network: &mut Network, node: usize, present: Option<u8>) {
        let (least, most) = (self.bounds.least[node], self.bounds.most[node]);
        if least == most {
            return;
        }
        for k in least..=most {
            let moves = present.is_some_and(|class| class != k);
            let inner = least < k && k < most;
            let back = if inner { INFINITE } else { 0 };
            network.add(
                self.at(node, k),
                self.at(node, k + 1),
                u64::from(moves),
                back,
            );
        }
    }

    fn add_edge(&self, network: &mut Network, arc: &Arc, weight: u64) {
        let Bounds { least, most } = self.bounds;
        let is_fixed = |node: usize| least[node] == most[node];
        // Apart in every optimum, or both where they are in all of them: nothing to decide.
        let is_apart = least[arc.above] > most[arc.below];
        if is_apart || (is_fixed(arc.above) && is_fixed(arc.below)) {
            return;
        }
        for k in least[arc.below]..=most[arc.below] {
            let below = self.at(arc.below, k);
            let (same, next) = (self.at(arc.above, k), self.at(arc.above, k + 1));
            if below != next && next != self.source {
                network.add(below, next, weight, 0);
            }
            if below != same && same != self.source {
                network.add(below, same, INFINITE, 0);
            }
        }
    }

    fn class_of(&self, node: usize, is_true: &[bool]) -> u8 {
        let (least, most) = (self.bounds.least[node], self.bounds.most[node]);
        let above = (least + 1..=most)
            .filter(|k| is_true[self.at(node, *k)])
            .count();
        least + u8::try_from(above).unwrap_or(0)
    }
}
