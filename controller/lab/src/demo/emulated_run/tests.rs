//! Jobs on hosts whose NICs have two ports, one to each of two leaves.

use controller::liveness::{FabricPart, PartHealth};
use p4::fabric::{PortNumber, PriorityLevel};
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

/// Of the bytes that links between switches carried at the levels of data, the share that the pins
/// of the flows planned on them explain.
async fn bytes_on_path(stage: &ServedTestbed<'_>, plan: &Plan, witness: &SwitchAuditor) -> f64 {
    let counts = stage.testbed.queue_counts().await.unwrap();
    let matched = witness.read_pin_counts().await.unwrap();
    let planned = witness.planned_bytes(plan, &matched);
    let (mut all, mut on_path) = (0, 0);
    for link in stage.fabric.link_ids() {
        let (from, to) = (stage.fabric.link(link).from, stage.fabric.switch_after(link));
        let (Some(from_switch), Some(_)) = (from.node.switch(), to) else { continue };
        let data = counts[link.index()].iter().enumerate().take(usize::from(plan.levels) - 1);
        for (level, carried) in data {
            all += carried.sent.bytes;
            let port = PortNumber::new(from.port).unwrap();
            let key = (from_switch, port, PriorityLevel::new(level as u32).unwrap());
            on_path += carried.sent.bytes.min(planned.get(&key).copied().unwrap_or(0));
        }
    }
    on_path as f64 / all as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_on_nics_with_two_ports_are_on_path_and_level() {
    let scenario = scenario();
    let stage = ServedTestbed::start_servers(&scenario, training()).await.unwrap();
    let controller = stage.start_controller().await.unwrap();
    let reported = stage.report_jobs(&controller, JobVisibility::Reported).await.unwrap();
    assert!(reported < Duration::from_secs(1), "{reported:?}");
    stage.train_jobs(2).await.unwrap();
    stage.testbed.drain_flows().await.unwrap();
    let plan = controller.current_rollout().unwrap().plan;
    let ports = |flow: &&planner::PlannedFlow| stage.fabric.nic(flow.src).bond.is_some();
    assert_eq!(plan.flows.iter().filter(ports).count(), 2 * 8);
    let witness = SwitchAuditor::new(&stage.fabric).await.unwrap();
    assert_eq!(witness.misrouted_flows(&plan).await.unwrap(), Vec::<String>::new());
    let strays = packet_walk::find_strays(&stage.testbed, &stage.fabric, &plan).await.unwrap();
    assert_eq!(strays, Vec::<String>::new());
    let share = bytes_on_path(&stage, &plan, &witness).await;
    assert!(share >= 0.99, "{share}");
    assert_eq!(packets_at_level_0(&stage).await, 0);
    let errors = stage.testbed.host_errors().await.unwrap();
    assert_eq!((errors.misdelivered, errors.undecodable, errors.retransmitted), (0, 0, 0));
    assert_eq!(stage.testbed.dropped_packets().await.unwrap(), 0);
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
    controller.shutdown().await;
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
            // What is on its way to the port is lost until switches have other rows.
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
