//! Hosts report their queue pairs over gRPC: flows of jobs that share NICs have their own level and
//! path before their first packet, connections that are made again are followed, and an agent that
//! lies gets nothing of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use agent::process_job::SchedulerJob;
use agent::queue_pairs::{QueuePair, QueuePairService, QueuePairState};
use agent::rdma_flows::{RdmaFlow, RdmaFlows};
use agent::report_stream::ControllerTarget;
use agent::service::{HostAgent, ReportSink};
use agent::source_port::source_port;
use api::telemetry as proto;
use controller::ControllerHandle;
use controller::northbound::ApiServer;
use proto::job_report::Report;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use topology::{NicId, SwitchId};

use crate::lab::{Lab, until, verified};
use crate::learned_flows::{Connection, difference, lab, learned_jobs, send};
use crate::telemetry::{ReportStream, served, settings};
use crate::unannounced_ports::{learning_controller, packets_of};

/// Two jobs on the same hosts and NICs, which state no ports.
const JOBS: &str = r#"{ "jobs": [
  { "id": "slurm-7", "gpus": { "h1": 4, "h3": 4 }, "flop_per_iteration": 1e15,
    "compute_seconds": 0.1, "collective": { "kind": "ring_all_reduce", "bytes": 4e9 } },
  { "id": "slurm-8", "gpus": { "h1": 4, "h3": 4 }, "flop_per_iteration": 1e12,
    "compute_seconds": 0.1, "collective": { "kind": "ring_all_reduce", "bytes": 4e9 } } ] }"#;

/// What the kernel of a host lists.
type KernelList = Arc<Mutex<RdmaFlows>>;

/// The queue pair of a process of a Slurm job.
fn queue_pair(job: u64, local: u32, remote: u32) -> RdmaFlow {
    let queue_pair = QueuePair {
        local_number: local,
        remote_number: Some(remote),
        service: QueuePairService::ReliableConnection,
        state: QueuePairState::ReadyToSend,
        pid: Some(job as u32),
        ..QueuePair::default()
    };
    let udp_src_port = Some(source_port(local, remote));
    let owner = Some(SchedulerJob::Slurm(job));
    RdmaFlow { device: "mlx5_0".to_owned(), queue_pair, udp_src_port, owner }
}

fn set_flows(list: &KernelList, flows: Vec<RdmaFlow>) {
    list.lock().unwrap().flows = flows;
}

/// An agent of a host, whose kernel lists what `list` has.
struct RunningAgent {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningAgent {
    fn start(lab: &Lab, server: &ApiServer, host: &str, list: &KernelList) -> Self {
        let nic = lab.fabric.host(lab.fabric.host_named(host).unwrap()).nics[0];
        let address = lab.fabric.nic(nic).ip;
        list.lock().unwrap().addresses = [("mlx5_0".to_owned(), vec![address])].into();
        let target = ControllerTarget {
            address: server.local_addr().to_string(),
            ..ControllerTarget::default()
        };
        let sink = ReportSink::for_controller(&target).unwrap();
        let read = Arc::clone(list);
        let agent = HostAgent::open(settings(host, None), sink).unwrap();
        let agent = agent.with_queue_pairs(Arc::new(move || Ok(read.lock().unwrap().clone())));
        let stop = CancellationToken::new();
        let task = tokio::spawn(agent.run_until(stop.clone().cancelled_owned()));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Waits until exactly these flows are learned, each of its job.
async fn learned(controller: &ControllerHandle, expected: &BTreeMap<Connection, String>) {
    until(async || learned_jobs(controller) == *expected).await;
}

/// Both directions of connections between h1 and h3, by job and numbers.
fn both_ways(connections: &[(u64, u32, u32)]) -> BTreeMap<Connection, String> {
    let flows = connections.iter().flat_map(|(job, one, other)| {
        let port = source_port(*one, *other);
        [(0, 2, port), (2, 0, port)].map(|flow| (flow, format!("slurm-{job}")))
    });
    flows.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_of_jobs_that_share_nics_have_their_level_and_path_before_their_first_packet() {
    let lab = lab().await;
    let controller = learning_controller(&lab, JOBS, |_| {}).await;
    let server = served(&controller).await;
    // Numbers repeat between NICs: 0x11 is a queue pair of one job at h1, and of the other at h3.
    let (one, three) = (KernelList::default(), KernelList::default());
    let agents = [("h1", &one), ("h3", &three)]
        .map(|(host, list)| RunningAgent::start(&lab, &server, host, list));
    let started = Instant::now();
    set_flows(&one, vec![queue_pair(7, 0x11, 0x12), queue_pair(8, 0x13, 0x11)]);
    set_flows(&three, vec![queue_pair(7, 0x12, 0x11), queue_pair(8, 0x11, 0x13)]);
    learned(&controller, &both_ways(&[(7, 0x11, 0x12), (8, 0x13, 0x11)])).await;
    verified(&lab, &controller).await;
    println!("pinned {:?} after the queue pairs were connected", started.elapsed());
    let reports = controller.watch_learned_flows().borrow().counts.reports;
    assert_eq!(reports, 0, "no leaf has reported anything");
    let plan = controller.current_rollout().unwrap().plan;
    for (job, ports) in [("slurm-7", (0x11, 0x12)), ("slurm-8", (0x13, 0x11))] {
        let before = packets_of(&lab, SwitchId(0)).await;
        for _ in 0..50 {
            send(&lab, vec![(0, 2, source_port(ports.0, ports.1))]).await;
        }
        let (index, planned) = plan.job(&job.into()).unwrap();
        let flow = plan.flows.iter().find(|flow| (flow.job, flow.src) == (index, NicId(0)));
        let port = lab.fabric.link(flow.unwrap().links[1]).from.port;
        let expected = [(port, planned.level, 50)];
        until(async || difference(packets_of(&lab, SwitchId(0)).await, &before) == expected).await;
    }
    let levels: Vec<u8> = plan.jobs.iter().map(|job| job.level).collect();
    assert!(levels[0] > levels[1], "{levels:?}: their own levels, not those of the pair");
    for agent in agents {
        agent.stop().await;
    }
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_made_again_are_followed_and_the_old_ones_age() {
    let lab = lab().await;
    let controller = learning_controller(&lab, JOBS, |learning| {
        (learning.refresh_ms, learning.expire_ms) = (300, 900);
    })
    .await;
    let server = served(&controller).await;
    let (one, three) = (KernelList::default(), KernelList::default());
    let agents = [("h1", &one), ("h3", &three)]
        .map(|(host, list)| RunningAgent::start(&lab, &server, host, list));
    for round in 0..3 {
        let numbers = (0x100 + round, 0x200 + round);
        set_flows(&one, vec![queue_pair(7, numbers.0, numbers.1)]);
        set_flows(&three, vec![queue_pair(7, numbers.1, numbers.0)]);
        learned(&controller, &both_ways(&[(7, numbers.0, numbers.1)])).await;
    }
    // A host without queue pairs, and one whose agent has gone.
    set_flows(&one, Vec::new());
    learned(&controller, &BTreeMap::new()).await;
    for agent in agents {
        agent.stop().await;
    }
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_lies_gets_nothing_of_others() {
    let lab = lab().await;
    let controller = learning_controller(&lab, JOBS, |_| {}).await;
    let server = served(&controller).await;
    let (one, three) = (KernelList::default(), KernelList::default());
    let agents = [("h1", &one), ("h3", &three)]
        .map(|(host, list)| RunningAgent::start(&lab, &server, host, list));
    set_flows(&one, vec![queue_pair(7, 1, 2)]);
    set_flows(&three, vec![queue_pair(7, 2, 1)]);
    let honest = both_ways(&[(7, 1, 2)]);
    learned(&controller, &honest).await;
    let report = |host: &str, nic: u32, job: &str, pairs: &[[u32; 3]]| {
        let pairs = pairs.iter().map(|[local, remote, port]| proto::QueuePair {
            local_number: *local,
            remote_number: *remote,
            udp_src_port: Some(*port),
        });
        Report::QueuePairs(proto::HostQueuePairs {
            host: host.to_owned(),
            groups: vec![proto::QueuePairGroup {
                addresses: vec![lab.fabric.nic(NicId(nic)).ip.to_string()],
                job: job.to_owned(),
                queue_pairs: pairs.collect(),
            }],
        })
    };
    let mut liar = ReportStream::open(&server).await;
    let port = u32::from(source_port(1, 2));
    // Of a host that another reports, of no host, with text that is no address or number.
    liar.send(report("h1", 0, "slurm-7", &[[9, 9, port]])).await;
    assert!(liar.next_feedback().await.contains("another reporter has this host"));
    liar.send(report("h99", 0, "slurm-7", &[])).await;
    assert!(liar.next_feedback().await.contains("no such host"));
    liar.send(report("h2", 1, "slurm-7", &[[1 << 24, 1, port]])).await;
    assert!(liar.next_feedback().await.contains("24 bits"));
    // The other end of an honest queue pair, of a job that its host does not have, on its own NIC
    // and on that of another; and far too many.
    liar.send(report("h2", 1, "slurm-7", &[[2, 1, port]])).await;
    assert!(liar.next_feedback().await.contains("joined with those of other hosts"));
    liar.send(report("h2", 0, "slurm-7", &[[2, 1, port]])).await;
    liar.send(report("h2", 1, "slurm-7", &vec![[2, 1, port]; 10_000])).await;
    until(async || controller.watch_learned_flows().borrow().counts.refused_hosts > 0).await;
    let counts = controller.watch_learned_flows().borrow().queue_pairs;
    assert_eq!((counts.reported, counts.joined, counts.ambiguous), (2, 2, 0));
    assert_eq!(learned_jobs(&controller), honest);
    for agent in agents {
        agent.stop().await;
    }
    server.shutdown().await;
    controller.shutdown().await;
}
