//! Connections that no job has announced, between NICs of jobs: each gets the path and the level of
//! its job, nobody gets a wrong one, and a host that invents connections moves no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use controller::{ControllerHandle, RawConfig, StateEvent};
use p4::entry::{EntryKey, EntryValue};
use p4::fabric::table;
use planner::JobsDocument;
use switch::EndpointIndex;
use switch_server::p4runtime::ServiceOptions;
use tempfile::TempDir;
use topology::{NicId, SwitchId};

use crate::lab::{DEADLINE, Lab, parts, until, verified, written};
use crate::learning::SilentHosts;
use crate::restart::restarted;
use crate::traffic::{cabled_lab, frame};
use crate::unannounced_ports::{self, LevelCounts, controller_of, packets_of, random_port};

/// Two jobs that state ports from which their hosts do not send.
const JOBS: &str = r#"{ "jobs": [
  { "id": "gpt", "gpus": { "h1": 8, "h3": 8 }, "flop_per_iteration": 1e15, "compute_seconds": 0.1,
    "flows": [ { "src": "h1", "dst": "h3", "bytes": 4e9, "udp_src_port": 9 },
               { "src": "h3", "dst": "h1", "bytes": 4e9, "udp_src_port": 9 } ] },
  { "id": "bert", "gpus": { "h2": 8, "h4": 8 }, "flop_per_iteration": 1e12, "compute_seconds": 0.1,
    "flows": [ { "src": "h2", "dst": "h4", "bytes": 4e9, "udp_src_port": 9 },
               { "src": "h4", "dst": "h2", "bytes": 4e9, "udp_src_port": 9 } ] } ] }"#;

/// Sender, receiver, UDP source port.
pub(crate) type Connection = (u32, u32, u16);

pub(crate) async fn lab() -> Lab {
    cabled_lab(parts(), |_| ServiceOptions::default(), Box::new(SilentHosts)).await
}

/// Sends a packet of each connection; the time of the network, which may be behind the clock's.
pub(crate) async fn send(lab: &Lab, connections: Vec<Connection>) -> Duration {
    let fabric = lab.fabric.clone();
    let hosts = lab.switches.devices.endpoint(EndpointIndex(0));
    let sent = hosts.with_endpoint(move |_: &mut SilentHosts, now, out| {
        for (src, dst, port) in connections {
            out.send_packet(src, &frame([src, dst].map(|nic| fabric.nic(NicId(nic))), port, 0));
        }
        Duration::from_nanos(now)
    });
    sent.await.unwrap()
}

/// The learned flows in force, with the names of their jobs.
pub(crate) fn learned_jobs(controller: &ControllerHandle) -> BTreeMap<Connection, String> {
    let rollout = controller.current_rollout().unwrap();
    let flows = rollout.learned.iter().map(|flow| {
        let job = rollout.plan.jobs[flow.job].id.to_string();
        ((flow.src.0, flow.dst.0, flow.udp_src_port.unwrap()), job)
    });
    flows.collect()
}

/// The pins at the first leaf.
fn pins(controller: &ControllerHandle) -> BTreeMap<EntryKey, EntryValue> {
    let desired = controller.desired_tables();
    let rows = desired.tables[&SwitchId(0)].table_entries(table::FLOW_PIN);
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub(crate) fn difference(after: LevelCounts, before: &LevelCounts) -> Vec<(u32, u8, u64)> {
    let cells = after.into_iter().map(|(cell, count)| {
        let ((port, level), had) = (cell, before.get(&cell).copied().unwrap_or(0));
        (u32::from(port.number()), level.number(), count - had)
    });
    cells.filter(|(_, _, count)| *count > 0).collect()
}

#[tokio::test]
async fn connections_from_unknown_ports_are_pinned_to_the_planned_path_within_a_second() {
    let lab = lab().await;
    let controller = controller_of(&lab, JOBS).await;
    let connections: Vec<Connection> = (0..8).map(|n| (0, 2, random_port(n))).collect();
    // The leaf holds what the controller desires when all switches are verified.
    let is_held =
        || {
            let generation = controller.desired_tables().generation;
            controller.status_board().all_statuses().values().all(|status| {
                status.verified.is_some_and(|verified| verified.generation == generation)
            })
        };
    let started = Instant::now();
    until(async || {
        send(&lab, connections.clone()).await;
        learned_jobs(&controller).len() >= connections.len() && is_held()
    })
    .await;
    println!("8 connections pinned {:?} after the first packet", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = packets_of(&lab, SwitchId(0)).await;
    for _ in 0..100 {
        send(&lab, connections.clone()).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = difference(packets_of(&lab, SwitchId(0)).await, &before);
    let plan = controller.current_rollout().unwrap().plan;
    let port = lab.fabric.link(plan.flows[2].links[1]).from.port;
    assert_eq!(after, [(port, plan.jobs[plan.flows[2].job].level, 800)]);
    controller.shutdown().await;
}

/// Packets of a pair have its level and path before any tuple is known; then each connection has a
/// pin of its own, which counts it.
#[tokio::test]
async fn connections_of_a_job_without_ports_take_over_from_their_pair_without_a_packet_elsewhere() {
    let lab = lab().await;
    let controller = controller_of(&lab, unannounced_ports::JOBS).await;
    let connections: Vec<Connection> = (0..8).map(|n| (0, 2, random_port(n))).collect();
    let before = packets_of(&lab, SwitchId(0)).await;
    let mut sent = 0;
    until(async || {
        send(&lab, connections.clone()).await;
        sent += connections.len() as u64;
        pins(&controller).len() >= connections.len()
    })
    .await;
    let held = async || difference(packets_of(&lab, SwitchId(0)).await, &before);
    let plan = controller.current_rollout().unwrap().plan;
    let gpt = plan.flows.iter().find(|flow| flow.src == NicId(0)).unwrap();
    let port = lab.fabric.link(gpt.links[1]).from.port;
    let planned = (port, plan.jobs[gpt.job].level, sent);
    until(async || held().await == [planned]).await;
    assert!(learned_jobs(&controller).values().all(|job| job == "gpt"));
    controller.shutdown().await;
}

/// A pinned connection is not reported again: a run that did not know it would take its pin away.
#[tokio::test]
async fn learned_connections_keep_their_pins_over_a_restart() {
    let lab = lab().await;
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut RawConfig| {
        (raw.learning.enabled, raw.store.path) = (true, Some(store.clone()));
    };
    let first = lab.control(stored).await;
    let jobs: JobsDocument = serde_json::from_str(JOBS).unwrap();
    let jobs = jobs.resolve_jobs(&lab.fabric, "jobs.json").unwrap().jobs;
    first.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    let connections: Vec<Connection> = (0..8).map(|n| (0, 2, random_port(n))).collect();
    until(async || {
        send(&lab, connections.clone()).await;
        learned_jobs(&first).len() >= connections.len()
    })
    .await;
    verified(&lab, &first).await;
    let (known, tables) = (learned_jobs(&first), lab.read_all().await);
    first.shutdown().await;

    let second = restarted(&lab, stored).await;
    verified(&lab, &second).await;
    // Long enough for the task to submit what it knows.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((learned_jobs(&second), written(&second)), (known, 0));
    assert_eq!(lab.read_all().await, tables);
    second.shutdown().await;
}

#[tokio::test]
async fn no_connection_of_a_thousand_has_a_wrong_owner() {
    let lab = lab().await;
    let controller = controller_of(&lab, JOBS).await;
    let mut expected = BTreeMap::new();
    let mut of_nobody = BTreeSet::new();
    for number in 0..250_u32 {
        for src in 0..4_u32 {
            // One in five goes to a NIC of the other job at the other leaf, and belongs to neither.
            let port = random_port(number * 4 + src);
            match number % 5 {
                0 => drop(of_nobody.insert((src, 3 - src, port))),
                _ => {
                    let job = if src % 2 == 0 { "gpt" } else { "bert" };
                    expected.insert((src, (src + 2) % 4, port), job.to_owned());
                }
            }
        }
    }
    assert_eq!(expected.len() + of_nobody.len(), 1_000, "no port twice");
    let started = Instant::now();
    let all: BTreeSet<Connection> = expected.keys().chain(&of_nobody).copied().collect();
    let nic = |ip| lab.fabric.nic_with_ip(ip).unwrap().0;
    for round in 0.. {
        let seen = controller.watch_learned_flows().borrow().clone();
        let known = seen.flows.iter().map(|flow| flow.tuple);
        let known: BTreeSet<Connection> =
            known.map(|tuple| (nic(tuple.src), nic(tuple.dst), tuple.udp_src_port)).collect();
        let (count, owned) = (known.len(), learned_jobs(&controller).len());
        if (count, owned) == (1_000, expected.len()) {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "{count} known, {owned} owned");
        // A port reports 50 packets a second: some of each port, others each time.
        let pending: Vec<Connection> = all.difference(&known).copied().collect();
        let some = (0..pending.len().min(16)).map(|n| round + n * pending.len() / 16);
        send(&lab, some.map(|at| pending[at % pending.len()]).collect()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("1,000 connections learned in {:?}", started.elapsed());
    assert_eq!(learned_jobs(&controller), expected);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_flood_of_invented_connections_is_limited_and_moves_no_flow() {
    let lab = lab().await;
    let controller = controller_of(&lab, JOBS).await;
    let own: Vec<Connection> = (0..4).map(|n| (0, 2, random_port(n))).collect();
    until(async || {
        send(&lab, own.clone()).await;
        learned_jobs(&controller).len() >= own.len()
    })
    .await;
    let deadline = Instant::now() + DEADLINE;
    let (before, paths) = (pins(&controller), packets_of(&lab, SwitchId(0)).await);
    let reports = || controller.watch_learned_flows().borrow().counts.reports;
    let (first, started) = (reports(), send(&lab, Vec::new()).await);
    let mut now = started;
    let (mut number, mut sent) = (0_u32, 0_u64);
    while now - started < Duration::from_secs(3) {
        assert!(Instant::now() < deadline);
        // To the other NIC of its job, and to one of another job.
        let flood = (0..20).map(|n| (1, 2 + n % 2, random_port(1_000_000 + number + n)));
        now = send(&lab, flood.chain(own.iter().copied()).collect()).await;
        (number, sent) = (number + 20, sent + own.len() as u64);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seconds = (send(&lab, Vec::new()).await - started).as_secs_f64();
    let rate = (reports() - first) as f64 / seconds;
    let counts = controller.watch_learned_flows().borrow().counts;
    println!(
        "{number} invented connections in {seconds:.1} s: {rate:.1} reports a second; {counts:?}"
    );
    assert!(rate <= 100.0, "{rate}");
    // Every pin that was there leads where it led, and all packets of the other job took it.
    let after = pins(&controller);
    assert!(before.iter().all(|(key, value)| after.get(key) == Some(value)));
    let plan = controller.current_rollout().unwrap().plan;
    let gpt = plan.flows.iter().find(|flow| flow.src == NicId(0)).unwrap();
    let port = lab.fabric.link(gpt.links[1]).from.port;
    let counts = difference(packets_of(&lab, SwitchId(0)).await, &paths);
    let level = plan.jobs[gpt.job].level;
    assert!(counts.contains(&(port, level, sent)), "{counts:?} lacks {:?}", (port, level, sent));
    controller.shutdown().await;
}
