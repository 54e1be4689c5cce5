//! Which jobs share a link, and the contention DAG that compression cuts (Crux §4.3).
//!
//! Nodes are places in the order of priority, so every edge leads from a smaller to a larger number
//! and the order itself is a topological one.

use topology::LinkPath;

use crate::traffic::IndexedTraffic;

/// Which jobs share a directed link on which their levels count.
#[derive(Clone, Debug)]
pub(crate) struct LinkSharing {
    words: usize,
    bits: Vec<u64>,
}

impl LinkSharing {
    /// Jobs that share a link of their `paths`, one per flow, that sends higher levels first. Flows
    /// of zero bytes share nothing.
    pub(crate) fn new(traffic: &IndexedTraffic<'_>, paths: &[LinkPath]) -> Self {
        let jobs = traffic.jobs.len();
        let words = jobs.div_ceil(64);
        let mut sharing = Self { words, bits: vec![0; jobs * words] };
        let mut visitors = LinkVisitors::new(traffic.fabric.capacity_link_count());
        let flows = traffic.flows.iter().zip(paths);
        for (flow, path) in flows.filter(|(flow, _)| flow.flow.bytes > 0.0) {
            traffic.for_each_link(flow.flow, path, |link| {
                if traffic.tables.serves_levels(link) {
                    visitors.add_visit(link.index(), flow.job as u32, |other| {
                        sharing.mark_shared(flow.job, other as usize);
                    });
                }
            });
        }
        sharing
    }

    fn mark_shared(&mut self, a: usize, b: usize) {
        self.bits[a * self.words + b / 64] |= 1 << (b % 64);
        self.bits[b * self.words + a / 64] |= 1 << (a % 64);
    }

    /// Jobs that share a link with `job`, ascending, without itself.
    pub(crate) fn sharers_of(&self, job: usize) -> impl Iterator<Item = usize> + '_ {
        let row = &self.bits[job * self.words..][..self.words];
        let others = row
            .iter()
            .enumerate()
            .flat_map(|(word, bits)| set_bits(*bits).map(move |bit| word * 64 + bit));
        others.filter(move |other| *other != job)
    }
}

/// Positions of the ones of a word, ascending.
pub(crate) fn set_bits(bits: u64) -> impl Iterator<Item = usize> {
    let rest = std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
    rest.take_while(|bits| *bits != 0).map(|bits| bits.trailing_zeros() as usize)
}

/// The jobs on every link, as chains through one list: there are many links, and few jobs on most.
struct LinkVisitors {
    /// The last visitor of each link.
    last: Vec<u32>,
    /// Job, and index of the visit before it on the same link.
    visits: Vec<(u32, u32)>,
}

/// No earlier visit.
const NO_VISIT: u32 = u32::MAX;

impl LinkVisitors {
    fn new(links: usize) -> Self {
        Self { last: vec![NO_VISIT; links], visits: Vec::new() }
    }

    /// Adds a job to a link and calls `visit` with every job there. Jobs are added one after the
    /// other, so a job that is there already is the last.
    fn add_visit(&mut self, link: usize, job: u32, mut visit: impl FnMut(u32)) {
        let before = self.last[link];
        if self.visits.get(before as usize).is_some_and(|last| last.0 == job) {
            return;
        }
        let mut at = before;
        while let Some((other, earlier)) = self.visits.get(at as usize) {
            visit(*other);
            at = *earlier;
        }
        self.last[link] = self.visits.len() as u32;
        self.visits.push((job, before));
    }
}

/// Two jobs that share a link, the one above in priority first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentionEdge {
    /// Node of the job with the higher priority.
    pub above: usize,
    /// Node of the other; larger than `above`.
    pub below: usize,
    /// The loss if both are in one level: the intensity of the job above, FLOP/s.
    pub weight: f64,
}

/// The contention DAG: nodes `0..nodes` in descending priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentionDag {
    /// Number of nodes, one for each job.
    pub nodes: usize,
    /// Edges, ascending by `above`, then `below`; each pair once.
    pub edges: Vec<ContentionEdge>,
}

impl ContentionDag {
    /// The DAG of jobs in descending priority (`order`) with their `intensities` by job.
    pub(crate) fn new(sharing: &LinkSharing, order: &[usize], intensities: &[f64]) -> Self {
        let mut place = vec![usize::MAX; intensities.len()];
        for (node, job) in order.iter().enumerate() {
            place[*job] = node;
        }
        Self {
            nodes: order.len(),
            edges: order
                .iter()
                .enumerate()
                .flat_map(|(above, job)| {
                    let weight = intensities[*job];
                    let places = sharing.sharers_of(*job).map(|other| place[other]);
                    let mut lower: Vec<usize> =
                        places.filter(|below| *below != usize::MAX && *below > above).collect();
                    lower.sort_unstable();
                    lower.into_iter().map(move |below| ContentionEdge { above, below, weight })
                })
                .collect(),
        }
    }

    /// A chain: every node above the next, for as many levels as there are jobs.
    pub(crate) fn from_chain(weights: impl Iterator<Item = f64>) -> Self {
        let weights: Vec<f64> = weights.collect();
        let edges = weights
            .iter()
            .enumerate()
            .take(weights.len().saturating_sub(1))
            .map(|(above, weight)| ContentionEdge { above, below: above + 1, weight: *weight });
        Self { nodes: weights.len(), edges: edges.collect() }
    }

    /// Weight of all edges.
    pub fn total_weight(&self) -> f64 {
        self.edges.iter().map(|edge| edge.weight).sum()
    }

    /// Weight of the edges between different `levels` (by node), the higher one above.
    pub fn cut_weight(&self, levels: &[u8]) -> f64 {
        let cut = self.edges.iter().filter(|edge| levels[edge.above] > levels[edge.below]);
        cut.map(|edge| edge.weight).sum()
    }

    /// Whether no edge leads to a higher level.
    pub fn allows_levels(&self, levels: &[u8]) -> bool {
        self.edges.iter().all(|edge| levels[edge.above] >= levels[edge.below])
    }
}
