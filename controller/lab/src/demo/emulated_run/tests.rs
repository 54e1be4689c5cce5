//! Jobs on hosts with eight NICs, and on hosts whose NICs have two ports, one to each of two
//! leaves.

use std::collections::BTreeSet;

use controller::liveness::{FabricPart, PartHealth};
use p4::fabric::{PortNumber, PriorityLevel};
use planner::{CollectiveDocument, CollectiveKind, Job, JobDocument, JobsDocument, RankGroups};
use switch::WireState;
use topology::{NicId, clos};

use super::*;
use crate::demo::CALIBRATED;
use crate::demo::scenario::{ScenarioJob, TrainedModel};

const NIC: &[u32] = &[0];
/// The jobs that train: two that cross the spines, one between hosts of one pair of leaves.
const JOBS: [ScenarioJob<'static>; 3] = [
    ScenarioJob {
        id: "far",
        model: TrainedModel::Gpt,
        shares: &[("h1", 8, NIC), ("h7", 8, NIC), ("h5", 8, NIC), ("h10", 8, NIC)],
    },
    ScenarioJob {
        id: "other",
        model: TrainedModel::Bert,
        shares: &[("h2", 8, NIC), ("h8", 8, NIC)],
    },
    ScenarioJob {
        id: "near",
        model: TrainedModel::Bert,
        shares: &[("h3", 8, NIC), ("h6", 8, NIC)],
    },
];

fn scenario() -> DemoScenario {
    let spec = clos::ClosSpec { ports_per_nic: 2, ..clos::ClosSpec::default() };
    let fabric = clos::build_clos("dual", &spec).unwrap();
    DemoScenario::place_jobs(fabric, &JOBS, CALIBRATED.scaled_by(0.2), 1).unwrap()
}

/// Hosts with eight GPUs and as many NICs at their leaf, with what frameworks send: a ring and
/// trees, experts and gradients that begin at times of their own, stages of a pipeline.
fn eight_nics() -> DemoScenario {
    let spec = clos::ClosSpec { host_links: 8, uplink_gbps: 800.0, ..clos::ClosSpec::default() };
    let fabric = clos::build_clos("eight-nics", &spec).unwrap();
    let of = |kind, bytes: f64, groups, overlap_from| CollectiveDocument {
        bytes: Some(bytes * 1e9),
        groups,
        overlap_from,
        ..CollectiveDocument::new(kind)
    };
    let job = |id: &str, hosts: &[&str], collectives: Vec<CollectiveDocument>| JobDocument {
        id: id.to_owned(),
        gpus: hosts.iter().map(|host| ((*host).to_owned(), 8)).collect(),
        flop_per_iteration: Some(1e15),
        compute_seconds: Some(0.4),
        overlap_from: Some(0.5),
        collectives,
        ..JobDocument::default()
    };
    let stages = Some(RankGroups { size: 2, stride: 8 });
    let jobs = vec![
        job(
            "ring",
            &["h1", "h4", "h7", "h10"],
            vec![
                of(CollectiveKind::RingAllReduce, 4.0, None, None),
                of(CollectiveKind::TreeAllReduce, 2.0, None, None),
            ],
        ),
        job(
            "experts",
            &["h2", "h5", "h8"],
            vec![
                of(CollectiveKind::AllToAll, 0.5, None, Some(0.2)),
                of(CollectiveKind::RingAllReduce, 2.0, None, Some(0.8)),
            ],
        ),
        job("stages", &["h3", "h6"], vec![of(CollectiveKind::Pipeline, 0.5, stages, None)]),
    ];
    let document = JobsDocument { jobs };
    let jobs = document.resolve_jobs(&fabric, "jobs").unwrap().jobs;
    DemoScenario { fabric, jobs, seed: 1 }
}

fn training() -> TrainingOptions {
    let (scale, testbed) = (TimeScale::new(8000.0).unwrap(), TestbedOptions::default());
    TrainingOptions { scale, iterations: 2, testbed }
}

/// Packets at level 0 on the links that leave switches: data and answers.
async fn packets_at_level_0(stage: &ServedTestbed<'_>) -> u64 {
    let counts = stage.testbed.queue_counts().await.unwrap();
    let links = counts.iter().zip(stage.fabric.links());
    let of_switches = links.filter(|(_, link)| link.from.node.switch().is_some());
    of_switches.map(|(levels, _)| levels[0].sent.packets).sum()
}

/// Bytes by link and level.
type BytesAtLevels = BTreeMap<(LinkId, u8), f64>;

/// Bytes of data that links between switches carried.
async fn carried_data(stage: &ServedTestbed<'_>, plan: &Plan) -> BytesAtLevels {
    let counts = stage.testbed.queue_counts().await.unwrap();
    let of_link = |link: LinkId| {
        let levels = counts[link.index()].iter().take(usize::from(plan.levels) - 1);
        levels.zip(0..).map(move |(carried, level)| ((link, level), carried.sent.bytes as f64))
    };
    let between_switches = |link: &LinkId| {
        let is_from_switch = stage.fabric.link(*link).from.node.switch().is_some();
        is_from_switch && stage.fabric.switch_after(*link).is_some()
    };
    stage.fabric.link_ids().filter(between_switches).flat_map(of_link).collect()
}

/// What the pins of the flows planned on these links have matched, where flows have UDP ports.
async fn pinned_data(
    plan: &Plan,
    witness: &SwitchAuditor,
    carried: &BytesAtLevels,
    fabric: &Fabric,
) -> BytesAtLevels {
    let matched = witness.read_pin_counts().await.unwrap();
    let planned = witness.planned_bytes(plan, &matched);
    let of_link = |(link, level): &(LinkId, u8)| {
        let from = fabric.link(*link).from;
        let port = PortNumber::new(from.port).unwrap();
        let level_there = PriorityLevel::new(u32::from(*level)).unwrap();
        let key = (from.node.switch().unwrap(), port, level_there);
        ((*link, *level), planned.get(&key).copied().unwrap_or(0) as f64)
    };
    carried.keys().map(of_link).collect()
}

/// What the plan has the links carry, where nothing counts the flows between two NICs: all that is
/// carried at the level of a job, by the bytes and the links of each of its flows.
fn expected_data(plan: &Plan, jobs: &[Job], carried: &BytesAtLevels) -> BytesAtLevels {
    let mut expected: BytesAtLevels = carried.keys().map(|key| (*key, 0.0)).collect();
    for (place, planned) in plan.jobs.iter().enumerate() {
        let job = jobs.iter().find(|job| job.id == planned.id).unwrap();
        let flows = plan.flows.iter().filter(|flow| flow.job == place);
        for (flow, stated) in flows.zip(&job.flows) {
            assert_eq!((flow.src, flow.dst), (stated.src, stated.dst));
            for link in flow.links.iter() {
                expected.entry((*link, planned.level)).and_modify(|bytes| *bytes += stated.bytes);
            }
        }
    }
    // Small transfers have more headers, so each job is scaled by itself; no two have one level
    // here.
    let levels: BTreeSet<u8> = plan.jobs.iter().map(|job| job.level).collect();
    assert_eq!(levels.len(), jobs.len());
    for level in levels {
        let sum = |of: &BytesAtLevels| -> f64 {
            of.iter().filter(|((_, at), _)| *at == level).map(|(_, bytes)| bytes).sum()
        };
        let scale = sum(carried) / sum(&expected);
        let of_level = expected.iter_mut().filter(|((_, at), _)| *at == level);
        of_level.for_each(|(_, bytes)| *bytes *= scale);
    }
    expected
}

/// Trains two iterations: every flow of these is announced within a second, and then all packets
/// have its level and its path.
async fn check_paths_and_levels(stage: &ServedTestbed<'_>, flows: usize) {
    let controller = stage.start_controller().await.unwrap();
    let reported = stage.report_jobs(&controller, JobVisibility::Reported).await.unwrap();
    assert!(reported < Duration::from_secs(1), "{reported:?}");
    stage.train_jobs(2).await.unwrap();
    stage.testbed.drain_flows().await.unwrap();
    let plan = controller.current_rollout().unwrap().plan;
    assert_eq!(plan.flows.len(), flows);
    let carried = carried_data(stage, &plan).await;
    let on_path = if plan.flows.iter().all(|flow| flow.udp_src_port.is_some()) {
        let witness = SwitchAuditor::new(&stage.fabric).await.unwrap();
        assert_eq!(witness.misrouted_flows(&plan).await.unwrap(), Vec::<String>::new());
        pinned_data(&plan, &witness, &carried, &stage.fabric).await
    } else {
        expected_data(&plan, &stage.scenario.jobs, &carried)
    };
    let share = carried.iter().map(|(key, bytes)| bytes.min(on_path[key])).sum::<f64>();
    let share = share / carried.values().sum::<f64>();
    assert!(share >= 0.99, "{share}");
    let strays = packet_walk::find_strays(&stage.testbed, &stage.fabric, &plan).await.unwrap();
    assert_eq!(strays, Vec::<String>::new());
    assert_eq!(packets_at_level_0(stage).await, 0);
    let errors = stage.testbed.host_errors().await.unwrap();
    assert_eq!((errors.misdelivered, errors.undecodable, errors.retransmitted), (0, 0, 0));
    assert_eq!(stage.testbed.dropped_packets().await.unwrap(), 0);
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_on_hosts_with_eight_nics_are_on_path_and_level() {
    let scenario = eight_nics();
    let stage = ServedTestbed::start_servers(&scenario, training()).await.unwrap();
    // Rings, the twelve edges of two trees both ways, pairs of three hosts, and stages, on eight
    // NICs.
    check_paths_and_levels(&stage, 8 * ((4 + 12) + (6 + 3) + 2)).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_on_nics_with_two_ports_are_on_path_and_level() {
    let scenario = scenario();
    let stage = ServedTestbed::start_servers(&scenario, training()).await.unwrap();
    check_paths_and_levels(&stage, 2 * 8).await;
    // Hosts spread their connections over both ports.
    let carried = stage.testbed.carried_bytes().await.unwrap();
    let used = |nic: &topology::Nic| carried[nic.uplink.index()] > 1_000_000;
    let [first, second] = [0, 1].map(|place| {
        let ports = stage.fabric.nics().iter().enumerate();
        let ports = ports.filter(|(id, _)| {
            let first = stage.fabric.first_port(NicId::from(*id));
            (first == NicId::from(*id)) == (place == 0)
        });
        ports.filter(|(_, nic)| used(nic)).count()
    });
    assert!(first > 0 && second > 0, "{first} {second}");
    stage.close().await;
}

/// The cables of every host are cut one after the other, first one port, then, after that is
/// mended, the other. Packets on the way are lost and sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_port_ends_no_job() {
    let scenario = scenario();
    let stage = ServedTestbed::start_servers(&scenario, training()).await.unwrap();
    let controller = stage.start_controller().await.unwrap();
    stage.report_jobs(&controller, JobVisibility::Reported).await.unwrap();
    stage.begin_training().await.unwrap();
    stage.advance_by(Duration::from_micros(200)).await.unwrap();
    let network = stage.testbed.network_handle();
    for host in ["h1", "h7", "h3"] {
        let nic = stage.fabric.host(stage.fabric.host_named(host).unwrap()).nics[0];
        for port in stage.fabric.ports_of(nic) {
            let cable = stage.fabric.nic(port).uplink;
            let wire = stage.testbed.cable_wire(cable);
            network.set_wire_state(wire, WireState::Down).await.unwrap();
            // Packets on their way to the port are lost until switches have other rows.
            stage.advance_by(Duration::from_micros(20)).await.unwrap();
            repair(&stage, &controller, cable, PartHealth::Down).await;
            stage.advance_by(Duration::from_micros(300)).await.unwrap();
            network.set_wire_state(wire, WireState::Up).await.unwrap();
            repair(&stage, &controller, cable, PartHealth::Up).await;
            stage.advance_by(Duration::from_micros(100)).await.unwrap();
        }
    }
    stage.testbed.run_iterations(3).await.unwrap();
    stage.testbed.drain_flows().await.unwrap();
    assert_eq!(stage.testbed.host_congestion().await.unwrap().lost_connections, 0);
    let errors = stage.testbed.host_errors().await.unwrap();
    assert_eq!((errors.misdelivered, errors.undecodable), (0, 0));
    assert!(errors.retransmitted > 0);
    assert_eq!(packets_at_level_0(&stage).await, 0);
    controller.shutdown().await;
    stage.close().await;
}

/// Reports a cable and waits until the fabric and all switches follow.
async fn repair(
    stage: &ServedTestbed<'_>,
    controller: &ControllerHandle,
    cable: LinkId,
    health: PartHealth,
) {
    controller.report_health(FabricPart::Cable(cable), health).await.unwrap();
    let is_up = health == PartHealth::Up;
    let follows = controller.await_rollout(|rollout| rollout.fabric.is_usable(cable) == is_up);
    timeout(VERIFY_DEADLINE, follows).await.unwrap().unwrap();
    stage.await_compared_plan(controller).await.unwrap();
}
