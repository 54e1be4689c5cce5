//! Jobs that meet on links, with everything left out that cannot matter to the fluid model.
//!
//! Jobs that share no link run as if alone, so a set of jobs falls into contests that are judged
//! one by one. Within a contest only links with at least two flows decide anything; the others
//! merely cap the rate of the one flow on them, and links with the same flows act as their
//! narrowest. What is left is small, and the same for all choices that come to the same: its
//! [`Contest::signature`] lets a caller that tries many choices judge each only once.
//!
//! The reduction is exact: a run of the reduced jobs gives every job the times of the full one.

use std::collections::BTreeMap;

use topology::LinkId;

/// A job as the fluid model sees it, on given paths.
#[derive(Clone, Debug)]
pub struct Party<'a> {
    /// `comp_j` in seconds.
    pub compute_seconds: f64,
    /// `o_j`, 0..=1.
    pub overlap_from: f64,
    /// Bytes of one iteration and path of each flow; a flow without a path is left out of judging.
    pub flows: Vec<(f64, &'a [LinkId])>,
}

/// Jobs that meet, reduced.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The jobs, as positions among the parties, ascending.
    pub parties: Vec<usize>,
    /// Bytes/s of the links that are left.
    capacity: Vec<f64>,
    /// The jobs without class and start, in the order of `parties`.
    jobs: Vec<fluid::Job>,
    meets: Vec<(usize, usize)>,
    signature: Vec<u32>,
}

/// The contests among `parties`; a job that meets nobody is a contest of one. `capacity` is of a
/// link, in bytes/s.
pub fn contests(parties: &[Party<'_>], capacity: impl Fn(LinkId) -> f64) -> Vec<Contest> {
    let scene = Scene::new(parties, &capacity);
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (party, group) in scene.groups().into_iter().enumerate() {
        members.entry(group).or_default().push(party);
    }
    let contest = |members| scene.contest(members);
    members.into_values().map(contest).collect()
}

/// A flow of the scene.
struct Stream {
    party: usize,
    /// Position among the flows of its party.
    position: usize,
    bytes: f64,
    /// Bytes/s that the links which it has for itself let through.
    cap: f64,
    /// Shared links, as positions in [`Scene::shared`], ascending.
    shared: Vec<usize>,
}

/// All parties with what they share.
struct Scene<'a> {
    parties: &'a [Party<'a>],
    streams: Vec<Stream>,
    /// Streams on each shared link, ascending, and its capacity in bytes/s.
    shared: Vec<(Vec<usize>, f64)>,
}

impl<'a> Scene<'a> {
    fn new(parties: &'a [Party<'a>], capacity: &impl Fn(LinkId) -> f64) -> Self {
        let mut streams = Vec::new();
        let mut paths: Vec<&[LinkId]> = Vec::new();
        for (party, of) in parties.iter().enumerate() {
            for (position, (bytes, path)) in of.flows.iter().enumerate() {
                if *bytes > 0.0 && !path.is_empty() {
                    paths.push(path);
                    streams.push(Stream {
                        party,
                        position,
                        bytes: *bytes,
                        cap: f64::INFINITY,
                        shared: Vec::new(),
                    });
                }
            }
        }
        let mut scene = Self {
            parties,
            streams,
            shared: Vec::new(),
        };
        scene.share(&paths, capacity);
        scene
    }

    /// Finds the links of `paths` with several streams; links with the same streams become one.
    fn share(&mut self, paths: &[&[LinkId]], capacity: &impl Fn(LinkId) -> f64) {
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
                self.streams[*alone].cap = capacity;
                continue;
            }
            for stream in on {
                self.streams[*stream].shared.push(self.shared.len());
            }
            self.shared.push((on.to_vec(), capacity));
        }
    }

    /// The group of each party: the first party that it is joined to by shared links.
    fn groups(&self) -> Vec<usize> {
        let mut group: Vec<usize> = (0..self.parties.len()).collect();
        fn root(group: &mut [usize], mut party: usize) -> usize {
            while group[party] != party {
                group[party] = group[group[party]];
                party = group[party];
            }
            party
        }
        for (on, _) in &self.shared {
            let first = root(&mut group, self.streams[on[0]].party);
            for stream in &on[1..] {
                let other = root(&mut group, self.streams[*stream].party);
                let first = root(&mut group, first);
                group[first.max(other)] = first.min(other);
            }
        }
        (0..group.len())
            .map(|party| root(&mut group, party))
            .collect()
    }

    /// The contest of `members`, which share no link with others.
    fn contest(&self, members: Vec<usize>) -> Contest {
        let mut contest = Contest {
            capacity: Vec::new(),
            jobs: Vec::new(),
            meets: self.meets(&members),
            signature: Vec::new(),
            parties: Vec::new(),
        };
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        for party in &members {
            let party_of = &self.parties[*party];
            contest.jobs.push(fluid::Job {
                compute_seconds: party_of.compute_seconds,
                overlap_from: party_of.overlap_from,
                ..fluid::Job::default()
            });
            contest.sign(&[u32::MAX, index(*party)]);
            for stream in self.deciding(*party) {
                contest.add(stream, &self.shared, &mut numbers);
            }
        }
        contest.parties = members;
        contest
    }

    /// The streams of a party that may be the last to end: all that share, and of the others the
    /// slowest, unless one that shares is slower even when undisturbed.
    fn deciding(&self, party: usize) -> Vec<&Stream> {
        let of_party = |stream: &&Stream| stream.party == party;
        let alone = |stream: &Stream| {
            let links = stream.shared.iter().map(|link| self.shared[*link].1);
            stream.bytes / links.fold(stream.cap, f64::min)
        };
        let (mut deciding, private): (Vec<&Stream>, Vec<&Stream>) = self
            .streams
            .iter()
            .filter(of_party)
            .partition(|stream| !stream.shared.is_empty());
        let slowest = private
            .into_iter()
            .max_by(|a, b| alone(a).total_cmp(&alone(b)));
        let sharing = deciding.iter().map(|stream| alone(stream));
        let sharing = sharing.fold(0.0, f64::max);
        deciding.extend(slowest.filter(|stream| alone(stream) > sharing));
        deciding
    }

    /// Pairs of members, by position among them, that share a link.
    fn meets(&self, members: &[usize]) -> Vec<(usize, usize)> {
        let mut meets = Vec::new();
        for (on, _) in &self.shared {
            let of = |stream: &usize| members.binary_search(&self.streams[*stream].party).ok();
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

impl Contest {
    /// Adds a stream of the last job. `numbers` are those of shared links met so far.
    fn add(
        &mut self,
        stream: &Stream,
        shared: &[(Vec<usize>, f64)],
        numbers: &mut BTreeMap<usize, u32>,
    ) {
        let mut path = Vec::with_capacity(stream.shared.len() + 1);
        for link in &stream.shared {
            let number = *numbers.entry(*link).or_insert_with(|| {
                self.capacity.push(shared[*link].1);
                index(self.capacity.len() - 1)
            });
            path.push(number);
        }
        self.sign(&[u32::MAX - 1, index(stream.position)]);
        self.sign(&path);
        self.sign_capacities(&path);
        let narrowest = stream.shared.iter().map(|link| shared[*link].1);
        if stream.cap < narrowest.fold(f64::INFINITY, f64::min) {
            path.push(index(self.capacity.len()));
            self.capacity.push(stream.cap);
        }
        let flow = fluid::Flow {
            path,
            bytes: stream.bytes,
        };
        if let Some(job) = self.jobs.last_mut() {
            job.flows.push(flow);
        }
    }

    fn sign_capacities(&mut self, links: &[u32]) {
        for link in links {
            let bits = self.capacity[*link as usize].to_bits();
            self.sign(&[(bits >> 32) as u32, bits as u32]);
        }
    }

    fn sign(&mut self, part: &[u32]) {
        self.signature.extend_from_slice(part);
    }

    /// The jobs as the fluid model takes them, in the order of `parties`.
    pub(super) fn jobs(&self) -> &[fluid::Job] {
        &self.jobs
    }

    /// Capacity of the links that `jobs` speak of, bytes/s.
    pub(super) fn capacity(&self) -> &[f64] {
        &self.capacity
    }

    /// Seconds of an iteration of each job if nobody disturbed it.
    pub fn alone_seconds(&self) -> Vec<f64> {
        self.jobs.iter().map(|job| self.alone(job)).collect()
    }

    fn alone(&self, job: &fluid::Job) -> f64 {
        let mut bytes = vec![0.0; self.capacity.len()];
        for flow in &job.flows {
            for link in &flow.path {
                bytes[*link as usize] += flow.bytes;
            }
        }
        let seconds = bytes
            .iter()
            .zip(&self.capacity)
            .map(|(bytes, rate)| bytes / rate);
        let link = seconds.fold(0.0, f64::max);
        job.compute_seconds
            .max(job.overlap_from * job.compute_seconds + link)
    }

    /// Equal for choices of paths that come to the same for these jobs.
    pub fn signature(&self) -> &[u32] {
        &self.signature
    }

    /// Pairs of jobs that share a link, by position in [`Self::parties`], ascending.
    pub fn meets(&self) -> &[(usize, usize)] {
        &self.meets
    }

    /// What `classes`, by position in [`Self::parties`], say where jobs meet. Equal for classes
    /// that come to the same.
    pub fn relations(&self, classes: &[u8]) -> Vec<std::cmp::Ordering> {
        let relation = |(a, b): &(usize, usize)| classes[*a].cmp(&classes[*b]);
        self.meets.iter().map(relation).collect()
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a contest has fewer than 2^32 flows and links")
}
