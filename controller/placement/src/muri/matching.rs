//! Matching of maximum weight in a general graph (Edmonds 1965; Galil 1986), in O(n^3).
//!
//! Primal and dual together: every node has a *dual*, every odd cycle that was shrunk to a
//! *blossom* has one too, and an edge is *tight* if its duals are exactly its weight. A search
//! grows alternating trees of tight edges from all free nodes. An edge between two trees lengthens
//! the matching; one inside a tree closes a blossom, which becomes a node; without any, duals
//! move by the least that makes one tight. The search ends when the duals of free nodes reach zero,
//! which proves that no matching weighs more. Blossoms with a dual of zero are opened again.
//!
//! Weights are whole numbers (billionths), so that "tight" is exact. Node 0 means no node, as is
//! usual in this algorithm; nodes are 1..=n, blossoms beyond.

use std::collections::VecDeque;

/// Weights are counted in this unit.
const UNIT: f64 = 1e-9;

/// The partner of each of `nodes` in a matching that makes the sum of `weight` the largest; pairs
/// that weigh nothing are not matched. `weight` is symmetric.
pub fn maximum_matching(nodes: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    let mut graph = MatchingGraph::new(nodes, |a, b| (weight(a, b) / UNIT).round().max(0.0) as i64);
    while graph.augment_matching() {}
    (1..=nodes).map(|node| graph.partner[node].checked_sub(1)).collect()
}

/// A real edge, as seen from a node or blossom: its ends are real nodes.
#[derive(Clone, Copy, Debug, Default)]
struct MatchingEdge {
    from: usize,
    to: usize,
    weight: i64,
}

/// Search state of a node or blossom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeLabel {
    /// In no tree yet.
    Unseen,
    /// An even number of edges from its tree's root.
    Even,
    /// An odd number.
    Odd,
}

struct MatchingGraph {
    nodes: usize,
    /// Nodes and blossoms in use are below or at this number.
    highest: usize,
    edges: Vec<Vec<MatchingEdge>>,
    dual: Vec<i64>,
    /// The real node at the other end of the matched edge; 0 if free.
    partner: Vec<usize>,
    /// The real node at the outer end of the best edge from an even node; 0 if none.
    slack: Vec<usize>,
    /// The outermost blossom that a node or blossom is in; itself if in none.
    outer: Vec<usize>,
    /// The real node from which the search came.
    parent: Vec<usize>,
    /// For a blossom and a real node, the part of the blossom with that node.
    part_with: Vec<Vec<usize>>,
    label: Vec<TreeLabel>,
    /// Stamps of the search for a common ancestor.
    visited: Vec<usize>,
    stamp: usize,
    /// The odd cycle of each blossom, from its base.
    cycle: Vec<Vec<usize>>,
    queue: VecDeque<usize>,
}

impl MatchingGraph {
    fn new(nodes: usize, weight: impl Fn(usize, usize) -> i64) -> Self {
        // At most n/2 blossoms exist at once; and one more number for "no node".
        let size = nodes + nodes / 2 + 2;
        let mut edges = vec![vec![MatchingEdge::default(); size]; size];
        let mut heaviest = 0;
        for (from, row) in edges.iter_mut().enumerate().take(nodes + 1).skip(1) {
            for (to, edge) in row.iter_mut().enumerate().take(nodes + 1).skip(1) {
                let weight = match from == to {
                    true => 0,
                    false => weight(from - 1, to - 1),
                };
                *edge = MatchingEdge { from, to, weight };
                heaviest = heaviest.max(weight);
            }
        }
        let mut part_with = vec![vec![0; nodes + 1]; size];
        for (node, parts) in part_with.iter_mut().enumerate().take(nodes + 1) {
            parts[node] = node;
        }
        Self {
            nodes,
            highest: nodes,
            edges,
            dual: vec![heaviest; size],
            partner: vec![0; size],
            slack: vec![0; size],
            outer: (0..size).map(|node| if node <= nodes { node } else { 0 }).collect(),
            parent: vec![0; size],
            part_with,
            label: vec![TreeLabel::Unseen; size],
            visited: vec![0; size],
            stamp: 0,
            cycle: vec![Vec::new(); size],
            queue: VecDeque::new(),
        }
    }

    /// Twice the distance of an edge from being tight, for edges between outermost nodes.
    fn edge_slack(&self, edge: MatchingEdge) -> i64 {
        let weight = self.edges[edge.from][edge.to].weight;
        self.dual[edge.from] + self.dual[edge.to] - 2 * weight
    }

    fn outermost_nodes(&self) -> impl Iterator<Item = usize> + use<> {
        let outer = self.outer.clone();
        (1..=self.highest).filter(move |node| outer[*node] == *node)
    }

    fn update_slack(&mut self, node: usize, target: usize) {
        let best = self.slack[target];
        if best == 0
            || self.edge_slack(self.edges[node][target]) < self.edge_slack(self.edges[best][target])
        {
            self.slack[target] = node;
        }
    }

    fn set_slack(&mut self, target: usize) {
        self.slack[target] = 0;
        for node in 1..=self.nodes {
            let outer = self.outer[node];
            let connects = self.edges[node][target].weight > 0 && outer != target;
            if connects && self.label[outer] == TreeLabel::Even {
                self.update_slack(node, target);
            }
        }
    }

    /// Queues all real nodes in a node or blossom.
    fn enqueue_nodes(&mut self, node: usize) {
        if node <= self.nodes {
            self.queue.push_back(node);
            return;
        }
        for part in self.cycle[node].clone() {
            self.enqueue_nodes(part);
        }
    }

    fn set_outer(&mut self, node: usize, outer: usize) {
        self.outer[node] = outer;
        if node > self.nodes {
            for part in self.cycle[node].clone() {
                self.set_outer(part, outer);
            }
        }
    }

    /// Turns the cycle of a blossom so that the way from its base to `part` has even length, and
    /// gives that length.
    fn even_path_length(&mut self, blossom: usize, part: usize) -> usize {
        let cycle = &mut self.cycle[blossom];
        let place = cycle.iter().position(|node| *node == part).unwrap_or(0);
        if place % 2 == 0 {
            return place;
        }
        cycle[1..].reverse();
        cycle.len() - place
    }

    /// Matches a node or blossom along its edge to `to`, and turns the matching inside it.
    fn set_partner(&mut self, node: usize, to: usize) {
        let edge = self.edges[node][to];
        self.partner[node] = edge.to;
        if node <= self.nodes {
            return;
        }
        let part = self.part_with[node][edge.from];
        let way = self.even_path_length(node, part);
        for place in 0..way {
            let (one, other) = (self.cycle[node][place], self.cycle[node][place ^ 1]);
            self.set_partner(one, other);
        }
        self.set_partner(part, to);
        self.cycle[node].rotate_left(way);
    }

    /// Swaps matched and unmatched edges from `node` up to the root of its tree.
    fn augment_path(&mut self, mut node: usize, mut to: usize) {
        loop {
            let before = self.outer[self.partner[node]];
            self.set_partner(node, to);
            if before == 0 {
                return;
            }
            let up = self.outer[self.parent[before]];
            self.set_partner(before, up);
            (node, to) = (up, before);
        }
    }

    /// The nearest common ancestor of two even nodes; 0 if they are in different trees.
    fn common_ancestor(&mut self, mut one: usize, mut other: usize) -> usize {
        self.stamp += 1;
        while one != 0 || other != 0 {
            if one != 0 {
                if self.visited[one] == self.stamp {
                    return one;
                }
                self.visited[one] = self.stamp;
                one = self.outer[self.partner[one]];
                if one != 0 {
                    one = self.outer[self.parent[one]];
                }
            }
            std::mem::swap(&mut one, &mut other);
        }
        0
    }

    /// Shrinks the odd cycle of two ways to `ancestor` and the edge between their ends.
    fn shrink_blossom(&mut self, one: usize, ancestor: usize, other: usize) {
        let unused = (self.nodes + 1..=self.highest).find(|blossom| self.outer[*blossom] == 0);
        let blossom = unused.unwrap_or(self.highest + 1);
        self.highest = self.highest.max(blossom);
        self.dual[blossom] = 0;
        self.label[blossom] = TreeLabel::Even;
        self.partner[blossom] = self.partner[ancestor];
        let mut cycle = vec![ancestor];
        self.collect_path(one, ancestor, &mut cycle);
        cycle[1..].reverse();
        self.collect_path(other, ancestor, &mut cycle);
        self.cycle[blossom].clone_from(&cycle);
        self.set_outer(blossom, blossom);
        for node in 1..=self.highest {
            self.edges[blossom][node].weight = 0;
            self.edges[node][blossom].weight = 0;
        }
        self.part_with[blossom].fill(0);
        for part in cycle {
            self.take_best_edges(blossom, part);
        }
        self.set_slack(blossom);
    }

    /// Appends the nodes from `node` up to `ancestor`, without it; odd ones become even.
    fn collect_path(&mut self, mut node: usize, ancestor: usize, cycle: &mut Vec<usize>) {
        while node != ancestor {
            let matched = self.outer[self.partner[node]];
            cycle.extend([node, matched]);
            self.enqueue_nodes(matched);
            node = self.outer[self.parent[matched]];
        }
    }

    /// The blossom gets the best of its parts' edges to every node.
    fn take_best_edges(&mut self, blossom: usize, part: usize) {
        for node in 1..=self.highest {
            let (has, offered) = (self.edges[blossom][node], self.edges[part][node]);
            if has.weight == 0 || self.edge_slack(offered) < self.edge_slack(has) {
                self.edges[blossom][node] = offered;
                self.edges[node][blossom] = self.edges[node][part];
            }
        }
        for node in 1..=self.nodes {
            if self.part_with[part][node] != 0 {
                self.part_with[blossom][node] = part;
            }
        }
    }

    /// Opens an odd blossom: its parts on the even way stay in the tree, the others leave it.
    fn expand_blossom(&mut self, blossom: usize) {
        for part in self.cycle[blossom].clone() {
            self.set_outer(part, part);
        }
        let entry = self.edges[blossom][self.parent[blossom]].from;
        let entry = self.part_with[blossom][entry];
        let way = self.even_path_length(blossom, entry);
        let cycle = self.cycle[blossom].clone();
        for pair in cycle[..way].chunks(2) {
            let (odd, even) = (pair[0], pair[1]);
            self.parent[odd] = self.edges[even][odd].from;
            self.label[odd] = TreeLabel::Odd;
            self.label[even] = TreeLabel::Even;
            self.slack[odd] = 0;
            self.set_slack(even);
            self.enqueue_nodes(even);
        }
        self.label[entry] = TreeLabel::Odd;
        self.parent[entry] = self.parent[blossom];
        for part in &cycle[way + 1..] {
            self.label[*part] = TreeLabel::Unseen;
            self.set_slack(*part);
        }
        self.outer[blossom] = 0;
    }

    /// Follows a tight edge from an even node; whether it lengthened the matching.
    fn follow_edge(&mut self, edge: MatchingEdge) -> bool {
        let (one, other) = (self.outer[edge.from], self.outer[edge.to]);
        match self.label[other] {
            TreeLabel::Unseen => {
                self.parent[other] = edge.from;
                self.label[other] = TreeLabel::Odd;
                let next = self.outer[self.partner[other]];
                self.slack[other] = 0;
                self.slack[next] = 0;
                self.label[next] = TreeLabel::Even;
                self.enqueue_nodes(next);
                false
            }
            TreeLabel::Even => match self.common_ancestor(one, other) {
                0 => {
                    self.augment_path(one, other);
                    self.augment_path(other, one);
                    true
                }
                ancestor => {
                    self.shrink_blossom(one, ancestor, other);
                    false
                }
            },
            TreeLabel::Odd => false,
        }
    }

    /// One search; whether the matching has one edge more now.
    fn augment_matching(&mut self) -> bool {
        self.label.fill(TreeLabel::Unseen);
        self.slack.fill(0);
        self.queue.clear();
        for node in self.outermost_nodes() {
            if self.partner[node] == 0 {
                self.parent[node] = 0;
                self.label[node] = TreeLabel::Even;
                self.enqueue_nodes(node);
            }
        }
        if self.queue.is_empty() {
            return false;
        }
        loop {
            if self.grow_trees() {
                return true;
            }
            if !self.adjust_duals() {
                return false;
            }
            if self.follow_slack_edges() {
                return true;
            }
            for blossom in self.outermost_nodes() {
                let empty = blossom > self.nodes && self.dual[blossom] == 0;
                if empty && self.label[blossom] == TreeLabel::Odd {
                    self.expand_blossom(blossom);
                }
            }
        }
    }

    /// Follows tight edges from queued nodes; whether one lengthened the matching.
    fn grow_trees(&mut self) -> bool {
        while let Some(node) = self.queue.pop_front() {
            if self.label[self.outer[node]] == TreeLabel::Odd {
                continue;
            }
            for to in 1..=self.nodes {
                let edge = self.edges[node][to];
                if edge.weight == 0 || self.outer[node] == self.outer[to] {
                    continue;
                }
                if self.edge_slack(edge) > 0 {
                    self.update_slack(node, self.outer[to]);
                } else if self.follow_edge(edge) {
                    return true;
                }
            }
        }
        false
    }

    /// Moves duals by the least that makes an edge tight or empties a blossom; false if the duals
    /// of free nodes reach zero first, which ends everything.
    fn adjust_duals(&mut self) -> bool {
        let step = self.outermost_nodes().filter_map(|node| self.dual_step(node)).min();
        let Some(step) = step else { return false };
        for node in 1..=self.nodes {
            match self.label[self.outer[node]] {
                TreeLabel::Even if self.dual[node] <= step => return false,
                TreeLabel::Even => self.dual[node] -= step,
                TreeLabel::Odd => self.dual[node] += step,
                TreeLabel::Unseen => {}
            }
        }
        // Twice the step: both ends of an edge inside move by one, and its slack must not change.
        for blossom in self.outermost_nodes().filter(|node| *node > self.nodes) {
            match self.label[blossom] {
                TreeLabel::Even => self.dual[blossom] += 2 * step,
                TreeLabel::Odd => self.dual[blossom] -= 2 * step,
                TreeLabel::Unseen => {}
            }
        }
        self.queue.clear();
        true
    }

    /// How far duals may move before something happens at an outermost node.
    fn dual_step(&self, node: usize) -> Option<i64> {
        let emptied =
            (node > self.nodes && self.label[node] == TreeLabel::Odd).then(|| self.dual[node] / 2);
        let tight =
            (self.slack[node] != 0).then(|| self.edges[self.slack[node]][node]).and_then(|edge| {
                match self.label[node] {
                    TreeLabel::Unseen => Some(self.edge_slack(edge)),
                    // The duals of both ends fall, so the slack closes twice as fast.
                    TreeLabel::Even => Some(self.edge_slack(edge) / 2),
                    TreeLabel::Odd => None,
                }
            });
        emptied.into_iter().chain(tight).min()
    }

    /// Follows the edges that became tight; whether one lengthened the matching.
    fn follow_slack_edges(&mut self) -> bool {
        for node in 1..=self.highest {
            let slack = self.slack[node];
            if self.outer[node] != node || slack == 0 || self.outer[slack] == node {
                continue;
            }
            let edge = self.edges[slack][node];
            if self.edge_slack(edge) == 0 && self.follow_edge(edge) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest weight of a matching of the nodes of `left`, by trying everything.
    fn brute(weights: &[Vec<f64>], left: u32) -> f64 {
        if left == 0 {
            return 0.0;
        }
        let one = left.trailing_zeros() as usize;
        let rest = left & !(1 << one);
        let with = |other: usize| weights[one][other] + brute(weights, rest & !(1 << other));
        let others = (0..weights.len()).filter(|other| rest >> other & 1 == 1);
        others.map(with).fold(brute(weights, rest), f64::max)
    }

    fn weight_of(weights: &[Vec<f64>], partners: &[Option<usize>]) -> f64 {
        let pairs = partners.iter().enumerate();
        let pairs = pairs.filter_map(|(one, other)| Some((one, (*other)?)));
        pairs
            .map(|(one, other)| {
                assert_eq!(partners[other], Some(one));
                weights[one][other] / 2.0
            })
            .sum()
    }

    #[test]
    fn a_lighter_pair_may_have_to_go() {
        // A path 0-1-2-3 of weights 5, 6, 5: the ends weigh more together than the middle.
        let weight = |a: usize, b: usize| match a.min(b) {
            _ if a.abs_diff(b) != 1 => 0.0,
            1 => 6.0,
            _ => 5.0,
        };
        assert_eq!(maximum_matching(4, weight), [Some(1), Some(0), Some(3), Some(2)]);
        assert_eq!(maximum_matching(1, weight), [None]);
        assert_eq!(maximum_matching(0, weight), []);
    }

    proptest! {
        #[test]
        fn no_matching_weighs_more(
            nodes in 1..10_usize, seed in proptest::collection::vec(0..12_u32, 45),
        ) {
            let mut weights = vec![vec![0.0; nodes]; nodes];
            let mut next = seed.into_iter();
            let pairs = (0..nodes).flat_map(|one| (0..one).map(move |other| (one, other)));
            for (one, other) in pairs {
                // A third of the edges are absent.
                let weight = f64::from(next.next().unwrap_or(0).saturating_sub(4));
                weights[one][other] = weight;
                weights[other][one] = weight;
            }
            let partners = maximum_matching(nodes, |a, b| weights[a][b]);
            let best = brute(&weights, (1 << nodes) - 1);
            prop_assert!((weight_of(&weights, &partners) - best).abs() < 1e-6);
        }
    }
}
