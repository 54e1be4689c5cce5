//! The plugin as NCCL loads it: opened with `dlopen`, driven through each version of its
//! interface with the events of ring, tree and all-to-all, and read where the agent reads it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

use agent::process_message::{
    CommunicatorIteration, CommunicatorTraffic, ProcessMessage, parse_message,
};

use super::{driver, library};

/// Variables that make a test process play a role instead of starting others.
const PATTERN: &str = "REPLAY_PATTERN";
const VERSION: &str = "REPLAY_VERSION";
/// Where it writes when it queued each operation.
const QUEUED: &str = "REPLAY_QUEUED";

/// Rank 0 of eight on four hosts; every pattern lasts two seconds.
const RANKS: u32 = 8;
const REPLAY_SECONDS: f64 = 2.0;

/// Bytes of rank 0 to each peer in one iteration, and its length.
struct TrafficPattern {
    name: &'static str,
    function: &'static str,
    period_ms: u64,
    buckets: &'static [u64],
    peers: &'static [u32],
}

/// Peers that are on other hosts, two ranks a host: only those are reached over the network.
const PATTERNS: [TrafficPattern; 3] = [
    TrafficPattern {
        name: "ring",
        function: "AllReduce",
        period_ms: 40,
        buckets: &[6_000_000, 6_000_000, 6_000_000, 1_500_000],
        peers: &[2],
    },
    TrafficPattern {
        name: "tree",
        function: "AllReduce",
        period_ms: 25,
        buckets: &[1_000_000, 700_000],
        peers: &[2, 4],
    },
    TrafficPattern {
        name: "all-to-all",
        function: "AllToAll",
        period_ms: 30,
        buckets: &[3_000_000],
        peers: &[2, 3, 4, 5, 6, 7],
    },
];

impl TrafficPattern {
    fn by_name(name: &str) -> &'static Self {
        PATTERNS.iter().find(|pattern| pattern.name == name).expect("the name of a pattern")
    }

    /// What rank 0 sends to each peer for an operation on `bytes`.
    fn sent_to_peer(&self, bytes: u64) -> u64 {
        match self.name {
            "ring" => bytes * 2 * u64::from(RANKS - 1) / u64::from(RANKS),
            "tree" => bytes,
            _ => bytes / u64::from(RANKS),
        }
    }

    fn iteration_bytes(&self) -> f64 {
        let sent: u64 = self.buckets.iter().map(|bytes| self.sent_to_peer(*bytes)).sum();
        sent as f64 * self.peers.len() as f64
    }
}

/// What a rank did, and what its agent learned of it.
struct Replay {
    /// Seconds from the start of the rank at which it queued each operation.
    queued: Vec<f64>,
    received: Vec<CommunicatorTraffic>,
}

impl Replay {
    /// The length that the averaged iterations really had: a process on a busy machine is late.
    fn played_seconds(&self, iteration: &CommunicatorIteration) -> f64 {
        let last = self.queued.len() - 1 - iteration.operations;
        let first = last - iteration.averaged * iteration.operations;
        (self.queued[last] - self.queued[first]) / iteration.averaged as f64
    }

    /// No iteration began late by a quarter of its length: a rank that a busy machine stopped for
    /// that long played another pattern.
    fn was_punctual(&self, pattern: &TrafficPattern) -> bool {
        let period = pattern.period_ms as f64 / 1e3;
        let began = self.queued.iter().step_by(pattern.buckets.len());
        began.enumerate().all(|(iteration, at)| at - iteration as f64 * period < period / 4.0)
    }
}

/// The first of some replays that was played as it is written.
fn punctual_replay(pattern: &TrafficPattern, version: &str) -> Replay {
    (0..10)
        .map(|_| replay(pattern, version))
        .find(|replay| replay.was_punctual(pattern))
        .expect("ten times the machine was too busy to play a pattern")
}

/// Runs this test again in a process with the role of a rank.
fn replay(pattern: &TrafficPattern, version: &str) -> Replay {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let queued = folder.path().join("queued.json");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut rank = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "replay::a_rank_plays_its_pattern", "--nocapture"])
        .env(PATTERN, pattern.name)
        .env(VERSION, version)
        .env(QUEUED, &queued)
        .env("CRUX_AGENT_SOCKET", &socket)
        .env("CRUX_NCCL_REPORT_MS", "250")
        .env("CRUX_JOB", "replayed")
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    let received = read_messages(stream);
    assert!(rank.wait().unwrap().success());
    let queued = serde_json::from_slice(&std::fs::read(queued).unwrap()).unwrap();
    Replay { queued, received }
}

/// All messages until the communicator is closed or the process ends.
fn read_messages(stream: UnixStream) -> Vec<CommunicatorTraffic> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut received = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        match parse_message(&line) {
            Ok(ProcessMessage::Communicator(traffic)) => received.push(*traffic),
            other => panic!("{line}: {other:?}"),
        }
    }
    received
}

/// Not a test of its own: the process that [`replay`] starts. Without the variables it does
/// nothing.
#[test]
fn a_rank_plays_its_pattern() {
    let (Ok(pattern), Ok(version)) = (std::env::var(PATTERN), std::env::var(VERSION)) else {
        return;
    };
    let pattern = TrafficPattern::by_name(&pattern);
    let plugin = driver::ProfilerPlugin::open(&library(), &version);
    let rank = plugin.open_communicator(RANKS, 0);
    let began = Instant::now();
    let mut queued: Vec<f64> = Vec::new();
    let period = Duration::from_millis(pattern.period_ms);
    let iterations = (REPLAY_SECONDS / period.as_secs_f64()) as u32;
    for iteration in 0..iterations {
        for bytes in pattern.buckets {
            queued.push(began.elapsed().as_secs_f64());
            let operation = rank.start_collective(pattern.function, *bytes / 4);
            let sent = pattern.sent_to_peer(*bytes);
            for peer in pattern.peers {
                rank.send_in_channels(operation, *peer, sent);
            }
            rank.stop(operation);
        }
        let next = period * (iteration + 1);
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    rank.close();
    std::fs::write(std::env::var(QUEUED).unwrap(), serde_json::to_vec(&queued).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
}

fn check(pattern: &TrafficPattern, version: &str) {
    let replay = punctual_replay(pattern, version);
    let context = format!("{} over {version}", pattern.name);
    let last = replay.received.last().expect("a message");
    assert_eq!((last.ranks, last.host_count, last.dropped_events), (RANKS, 4, 0), "{context}");
    assert_eq!(last.job.as_deref(), Some("replayed"));
    assert!(last.is_last, "{context}");
    let iteration = last.iteration.expect("it repeats");
    assert_eq!(iteration.operations, pattern.buckets.len(), "{context}");
    let error = iteration.seconds / replay.played_seconds(&iteration) - 1.0;
    let bytes_error = iteration.bytes / pattern.iteration_bytes() - 1.0;
    println!("{context}: period {:+.3} %, bytes {:+.3} %", error * 1e2, bytes_error * 1e2);
    assert!(error.abs() < 0.01, "{context}: {iteration:?}");
    assert!(bytes_error.abs() < 0.02, "{context}: {iteration:?}");
    let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
    for peer in replay.received.iter().flat_map(|message| &message.peers) {
        *sent.entry(peer.rank).or_default() += peer.bytes;
    }
    let iterations = (REPLAY_SECONDS * 1e3 / pattern.period_ms as f64).floor();
    let each = pattern.iteration_bytes() * iterations / pattern.peers.len() as f64;
    assert_eq!(sent.keys().copied().collect::<Vec<u32>>(), pattern.peers, "{context}");
    for bytes in sent.values() {
        assert!((*bytes as f64 / each - 1.0).abs() < 0.02, "{context}: {sent:?}, expected {each}");
    }
}

#[test]
fn ring_tree_and_all_to_all_are_measured_over_every_version() {
    for pattern in &PATTERNS {
        for version in ["ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6"] {
            check(pattern, version);
        }
    }
}
