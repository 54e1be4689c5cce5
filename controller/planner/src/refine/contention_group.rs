//! Contention groups: jobs that share links, without everything that cannot affect the fluid model.
//!
//! Jobs that share no link run as if alone, so a set of jobs falls into contention groups that are
//! evaluated one by one. Within a group only links with at least two flows decide anything; the
//! others merely limit the rate of the one flow on them, and links with the same flows act as their
//! narrowest. Of what is left, flows and links that nothing tells apart are one (`symmetry.rs`): a
//! job that sends over eight NICs and four spines alike costs as much as one NIC and one spine. The
//! rest is small, and equal for all choices of paths with the same effect: with its
//! [`ContentionGroup::signature`], a caller that tries many choices evaluates each problem once.
//!
//! The reduction is exact: a run of the reduced jobs gives every job the times of the full one.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use topology::groups::DisjointSets;
use topology::{Fabric, LinkId};

use super::symmetry::{SymmetryClasses, SymmetryProblem};
use crate::contention::set_bits;

/// A job as the fluid model sees it, on given paths.
#[derive(Clone, Debug)]
pub struct RoutedJob<'a> {
    /// `comp_j`: computation of one iteration, in seconds.
    pub compute_seconds: f64,
    /// `o_j` in 0..=1: fraction of the computation after which flows start that state no other.
    pub overlap_from: f64,
    /// Its flows; those without a path are ignored.
    pub flows: Vec<FlowOnLinks<'a>>,
}

/// A flow as the fluid model sees it.
#[derive(Clone, Debug)]
pub struct FlowOnLinks<'a> {
    /// Bytes of one iteration.
    pub bytes: f64,
    /// The fraction of the computation after which it starts, if not that of its job.
    pub overlap_from: Option<f64>,
    /// The links that it crosses.
    pub links: Cow<'a, [LinkId]>,
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
            // A fifo link of the same capacity lets a low level delay a high one, so it is the
            // tighter.
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
    bytes: f64,
    /// The fraction of the computation after which it starts.
    overlap_from: f64,
    /// Bytes/s of the narrowest link that only this flow uses.
    private_capacity: f64,
    /// Shared links, as positions in [`GroupBuilder::shared_links`], ascending.
    shared_links: Vec<usize>,
}

/// A link of several flows.
struct SharedLink {
    /// Ascending.
    flows: Vec<usize>,
    service: LinkService,
    /// Whether it is in the second half of a path. Links at both ends of flows may look alike, and
    /// a flow is not to cross two links of a class.
    is_descent: bool,
}

/// All jobs and the links that they share.
struct GroupBuilder<'a> {
    jobs: &'a [RoutedJob<'a>],
    flows: Vec<RoutedFlow>,
    /// Where the flows of each job are in `flows`.
    spans: Vec<Range<usize>>,
    shared_links: Vec<SharedLink>,
}

impl<'a> GroupBuilder<'a> {
    fn new(jobs: &'a [RoutedJob<'a>], service: &impl Fn(LinkId) -> LinkService) -> Self {
        let (mut flows, mut spans) = (Vec::new(), Vec::with_capacity(jobs.len()));
        let mut paths: Vec<&[LinkId]> = Vec::new();
        for (job, of) in jobs.iter().enumerate() {
            let first = flows.len();
            for FlowOnLinks { bytes, overlap_from, links } in &of.flows {
                // The others are over at once.
                if *bytes > 0.0 && !links.is_empty() {
                    paths.push(links);
                    flows.push(RoutedFlow {
                        job,
                        bytes: *bytes,
                        overlap_from: overlap_from.unwrap_or(of.overlap_from),
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
        // Sorted pairs and no map: this runs for each candidate, over all flows of a region.
        uses.sort_unstable();
        let flows: Vec<usize> = uses.iter().map(|(_, flow)| *flow).collect();
        let mut links: Vec<(&[usize], LinkId, LinkService)> = Vec::new();
        let mut first = 0;
        for of_link in uses.chunk_by(|a, b| a.0 == b.0) {
            let on = &flows[first..first + of_link.len()];
            links.push((on, of_link[0].0, service(of_link[0].0)));
            first += of_link.len();
        }
        // Brings links with the same flows together. It is stable, so the first of them is the
        // lowest link.
        links.sort_by(|a, b| a.0.cmp(b.0));
        for alike in links.chunk_by(|a, b| a.0 == b.0) {
            let (on, link, service) = alike[0];
            let service = alike.iter().map(|(.., link)| *link).fold(service, LinkService::tighter);
            // With one flow on it a link decides nothing, and only limits that flow.
            if let [alone] = on {
                self.flows[*alone].private_capacity = service.capacity;
                continue;
            }
            for flow in on {
                self.flows[*flow].shared_links.push(self.shared_links.len());
            }
            let path = paths[on[0]];
            let place = path.iter().position(|other| *other == link).unwrap_or(0);
            // Links at both ends of flows may look alike, and a flow cannot cross two links of one
            // class.
            let is_descent = 2 * place >= path.len();
            self.shared_links.push(SharedLink { flows: on.to_vec(), service, is_descent });
        }
    }

    /// Sets of jobs that shared links join, directly or through others.
    fn connected_jobs(&self) -> Vec<Vec<usize>> {
        let mut sets = DisjointSets::new(self.jobs.len());
        for SharedLink { flows: on, .. } in &self.shared_links {
            for flow in &on[1..] {
                sets.join(self.flows[on[0]].job, self.flows[*flow].job);
            }
        }
        sets.into_sets()
    }

    /// The contention group of `members`, which share no link with other jobs.
    fn build_group(&self, members: Vec<usize>) -> ContentionGroup {
        let deciding: Vec<usize> =
            members.iter().flat_map(|job| self.deciding_flows(*job)).collect();
        let classes = self.symmetry_classes(&deciding);
        let mut group = ContentionGroup {
            links: classes.link_counts.iter().map(|_| LinkService::default()).collect(),
            jobs: Vec::new(),
            shared_pairs: self.shared_pairs(&members),
            signature: Vec::new(),
            members: Vec::new(),
        };
        let mut flows = deciding.iter().zip(&classes.flow_classes).peekable();
        for job in &members {
            let of = &self.jobs[*job];
            group.jobs.push(fluid::FluidJob {
                compute_seconds: of.compute_seconds,
                overlap_from: of.overlap_from,
                ..fluid::FluidJob::default()
            });
            // No position or count is that large, so the marker separates jobs in the list.
            group.signature.extend([u32::MAX, to_index(*job)]);
            let mut is_known = vec![false; classes.flow_counts.len()];
            while let Some((flow, class)) =
                flows.next_if(|(flow, _)| self.flows[**flow].job == *job)
            {
                if !std::mem::replace(&mut is_known[*class], true) {
                    self.add_flows(&mut group, &self.flows[*flow], &classes, *class);
                }
            }
        }
        group.members = members;
        group
    }

    /// Which of the flows nothing tells apart, and which of their links.
    fn symmetry_classes(&self, flows: &[usize]) -> SymmetryClasses {
        let mut problem = SymmetryProblem::default();
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        for flow in flows {
            let RoutedFlow { job, bytes, overlap_from, private_capacity, shared_links } =
                &self.flows[*flow];
            let links = shared_links.iter().map(|link| {
                let next = numbers.len();
                *numbers.entry(*link).or_insert(next)
            });
            let links: Vec<usize> = links.collect();
            let [bytes, start, private] =
                [bytes, overlap_from, private_capacity].map(|number| number.to_bits());
            let colour = [*job as u64, bytes, start, private];
            problem.add_flow(&colour, links);
        }
        let mut links: Vec<(usize, usize)> =
            numbers.into_iter().map(|(link, number)| (number, link)).collect();
        // By number, which is the order in which flows refer to them.
        links.sort_unstable();
        for (_, link) in links {
            let SharedLink { service, is_descent, .. } = &self.shared_links[link];
            let kind = u64::from(service.is_fifo) | u64::from(*is_descent) << 1;
            problem.add_link(&[service.capacity.to_bits(), kind]);
        }
        problem.find_classes()
    }

    /// Adds the flows of a class to the last job of `group`; `flow` is one of them.
    fn add_flows(
        &self,
        group: &mut ContentionGroup,
        flow: &RoutedFlow,
        classes: &SymmetryClasses,
        class: usize,
    ) {
        let count = classes.flow_counts[class];
        let mut path: Vec<u32> =
            classes.links_of_class[class].iter().map(|link| to_index(*link)).collect();
        for (link, shared) in path.iter().zip(&flow.shared_links) {
            // All links of a class together, for all flows that cross one of them.
            let service = self.shared_links[*shared].service;
            let links = f64::from(classes.link_counts[*link as usize]);
            group.links[*link as usize] =
                LinkService { capacity: links * service.capacity, ..service };
        }
        group.signature.extend([u32::MAX - 1, count]);
        group.extend_with_bits(flow.bytes);
        group.extend_with_bits(flow.overlap_from);
        group.signature.extend(&path);
        group.extend_with_links(&path);
        let narrowest =
            flow.shared_links.iter().map(|link| self.shared_links[*link].service.capacity);
        // Otherwise a shared link is narrower at any time, and the private one never limits.
        if flow.private_capacity < narrowest.fold(f64::INFINITY, f64::min) {
            path.push(to_index(group.links.len()));
            let capacity = f64::from(count) * flow.private_capacity;
            group.links.push(LinkService { capacity, is_fifo: false });
            group.extend_with_bits(flow.private_capacity);
        }
        if let Some(job) = group.jobs.last_mut() {
            let overlap_from = Some(flow.overlap_from);
            let flow = fluid::FluidFlow { path, bytes: flow.bytes, overlap_from };
            job.flows.extend(std::iter::repeat_n(flow, count as usize));
        }
    }

    /// The flows of a job that may be the last to end: all that share a link, and of the others the
    /// slowest, unless a sharing one is slower even when undisturbed.
    fn deciding_flows(&self, job: usize) -> Vec<usize> {
        let (mut deciding, private): (Vec<usize>, Vec<usize>) =
            self.spans[job].clone().partition(|flow| !self.flows[*flow].shared_links.is_empty());
        let computes = self.jobs[job].compute_seconds;
        let alone = |flow: &usize| {
            let flow = &self.flows[*flow];
            flow.overlap_from * computes + self.alone_seconds(flow)
        };
        // Of flows that share nothing only the slowest can end an iteration.
        let slowest = private.into_iter().max_by(|a, b| alone(a).total_cmp(&alone(b)));
        let sharing = deciding.iter().map(alone).fold(0.0, f64::max);
        // A flow that shares links takes at least its time alone, so a faster private one never
        // ends last.
        deciding.extend(slowest.filter(|flow| alone(flow) > sharing));
        deciding
    }

    fn flows_of(&self, job: usize) -> &[RoutedFlow] {
        &self.flows[self.spans[job].clone()]
    }

    /// Seconds of a flow that nothing disturbs.
    fn alone_seconds(&self, flow: &RoutedFlow) -> f64 {
        let links = flow.shared_links.iter().map(|link| self.shared_links[*link].service.capacity);
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
            let jobs = self.shared_links[link].flows.iter().map(|flow| self.flows[*flow].job);
            let mut here: Vec<usize> =
                jobs.filter_map(|job| members.binary_search(&job).ok()).collect();
            // Flows of a link are in the order of their jobs, so equal neighbours are all there
            // are.
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
    fn extend_with_links(&mut self, links: &[u32]) {
        for link in links {
            let LinkService { capacity, is_fifo } = self.links[*link as usize];
            self.extend_with_bits(capacity);
            self.signature.push(u32::from(is_fifo));
        }
    }

    fn extend_with_bits(&mut self, number: f64) {
        let bits = number.to_bits();
        self.signature.extend([(bits >> 32) as u32, bits as u32]);
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
        let mut alone = job.compute_seconds;
        let mut earlier = f64::NEG_INFINITY;
        loop {
            let starts = job.flows.iter().map(|flow| job.overlap_of(flow));
            // A bound for each start: its instant, and the time that the link with most bytes from
            // there on needs for them.
            let Some(start) = starts.filter(|start| *start > earlier).reduce(f64::min) else {
                return alone;
            };
            let from = || job.flows.iter().filter(|flow| job.overlap_of(flow) >= start);
            let hops = || from().flat_map(|flow| flow.path.iter().map(move |link| (flow, link)));
            hops().for_each(|(flow, link)| bytes[*link as usize] += flow.bytes);
            let seconds = hops().map(|(_, link)| {
                let link = *link as usize;
                // Taken, so that the buffer is empty for the next start. A link that occurs again
                // then counts as 0.
                std::mem::take(&mut bytes[link]) / self.links[link].capacity
            });
            let sending = seconds.fold(0.0, f64::max);
            alone = alone.max(start * job.compute_seconds + sending);
            earlier = start;
        }
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

#[cfg(test)]
mod tests {
    use fluid::{Engine, EngineOptions, FluidFlow, FluidJob, FluidNetwork};
    use proptest::prelude::*;

    use super::*;

    /// NICs, and links of the fabric.
    const NICS: u32 = 6;
    const LINKS: u32 = 10;
    const CAPACITY: f64 = 100.0;
    const SECONDS: f64 = 40.0;

    #[derive(Clone, Debug)]
    struct RandomJob {
        compute_seconds: f64,
        level: u32,
        /// NIC, link of the fabric, whether it sends twice as much, and whether it begins early.
        flows: Vec<(u32, u32, bool, bool)>,
    }

    fn random_job() -> impl Strategy<Value = RandomJob> {
        let flow = (0..NICS, NICS..LINKS, any::<bool>(), any::<bool>());
        let flows = prop::collection::vec(flow, 1..12);
        (0.5..2.0, 0_u32..3, flows).prop_map(|(compute_seconds, level, flows)| RandomJob {
            compute_seconds,
            level,
            flows,
        })
    }

    /// Every NIC to every link of the fabric: nothing tells them apart.
    fn even_job(compute_seconds: f64) -> RandomJob {
        let pairs = (0..NICS).flat_map(|nic| (NICS..LINKS).map(move |link| (nic, link)));
        let flows = pairs.map(|(nic, link)| (nic, link, false, false)).collect();
        RandomJob { compute_seconds, level: 1, flows }
    }

    fn bytes(is_large: bool) -> f64 {
        if is_large { 20.0 } else { 10.0 }
    }

    fn overlap_from(is_early: bool) -> Option<f64> {
        is_early.then_some(0.25)
    }

    fn groups_of(jobs: &[RandomJob]) -> Vec<ContentionGroup> {
        let routed: Vec<RoutedJob<'_>> = jobs
            .iter()
            .map(|job| RoutedJob {
                compute_seconds: job.compute_seconds,
                overlap_from: 1.0,
                flows: job
                    .flows
                    .iter()
                    .map(|(nic, link, large, early)| FlowOnLinks {
                        bytes: bytes(*large),
                        overlap_from: overlap_from(*early),
                        links: vec![LinkId(*nic), LinkId(*link)].into(),
                    })
                    .collect(),
            })
            .collect();
        contention_groups(&routed, |_| LinkService { capacity: CAPACITY, is_fifo: false })
    }

    fn busy_seconds(network: &FluidNetwork, jobs: &[FluidJob]) -> Vec<f64> {
        let mut engine = Engine::new(network, EngineOptions::default()).unwrap();
        let places: Vec<_> = jobs.iter().map(|job| engine.add_job(job).unwrap()).collect();
        engine.run_until(SECONDS).unwrap();
        places.into_iter().map(|job| engine.job_tally(job).unwrap().busy_seconds).collect()
    }

    /// By job, without any reduction.
    fn busy_in_full(jobs: &[RandomJob]) -> Vec<f64> {
        let network = FluidNetwork::new(vec![CAPACITY; LINKS as usize]).unwrap();
        let jobs: Vec<FluidJob> = jobs
            .iter()
            .map(|job| FluidJob {
                compute_seconds: job.compute_seconds,
                level: job.level,
                flows: job
                    .flows
                    .iter()
                    .map(|(nic, link, large, early)| FluidFlow {
                        path: vec![*nic, *link],
                        bytes: bytes(*large),
                        overlap_from: overlap_from(*early),
                    })
                    .collect(),
                ..FluidJob::default()
            })
            .collect();
        busy_seconds(&network, &jobs)
    }

    fn busy_in_groups(jobs: &[RandomJob]) -> Vec<f64> {
        let mut busy = vec![0.0; jobs.len()];
        for group in groups_of(jobs) {
            let capacities = group.links().iter().map(|link| link.capacity);
            let network = FluidNetwork::new(capacities.collect()).unwrap();
            let reduced: Vec<FluidJob> = group
                .fluid_jobs()
                .iter()
                .zip(&group.members)
                .map(|(job, member)| FluidJob { level: jobs[*member].level, ..job.clone() })
                .collect();
            for (member, seconds) in group.members.iter().zip(busy_seconds(&network, &reduced)) {
                busy[*member] = seconds;
            }
        }
        busy
    }

    #[test]
    fn what_nothing_tells_apart_is_one_flow_and_two_links() {
        let [group] = &groups_of(&[even_job(1.0), even_job(2.0)])[..] else { panic!() };
        assert_eq!(group.links().len(), 2);
        for job in group.fluid_jobs() {
            assert!(job.flows.iter().all(|flow| *flow == job.flows[0]));
            assert_eq!(job.flows.len() as u32, NICS * (LINKS - NICS));
        }
        let (mut larger, mut earlier) = (even_job(2.0), even_job(2.0));
        larger.flows[0].2 = true;
        earlier.flows[0].3 = true;
        for uneven in [larger, earlier] {
            let [group] = &groups_of(&[even_job(1.0), uneven])[..] else { panic!() };
            assert!(group.links().len() > 2);
        }
    }

    /// A job alone on its NIC and link: 0.1 s from a quarter of a second on, and 0.4 s from the end of
    /// the computation on; all at once would take 0.5 s.
    #[test]
    fn flows_that_begin_early_are_gone_when_the_others_begin() {
        let job = RandomJob {
            compute_seconds: 1.0,
            level: 0,
            flows: vec![(0, NICS, false, true), (0, NICS, true, false), (0, NICS, true, false)],
        };
        let [group] = &groups_of(std::slice::from_ref(&job))[..] else { panic!() };
        assert_eq!(group.alone_seconds(), [1.4]);
        let late = RandomJob { flows: vec![(0, NICS, true, true); 6], ..job };
        let [group] = &groups_of(&[late])[..] else { panic!() };
        assert_eq!(group.alone_seconds(), [1.45]);
    }

    proptest! {
        /// Links that serve all levels alike find their shares only to a thousandth, so these are
        /// left out.
        #[test]
        fn a_reduced_run_gives_the_times_of_the_full_one(
            mut jobs in prop::collection::vec(random_job(), 1..4),
            even in prop::option::of(0.5..2.0),
        ) {
            jobs.extend(even.map(even_job));
            let (full, reduced) = (busy_in_full(&jobs), busy_in_groups(&jobs));
            for (full, reduced) in full.iter().zip(&reduced) {
                prop_assert!((full - reduced).abs() <= 1e-3 * full, "{full} {reduced} {jobs:?}");
            }
        }
    }
}
