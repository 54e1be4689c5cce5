//! Contention groups: jobs that share links, without everything that cannot affect the fluid model.
//!
//! Jobs that share no link run as if alone, so a set of jobs falls into contention groups that are
//! evaluated one by one. Within a group only links with at least two flows decide anything; the
//! others merely limit the rate of the one flow on them, and links with the same flows act as their
//! narrowest. The rest is small, and equal for all choices of paths with the same effect: with its
//! [`ContentionGroup::signature`], a caller that tries many choices evaluates each problem once.
//!
//! The reduction is exact: a run of the reduced jobs gives every job the times of the full one.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use topology::groups::DisjointSets;
use topology::{Fabric, LinkId};

use crate::contention::set_bits;

/// A job as the fluid model sees it, on given paths.
#[derive(Clone, Debug)]
pub struct RoutedJob<'a> {
    /// `comp_j`: computation of one iteration, in seconds.
    pub compute_seconds: f64,
    /// `o_j` in 0..=1: fraction of the computation after which flows start.
    pub overlap_from: f64,
    /// Bytes of one iteration and the links that each flow crosses; one without a path is
    /// ignored.
    pub flows: Vec<(f64, Cow<'a, [LinkId]>)>,
}

/// Jobs that share links, reduced.
#[derive(Clone, Debug)]
pub struct ContentionGroup {
    /// The jobs, as positions among all jobs, ascending.
    pub members: Vec<usize>,
    /// The links that are left.
    links: Vec<LinkService>,
    /// The jobs without level and start, in the order of `members`.
    jobs: Vec<fluid::FluidJob>,
    shared_pairs: Vec<(usize, usize)>,
    signature: Vec<u32>,
}

/// What the fluid model needs of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkService {
    /// Bytes/s.
    pub capacity: f64,
    /// Whether it serves all levels alike.
    pub is_fifo: bool,
}

impl LinkService {
    /// What the fluid model needs of this link.
    pub fn of_link(fabric: &Fabric, link: LinkId) -> Self {
        Self {
            capacity: fabric.link_bandwidth(link).bytes_per_second(),
            is_fifo: !fabric.link_scheduler(link).serves_levels(),
        }
    }

    /// Of two links with the same flows the one that decides: the narrower, of equals the fifo
    /// one, which no queue at the other can make up for.
    fn tighter(self, other: Self) -> Self {
        match self.capacity.total_cmp(&other.capacity) {
            Ordering::Less => self,
            Ordering::Greater => other,
            Ordering::Equal => Self { is_fifo: self.is_fifo || other.is_fifo, ..self },
        }
    }
}

/// The contention groups among `jobs`; a job that shares no link is a group of one.
pub fn contention_groups(
    jobs: &[RoutedJob<'_>],
    service: impl Fn(LinkId) -> LinkService,
) -> Vec<ContentionGroup> {
    let builder = GroupBuilder::new(jobs, &service);
    builder.connected_jobs().into_iter().map(|members| builder.build_group(members)).collect()
}

/// A flow with its links split into shared and private ones.
struct RoutedFlow {
    job: usize,
    /// Position among the flows of its job.
    position: usize,
    bytes: f64,
    /// Bytes/s of the narrowest link that only this flow uses.
    private_capacity: f64,
    /// Shared links, as positions in [`GroupBuilder::shared_links`], ascending.
    shared_links: Vec<usize>,
}

/// All jobs and the links that they share.
struct GroupBuilder<'a> {
    jobs: &'a [RoutedJob<'a>],
    flows: Vec<RoutedFlow>,
    /// Where the flows of each job are in `flows`.
    spans: Vec<Range<usize>>,
    /// Flows on each shared link, ascending, and the link.
    shared_links: Vec<(Vec<usize>, LinkService)>,
}

impl<'a> GroupBuilder<'a> {
    fn new(jobs: &'a [RoutedJob<'a>], service: &impl Fn(LinkId) -> LinkService) -> Self {
        let (mut flows, mut spans) = (Vec::new(), Vec::with_capacity(jobs.len()));
        let mut paths: Vec<&[LinkId]> = Vec::new();
        for (job, of) in jobs.iter().enumerate() {
            let first = flows.len();
            for (position, (bytes, path)) in of.flows.iter().enumerate() {
                if *bytes > 0.0 && !path.is_empty() {
                    paths.push(path);
                    flows.push(RoutedFlow {
                        job,
                        position,
                        bytes: *bytes,
                        private_capacity: f64::INFINITY,
                        shared_links: Vec::new(),
                    });
                }
            }
            spans.push(first..flows.len());
        }
        let mut builder = Self { jobs, flows, spans, shared_links: Vec::new() };
        builder.merge_shared_links(&paths, service);
        builder
    }

    /// Finds the links of `paths` with several flows; links with the same flows become one.
    fn merge_shared_links(
        &mut self,
        paths: &[&[LinkId]],
        service: &impl Fn(LinkId) -> LinkService,
    ) {
        let of_flows = paths.iter().enumerate();
        let mut uses: Vec<(LinkId, usize)> =
            of_flows.flat_map(|(flow, path)| path.iter().map(move |link| (*link, flow))).collect();
        uses.sort_unstable();
        let flows: Vec<usize> = uses.iter().map(|(_, flow)| *flow).collect();
        let mut links: Vec<(&[usize], LinkService)> = Vec::new();
        let mut first = 0;
        for of_link in uses.chunk_by(|a, b| a.0 == b.0) {
            let on = &flows[first..first + of_link.len()];
            links.push((on, service(of_link[0].0)));
            first += of_link.len();
        }
        links.sort_by(|a, b| a.0.cmp(b.0));
        let tightest = links.chunk_by(|a, b| a.0 == b.0).map(|alike| {
            let services = alike.iter().map(|(_, link)| *link);
            (alike[0].0, services.fold(alike[0].1, LinkService::tighter))
        });
        for (on, link) in tightest {
            if let [alone] = on {
                self.flows[*alone].private_capacity = link.capacity;
                continue;
            }
            for flow in on {
                self.flows[*flow].shared_links.push(self.shared_links.len());
            }
            self.shared_links.push((on.to_vec(), link));
        }
    }

    /// Sets of jobs that shared links join, directly or through others.
    fn connected_jobs(&self) -> Vec<Vec<usize>> {
        let mut sets = DisjointSets::new(self.jobs.len());
        for (on, _) in &self.shared_links {
            for flow in &on[1..] {
                sets.join(self.flows[on[0]].job, self.flows[*flow].job);
            }
        }
        sets.into_sets()
    }

    /// The contention group of `members`, which share no link with other jobs.
    fn build_group(&self, members: Vec<usize>) -> ContentionGroup {
        let mut group = ContentionGroup {
            links: Vec::new(),
            jobs: Vec::new(),
            shared_pairs: self.shared_pairs(&members),
            signature: Vec::new(),
            members: Vec::new(),
        };
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        for job in &members {
            let party_of = &self.jobs[*job];
            group.jobs.push(fluid::FluidJob {
                compute_seconds: party_of.compute_seconds,
                overlap_from: party_of.overlap_from,
                ..fluid::FluidJob::default()
            });
            group.extend_signature(&[u32::MAX, to_index(*job)]);
            for flow in self.deciding_flows(*job) {
                group.add_flow(flow, &self.shared_links, &mut numbers);
            }
        }
        group.members = members;
        group
    }

    /// The flows of a job that may be the last to end: all that share a link, and of the others the
    /// slowest, unless a sharing one is slower even when undisturbed.
    fn deciding_flows(&self, job: usize) -> Vec<&RoutedFlow> {
        let (mut deciding, private): (Vec<&RoutedFlow>, Vec<&RoutedFlow>) =
            self.flows_of(job).iter().partition(|flow| !flow.shared_links.is_empty());
        let slowest = private
            .into_iter()
            .max_by(|a, b| self.alone_seconds(a).total_cmp(&self.alone_seconds(b)));
        let sharing = deciding.iter().map(|flow| self.alone_seconds(flow)).fold(0.0, f64::max);
        deciding.extend(slowest.filter(|flow| self.alone_seconds(flow) > sharing));
        deciding
    }

    fn flows_of(&self, job: usize) -> &[RoutedFlow] {
        &self.flows[self.spans[job].clone()]
    }

    /// Seconds of a flow that nothing disturbs.
    fn alone_seconds(&self, flow: &RoutedFlow) -> f64 {
        let links = flow.shared_links.iter().map(|link| self.shared_links[*link].1.capacity);
        flow.bytes / links.fold(flow.private_capacity, f64::min)
    }

    /// Pairs of members, by position among them, that share a link.
    fn shared_pairs(&self, members: &[usize]) -> Vec<(usize, usize)> {
        let flows = members.iter().flat_map(|job| self.flows_of(*job));
        let mut links: Vec<usize> =
            flows.flat_map(|flow| flow.shared_links.iter().copied()).collect();
        links.sort_unstable();
        links.dedup();
        let mut pairs = PairSet::new(members.len());
        for link in links {
            let jobs = self.shared_links[link].0.iter().map(|flow| self.flows[*flow].job);
            let mut here: Vec<usize> =
                jobs.filter_map(|job| members.binary_search(&job).ok()).collect();
            here.dedup();
            for (at, a) in here.iter().enumerate() {
                here[at + 1..].iter().for_each(|b| pairs.insert(*a, *b));
            }
        }
        pairs.iter().collect()
    }
}

/// Pairs of dense indices: a large group has tens of thousands, most of them on several links.
struct PairSet {
    words: usize,
    bits: Vec<u64>,
}

impl PairSet {
    /// No pairs of the indices `0..members`.
    fn new(members: usize) -> Self {
        let words = members.div_ceil(64);
        Self { words, bits: vec![0; members * words] }
    }

    fn insert(&mut self, a: usize, b: usize) {
        self.bits[a * self.words + b / 64] |= 1 << (b % 64);
    }

    /// All pairs, ascending.
    fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let rows = self.bits.chunks(self.words.max(1)).enumerate();
        rows.flat_map(|(a, row)| row.iter().enumerate().map(move |(word, bits)| (a, word, *bits)))
            .flat_map(|(a, word, bits)| set_bits(bits).map(move |bit| (a, 64 * word + bit)))
    }
}

impl ContentionGroup {
    /// Adds a flow of the last job. `numbers` are those of the shared links so far.
    fn add_flow(
        &mut self,
        flow: &RoutedFlow,
        shared: &[(Vec<usize>, LinkService)],
        numbers: &mut BTreeMap<usize, u32>,
    ) {
        let mut path = Vec::with_capacity(flow.shared_links.len() + 1);
        for link in &flow.shared_links {
            let number = *numbers.entry(*link).or_insert_with(|| {
                self.links.push(shared[*link].1);
                to_index(self.links.len() - 1)
            });
            path.push(number);
        }
        self.extend_signature(&[u32::MAX - 1, to_index(flow.position)]);
        self.extend_signature(&path);
        self.extend_with_links(&path);
        let narrowest = flow.shared_links.iter().map(|link| shared[*link].1.capacity);
        if flow.private_capacity < narrowest.fold(f64::INFINITY, f64::min) {
            path.push(to_index(self.links.len()));
            self.links.push(LinkService { capacity: flow.private_capacity, is_fifo: false });
        }
        let flow = fluid::FluidFlow { path, bytes: flow.bytes };
        if let Some(job) = self.jobs.last_mut() {
            job.flows.push(flow);
        }
    }

    fn extend_with_links(&mut self, links: &[u32]) {
        for link in links {
            let LinkService { capacity, is_fifo } = self.links[*link as usize];
            let bits = capacity.to_bits();
            self.extend_signature(&[(bits >> 32) as u32, bits as u32, u32::from(is_fifo)]);
        }
    }

    fn extend_signature(&mut self, part: &[u32]) {
        self.signature.extend_from_slice(part);
    }

    /// The jobs for the fluid model, in the order of `members`.
    pub(super) fn fluid_jobs(&self) -> &[fluid::FluidJob] {
        &self.jobs
    }

    /// The links in the paths of `fluid_jobs`.
    pub(super) fn links(&self) -> &[LinkService] {
        &self.links
    }

    /// Seconds of an undisturbed iteration of each job.
    pub fn alone_seconds(&self) -> Vec<f64> {
        let mut bytes = vec![0.0; self.links.len()];
        self.jobs.iter().map(|job| self.job_alone_seconds(job, &mut bytes)).collect()
    }

    /// Those of one job; `bytes` is room for a sum at each link, zero before and after.
    fn job_alone_seconds(&self, job: &fluid::FluidJob, bytes: &mut [f64]) -> f64 {
        let hops =
            || job.flows.iter().flat_map(|flow| flow.path.iter().map(move |link| (flow, link)));
        hops().for_each(|(flow, link)| bytes[*link as usize] += flow.bytes);
        let seconds = hops().map(|(_, link)| {
            let link = *link as usize;
            std::mem::take(&mut bytes[link]) / self.links[link].capacity
        });
        let link = seconds.fold(0.0, f64::max);
        job.compute_seconds.max(job.overlap_from * job.compute_seconds + link)
    }

    /// Equal for choices of paths with the same effect on these jobs.
    pub fn signature(&self) -> &[u32] {
        &self.signature
    }

    /// Pairs of jobs that share a link, by position in [`Self::members`], ascending.
    pub fn shared_pairs(&self) -> &[(usize, usize)] {
        &self.shared_pairs
    }

    /// Order of the `levels` (by position in [`Self::members`]) of each pair that shares a link.
    /// Equal for levels with the same effect.
    pub fn level_relations(&self, levels: &[u8]) -> Vec<std::cmp::Ordering> {
        self.shared_pairs.iter().map(|(a, b)| levels[*a].cmp(&levels[*b])).collect()
    }
}

fn to_index(position: usize) -> u32 {
    u32::try_from(position).expect("a group has fewer than 2^32 flows and links")
}
