//! Which jobs meet on a link, and the contention DAG that compression cuts (Crux §4.3).
//!
//! Nodes are places in the order of priority, so every edge leads from a smaller to a larger number
//! and the order itself is a topological one.

use topology::LinkId;

use crate::traffic::Traffic;

/// Which jobs share a directed link, host links included.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    words: usize,
    bits: Vec<u64>,
    jobs: usize,
}

impl Sharing {
    /// Jobs that share a link of their `paths`. Flows of zero bytes share nothing.
    pub(crate) fn new(traffic: &Traffic<'_>, paths: &[Vec<LinkId>]) -> Self {
        let jobs = traffic.jobs.len();
        let words = jobs.div_ceil(64);
        let mut sharing = Self {
            words,
            bits: vec![0; jobs * words],
            jobs,
        };
        for on_link in jobs_by_link(traffic, paths) {
            sharing.add_clique(&on_link);
        }
        sharing
    }

    fn add_clique(&mut self, on_link: &[usize]) {
        let mut mask = vec![0_u64; self.words];
        for job in on_link {
            mask[job / 64] |= 1 << (job % 64);
        }
        for job in on_link {
            let row = &mut self.bits[job * self.words..][..self.words];
            row.iter_mut()
                .zip(&mask)
                .for_each(|(word, bits)| *word |= bits);
        }
    }

    /// Jobs that share a link with `job`, ascending, without itself.
    pub(crate) fn with(&self, job: usize) -> impl Iterator<Item = usize> + '_ {
        let row = &self.bits[job * self.words..][..self.words];
        let shares = move |other: &usize| row[other / 64] >> (other % 64) & 1 == 1;
        (0..self.jobs)
            .filter(move |other| *other != job)
            .filter(shares)
    }
}

/// The jobs on every link that at least two jobs use.
fn jobs_by_link(traffic: &Traffic<'_>, paths: &[Vec<LinkId>]) -> Vec<Vec<usize>> {
    let mut on_link = vec![Vec::new(); traffic.fabric.links().len()];
    for (flow, path) in traffic
        .flows
        .iter()
        .zip(paths)
        .filter(|(f, _)| f.flow.bytes > 0.0)
    {
        for link in path {
            let jobs: &mut Vec<usize> = &mut on_link[link.index()];
            // Flows come by job, so a job already there is the last one.
            if jobs.last() != Some(&flow.job) {
                jobs.push(flow.job);
            }
        }
    }
    on_link.retain(|jobs| jobs.len() > 1);
    on_link
}

/// Two jobs that meet, the one above in priority first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// Node of the job with the higher priority.
    pub above: usize,
    /// Node of the other; larger than `above`.
    pub below: usize,
    /// What is lost if both are in one class: the intensity of the job above, FLOP/s.
    pub weight: f64,
}

/// The contention DAG: nodes `0..nodes` in descending priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentionDag {
    /// Number of nodes.
    pub nodes: usize,
    /// Edges, ascending by `above`, then `below`; each pair once.
    pub edges: Vec<Edge>,
}

impl ContentionDag {
    /// The DAG of jobs in descending priority (`order`) with their `intensities` by job.
    pub(crate) fn new(sharing: &Sharing, order: &[usize], intensities: &[f64]) -> Self {
        let mut place = vec![usize::MAX; intensities.len()];
        for (node, job) in order.iter().enumerate() {
            place[*job] = node;
        }
        let below = |(above, job): (usize, &usize)| {
            let weight = intensities[*job];
            let places = sharing.with(*job).map(|other| place[other]);
            let mut lower: Vec<usize> = places
                .filter(|below| *below != usize::MAX && *below > above)
                .collect();
            lower.sort_unstable();
            lower.into_iter().map(move |below| Edge {
                above,
                below,
                weight,
            })
        };
        Self {
            nodes: order.len(),
            edges: order.iter().enumerate().flat_map(below).collect(),
        }
    }

    /// Every node above the next, for as many classes as there are jobs.
    pub(crate) fn chain(weights: impl Iterator<Item = f64>) -> Self {
        let weights: Vec<f64> = weights.collect();
        let edge = |(above, weight): (usize, &f64)| Edge {
            above,
            below: above + 1,
            weight: *weight,
        };
        let edges = weights
            .iter()
            .enumerate()
            .take(weights.len().saturating_sub(1))
            .map(edge);
        Self {
            nodes: weights.len(),
            edges: edges.collect(),
        }
    }

    /// Weight of all edges.
    pub fn total_weight(&self) -> f64 {
        self.edges.iter().map(|edge| edge.weight).sum()
    }

    /// Weight of the edges whose jobs `classes` (by node) tells apart, the higher one above.
    pub fn cut_weight(&self, classes: &[u8]) -> f64 {
        let cut = self
            .edges
            .iter()
            .filter(|edge| classes[edge.above] > classes[edge.below]);
        cut.map(|edge| edge.weight).sum()
    }

    /// Whether no edge leads to a higher class.
    pub fn allows(&self, classes: &[u8]) -> bool {
        self.edges
            .iter()
            .all(|edge| classes[edge.above] >= classes[edge.below])
    }
}
