//! Jobs from the communicators of NCCL, as the profiler plugin reports them.
//!
//! Every rank of this host reports what it sends in each of its communicators. The process that is
//! rank 0 of the widest communicator of a job stands for the job: its messages become an
//! announcement, once the iteration is known, and finished iterations. Pure.
//!
//! What a plugin cannot know is assumed, and stated here: ranks are spread evenly over the hosts in
//! their order, and every host sends as this one, to the ranks that are as far from its own. Where
//! that would wrap around (a pipeline), or where several communicators send and only one of them is
//! of all ranks, the operation that moves most bytes gives the pattern instead.
//! The work of an iteration is only known if the user states it (`CRUX_FLOP_PER_ITERATION`);
//! without it the controller ranks the job last.

use std::collections::BTreeMap;

use planner::{CollectiveDocument, CollectiveKind, JobDocument, RankTraffic};
use topology::host_list::{self, HostListError};

use crate::process_message::{CommunicatorTraffic, FinishedIteration, ProcessMessage};

/// Communicators of all processes of this host that are remembered.
const MAX_COMMUNICATORS: usize = 4_096;
/// Pairs of ranks that an announcement names; a job of more is known by its pattern.
const MAX_RANK_PAIRS: usize = 16_384;
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
            messages.push(ProcessMessage::Job(Box::new(document)));
            let progress = ReportedProgress { process, iterations: 0.0 };
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
            bytes: Some(measured.host_bytes * f64::from(traffic.host_count)),
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
        let bytes = operation_bytes(measured.kind, measured.host_bytes, counted);
        let collective =
            CollectiveDocument { bytes: Some(bytes), ..CollectiveDocument::new(measured.kind) };
        let rank_traffic = match measured.kind {
            CollectiveKind::Pipeline => Vec::new(),
            _ => self.rank_traffic(traffic, measured),
        };
        let sends = counted > 1 && bytes > 0.0;
        Ok(JobDocument {
            id: id.to_owned(),
            gpus: hosts.into_iter().map(|host| (host, gpus)).collect(),
            flop_per_iteration: traffic.flop_per_iteration,
            collective: (sends && rank_traffic.is_empty()).then_some(collective),
            rank_traffic,
            ..JobDocument::default()
        })
    }

    /// What ranks send to each other in an iteration, if all that is sent is sent in the widest
    /// communicator, of which every rank of this host is known: that of this host, from every host.
    fn rank_traffic(
        &self,
        widest: &CommunicatorTraffic,
        measured: &MeasuredIteration,
    ) -> Vec<RankTraffic> {
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
            return Vec::new();
        }
        let mut pairs = Vec::new();
        for host in 0..hosts {
            let shifted = |rank: u32| (rank + host * per_host) % ranks;
            for traffic in &own {
                let all: u64 = traffic.peers.iter().map(|peer| peer.bytes).sum();
                let bytes = bytes_in(traffic, measured.seconds) / all.max(1) as f64;
                pairs.extend(traffic.peers.iter().filter(|peer| peer.rank < ranks).map(|peer| {
                    RankTraffic {
                        src: shifted(traffic.rank % ranks),
                        dst: shifted(peer.rank),
                        bytes: bytes * peer.bytes as f64,
                        overlap_from: None,
                    }
                }));
            }
        }
        pairs.retain(|sent| sent.bytes > 0.0);
        pairs
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
}

/// What a rank sends in `seconds`: a communicator may repeat a shorter iteration than the job.
fn bytes_in(traffic: &CommunicatorTraffic, seconds: f64) -> f64 {
    let own = traffic.iteration.filter(|iteration| iteration.seconds > 0.0);
    match own {
        Some(own) => own.bytes * (seconds / own.seconds).round().max(1.0),
        None => {
            let sent: u64 = traffic.peers.iter().map(|peer| peer.bytes).sum();
            sent as f64 * seconds / traffic.window_seconds.max(seconds)
        }
    }
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

/// Bytes of the operation of which each of `hosts` sends `host_bytes` on average: the inverse of
/// what the planner derives from a collective.
fn operation_bytes(kind: CollectiveKind, host_bytes: f64, hosts: u32) -> f64 {
    let n = f64::from(hosts);
    if hosts < 2 {
        return 0.0;
    }
    match kind {
        CollectiveKind::RingAllReduce | CollectiveKind::Pipeline => {
            host_bytes * n / (2.0 * (n - 1.0))
        }
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
            host_bytes * n / (n - 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_message::{CommunicatorIteration, OperationTraffic, PeerTraffic};

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
        // A ring of two hosts sends as many bytes as the operation has.
        assert_eq!(collective.bytes, Some(6e9));
        assert_eq!((one.seconds, one.bytes), (0.4, Some(12e9)));
        assert_eq!((one.compute_seconds, one.communication_seconds), (0.2, 0.2));
        // 2.5 iterations a second: two and then three.
        let messages = jobs.record_traffic(1, &traffic("w", 0, 16, 0.0)).unwrap();
        assert_eq!(messages.len(), 3);
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
