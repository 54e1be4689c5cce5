//! What switches with SAI P4 count over gNMI, under traffic: metrics of ports and queues, and the
//! use of links that no counter of their program measures.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::StateEvent;
use controller::northbound::controller_view::LinkRow;
use planner::{Job, Plan, PlannedFlow};
use switch::{
    ClockPace, EndpointHandle, EndpointIndex, EndpointOutbox, NetworkEndpoint, WireDirectionIndex,
    WireIndex,
};
use switch_server::gnmi::{GnmiHandle, QosMaps};
use topology::{Fabric, Finding, NicId, Tier};

use crate::gnmi::serve_gnmi;
use crate::http::ask;
use crate::lab::{Lab, ServedController, eventually, open_config, parts, until, verified};
use crate::sai::wired_lab;
use crate::traffic::{connect_cables, frame};

/// The UDP source port of the flow, which job `a` of every lab has.
const FLOW: u16 = 50_000;
/// Bytes of each of its packets, and virtual nanoseconds between two of them.
const PACKET_BYTES: usize = 1_000;
const PERIOD: u64 = 1_000_000;
/// Where hosts send what is to be routed.
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// All hosts together, of which the first sends to the third.
struct SteadyHosts {
    packet: Vec<u8>,
    is_sending: bool,
    sent: u64,
    received: u64,
}

impl NetworkEndpoint for SteadyHosts {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], _: u64, _: &mut EndpointOutbox) {
        assert_eq!((nic, packet.len()), (2, PACKET_BYTES));
        self.received += 1;
    }

    fn handle_timer(&mut self, _: u64, now: u64, out: &mut EndpointOutbox) {
        if self.is_sending {
            out.send_packet(0, &self.packet);
            self.sent += 1;
            out.set_timer(now + PERIOD, 0);
        }
    }
}

fn hosts_of(fabric: &Fabric) -> SteadyHosts {
    let ends = [NicId(0), NicId(2)].map(|nic| fabric.nic(nic));
    let mut packet = frame(ends, FLOW, 0);
    packet[..6].copy_from_slice(&GATEWAY);
    // What follows the datagram is padding, which is counted as well.
    packet.resize(PACKET_BYTES, 0);
    SteadyHosts { packet, is_sending: false, sent: 0, received: 0 }
}

/// The measured use of links that have one.
async fn link_uses(served: &ServedController) -> BTreeMap<String, LinkRow> {
    let (_, body) = ask(served.at, "/v1/links", None).await;
    let rows: Vec<LinkRow> = serde_json::from_str(&body).unwrap();
    let used = rows.into_iter().filter(|row| row.measured.is_some());
    used.map(|row| (row.link.clone(), row)).collect()
}

/// Waits until the measured use of links is as `what` demands.
async fn until_used(
    served: &ServedController,
    what: impl Fn(&BTreeMap<String, LinkRow>) -> bool,
) -> BTreeMap<String, LinkRow> {
    eventually(async || Some(link_uses(served).await).filter(&what)).await
}

/// The samples of a metric: labels and value.
fn samples(metrics: &str, name: &str) -> BTreeMap<String, u64> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let samples = lines.map(|line| {
        let (labels, value) = line.split_once("} ").unwrap();
        (labels.to_owned(), value.parse::<f64>().unwrap() as u64)
    });
    samples.filter(|(_, value)| *value > 0).collect()
}

/// A lab of SAI switches with gNMI servers, whose counters a controller reads.
struct CountedLab {
    lab: Lab,
    served: ServedController,
    hosts: EndpointHandle,
    _servers: Vec<GnmiHandle>,
}

impl CountedLab {
    async fn new() -> Self {
        let hosts = Box::new(hosts_of(&Fabric::new(parts())));
        let mut devices = Vec::new();
        let wire = |builder: &mut _, added: &[_]| {
            devices = added.to_vec();
            connect_cables(&Fabric::new(parts()), builder, added, hosts);
        };
        let mut lab = wired_lab(parts(), &[Tier::Leaf, Tier::Spine], wire).await;
        let servers = serve_gnmi(&mut lab, &devices, |_| QosMaps::default()).await;
        lab.switches.devices.release_clock(ClockPace::RealTime).await.unwrap();
        // On a busy machine readings come some milliseconds late: little of their interval, of
        // which several fit into an iteration.
        let served = lab.served_with(&open_config(), |raw| raw.gnmi.counter_ms = 250).await;
        let slower = |name, port| Job { compute_seconds: 60.0, ..lab.job(name, port) };
        let jobs = vec![slower("a", FLOW), slower("b", FLOW + 1)];
        served.controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
        verified(&lab, &served.controller).await;
        let hosts = lab.switches.devices.endpoint(EndpointIndex(0));
        Self { lab, served, hosts, _servers: servers }
    }

    /// Has the first host send.
    async fn start_traffic(&self) {
        let start = |hosts: &mut SteadyHosts, _: u64, out: &mut EndpointOutbox| {
            hosts.is_sending = true;
            out.set_timer(0, 0);
        };
        self.hosts.with_endpoint(start).await.unwrap();
    }

    /// The flow that it sends, and the plan.
    fn planned_flow(&self) -> (PlannedFlow, Arc<Plan>) {
        let plan = self.served.controller.current_rollout().unwrap().plan;
        let flow = plan.flows.iter().find(|flow| flow.udp_src_port == Some(FLOW)).unwrap();
        (flow.clone(), plan)
    }

    /// The findings about a link.
    async fn findings_about(&self, link: &str) -> Vec<Finding> {
        let (_, body) = ask(self.served.at, "/v1/findings", None).await;
        let findings: Vec<Finding> = serde_json::from_str(&body).unwrap();
        findings.into_iter().filter(|finding| finding.about == link).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_sends_slowly_while_packets_wait_is_a_finding() {
    let counted = CountedLab::new().await;
    counted.start_traffic().await;
    let (flow, _) = counted.planned_flow();
    let uplink = flow.links[1];
    let name = counted.lab.fabric.link_name(uplink);
    until_used(&counted.served, |used| used.len() == 4).await;
    assert_eq!(counted.findings_about(&name).await, []);

    // The host sends 8 Mbit/s; cables have the numbers of their wires.
    let wire = WireIndex(uplink.cable_index() as u32);
    let directions = [WireDirectionIndex::FromFirst, WireDirectionIndex::FromSecond];
    for direction in directions {
        let devices = &counted.lab.switches.devices;
        devices.set_wire_rate(wire, direction, 4_000_000).await.unwrap();
    }
    until(async || !counted.findings_about(&name).await.is_empty()).await;
    let findings = counted.findings_about(&name).await;
    assert!(findings[0].text.contains("although packets wait; jobs on it: a"), "{findings:?}");
    counted.served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_sai_switches_are_metrics_and_measure_links() {
    let counted = CountedLab::new().await;
    assert_eq!(link_uses(&counted.served).await.len(), 0);
    counted.start_traffic().await;
    let (flow, plan) = counted.planned_flow();
    let CountedLab { lab, served, hosts: endpoint, _servers } = counted;
    let path: Vec<_> = flow.links.iter().map(|link| lab.fabric.link_name(*link)).collect();
    assert_eq!(path.len(), 4, "{path:?}");
    // Ports and queues are read one after the other, and traffic may begin in between.
    let are_measured = |used: &BTreeMap<String, LinkRow>| {
        let by_level = used.values().filter(|row| !row.measured_levels.is_empty());
        used.len() == 4 && by_level.count() == 3
    };
    let used = until_used(&served, are_measured).await;
    let level = plan.jobs[flow.job].level;
    for name in &path {
        let row = &used[name];
        // A switch counts what it sends by level; the link that leaves a host has none that does.
        let levels: Vec<u8> = row.measured_levels.iter().map(|of| of.level).collect();
        let expected = if name == &path[0] { vec![] } else { vec![level] };
        assert_eq!(levels, expected, "{row:?}");
    }

    let stop = |hosts: &mut SteadyHosts, _: u64, _: &mut EndpointOutbox| hosts.is_sending = false;
    endpoint.with_endpoint(stop).await.unwrap();
    until_used(&served, BTreeMap::is_empty).await;
    let counts =
        |hosts: &mut SteadyHosts, _: u64, _: &mut EndpointOutbox| [hosts.sent, hosts.received];
    let [sent, received] = endpoint.with_endpoint(counts).await.unwrap();
    assert_eq!(sent, received);
    let (_, metrics) = ask(served.at, "/metrics", None).await;
    let bytes = sent * PACKET_BYTES as u64;
    for (name, ports) in [("received", 3), ("sent", 3)] {
        let counted = samples(&metrics, &format!("crux_interface_{name}_bytes_total"));
        let counted: Vec<u64> = counted.into_values().collect();
        assert_eq!(counted, vec![bytes; ports], "{name}");
    }
    let queues = samples(&metrics, "crux_queue_sent_bytes_total");
    assert!(queues.keys().all(|labels| labels.contains(&format!("level=\"{level}\""))));
    assert_eq!(queues.into_values().collect::<Vec<_>>(), [bytes; 3]);
    for name in ["discards", "errors"].map(|kind| format!("crux_interface_sent_{kind}_total")) {
        assert!(
            metrics.contains(&format!("\n{name}{{switch=\"leaf1\",port=\"1\"}} 0\n")),
            "{name}"
        );
    }
    served.end().await;
}
