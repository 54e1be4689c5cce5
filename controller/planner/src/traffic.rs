//! The input in dense ordinals: jobs by id, flows by job, and for every pair of leaves the
//! equal-cost segments between them, made once.
//!
//! The phases of a plan talk about jobs and flows by these ordinals, which are also their positions
//! in the plan; names come back only there.

use std::collections::BTreeMap;
use std::ops::Range;

use topology::{Fabric, LinkId, NextHops, SwitchId};

use crate::input::{Flow, Input, Job};

/// Jobs and flows of an input by ordinal, with the ways that each flow could take.
#[derive(Debug)]
pub(crate) struct Traffic<'a> {
    /// The fabric they are in.
    pub(crate) fabric: &'a Fabric,
    /// Jobs in the order of their ids.
    pub(crate) jobs: Vec<&'a Job>,
    /// Flows by job, then in the order of the job's flows.
    pub(crate) flows: Vec<RoutableFlow<'a>>,
    /// The flows of each job.
    pub(crate) spans: Vec<Range<usize>>,
    /// Pairs of leaves that some flow joins.
    pub(crate) pairs: Vec<LeafPair>,
}

/// A flow and where it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutableFlow<'a> {
    /// The flow.
    pub(crate) flow: &'a Flow,
    /// Its job.
    pub(crate) job: usize,
    /// Link from the sending NIC to its leaf.
    pub(crate) up: LinkId,
    /// Link from the last leaf to the receiving NIC.
    pub(crate) down: LinkId,
    /// Its pair in [`Traffic::pairs`].
    pub(crate) pair: usize,
    /// Whether there is any path: both host links usable, and the leaves joined.
    pub(crate) has_path: bool,
}

/// Two leaves with the equal-cost segments from the first to the second, and what is true of all of
/// them.
#[derive(Debug)]
pub(crate) struct LeafPair {
    /// Where segments begin.
    pub(crate) from: SwitchId,
    /// Where they end.
    pub(crate) to: SwitchId,
    /// The segments, ascending; one empty segment from a leaf to itself.
    pub(crate) segments: Vec<Vec<LinkId>>,
    /// Links in every segment: no choice can avoid them.
    pub(crate) unavoidable: Vec<LinkId>,
    /// Bytes per second that enter or leave the segments together, the smaller of both.
    pub(crate) capacity: f64,
    /// Bytes per second of the segment that is widest at its narrowest link.
    pub(crate) widest: f64,
}

impl<'a> Traffic<'a> {
    /// The dense view of `input`.
    pub(crate) fn new(input: &'a Input) -> Self {
        let mut jobs: Vec<&Job> = input.jobs.iter().collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let mut pairs = PairTable::new(&input.fabric);
        let mut flows = Vec::new();
        let mut spans = Vec::new();
        for (ordinal, job) in jobs.iter().enumerate() {
            let first = flows.len();
            flows.extend(job.flows.iter().map(|flow| pairs.routable(ordinal, flow)));
            spans.push(first..flows.len());
        }
        Self {
            fabric: &input.fabric,
            jobs,
            flows,
            spans,
            pairs: pairs.pairs,
        }
    }

    /// The equal-cost segments of a flow; none without a path.
    pub(crate) fn segments(&self, flow: &RoutableFlow<'_>) -> &[Vec<LinkId>] {
        if flow.has_path {
            &self.pairs[flow.pair].segments
        } else {
            &[]
        }
    }

    /// The whole path of a flow over one of its segments.
    pub(crate) fn path(flow: &RoutableFlow<'_>, segment: &[LinkId]) -> Vec<LinkId> {
        [&[flow.up], segment, &[flow.down]].concat()
    }

    /// Capacity of a link in bytes per second (`B_e`).
    pub(crate) fn capacity(&self, link: LinkId) -> f64 {
        self.fabric.link(link).bandwidth.bytes_per_second()
    }
}

/// Pairs of leaves found so far. Next hops are made once per destination.
struct PairTable<'a> {
    fabric: &'a Fabric,
    next_hops: BTreeMap<SwitchId, NextHops>,
    known: BTreeMap<(SwitchId, SwitchId), usize>,
    pairs: Vec<LeafPair>,
}

impl<'a> PairTable<'a> {
    fn new(fabric: &'a Fabric) -> Self {
        Self {
            fabric,
            next_hops: BTreeMap::new(),
            known: BTreeMap::new(),
            pairs: Vec::new(),
        }
    }

    fn routable(&mut self, job: usize, flow: &'a Flow) -> RoutableFlow<'a> {
        let fabric = self.fabric;
        let (up, down) = (
            fabric.nic(flow.src).uplink,
            fabric.nic(flow.dst).uplink.reverse(),
        );
        let pair = self.pair(fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
        let hosts_connected = fabric.is_usable(up) && fabric.is_usable(down);
        let has_path = hosts_connected && !self.pairs[pair].segments.is_empty();
        RoutableFlow {
            flow,
            job,
            up,
            down,
            pair,
            has_path,
        }
    }

    fn pair(&mut self, from: SwitchId, to: SwitchId) -> usize {
        let (fabric, pairs) = (self.fabric, &mut self.pairs);
        let next_hops = &mut self.next_hops;
        *self.known.entry((from, to)).or_insert_with(|| {
            let hops = next_hops
                .entry(to)
                .or_insert_with(|| topology::next_hops(fabric, to));
            pairs.push(LeafPair::new(fabric, (from, to), hops.paths(fabric, from)));
            pairs.len() - 1
        })
    }
}

impl LeafPair {
    fn new(fabric: &Fabric, ends: (SwitchId, SwitchId), segments: Vec<Vec<LinkId>>) -> Self {
        let capacity = |link: &LinkId| fabric.link(*link).bandwidth.bytes_per_second();
        let narrowest =
            |segment: &Vec<LinkId>| segment.iter().map(capacity).fold(f64::INFINITY, f64::min);
        let mut first: Vec<LinkId> = segments.iter().filter_map(|s| s.first().copied()).collect();
        let mut last: Vec<LinkId> = segments.iter().filter_map(|s| s.last().copied()).collect();
        for ends in [&mut first, &mut last] {
            ends.sort();
            ends.dedup();
        }
        let total = |links: &[LinkId]| links.iter().map(capacity).sum::<f64>();
        Self {
            from: ends.0,
            to: ends.1,
            unavoidable: common(&segments),
            capacity: total(&first).min(total(&last)),
            widest: segments.iter().map(narrowest).fold(0.0, f64::max),
            segments,
        }
    }

    /// Whether a flow of this pair crosses the fabric above its leaves.
    pub(crate) fn crosses_fabric(&self) -> bool {
        self.from != self.to
    }

    /// Whether there is anything to choose.
    pub(crate) fn has_choice(&self) -> bool {
        self.segments.len() > 1
    }
}

/// Links that are in all of `segments`.
fn common(segments: &[Vec<LinkId>]) -> Vec<LinkId> {
    let Some((first, rest)) = segments.split_first() else {
        return Vec::new();
    };
    let in_all = |link: &&LinkId| rest.iter().all(|segment| segment.contains(link));
    first.iter().filter(in_all).copied().collect()
}
