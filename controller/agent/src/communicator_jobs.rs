//! Jobs from the communicators of NCCL, as the profiler plugin reports them.
//!
//! Every rank of this host reports what it sends in each of its communicators. The process that is
//! rank 0 of the widest communicator of a job stands for the job: its messages become an
//! announcement, once the iteration is known, and finished iterations. Pure.
//!
//! What a plugin cannot know is assumed, and stated here: ranks are spread evenly over the hosts in
//! their order, and every host sends as this one, to the ranks that are as far from its own, but for
//! the trees of an all-reduce, which follow from the edges of the first host. Where that would wrap
//! around (a pipeline), or where several communicators send and only one of them is of all ranks, the
//! operation that moves most bytes gives the pattern instead.
//! The work of an iteration is only known if the user states it (`CRUX_FLOP_PER_ITERATION`);
//! without it the controller ranks the job last.

use std::collections::BTreeMap;

use planner::{CollectiveDocument, CollectiveKind, JobDocument, RankGroups, RankTraffic};
use topology::host_list::{self, HostListError};

use crate::process_message::{
    CommunicatorTraffic, FinishedIteration, OperationTraffic, PeerTraffic, ProcessMessage,
};

/// Communicators of all processes of this host that are remembered.
const MAX_COMMUNICATORS: usize = 4_096;
/// Pairs of ranks that an announcement names, of 17 to 26 bytes each, where the controller takes 1 MiB;
/// a job of more is known by its pattern. All ranks of 64 hosts of eight NICs have 32,256.
const MAX_RANK_PAIRS: usize = 40_000;
/// Iterations that one message may stand for.
const MAX_ITERATIONS: f64 = 1_000.0;

/// Why the traffic of a communicator is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommunicatorError {
    /// The hosts are unknown.
    #[error(
        "communicator {id} spans {hosts} hosts: set CRUX_HOSTS to their names, or run under Slurm"
    )]
    UnknownHosts {
        /// Identifier of the communicator.
        id: String,
        /// How many there are.
        hosts: u32,
    },
    /// The list of hosts cannot be read.
    #[error(transparent)]
    HostList(#[from] HostListError),
    /// The list names another number of hosts than NCCL counts.
    #[error("the host list names {listed} hosts, but NCCL counts {counted}")]
    HostCount {
        /// Hosts of the list.
        listed: usize,
        /// Hosts of the communicator.
        counted: u32,
    },
    /// The limit of communicators is reached.
    #[error("this host already has {MAX_COMMUNICATORS} communicators, the maximum")]
    TooMany,
}

/// A communicator as one process reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankKey {
    process: u64,
    communicator: String,
    rank: u32,
}

/// The communicators of this host's processes, and the jobs that they are of.
#[derive(Debug)]
pub struct CommunicatorJobs {
    host: String,
    latest: BTreeMap<RankKey, CommunicatorTraffic>,
    /// Jobs that were announced, each with the fraction of an iteration that is not reported yet.
    announced: BTreeMap<String, ReportedProgress>,
}

#[derive(Debug)]
struct ReportedProgress {
    process: u64,
    iterations: f64,
    /// What all hosts send, by what this one does.
    hosts: f64,
}

impl CommunicatorJobs {
    /// Of a host of this name.
    pub fn new(host: &str) -> Self {
        let host = host.to_owned();
        Self { host, latest: BTreeMap::new(), announced: BTreeMap::new() }
    }

    /// Records what a process reports, and returns what that says about its job.
    ///
    /// # Errors
    /// The hosts of the job are unknown, or there are too many communicators.
    pub fn record_traffic(
        &mut self,
        process: u64,
        traffic: &CommunicatorTraffic,
    ) -> Result<Vec<ProcessMessage>, CommunicatorError> {
        let key = RankKey { process, communicator: traffic.id.clone(), rank: traffic.rank };
        if self.latest.len() >= MAX_COMMUNICATORS && !self.latest.contains_key(&key) {
            return Err(CommunicatorError::TooMany);
        }
        let earlier = self.latest.insert(key.clone(), traffic.clone());
        let is_first = earlier.is_none();
        let result = match self.represents_job(process, traffic) {
            // The other communicators of the process have not been reported yet.
            true if !is_first => self.job_messages(process, traffic),
            _ => Ok(Vec::new()),
        };
        if traffic.is_last {
            self.latest.remove(&key);
        }
        result
    }

    /// Forgets a process that has disconnected.
    pub fn remove_process(&mut self, process: u64) {
        self.latest.retain(|key, _| key.process != process);
        self.announced.retain(|_, progress| progress.process != process);
    }

    /// Whether this is rank 0 of the widest communicator of the process.
    fn represents_job(&self, process: u64, traffic: &CommunicatorTraffic) -> bool {
        let of_process = self.latest.iter().filter(|(key, _)| key.process == process);
        let widest = of_process.max_by_key(|(key, known)| (known.ranks, &key.communicator));
        traffic.rank == 0 && widest.is_some_and(|(key, _)| key.communicator == traffic.id)
    }

    fn job_messages(
        &mut self,
        process: u64,
        traffic: &CommunicatorTraffic,
    ) -> Result<Vec<ProcessMessage>, CommunicatorError> {
        let id = traffic.job.clone().unwrap_or_else(|| format!("nccl-{}", traffic.id));
        let Some(measured) = self.measure_iteration(process) else {
            return Ok(Vec::new());
        };
        let mut messages = Vec::new();
        if !self.announced.contains_key(&id) {
            let document = self.announce(&id, traffic, &measured)?;
            let all_hosts = bytes_of_all_hosts(&document, measured.host_bytes, traffic.host_count);
            messages.push(ProcessMessage::Job(Box::new(document)));
            // What is not known yet is as if all hosts sent the same.
            let hosts = match measured.host_bytes > 0.0 {
                true => all_hosts / measured.host_bytes,
                false => f64::from(traffic.host_count),
            };
            let progress = ReportedProgress { process, iterations: 0.0, hosts };
            self.announced.insert(id.clone(), progress);
        }
        let progress = self.announced.get_mut(&id).filter(|job| job.process == process);
        let Some(progress) = progress else { return Ok(messages) };
        let passed = traffic.window_seconds / measured.seconds;
        progress.iterations += passed.min(MAX_ITERATIONS);
        let complete = progress.iterations.floor();
        progress.iterations -= complete;
        let flop = traffic.flop_per_iteration.unwrap_or(0.0);
        let iteration = FinishedIteration {
            job: id,
            seconds: measured.seconds,
            flop,
            compute_seconds: measured.seconds - measured.communication_seconds,
            communication_seconds: measured.communication_seconds,
            slot_offset_seconds: None,
            bytes: Some(measured.host_bytes * progress.hosts),
        };
        let finished = std::iter::repeat_n(iteration, complete as usize);
        messages.extend(finished.map(ProcessMessage::Iteration));
        Ok(messages)
    }

    fn announce(
        &self,
        id: &str,
        traffic: &CommunicatorTraffic,
        measured: &MeasuredIteration,
    ) -> Result<JobDocument, CommunicatorError> {
        let hosts = self.hosts(traffic)?;
        let counted = traffic.host_count;
        if hosts.len() != counted as usize {
            return Err(CommunicatorError::HostCount { listed: hosts.len(), counted });
        }
        let gpus = traffic.ranks.div_ceil(counted);
        let mut job = JobDocument {
            id: id.to_owned(),
            gpus: hosts.into_iter().map(|host| (host, gpus)).collect(),
            flop_per_iteration: traffic.flop_per_iteration,
            ..JobDocument::default()
        };
        if counted < 2 || measured.host_bytes <= 0.0 {
            return Ok(job);
        }
        let sent = match measured.kind {
            CollectiveKind::Pipeline => None,
            _ => self.sent_by_own_ranks(traffic, measured),
        };
        match sent {
            Some(sent) if measured.reduces_only => match ring_and_trees(&sent, gpus, counted) {
                Some(operations) => job.collectives = operations,
                None => job.rank_traffic = from_every_host(&sent, gpus, counted),
            },
            Some(sent) => job.rank_traffic = from_every_host(&sent, gpus, counted),
            None => {
                let operation =
                    operation_bytes(measured.kind, measured.host_bytes, counted, traffic.ranks);
                // Several pipelines of fewer stages than hosts.
                let stages = measured.stages.filter(|stages| {
                    let is_pipeline = measured.kind == CollectiveKind::Pipeline;
                    is_pipeline && *stages < counted && counted.is_multiple_of(*stages)
                });
                let groups =
                    stages.map(|size| RankGroups { size, stride: gpus * (counted / size) });
                let of_rank = operation / f64::from(gpus);
                job.collective = Some(CollectiveDocument {
                    bytes: Some(groups.map_or(operation, |_| of_rank)),
                    groups,
                    ..CollectiveDocument::new(measured.kind)
                });
            }
        }
        Ok(job)
    }

    /// What ranks of this host send to others in an iteration, if all that is sent is sent in the
    /// widest communicator, of which every rank of this host is known.
    fn sent_by_own_ranks(
        &self,
        widest: &CommunicatorTraffic,
        measured: &MeasuredIteration,
    ) -> Option<Vec<RankTraffic>> {
        let (ranks, hosts) = (widest.ranks, widest.host_count);
        let per_host = ranks.div_ceil(hosts.max(1));
        let own = self.latest.iter().filter(|(key, _)| key.communicator == widest.id);
        let own: Vec<&CommunicatorTraffic> = own.map(|(_, traffic)| traffic).collect();
        let sent: f64 = own.iter().map(|traffic| bytes_in(traffic, measured.seconds)).sum();
        let is_all = own.len() == per_host as usize
            && ranks == per_host * hosts
            && (sent - measured.host_bytes).abs() <= 1e-6 * measured.host_bytes;
        let peers: usize = own.iter().map(|traffic| traffic.peers.len()).sum();
        if !is_all || peers * hosts as usize > MAX_RANK_PAIRS {
            return None;
        }
        let of_rank = |traffic: &CommunicatorTraffic| {
            let all: u64 = traffic.peers.iter().map(|peer| peer.bytes).sum();
            let share = bytes_in(traffic, measured.seconds) / all.max(1) as f64;
            let src = traffic.rank % ranks;
            let known = traffic.peers.iter().filter(|peer| peer.rank < ranks && peer.bytes > 0);
            let pair = |peer: &PeerTraffic| RankTraffic {
                src,
                dst: peer.rank,
                bytes: share * peer.bytes as f64,
                overlap_from: None,
            };
            known.map(pair).collect::<Vec<_>>()
        };
        Some(own.into_iter().flat_map(of_rank).collect())
    }

    fn hosts(&self, traffic: &CommunicatorTraffic) -> Result<Vec<String>, CommunicatorError> {
        match &traffic.host_list {
            Some(list) => Ok(host_list::expand_host_list(list)?),
            None if traffic.host_count == 1 => Ok(vec![self.host.clone()]),
            None => Err(CommunicatorError::UnknownHosts {
                id: traffic.id.clone(),
                hosts: traffic.host_count,
            }),
        }
    }

    /// The iteration of the job of a process: as long as the longest that one of its communicators
    /// repeats, with the bytes of all ranks of this host that are in communicators of its ranks.
    fn measure_iteration(&self, process: u64) -> Option<MeasuredIteration> {
        let own = || self.latest.iter().filter(|(key, _)| key.process == process);
        let longest = own()
            .filter_map(|(_, traffic)| traffic.iteration)
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds))
            .filter(|iteration| iteration.seconds > 0.0)?;
        let job = own().find_map(|(_, traffic)| traffic.job.clone());
        let ids: Vec<&str> = own().map(|(key, _)| key.communicator.as_str()).collect();
        let of_job: Vec<&CommunicatorTraffic> = self
            .latest
            .iter()
            .filter(|(key, traffic)| {
                let has_name = job.is_some() && traffic.job == job;
                has_name || ids.contains(&key.communicator.as_str())
            })
            .map(|(_, traffic)| traffic)
            .collect();
        let sent = of_job.iter().map(|traffic| bytes_in(traffic, longest.seconds)).sum();
        let busy = of_job.iter().map(|traffic| traffic.busy_share).fold(0.0, f64::max).min(1.0);
        Some(MeasuredIteration {
            seconds: longest.seconds,
            communication_seconds: busy * longest.seconds,
            host_bytes: sent,
            kind: busiest_kind(&of_job),
            reduces_only: reduces_only(&of_job),
            stages: stages_of(&of_job),
        })
    }
}

/// An iteration of a job on this host.
#[derive(Clone, Copy, Debug)]
struct MeasuredIteration {
    seconds: f64,
    communication_seconds: f64,
    /// What all ranks of this host send over the network.
    host_bytes: f64,
    kind: CollectiveKind,
    /// Whether all-reduces are all that is sent over the network.
    reduces_only: bool,
    /// Hosts of the communicator that sends from rank to rank; none if none does.
    stages: Option<u32>,
}

/// What a rank sends in `seconds`: a communicator may repeat a shorter iteration than the job.
fn bytes_in(traffic: &CommunicatorTraffic, seconds: f64) -> f64 {
    let of_window = |bytes: u64| bytes as f64 * seconds / traffic.window_seconds.max(seconds);
    let own = traffic.iteration.filter(|iteration| iteration.seconds > 0.0);
    match own {
        Some(own) => {
            let repeated = (seconds / own.seconds).round().max(1.0);
            own.bytes * repeated + of_window(traffic.foreign_bytes)
        }
        None => of_window(traffic.peers.iter().map(|peer| peer.bytes).sum()),
    }
}

/// What the ranks of the first host send, from every host to those at the same distance.
fn from_every_host(sent: &[RankTraffic], per_host: u32, hosts: u32) -> Vec<RankTraffic> {
    let ranks = per_host * hosts;
    let shifted = |rank: u32, host: u32| (rank + host * per_host) % ranks;
    let of_host = |host: u32| {
        sent.iter().map(move |pair| RankTraffic {
            src: shifted(pair.src, host),
            dst: shifted(pair.dst, host),
            ..*pair
        })
    };
    (0..hosts).flat_map(of_host).collect()
}

/// The all-reduces by ring and by tree of which these bytes of the first host are; none where no tree
/// is among them. In a ring, the host sends to the second one; along each of its edges in the two trees,
/// half of the buffer. Between two hosts, trees send as a ring does.
fn ring_and_trees(
    sent: &[RankTraffic],
    per_host: u32,
    hosts: u32,
) -> Option<Vec<CollectiveDocument>> {
    let mut by_host: BTreeMap<u32, f64> = BTreeMap::new();
    for pair in sent {
        *by_host.entry(pair.dst / per_host).or_default() += pair.bytes;
    }
    let all: f64 = by_host.values().sum();
    let edges = edges_of_first_host(hosts);
    let beyond = |places: &BTreeMap<u32, f64>| -> f64 {
        places.iter().filter(|(place, _)| **place != 1).map(|(_, amount)| amount).sum()
    };
    let half = beyond(&by_host) / beyond(&edges);
    let is_apart = |(host, count): (&u32, &f64)| {
        let bytes = by_host.get(host).copied().unwrap_or(0.0);
        *host != 1 && (bytes - count * half).abs() > 0.01 * all
    };
    let is_elsewhere = by_host.keys().any(|host| *host != 1 && !edges.contains_key(host));
    if !half.is_finite() || half <= 0.01 * all || is_elsewhere || edges.iter().any(is_apart) {
        return None;
    }
    let known = |places: &BTreeMap<u32, f64>| places.get(&1).copied().unwrap_or(0.0);
    let around = known(&by_host) - half * known(&edges);
    if around < -0.01 * all {
        return None;
    }
    let operation =
        |kind, bytes| CollectiveDocument { bytes: Some(bytes), ..CollectiveDocument::new(kind) };
    let mut operations = vec![operation(CollectiveKind::TreeAllReduce, 2.0 * half)];
    if around > 0.01 * all {
        let kind = CollectiveKind::RingAllReduce;
        operations.push(operation(kind, operation_bytes(kind, around, hosts, per_host * hosts)));
    }
    Some(operations)
}

/// How many edges of the two trees lead from the first host to others.
fn edges_of_first_host(hosts: u32) -> BTreeMap<u32, f64> {
    let mut edges = BTreeMap::new();
    for (_, to) in planner::tree_edges(hosts as usize).into_iter().filter(|(from, _)| *from == 0) {
        *edges.entry(to as u32).or_default() += 1.0;
    }
    edges
}

/// What all hosts send in an iteration in which the first sends `host_bytes`: the end of a pipeline
/// sends half of what hosts in between do, and the edges of trees are not spread evenly.
fn bytes_of_all_hosts(job: &JobDocument, host_bytes: f64, hosts: u32) -> f64 {
    let n = f64::from(hosts);
    let beyond = |one: &CollectiveDocument| match one.kind {
        CollectiveKind::Pipeline => {
            let stages = one.groups.map_or(n, |groups| f64::from(groups.size));
            Some(host_bytes * n * (1.0 - 2.0 / stages))
        }
        CollectiveKind::TreeAllReduce => {
            let of_first = edges_of_first_host(hosts).values().sum::<f64>() / 2.0;
            one.bytes.map(|bytes| bytes * (2.0 * (n - 1.0) - n * of_first))
        }
        _ => None,
    };
    host_bytes * n + job.all_collectives().filter_map(beyond).sum::<f64>()
}

/// Whether all-reduces are all that communicators that use the network do.
fn reduces_only(of_job: &[&CommunicatorTraffic]) -> bool {
    let across = of_job.iter().filter(|traffic| traffic.host_count > 1);
    let mut operations = across.flat_map(|traffic| &traffic.operations);
    operations.all(|operation| operation.function == "all_reduce")
}

/// The hosts of the communicator with the most bytes from rank to rank, each a stage of a pipeline.
fn stages_of(of_job: &[&CommunicatorTraffic]) -> Option<u32> {
    let sent = |traffic: &CommunicatorTraffic| -> u64 {
        let sends =
            |operation: &&OperationTraffic| matches!(operation.function.as_str(), "send" | "recv");
        traffic.operations.iter().filter(sends).map(|operation| operation.bytes).sum()
    };
    let sending = of_job.iter().filter(|traffic| traffic.host_count > 1 && sent(traffic) > 0);
    sending.max_by_key(|traffic| (sent(traffic), traffic.host_count)).map(|of| of.host_count)
}

/// The pattern of the function with the most bytes in communicators that use the network.
fn busiest_kind(of_job: &[&CommunicatorTraffic]) -> CollectiveKind {
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for traffic in of_job.iter().filter(|traffic| traffic.host_count > 1) {
        for operation in &traffic.operations {
            *bytes.entry(&operation.function).or_default() += operation.bytes;
        }
    }
    let peers = of_job.iter().map(|traffic| traffic.peers.len()).max().unwrap_or(0);
    let busiest = bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name);
    match busiest {
        Some("all_gather") => CollectiveKind::AllGather,
        Some("reduce_scatter") => CollectiveKind::ReduceScatter,
        Some("all_to_all") => CollectiveKind::AllToAll,
        Some("send" | "recv") if peers > 2 => CollectiveKind::AllToAll,
        Some("send" | "recv") => CollectiveKind::Pipeline,
        _ => CollectiveKind::RingAllReduce,
    }
}

/// Bytes of the operation of which the first of `hosts` sends `host_bytes`, with so many ranks in all:
/// the inverse of what the planner derives from a collective.
fn operation_bytes(kind: CollectiveKind, host_bytes: f64, hosts: u32, ranks: u32) -> f64 {
    if hosts < 2 {
        return 0.0;
    }
    let around = |n: u32| f64::from(n) / f64::from(n - 1);
    let each = f64::from(ranks) / f64::from(hosts);
    match kind {
        CollectiveKind::RingAllReduce => host_bytes * around(ranks) / 2.0,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => host_bytes * around(ranks),
        CollectiveKind::AllToAll => host_bytes * around(hosts) / each,
        // The first host sends to the next alone. Trees are found by their edges.
        CollectiveKind::Pipeline | CollectiveKind::TreeAllReduce => host_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_message::CommunicatorIteration;

    fn traffic(id: &str, rank: u32, ranks: u32, bytes: f64) -> CommunicatorTraffic {
        CommunicatorTraffic {
            id: id.to_owned(),
            rank,
            ranks,
            host_count: 2,
            job: Some("gpt".to_owned()),
            host_list: Some("h[1-2]".to_owned()),
            window_seconds: 1.0,
            busy_share: 0.5,
            iteration: Some(CommunicatorIteration {
                seconds: 0.4,
                bytes,
                operations: 3,
                averaged: 9,
                communication_seconds: 0.2,
            }),
            peers: vec![PeerTraffic { rank: 8, bytes: 100 }],
            operations: vec![OperationTraffic {
                function: "all_reduce".to_owned(),
                calls: 3,
                bytes: 999,
            }],
            ..CommunicatorTraffic::default()
        }
    }

    #[test]
    fn ranks_of_a_host_add_up_to_a_job_that_rank_0_stands_for() {
        let mut jobs = CommunicatorJobs::new("h1");
        // Rank 7 is where the ring leaves the host; rank 0 sends nothing over the network.
        assert_eq!(jobs.record_traffic(2, &traffic("w", 7, 16, 6e9)), Ok(vec![]));
        assert_eq!(jobs.record_traffic(2, &traffic("w", 7, 16, 6e9)), Ok(vec![]));
        assert_eq!(jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)), Ok(vec![]));
        let messages = jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)).unwrap();
        let [ProcessMessage::Job(job), ProcessMessage::Iteration(one), _] = &messages[..] else {
            panic!("{messages:?}");
        };
        assert_eq!(job.gpus, [("h1".to_owned(), 8), ("h2".to_owned(), 8)].into());
        let collective = job.collective.as_ref().unwrap();
        assert_eq!(collective.kind, CollectiveKind::RingAllReduce);
        // An edge of a ring of 16 ranks carries 15/8 of the operation.
        assert_eq!(collective.bytes, Some(3.2e9));
        assert_eq!((one.seconds, one.bytes), (0.4, Some(12e9)));
        assert_eq!((one.compute_seconds, one.communication_seconds), (0.2, 0.2));
        // 2.5 iterations a second: two and then three.
        let messages = jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)).unwrap();
        assert_eq!(messages.len(), 3);
    }

    #[test]
    fn pipelines_of_fewer_stages_than_hosts_are_several() {
        let mut jobs = CommunicatorJobs::new("h1");
        let sends = |traffic: CommunicatorTraffic| CommunicatorTraffic {
            operations: vec![OperationTraffic {
                function: "send".to_owned(),
                calls: 1,
                bytes: 100,
            }],
            ..traffic
        };
        let widest = CommunicatorTraffic {
            host_count: 8,
            host_list: Some("h[1-8]".to_owned()),
            operations: Vec::new(),
            ..traffic("w", 0, 16, 0.0)
        };
        let stages = sends(traffic("p", 0, 2, 1e9));
        jobs.record_traffic(1, &widest).unwrap();
        for _ in 0..2 {
            jobs.record_traffic(1, &stages).unwrap();
        }
        let messages = jobs.record_traffic(1, &widest).unwrap();
        let [ProcessMessage::Job(job), ProcessMessage::Iteration(one), ..] = &messages[..] else {
            panic!("{messages:?}");
        };
        let collective = job.collective.as_ref().unwrap();
        assert_eq!(collective.groups, Some(RankGroups { size: 2, stride: 8 }));
        // Of the two ranks of the host, each sends half; eight hosts send as much.
        assert_eq!((collective.bytes, one.bytes), (Some(0.5e9), Some(8e9)));
    }

    #[test]
    fn a_host_that_sends_nothing_yet_is_counted_later() {
        let mut jobs = CommunicatorJobs::new("h1");
        for _ in 0..2 {
            jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)).unwrap();
        }
        jobs.record_traffic(2, &traffic("w", 7, 16, 6e9)).unwrap();
        jobs.record_traffic(2, &traffic("w", 7, 16, 6e9)).unwrap();
        let messages = jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)).unwrap();
        let ProcessMessage::Iteration(one) = &messages[0] else { panic!("{messages:?}") };
        assert_eq!(one.bytes, Some(12e9));
    }

    #[test]
    fn where_every_rank_is_known_each_host_sends_what_this_one_does_by_rank() {
        let mut jobs = CommunicatorJobs::new("h1");
        let of = |rank: u32| CommunicatorTraffic {
            peers: vec![PeerTraffic { rank: (rank + 2) % 4, bytes: 300 }],
            ..traffic("w", rank, 4, 1e9 * f64::from(rank + 1))
        };
        for _ in 0..2 {
            jobs.record_traffic(2, &of(1)).unwrap();
        }
        jobs.record_traffic(1, &of(0)).unwrap();
        let messages = jobs.record_traffic(1, &of(0)).unwrap();
        let ProcessMessage::Job(job) = &messages[0] else { panic!("{messages:?}") };
        let sent = |src, dst, bytes| RankTraffic { src, dst, bytes, overlap_from: None };
        let expected = [sent(0, 2, 1e9), sent(1, 3, 2e9), sent(2, 0, 1e9), sent(3, 1, 2e9)];
        assert_eq!((&job.rank_traffic[..], &job.collective), (&expected[..], &None));
    }

    #[test]
    fn the_longest_iteration_and_the_bytes_of_all_communicators_count() {
        let mut jobs = CommunicatorJobs::new("h1");
        let mut tensor = traffic("t", 1, 4, 1e6);
        tensor.iteration.as_mut().unwrap().seconds = 0.1;
        for _ in 0..2 {
            assert_eq!(jobs.record_traffic(1, &tensor), Ok(vec![]));
            let found = jobs.record_traffic(1, &traffic("w", 0, 16, 2e6));
            if let [ProcessMessage::Job(_), ProcessMessage::Iteration(one), ..] =
                &found.unwrap()[..]
            {
                assert_eq!((one.seconds, one.bytes), (0.4, Some(2.0 * (2e6 + 4.0 * 1e6))));
                return;
            }
        }
        panic!("no job was announced");
    }

    #[test]
    fn a_job_whose_hosts_are_unknown_is_refused_with_a_remedy() {
        let mut jobs = CommunicatorJobs::new("h1");
        let unnamed = CommunicatorTraffic { host_list: None, ..traffic("w", 0, 16, 1.0) };
        jobs.record_traffic(1, &unnamed).unwrap();
        let error = jobs.record_traffic(1, &unnamed).unwrap_err().to_string();
        assert!(error.contains("set CRUX_HOSTS"), "{error}");
        let wrong =
            CommunicatorTraffic { host_list: Some("h1".into()), ..traffic("w", 0, 16, 1.0) };
        let error = jobs.record_traffic(1, &wrong).unwrap_err();
        assert_eq!(error, CommunicatorError::HostCount { listed: 1, counted: 2 });
    }

    #[test]
    fn a_job_on_one_host_has_no_flows() {
        let mut jobs = CommunicatorJobs::new("h9");
        let alone = CommunicatorTraffic {
            host_count: 1,
            host_list: None,
            job: None,
            ..traffic("w", 0, 8, 0.0)
        };
        jobs.record_traffic(1, &alone).unwrap();
        let messages = jobs.record_traffic(1, &alone).unwrap();
        let ProcessMessage::Job(job) = &messages[0] else { panic!("{messages:?}") };
        assert_eq!((job.id.as_str(), &job.collective), ("nccl-w", &None));
        assert_eq!(job.gpus, [("h9".to_owned(), 8)].into());
        jobs.remove_process(1);
        assert!(jobs.latest.is_empty() && jobs.announced.is_empty());
    }
}
