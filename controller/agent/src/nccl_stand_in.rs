//! What NCCL sends between the NICs of a job, and that a job is planned with it whichever way it is made
//! known.
//!
//! A stand-in for NCCL follows its rules rank by rank, on hosts of eight GPUs with a NIC each: a ring
//! passes all ranks and has a channel for each NIC, which it enters and leaves a host by; the two
//! trees of an all-reduce join hosts, with both trees on every channel; what is for a rank elsewhere
//! leaves by the NIC of the same place, through the process of the rank beside it (PXN).

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use planner::{
    CollectiveDocument, CollectiveKind, JobDocument, JobsDocument, RankGroups, RankTraffic,
};
use serde_json::json;
use topology::Fabric;
use topology::clos::{ClosSpec, build_clos};

use crate::communicator_jobs::CommunicatorJobs;
use crate::kubernetes::{Pod, PodNaming, PodSet};
use crate::process_message::{
    CommunicatorIteration, CommunicatorTraffic, OperationTraffic, PeerTraffic, ProcessMessage,
    parse_message,
};
use crate::slurm_job::{SlurmStart, starting_slurm_job};

const GPUS: u32 = 8;
const BYTES: f64 = 3.2e9;
const HOSTS: [u32; 8] = [2, 3, 4, 6, 8, 16, 33, 64];

/// Bytes from NIC to NIC, numbered as the ranks beside them, and how much of that the processes of other
/// ranks of the host have queued.
#[derive(Default)]
struct Sent {
    pairs: BTreeMap<(u32, u32), f64>,
    foreign: BTreeMap<(u32, u32), f64>,
}

impl Sent {
    fn add(&mut self, rank: u32, nic: u32, to: u32, bytes: f64) {
        if nic / GPUS == to / GPUS {
            return;
        }
        *self.pairs.entry((nic, to)).or_default() += bytes;
        if rank != nic {
            *self.foreign.entry((nic, to)).or_default() += bytes;
        }
    }

    /// Around the ranks of all hosts: channel `c` enters a host at its rank `c` and comes back to it.
    fn ring(&mut self, hosts: u32, share: f64) {
        let ranks = hosts * GPUS;
        for channel in 0..GPUS {
            let place = |host: u32, step: u32| host * GPUS + (channel + step) % GPUS;
            let order: Vec<u32> =
                (0..hosts).flat_map(|host| (0..GPUS).map(move |step| place(host, step))).collect();
            for (at, rank) in order.iter().enumerate() {
                let next = order[(at + 1) % order.len()];
                let nic = rank / GPUS * GPUS + channel;
                let edge = share * f64::from(ranks - 1) / f64::from(ranks) / f64::from(GPUS);
                self.add(*rank, nic, next, edge);
            }
        }
    }

    /// Up and down two trees of the hosts: in one, a host at an odd multiple of a power of two hangs on
    /// the neighbour at a multiple of twice the power that is not one of four times, if there is one.
    fn trees(&mut self, hosts: u32, bytes: f64) {
        let parent = |host: u32| {
            let power = (0..).map(|at| 1 << at).find(|power| host & power != 0).unwrap_or(1);
            let both = [host - power, host + power];
            let is_inner = |at: &&u32| **at < hosts && (**at / power / 2) % 2 == 1;
            *both.iter().find(is_inner).unwrap_or(&both[0])
        };
        let second = |host: u32| match hosts % 2 {
            0 => hosts - 1 - host,
            _ => (host + 1) % hosts,
        };
        for child in 1..hosts {
            let first = (child, parent(child));
            for (low, high) in [first, (second(first.0), second(first.1))] {
                for (from, to) in [(low, high), (high, low)] {
                    for channel in 0..GPUS {
                        let (from, to) = (from * GPUS + channel, to * GPUS + channel);
                        self.add(from, from, to, bytes / 2.0 / f64::from(GPUS));
                    }
                }
            }
        }
    }

    fn all_to_all(&mut self, ranks: &[u32], bytes: f64) {
        for from in ranks {
            for to in ranks {
                let beside = from / GPUS * GPUS + to % GPUS;
                self.add(*from, beside, *to, bytes / ranks.len() as f64);
            }
        }
    }

    /// Stages of one host each, rank by rank.
    fn pipeline(&mut self, hosts: u32, bytes: f64) {
        for rank in 0..(hosts - 1) * GPUS {
            self.add(rank, rank, rank + GPUS, bytes);
            self.add(rank + GPUS, rank + GPUS, rank, bytes);
        }
    }

    /// What the plugins of the first host report in a window of ten iterations.
    fn communicators(&self, hosts: u32, functions: &[&str]) -> Vec<CommunicatorTraffic> {
        let of_rank = |rank: u32| {
            let own = self.pairs.iter().filter(|((src, _), _)| *src == rank);
            let in_window = |bytes: f64| (bytes * 10.0).round() as u64;
            let foreign = self.foreign.iter().filter(|((src, _), _)| *src == rank);
            let foreign: f64 = foreign.map(|(_, bytes)| bytes).sum();
            let all: f64 = own.clone().map(|(_, bytes)| bytes).sum();
            CommunicatorTraffic {
                id: "w".to_owned(),
                rank,
                ranks: hosts * GPUS,
                host_count: hosts,
                job: Some("j".to_owned()),
                host_list: Some(format!("h[1-{hosts}]")),
                window_seconds: 4.0,
                busy_share: 0.5,
                iteration: Some(CommunicatorIteration {
                    seconds: 0.4,
                    bytes: all - foreign,
                    ..CommunicatorIteration::default()
                }),
                peers: own
                    .map(|((_, dst), bytes)| PeerTraffic { rank: *dst, bytes: in_window(*bytes) })
                    .collect(),
                operations: (1..)
                    .zip(functions)
                    .map(|(bytes, function)| OperationTraffic {
                        function: (*function).to_owned(),
                        calls: 10,
                        bytes,
                    })
                    .collect(),
                foreign_bytes: in_window(foreign),
                ..CommunicatorTraffic::default()
            }
        };
        (0..GPUS).map(of_rank).collect()
    }
}

/// 64 hosts, each with eight NICs at eight leaves.
fn rails() -> Fabric {
    let spec = ClosSpec {
        leaves: 8,
        spines: 4,
        hosts_per_leaf: 8,
        gpus_per_host: GPUS,
        host_links: GPUS,
        rails: true,
        ..ClosSpec::default()
    };
    build_clos("rails", &spec).unwrap()
}

/// The flows that are planned are those that are sent, within 2 %.
fn check(fabric: &Fabric, case: &str, job: JobDocument, sent: &Sent) {
    let place: BTreeMap<String, u32> =
        job.gpus.keys().zip(0..).map(|(host, place)| (host.clone(), place)).collect();
    let known = JobDocument { flop_per_iteration: Some(1e15), compute_seconds: Some(1.0), ..job };
    let document = JobsDocument { jobs: vec![known] };
    let jobs = document.resolve_jobs(fabric, "jobs").unwrap_or_else(|e| panic!("{case}: {e}"));
    let rank = |nic| {
        let nic = fabric.nic(nic);
        place[&fabric.host(nic.host).name] * GPUS + nic.index
    };
    let mut planned: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for flow in &jobs.jobs[0].flows {
        *planned.entry((rank(flow.src), rank(flow.dst))).or_default() += flow.bytes;
    }
    assert!(planned.keys().eq(sent.pairs.keys()), "{case}: other pairs of NICs");
    for (pair, bytes) in &sent.pairs {
        let ratio = planned[pair] / bytes;
        assert!((ratio - 1.0).abs() < 0.02, "{case}: {pair:?} has {ratio} of what is sent");
    }
}

fn gpus(hosts: u32) -> JobDocument {
    JobDocument {
        id: "j".to_owned(),
        gpus: (1..=hosts).map(|host| (format!("h{host}"), GPUS)).collect(),
        ..JobDocument::default()
    }
}

fn stated(kind: CollectiveKind, groups: Option<RankGroups>) -> CollectiveDocument {
    CollectiveDocument { bytes: Some(BYTES), groups, ..CollectiveDocument::new(kind) }
}

/// A document, as a jobs document, the Reporter and `crux job` have it.
fn document(hosts: u32, collectives: &[CollectiveDocument]) -> JobDocument {
    let job = JobDocument { collectives: collectives.to_vec(), ..gpus(hosts) };
    let line = serde_json::to_string(&ProcessMessage::Job(Box::new(job))).unwrap();
    match parse_message(&line).unwrap() {
        ProcessMessage::Job(job) => *job,
        other => panic!("{other:?}"),
    }
}

/// A comment of Slurm.
fn slurm(hosts: u32, kind: &str) -> JobDocument {
    let variables = [
        ("SLURM_JOB_ID", "7".to_owned()),
        ("SLURM_JOB_NODELIST", format!("h[1-{hosts}]")),
        ("SLURM_SCRIPT_CONTEXT", "prolog_slurmctld".to_owned()),
        ("SLURM_JOB_COMMENT", format!("crux.collective={kind} crux.bytes={BYTES}")),
    ];
    let known: BTreeMap<&str, String> = variables.into();
    match starting_slurm_job(|name| known.get(name).cloned(), Some(GPUS)).unwrap() {
        SlurmStart::Job(component) => component.record(None).job,
        other => panic!("{other:?}"),
    }
}

/// Annotated pods.
fn pods(hosts: u32, kind: &str) -> JobDocument {
    let pod = |host: u32| -> Pod {
        let pod = json!({
            "metadata": {
                "name": format!("j-{host}"), "namespace": "ml", "uid": host.to_string(),
                "labels": { "job-name": "j" },
                "annotations": {
                    "crux.fabric/collective": kind, "crux.fabric/bytes": BYTES.to_string(),
                },
            },
            "spec": { "nodeName": format!("h{host}"), "containers": [
                { "resources": { "limits": { "nvidia.com/gpu": GPUS } } },
            ] },
            "status": { "phase": "Running" },
        });
        serde_json::from_value(pod).unwrap()
    };
    let naming = PodNaming {
        cluster: "k8s".to_owned(),
        job_label: None,
        node_domain: None,
        gpu_resource: "nvidia.com/gpu".to_owned(),
        gpus_per_pod: 0,
    };
    let pods: PodSet = (1..=hosts).map(pod).collect();
    pods.jobs(&naming).jobs.remove(0)
}

/// The profiler plugin in every process of the first host.
fn plugin(hosts: u32, functions: &[&str], sent: &Sent) -> JobDocument {
    let mut jobs = CommunicatorJobs::new("h1");
    let mut last = Vec::new();
    for _ in 0..2 {
        for (process, traffic) in sent.communicators(hosts, functions).iter().enumerate().rev() {
            last = jobs.record_traffic(process as u64, traffic).unwrap();
        }
    }
    let [ProcessMessage::Job(job), ProcessMessage::Iteration(iteration), ..] = &last[..] else {
        panic!("{last:?}");
    };
    let all: f64 = sent.pairs.values().sum();
    let measured = iteration.bytes.unwrap();
    assert!((measured / all - 1.0).abs() < 0.02, "{functions:?}: {measured} of {all} bytes");
    (**job).clone()
}

/// Ranks of a process group, and what they have called on so many bytes.
type GroupCalls<'a> = (Vec<u32>, &'a [(&'a str, f64)]);

/// The hook of PyTorch in rank 0, whose groups have called these operations on so many bytes.
fn torch(hosts: u32, groups: &[GroupCalls<'_>]) -> JobDocument {
    const PROGRAM: &str = "
import json, sys
from crux_telemetry.process_groups import GroupTraffic
from crux_telemetry.torch import IterationReporter
groups, hosts, per_host = json.load(sys.stdin)
traffic = []
for ranks, operations in groups:
    traffic.append(GroupTraffic(ranks))
    for name, size in operations:
        traffic[-1].add(name, size)
class Reporter:
    def job(self, id, gpus, **known):
        print(json.dumps({'job': {'id': id, 'gpus': gpus, **known}}))
gpus = {f'h{host + 1}': per_host for host in range(hosts)}
told = IterationReporter(Reporter(), 'j', gpus, {'can_wait': True}, (hosts * per_host, per_host))
told({}, traffic)
";
    let mut python = Command::new("python3")
        .args(["-c", PROGRAM])
        .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/python"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = json!([groups, hosts, GPUS]).to_string();
    python.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.len() < crate::process_message::MAX_LINE, "{} bytes", line.len());
    match parse_message(&line).unwrap() {
        ProcessMessage::Job(job) => *job,
        other => panic!("{other:?}"),
    }
}

/// One operation of all ranks, by all ways that state it.
fn check_stated(fabric: &Fabric, hosts: u32, kind: CollectiveKind, sent: &Sent) {
    let name = serde_json::to_value(kind).unwrap();
    let name = name.as_str().unwrap();
    let case = |from: &str| format!("{name} from {from}, {hosts} hosts");
    check(fabric, &case("document"), document(hosts, &[stated(kind, None)]), sent);
    check(fabric, &case("Slurm"), slurm(hosts, name), sent);
    check(fabric, &case("pods"), pods(hosts, name), sent);
}

fn all_ranks(hosts: u32) -> Vec<u32> {
    (0..hosts * GPUS).collect()
}

#[test]
fn a_ring_is_planned_as_it_is_sent() {
    let fabric = rails();
    for hosts in HOSTS {
        let mut sent = Sent::default();
        sent.ring(hosts, 2.0 * BYTES);
        let case = |from: &str| format!("{from}, {hosts} hosts");
        let all: &[(&str, f64)] = &[("all_reduce", BYTES)];
        check_stated(&fabric, hosts, CollectiveKind::RingAllReduce, &sent);
        check(&fabric, &case("plugin"), plugin(hosts, &["all_reduce"], &sent), &sent);
        check(&fabric, &case("torch"), torch(hosts, &[(all_ranks(hosts), all)]), &sent);
    }
}

#[test]
fn trees_are_planned_as_they_are_sent() {
    let fabric = rails();
    for hosts in HOSTS {
        let mut sent = Sent::default();
        sent.trees(hosts, BYTES);
        let case = |from: &str| format!("{from}, {hosts} hosts");
        check_stated(&fabric, hosts, CollectiveKind::TreeAllReduce, &sent);
        check(&fabric, &case("plugin"), plugin(hosts, &["all_reduce"], &sent), &sent);
        // Small buffers by trees, large ones by rings.
        sent.ring(hosts, 0.6 * BYTES);
        check(&fabric, &case("plugin of both"), plugin(hosts, &["all_reduce"], &sent), &sent);
    }
}

#[test]
fn experts_and_gradients_are_planned_as_they_are_sent() {
    let fabric = rails();
    for hosts in HOSTS {
        let mut sent = Sent::default();
        sent.all_to_all(&all_ranks(hosts), BYTES);
        let case = |from: &str| format!("{from}, {hosts} hosts");
        let calls: &[(&str, f64)] = &[("all_to_all", BYTES), ("all_reduce", BYTES)];
        let all = |calls| torch(hosts, &[(all_ranks(hosts), calls)]);
        check_stated(&fabric, hosts, CollectiveKind::AllToAll, &sent);
        check(&fabric, &case("plugin"), plugin(hosts, &["all_to_all"], &sent), &sent);
        check(&fabric, &case("torch"), all(&calls[..1]), &sent);
        sent.ring(hosts, 2.0 * BYTES);
        let both = [CollectiveKind::AllToAll, CollectiveKind::RingAllReduce];
        let both = both.map(|kind| stated(kind, None));
        check(&fabric, &case("document of both"), document(hosts, &both), &sent);
        for functions in [["all_reduce", "all_to_all"], ["all_to_all", "all_reduce"]] {
            check(&fabric, &case("plugin of both"), plugin(hosts, &functions, &sent), &sent);
        }
        check(&fabric, &case("torch of both"), all(calls), &sent);
    }
}

#[test]
fn stages_are_planned_as_they_are_sent() {
    let fabric = rails();
    for hosts in HOSTS {
        let mut sent = Sent::default();
        sent.pipeline(hosts, BYTES);
        let case = |from: &str| format!("{from}, {hosts} hosts");
        let groups = RankGroups { size: hosts, stride: GPUS };
        let stages = [stated(CollectiveKind::Pipeline, Some(groups))];
        let next: &[(&str, f64)] = &[("send", BYTES)];
        check(&fabric, &case("document"), document(hosts, &stages), &sent);
        check(&fabric, &case("torch"), torch(hosts, &[(vec![0, GPUS], next)]), &sent);
        check(&fabric, &case("plugin"), plugin(hosts, &["send"], &sent), &sent);
        // Schedulers state what a host sends to the next.
        let mut whole = Sent::default();
        whole.pipeline(hosts, BYTES / f64::from(GPUS));
        check(&fabric, &case("Slurm"), slurm(hosts, "pipeline"), &whole);
        check(&fabric, &case("pods"), pods(hosts, "pipeline"), &whole);
    }
}

#[test]
fn ranks_of_two_stages_of_a_host_send_each_by_its_own_nic() {
    let fabric = rails();
    // Four stages of four ranks on two hosts: only ranks 4 to 7 have the next stage elsewhere.
    let stages = stated(CollectiveKind::Pipeline, Some(RankGroups { size: 4, stride: 4 }));
    let mut sent = Sent::default();
    for rank in 4..8 {
        sent.add(rank, rank, rank + 4, BYTES);
        sent.add(rank + 4, rank + 4, rank, BYTES);
    }
    check(&fabric, "document", document(2, &[stages]), &sent);
    let traffic: Vec<RankTraffic> = (4..8)
        .flat_map(|rank| [(rank, rank + 4), (rank + 4, rank)])
        .map(|(src, dst)| RankTraffic { src, dst, bytes: BYTES, overlap_from: None })
        .collect();
    check(&fabric, "ranks", JobDocument { rank_traffic: traffic, ..gpus(2) }, &sent);
}
