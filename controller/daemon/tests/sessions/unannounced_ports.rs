//! Jobs that state no UDP source port, as NCCL's do: their hosts choose ports at random, and every
//! packet has the level of its job and the planned path, from the first one on.

use std::collections::BTreeMap;

use controller::config::RawLearning;
use controller::pipelines::fabric::port_level_counts;
use controller::southbound::SwitchTarget;
use controller::{Controller, ControllerHandle, StateEvent};
use p4::fabric::{PortNumber, PriorityLevel};
use planner::{JobsDocument, Policy};
use switch::EndpointIndex;
use switch_server::p4runtime::ServiceOptions;
use topology::{Fabric, NicId, SwitchId};

use crate::lab::{DEADLINE, Lab, config, parts, verified};
use crate::learning::SilentHosts;
use crate::traffic::{cabled_lab, frame};

/// Queue pairs of each pair of NICs, each with a port of its own.
const CONNECTIONS: u32 = 32;
/// Packets of each.
const PACKETS: u64 = 25;

/// Packets by port and level.
pub(crate) type LevelCounts = BTreeMap<(PortNumber, PriorityLevel), u64>;

pub(crate) const JOBS: &str = r#"{ "jobs": [
  { "id": "gpt", "gpus": { "h1": 8, "h3": 8 }, "flop_per_iteration": 1e15, "compute_seconds": 0.1,
    "collective": { "kind": "ring_all_reduce", "bytes": 4e9 } },
  { "id": "bert", "gpus": { "h2": 8, "h4": 8 }, "flop_per_iteration": 1e12, "compute_seconds": 0.1,
    "collective": { "kind": "ring_all_reduce", "bytes": 4e9 } } ] }"#;

/// A port as a host chooses it: none of a formula that anybody else knows.
pub(crate) fn random_port(seed: u32) -> u16 {
    let mixed = (u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    0xC000 | (mixed >> 40) as u16 & 0x3FFF
}

/// Sends packets of all connections between two NICs.
async fn send_connections(lab: &Lab, ends: [NicId; 2]) {
    let fabric = lab.fabric.clone();
    let hosts = lab.switches.devices.endpoint(EndpointIndex(0));
    let sent = hosts.with_endpoint(move |_: &mut SilentHosts, _, out| {
        for number in 0..PACKETS {
            for connection in 0..CONNECTIONS {
                let port = random_port(connection + 1_000 * ends[0].0);
                out.send_packet(ends[0].0, &frame(ends.map(|nic| fabric.nic(nic)), port, number));
            }
        }
    });
    sent.await.unwrap();
}

/// Packets that have left a switch, by port and level.
pub(crate) async fn packets_of(lab: &Lab, switch: SwitchId) -> LevelCounts {
    let target = &SwitchTarget::all_in_fabric(&lab.fabric)[switch.index()];
    let client = lab.client(&target.address).await;
    let counts = port_level_counts(client.read_port_level_cells().await.unwrap());
    counts.into_iter().map(|(cell, count)| (cell, count.packets)).collect()
}

/// What the leaf of the sender has sent on of a burst, once all has arrived.
async fn burst_counts(lab: &Lab, ends: [NicId; 2]) -> LevelCounts {
    let [from, to] = ends.map(|nic| lab.fabric.leaf_of(nic));
    let last = lab.fabric.link(lab.fabric.nic(ends[1]).uplink).to.port;
    let delivered = async || {
        let counts = packets_of(lab, to).await;
        let at_host = counts.iter().filter(|((port, _), _)| u32::from(port.number()) == last);
        at_host.map(|(_, count)| *count).sum::<u64>()
    };
    let (before, arrived) = (packets_of(lab, from).await, delivered().await);
    send_connections(lab, ends).await;
    let all = async { while delivered().await < arrived + PACKETS * u64::from(CONNECTIONS) {} };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    let mut after = packets_of(lab, from).await;
    after.retain(|cell, count| {
        *count -= before.get(cell).copied().unwrap_or(0);
        *count > 0
    });
    after
}

pub(crate) async fn controller_of(lab: &Lab, jobs: &str) -> ControllerHandle {
    learning_controller(lab, jobs, |_| {}).await
}

/// A controller that learns flows, with these settings.
pub(crate) async fn learning_controller(
    lab: &Lab,
    jobs: &str,
    change: impl Fn(&mut RawLearning),
) -> ControllerHandle {
    // Level 0 is that of unknown traffic here, so that a counter tells one from the other.
    let policy = Policy { reserved_levels: [0].into(), ..Policy::default() };
    let learning = config(|raw| {
        raw.learning.enabled = true;
        change(&mut raw.learning);
    });
    let controller = Controller::start(learning, lab.fabric.clone(), policy).await.unwrap();
    let jobs: JobsDocument = serde_json::from_str(jobs).unwrap();
    let jobs = jobs.resolve_jobs(&lab.fabric, "jobs.json").unwrap().jobs;
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    verified(lab, &controller).await;
    controller
}

/// The port of the planned path at the leaf of the sender, and the level of the job.
fn planned_cell(fabric: &Fabric, controller: &ControllerHandle, ends: [NicId; 2]) -> (u32, u8) {
    let plan = controller.current_rollout().unwrap().plan;
    let flow = plan.flows.iter().find(|flow| [flow.src, flow.dst] == ends).unwrap();
    (fabric.link(flow.links[1]).from.port, plan.jobs[flow.job].level)
}

/// Jobs whose hosts do not send from the ports that they state.
const WRONG_PORTS: &str = r#"{ "jobs": [
  { "id": "gpt", "gpus": { "h1": 8, "h3": 8 }, "flop_per_iteration": 1e15, "compute_seconds": 0.1,
    "flows": [ { "src": "h1", "dst": "h3", "bytes": 4e9, "udp_src_port": 9 } ] },
  { "id": "bert", "gpus": { "h2": 8, "h4": 8 }, "flop_per_iteration": 1e12, "compute_seconds": 0.1,
    "flows": [ { "src": "h2", "dst": "h4", "bytes": 4e9, "udp_src_port": 9 } ] } ] }"#;

#[tokio::test]
async fn packets_from_other_ports_than_stated_have_the_level_of_their_job() {
    let lab = cabled_lab(parts(), |_| ServiceOptions::default(), Box::new(SilentHosts)).await;
    let controller = controller_of(&lab, WRONG_PORTS).await;
    for ends in [[0, 2], [1, 3]].map(|ends| ends.map(NicId)) {
        let (_, level) = planned_cell(&lab.fabric, &controller, ends);
        let counts = burst_counts(&lab, ends).await;
        let levels: Vec<u8> = counts.keys().map(|(_, level)| level.number()).collect();
        assert!(levels.iter().all(|at| *at == level), "{ends:?}: {levels:?}, not {level}");
    }
    controller.shutdown().await;
}

#[tokio::test]
async fn packets_from_random_ports_have_the_level_and_the_path_of_their_pair() {
    let lab = cabled_lab(parts(), |_| ServiceOptions::default(), Box::new(SilentHosts)).await;
    let controller = controller_of(&lab, JOBS).await;
    for ends in [[0, 2], [2, 0], [1, 3], [3, 1]].map(|ends| ends.map(NicId)) {
        let (port, level) = planned_cell(&lab.fabric, &controller, ends);
        let counts = burst_counts(&lab, ends).await;
        let sent = PACKETS * u64::from(CONNECTIONS);
        let shown: Vec<_> =
            counts.iter().map(|((p, l), n)| (u32::from(p.number()), l.number(), *n)).collect();
        println!("{ends:?}: planned {port}, level {level}; sent (port, level, packets) {shown:?}");
        assert_eq!(shown, [(port, level, sent)], "of {ends:?}");
    }
    controller.shutdown().await;
}

/// Finding N3: the level of a job reached hosts with which it has no flow.
#[tokio::test]
async fn packets_to_hosts_of_another_job_have_the_lowest_level() {
    let lab = cabled_lab(parts(), |_| ServiceOptions::default(), Box::new(SilentHosts)).await;
    let controller = controller_of(&lab, JOBS).await;
    for ends in [[0, 3], [2, 1], [1, 2], [3, 0]].map(|ends| ends.map(NicId)) {
        let counts = burst_counts(&lab, ends).await;
        let levels: Vec<u8> = counts.keys().map(|(_, level)| level.number()).collect();
        assert!(
            !levels.is_empty() && levels.iter().all(|level| *level == 0),
            "{ends:?}: {levels:?}"
        );
    }
    controller.shutdown().await;
}
