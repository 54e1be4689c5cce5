//! The paper's Algorithm 1: optimal cuts of a few random topological orders, and the best of them.
//!
//! Kept as the paper's own method beside the exact one. On one order, a compression is a choice of
//! `K - 1` places to cut it, and dynamic programming over prefix sums of the weights finds the
//! best. The printed prefix-sum loop ends at `K`; it has to run to `n`, and does here.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::contention::ContentionDag;

/// Topological orders tried (`m` in the paper).
const ORDERS: usize = 10;

/// Seed of the orders where a plan asks: fixed, so that the same input gives the same plan.
pub const SEED: u64 = 0x0063_7275_7800;

/// Levels by node; `seed` chooses the orders.
pub fn sampled_levels(dag: &ContentionDag, levels: u8, seed: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let below = neighbours_below(dag);
    let candidates = (0..ORDERS).map(|_| {
        let order = topological_order(&below, &mut random);
        let best = cut_order(dag, &order, usize::from(levels.max(1)));
        (dag.cut_weight(&best), best)
    });
    // Of equals the first.
    let best = candidates.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or_else(Vec::new, |(_, levels)| levels)
}

fn neighbours_below(dag: &ContentionDag) -> Vec<Vec<usize>> {
    let mut below = vec![Vec::new(); dag.nodes];
    for edge in &dag.edges {
        below[edge.above].push(edge.below);
    }
    below
}

/// A random topological order by breadth-first search: any node whose predecessors are all placed
/// may be next.
fn topological_order(below: &[Vec<usize>], random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut waiting_for = vec![0_usize; below.len()];
    below.iter().flatten().for_each(|node| waiting_for[*node] += 1);
    let mut ready: Vec<usize> = (0..below.len()).filter(|node| waiting_for[*node] == 0).collect();
    let mut order = Vec::with_capacity(below.len());
    while !ready.is_empty() {
        let node = ready.swap_remove(random.random_range(0..ready.len()));
        order.push(node);
        for next in &below[node] {
            waiting_for[*next] -= 1;
            if waiting_for[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    order
}

/// The best cut of one order into at most `levels` runs:
/// `f(i, k) = max over j < i of f(j, k-1) + C(j, i)`.
fn cut_order(dag: &ContentionDag, order: &[usize], levels: usize) -> Vec<u8> {
    let weights = CrossWeights::new(dag, order);
    let nodes = order.len();
    let mut best = vec![0.0; nodes + 1];
    let mut cuts: Vec<Vec<usize>> = Vec::new();
    for _ in 1..levels {
        let mut row = CutRow {
            weights: &weights,
            before: &best,
            after: best.clone(),
            cut: vec![0; nodes + 1],
        };
        row.fill_range(0..nodes + 1, (0, nodes));
        cuts.push(row.cut);
        best = row.after;
    }
    let mut end = nodes;
    let mut result = vec![0_u8; nodes];
    for (level, cut) in (0_u8..).zip(cuts.iter().rev()) {
        let start = cut[end];
        order[start..end].iter().for_each(|node| result[*node] = level);
        end = start;
    }
    let highest = u8::try_from(levels - 1).unwrap_or(u8::MAX);
    order[..end].iter().for_each(|node| result[*node] = highest);
    result
}

/// One row of the dynamic programme, from the row before it.
struct CutRow<'a> {
    weights: &'a CrossWeights,
    before: &'a [f64],
    after: Vec<f64>,
    cut: Vec<usize>,
}

impl CutRow<'_> {
    /// Fills the places `ends`, whose best cuts lie within `cuts`: the best cut never falls as the
    /// end grows, so the middle one halves the range for both sides.
    fn fill_range(&mut self, ends: std::ops::Range<usize>, cuts: (usize, usize)) {
        if ends.is_empty() {
            return;
        }
        let end = ends.start + ends.len() / 2;
        let value = |cut: usize| self.before[cut] + self.weights.weight_across(cut, end);
        let mut best = (value(cuts.0.min(end)), cuts.0.min(end));
        for cut in cuts.0..=cuts.1.min(end) {
            if value(cut) > best.0 {
                best = (value(cut), cut);
            }
        }
        (self.after[end], self.cut[end]) = best;
        self.fill_range(ends.start..end, (cuts.0, best.1));
        self.fill_range(end + 1..ends.end, (best.1, cuts.1));
    }
}

/// Two-dimensional prefix sums of the weights along an order.
struct CrossWeights {
    side: usize,
    sums: Vec<f64>,
}

impl CrossWeights {
    fn new(dag: &ContentionDag, order: &[usize]) -> Self {
        let side = order.len() + 1;
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, node)| place[*node] = at);
        let mut sums = vec![0.0; side * side];
        for edge in &dag.edges {
            sums[(place[edge.above] + 1) * side + place[edge.below] + 1] += edge.weight;
        }
        for row in 1..side {
            let mut in_row = 0.0;
            for column in 1..side {
                in_row += sums[row * side + column];
                sums[row * side + column] = in_row + sums[(row - 1) * side + column];
            }
        }
        Self { side, sums }
    }

    /// `C(j, i)`: weight from the first `j` nodes to those from `j` to `i`.
    fn weight_across(&self, j: usize, i: usize) -> f64 {
        self.sums[j * self.side + i] - self.sums[j * self.side + j]
    }
}
