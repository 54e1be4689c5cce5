//! Maximum flow and minimum cut in a network with integer capacities, by Dinic's method.
//!
//! Written here because the planner wants exact integers, the largest or smallest of the minimum
//! cuts and nothing else, and because the networks are shallow: augmenting paths are few arcs long,
//! which is where Dinic's layers do well.

/// A capacity that no flow can fill.
pub(super) const INFINITE: u64 = 1 << 62;

const NOWHERE: u32 = u32::MAX;

/// A directed network.
#[derive(Clone, Debug)]
pub(super) struct CutNetwork {
    vertices: usize,
    /// Arc `2n + 1` is the reverse of arc `2n`.
    heads: Vec<u32>,
    residual: Vec<u64>,
}

impl CutNetwork {
    /// No arcs yet.
    pub(super) fn new(vertices: usize) -> Self {
        Self { vertices, heads: Vec::new(), residual: Vec::new() }
    }

    /// An arc with its capacity, and the capacity of the way back.
    pub(super) fn add_arc(&mut self, from: usize, to: usize, capacity: u64, back: u64) {
        self.heads.extend([to as u32, from as u32]);
        self.residual.extend([capacity, back]);
    }

    /// The vertex at which an arc begins: the head of its reverse.
    fn tail(&self, arc: usize) -> usize {
        self.heads[arc ^ 1] as usize
    }

    /// The vertices on the source's side of a minimum cut, the one with the most or the fewest
    /// there.
    pub(super) fn source_side(self, source: usize, sink: usize, side: CutSide) -> Vec<bool> {
        let mut search = DinicSearch::new(self, source, sink);
        while search.build_layers() {
            search.push_blocking_flow();
        }
        match side {
            CutSide::Largest => search.distance.iter().map(|level| *level == NOWHERE).collect(),
            CutSide::Smallest => search.reachable_vertices(),
        }
    }
}

/// Which of the minimum cuts: they are closed under union and intersection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutSide {
    /// Everything that cannot reach the sink.
    Largest,
    /// Only what the source reaches.
    Smallest,
}

/// The state of Dinic's method: layers by distance to the sink, and the arcs not yet tried.
struct DinicSearch {
    network: CutNetwork,
    source: usize,
    sink: usize,
    /// Arcs that leave each vertex, one span after the other.
    first: Vec<u32>,
    arcs: Vec<u32>,
    /// Arcs to the sink; `NOWHERE` where the residual network does not lead there.
    distance: Vec<u32>,
    next: Vec<u32>,
}

impl DinicSearch {
    fn new(network: CutNetwork, source: usize, sink: usize) -> Self {
        let mut first = vec![0_u32; network.vertices + 1];
        (0..network.heads.len()).for_each(|arc| first[network.tail(arc) + 1] += 1);
        (0..network.vertices).for_each(|v| first[v + 1] += first[v]);
        let mut at = first.clone();
        let mut arcs = vec![0_u32; network.heads.len()];
        for arc in 0..network.heads.len() {
            arcs[at[network.tail(arc)] as usize] = arc as u32;
            at[network.tail(arc)] += 1;
        }
        let level = vec![NOWHERE; network.vertices];
        Self { next: first.clone(), network, source, sink, first, arcs, distance: level }
    }

    fn arc_head(&self, arc: u32) -> usize {
        self.network.heads[arc as usize] as usize
    }

    fn residual_capacity(&self, arc: u32) -> u64 {
        self.network.residual[arc as usize]
    }

    fn arcs_of(&self, vertex: usize) -> std::ops::Range<usize> {
        self.first[vertex] as usize..self.first[vertex + 1] as usize
    }

    /// Distances to the sink, breadth first and backwards; whether the source has one.
    fn build_layers(&mut self) -> bool {
        self.distance.fill(NOWHERE);
        self.distance[self.sink] = 0;
        let mut queue = vec![self.sink];
        let mut served = 0;
        while let Some(&vertex) = queue.get(served) {
            served += 1;
            for place in self.arcs_of(vertex) {
                let arc = self.arcs[place];
                let before = self.arc_head(arc);
                if self.distance[before] == NOWHERE && self.residual_capacity(arc ^ 1) > 0 {
                    self.distance[before] = self.distance[vertex] + 1;
                    queue.push(before);
                }
            }
        }
        self.next.copy_from_slice(&self.first);
        self.distance[self.source] != NOWHERE
    }

    /// The vertices that the source reaches in the residual network.
    fn reachable_vertices(&self) -> Vec<bool> {
        let mut reached = vec![false; self.network.vertices];
        reached[self.source] = true;
        let mut waiting = vec![self.source];
        while let Some(vertex) = waiting.pop() {
            for place in self.arcs_of(vertex) {
                let arc = self.arcs[place];
                let head = self.arc_head(arc);
                if self.residual_capacity(arc) > 0 && !reached[head] {
                    reached[head] = true;
                    waiting.push(head);
                }
            }
        }
        reached
    }

    /// A blocking flow: augmenting paths along falling distances until none is left.
    fn push_blocking_flow(&mut self) {
        let mut path: Vec<u32> = Vec::new();
        loop {
            let vertex = path.last().map_or(self.source, |arc| self.arc_head(*arc));
            if vertex == self.sink {
                self.augment_path(&mut path);
            } else if let Some(arc) = self.next_admissible_arc(vertex) {
                path.push(arc);
            } else if let Some(arc) = path.pop() {
                // A dead end: no path of this phase uses the arc that led here again.
                let before = self.arc_head(arc ^ 1);
                self.next[before] += 1;
            } else {
                return;
            }
        }
    }

    /// The next arc of `vertex` that leads nearer to the sink.
    fn next_admissible_arc(&mut self, vertex: usize) -> Option<u32> {
        while self.next[vertex] < self.first[vertex + 1] {
            let arc = self.arcs[self.next[vertex] as usize];
            let head = self.arc_head(arc);
            // The level of the vertex is finite, since the walk started at the source.
            if self.residual_capacity(arc) > 0
                && self.distance[vertex] == self.distance[head].wrapping_add(1)
            {
                return Some(arc);
            }
            self.next[vertex] += 1;
        }
        None
    }

    /// Pushes what the path takes and goes back to its first arc that is now full.
    fn augment_path(&mut self, path: &mut Vec<u32>) {
        let narrowest = path.iter().map(|arc| self.residual_capacity(*arc)).min().unwrap_or(0);
        for arc in path.iter() {
            self.network.residual[*arc as usize] -= narrowest;
            self.network.residual[*arc as usize ^ 1] += narrowest;
        }
        let full = path.iter().position(|arc| self.residual_capacity(*arc) == 0);
        path.truncate(full.unwrap_or(0));
    }
}
