//! Jobs that meet on links, with everything left out that cannot matter to the fluid model.
//!
//! Jobs that share no link run as if alone, so a set of jobs falls into contests that are judged
//! one by one. Within a contest only links with at least two flows decide anything; the others
//! merely cap the rate of the one flow on them, and links with the same flows act as their
//! narrowest. What is left is small, and the same for all choices that come to the same: its
//! [`ContentionGroup::signature`] lets a caller that tries many choices judge each only once.
//!
//! The reduction is exact: a run of the reduced jobs gives every job the times of the full one.

use std::collections::BTreeMap;

use topology::LinkId;

/// A job as the fluid model sees it, on given paths.
#[derive(Clone, Debug)]
pub struct RoutedJob<'a> {
    /// `comp_j` in seconds.
    pub compute_seconds: f64,
    /// `o_j`, 0..=1.
    pub overlap_from: f64,
    /// Bytes of one iteration and path of each flow; a flow without a path is left out of judging.
    pub flows: Vec<(f64, &'a [LinkId])>,
}

/// Jobs that meet, reduced.
#[derive(Clone, Debug)]
pub struct ContentionGroup {
    /// The jobs, as positions among the parties, ascending.
    pub members: Vec<usize>,
    /// Bytes/s of the links that are left.
    capacities: Vec<f64>,
    /// The jobs without level and start, in the order of `parties`.
    jobs: Vec<fluid::FluidJob>,
    shared_pairs: Vec<(usize, usize)>,
    signature: Vec<u32>,
}

/// The contests among `parties`; a job that meets nobody is a contest of one. `capacity` is of a
/// link, in bytes/s.
pub fn contention_groups(
    parties: &[RoutedJob<'_>],
    capacity: impl Fn(LinkId) -> f64,
) -> Vec<ContentionGroup> {
    let scene = GroupBuilder::new(parties, &capacity);
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (party, group) in scene.group_leaders().into_iter().enumerate() {
        members.entry(group).or_default().push(party);
    }
    let contest = |members| scene.build_group(members);
    members.into_values().map(contest).collect()
}

/// A flow of the scene.
struct RoutedFlow {
    job: usize,
    /// Position among the flows of its party.
    position: usize,
    bytes: f64,
    /// Bytes/s that the links which it has for itself let through.
    private_capacity: f64,
    /// Shared links, as positions in [`GroupBuilder::shared_links`], ascending.
    shared_links: Vec<usize>,
}

/// All parties with what they share.
struct GroupBuilder<'a> {
    jobs: &'a [RoutedJob<'a>],
    flows: Vec<RoutedFlow>,
    /// Streams on each shared link, ascending, and its capacity in bytes/s.
    shared_links: Vec<(Vec<usize>, f64)>,
}

impl<'a> GroupBuilder<'a> {
    fn new(parties: &'a [RoutedJob<'a>], capacity: &impl Fn(LinkId) -> f64) -> Self {
        let mut streams = Vec::new();
        let mut paths: Vec<&[LinkId]> = Vec::new();
        for (party, of) in parties.iter().enumerate() {
            for (position, (bytes, path)) in of.flows.iter().enumerate() {
                if *bytes > 0.0 && !path.is_empty() {
                    paths.push(path);
                    streams.push(RoutedFlow {
                        job: party,
                        position,
                        bytes: *bytes,
                        private_capacity: f64::INFINITY,
                        shared_links: Vec::new(),
                    });
                }
            }
        }
        let mut scene = Self { jobs: parties, flows: streams, shared_links: Vec::new() };
        scene.merge_shared_links(&paths, capacity);
        scene
    }

    /// Finds the links of `paths` with several streams; links with the same streams become one.
    fn merge_shared_links(&mut self, paths: &[&[LinkId]], capacity: &impl Fn(LinkId) -> f64) {
        let mut users: BTreeMap<LinkId, Vec<usize>> = BTreeMap::new();
        for (stream, path) in paths.iter().enumerate() {
            for link in *path {
                users.entry(*link).or_default().push(stream);
            }
        }
        let mut narrowest: BTreeMap<&[usize], f64> = BTreeMap::new();
        for (link, on) in &users {
            let least = narrowest.entry(on).or_insert(f64::INFINITY);
            *least = least.min(capacity(*link));
        }
        for (on, capacity) in narrowest {
            if let [alone] = on {
                self.flows[*alone].private_capacity = capacity;
                continue;
            }
            for stream in on {
                self.flows[*stream].shared_links.push(self.shared_links.len());
            }
            self.shared_links.push((on.to_vec(), capacity));
        }
    }

    /// The group of each party: the first party that it is joined to by shared links.
    fn group_leaders(&self) -> Vec<usize> {
        let mut group: Vec<usize> = (0..self.jobs.len()).collect();
        fn find_root(group: &mut [usize], mut party: usize) -> usize {
            while group[party] != party {
                group[party] = group[group[party]];
                party = group[party];
            }
            party
        }
        for (on, _) in &self.shared_links {
            let first = find_root(&mut group, self.flows[on[0]].job);
            for stream in &on[1..] {
                let other = find_root(&mut group, self.flows[*stream].job);
                let first = find_root(&mut group, first);
                group[first.max(other)] = first.min(other);
            }
        }
        (0..group.len()).map(|party| find_root(&mut group, party)).collect()
    }

    /// The contest of `members`, which share no link with others.
    fn build_group(&self, members: Vec<usize>) -> ContentionGroup {
        let mut contest = ContentionGroup {
            capacities: Vec::new(),
            jobs: Vec::new(),
            shared_pairs: self.shared_pairs(&members),
            signature: Vec::new(),
            members: Vec::new(),
        };
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        for party in &members {
            let party_of = &self.jobs[*party];
            contest.jobs.push(fluid::FluidJob {
                compute_seconds: party_of.compute_seconds,
                overlap_from: party_of.overlap_from,
                ..fluid::FluidJob::default()
            });
            contest.extend_signature(&[u32::MAX, to_index(*party)]);
            for stream in self.deciding_flows(*party) {
                contest.add_flow(stream, &self.shared_links, &mut numbers);
            }
        }
        contest.members = members;
        contest
    }

    /// The streams of a party that may be the last to end: all that share, and of the others the
    /// slowest, unless one that shares is slower even when undisturbed.
    fn deciding_flows(&self, party: usize) -> Vec<&RoutedFlow> {
        let of_party = |stream: &&RoutedFlow| stream.job == party;
        let alone = |stream: &RoutedFlow| {
            let links = stream.shared_links.iter().map(|link| self.shared_links[*link].1);
            stream.bytes / links.fold(stream.private_capacity, f64::min)
        };
        let (mut deciding, private): (Vec<&RoutedFlow>, Vec<&RoutedFlow>) =
            self.flows.iter().filter(of_party).partition(|stream| !stream.shared_links.is_empty());
        let slowest = private.into_iter().max_by(|a, b| alone(a).total_cmp(&alone(b)));
        let sharing = deciding.iter().map(|stream| alone(stream));
        let sharing = sharing.fold(0.0, f64::max);
        deciding.extend(slowest.filter(|stream| alone(stream) > sharing));
        deciding
    }

    /// Pairs of members, by position among them, that share a link.
    fn shared_pairs(&self, members: &[usize]) -> Vec<(usize, usize)> {
        let mut meets = Vec::new();
        for (on, _) in &self.shared_links {
            let of = |stream: &usize| members.binary_search(&self.flows[*stream].job).ok();
            let mut here: Vec<usize> = on.iter().filter_map(of).collect();
            here.dedup();
            for (at, a) in here.iter().enumerate() {
                meets.extend(here[at + 1..].iter().map(|b| (*a, *b)));
            }
        }
        meets.sort_unstable();
        meets.dedup();
        meets
    }
}

impl ContentionGroup {
    /// Adds a stream of the last job. `numbers` are those of shared links met so far.
    fn add_flow(
        &mut self,
        stream: &RoutedFlow,
        shared: &[(Vec<usize>, f64)],
        numbers: &mut BTreeMap<usize, u32>,
    ) {
        let mut path = Vec::with_capacity(stream.shared_links.len() + 1);
        for link in &stream.shared_links {
            let number = *numbers.entry(*link).or_insert_with(|| {
                self.capacities.push(shared[*link].1);
                to_index(self.capacities.len() - 1)
            });
            path.push(number);
        }
        self.extend_signature(&[u32::MAX - 1, to_index(stream.position)]);
        self.extend_signature(&path);
        self.extend_with_capacities(&path);
        let narrowest = stream.shared_links.iter().map(|link| shared[*link].1);
        if stream.private_capacity < narrowest.fold(f64::INFINITY, f64::min) {
            path.push(to_index(self.capacities.len()));
            self.capacities.push(stream.private_capacity);
        }
        let flow = fluid::FluidFlow { path, bytes: stream.bytes };
        if let Some(job) = self.jobs.last_mut() {
            job.flows.push(flow);
        }
    }

    fn extend_with_capacities(&mut self, links: &[u32]) {
        for link in links {
            let bits = self.capacities[*link as usize].to_bits();
            self.extend_signature(&[(bits >> 32) as u32, bits as u32]);
        }
    }

    fn extend_signature(&mut self, part: &[u32]) {
        self.signature.extend_from_slice(part);
    }

    /// The jobs as the fluid model takes them, in the order of `parties`.
    pub(super) fn fluid_jobs(&self) -> &[fluid::FluidJob] {
        &self.jobs
    }

    /// Capacity of the links that `jobs` speak of, bytes/s.
    pub(super) fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Seconds of an iteration of each job if nobody disturbed it.
    pub fn alone_seconds(&self) -> Vec<f64> {
        self.jobs.iter().map(|job| self.job_alone_seconds(job)).collect()
    }

    fn job_alone_seconds(&self, job: &fluid::FluidJob) -> f64 {
        let mut bytes = vec![0.0; self.capacities.len()];
        for flow in &job.flows {
            for link in &flow.path {
                bytes[*link as usize] += flow.bytes;
            }
        }
        let seconds = bytes.iter().zip(&self.capacities).map(|(bytes, rate)| bytes / rate);
        let link = seconds.fold(0.0, f64::max);
        job.compute_seconds.max(job.overlap_from * job.compute_seconds + link)
    }

    /// Equal for choices of paths that come to the same for these jobs.
    pub fn signature(&self) -> &[u32] {
        &self.signature
    }

    /// Pairs of jobs that share a link, by position in [`Self::parties`], ascending.
    pub fn shared_pairs(&self) -> &[(usize, usize)] {
        &self.shared_pairs
    }

    /// What `levels`, by position in [`Self::parties`], say where jobs meet. Equal for levels
    /// that come to the same.
    pub fn level_relations(&self, levels: &[u8]) -> Vec<std::cmp::Ordering> {
        let relation = |(a, b): &(usize, usize)| levels[*a].cmp(&levels[*b]);
        self.shared_pairs.iter().map(relation).collect()
    }
}

fn to_index(position: usize) -> u32 {
    u32::try_from(position).expect("a contest has fewer than 2^32 flows and links")
}
