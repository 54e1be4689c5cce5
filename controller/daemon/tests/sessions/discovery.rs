//! Probes on the embedded fabric: a cable that differs from the document is reported with
//! both ends, a cable that falls silent has failed, and a fabric without a document is found.

use std::collections::BTreeSet;
use std::time::Duration;

use controller::discovery::{
    DiscoveryDefaults, DiscoveryReport, OneShotDiscovery, compare_cabling, discover_once,
    document_observed_fabric,
};
use controller::southbound::GrpcNetwork;
use controller::{Controller, ControllerHandle, RawConfig, StateEvent};
use planner::Policy;
use switch::{
    ClockPace, DeviceIndex, EmulatedNetworkBuilder, EndpointIndex, EndpointOutbox, NetworkEndpoint,
    QueueLimits, WireEnd, WireSpec, WireState,
};
use switch_server::p4runtime::ServiceOptions;
use topology::{Fabric, FabricParts, SwitchId, Tier};

use crate::lab::{DEADLINE, Lab, all_hold, config, parts, rollout_with, until, verified};
use crate::traffic::{frame, ipv4_octets};

fn wire() -> WireSpec {
    WireSpec {
        bits_per_second: 10_000_000_000,
        delay_ns: 500,
        queue: QueueLimits::of_bytes(1 << 20),
    }
}

/// Passes on what comes in at NIC 0 and nothing else.
struct Diode;

impl NetworkEndpoint for Diode {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], _: u64, out: &mut EndpointOutbox) {
        if nic == 0 {
            out.send_packet(1, packet);
        }
    }

    fn handle_timer(&mut self, _: u64, _: u64, _: &mut EndpointOutbox) {}
}

/// A host that answers ARP for its address, and announces it whenever it hears anything else.
struct Host {
    mac: [u8; 6],
    ip: [u8; 4],
    /// IPv4 packets that arrived.
    received: usize,
}

impl Host {
    /// A question for its own address, as hosts ask when they come up.
    fn announcement(&self) -> Vec<u8> {
        self.announce_address(self.ip)
    }

    /// The same for any address, its own or another's.
    fn announce_address(&self, ip: [u8; 4]) -> Vec<u8> {
        let parts: [&[u8]; 8] = [
            &[0xff; 6],
            &self.mac,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &self.mac,
            &ip,
            &[0; 6],
            &ip,
            &[0; 18],
        ];
        parts.concat()
    }
}

impl NetworkEndpoint for Host {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], _: u64, out: &mut EndpointOutbox) {
        let is_question = packet[12..14] == [8, 6] && packet[20..22] == [0, 1];
        if is_question && packet[38..42] == self.ip {
            let mut answer = packet.to_vec();
            answer[..6].copy_from_slice(&packet[6..12]);
            answer[6..12].copy_from_slice(&self.mac);
            answer[21] = 2;
            answer[22..28].copy_from_slice(&self.mac);
            answer[28..32].copy_from_slice(&self.ip);
            out.send_packet(nic, &answer);
        }
        match packet[12..14] {
            [8, 0] => self.received += 1,
            [8, 6] => {}
            _ => out.send_packet(nic, &self.announcement()),
        }
    }

    fn handle_timer(&mut self, _: u64, _: u64, _: &mut EndpointOutbox) {}
}

fn document() -> Fabric {
    Fabric::new(parts())
}

/// The port that a name means, `leaf1:4`.
fn port(devices: &[DeviceIndex], name: &str) -> WireEnd {
    let (switch, port) = name.split_once(':').unwrap();
    let switch = document().switch_named(switch).unwrap();
    WireEnd::Device(devices[switch.index()], port.parse().unwrap())
}

/// Every cable between switches, by the names of its ends.
fn cables() -> Vec<[String; 2]> {
    let fabric = document();
    let links = fabric.cables().map(|cable| fabric.link(cable));
    let between = links.filter(|link| {
        let ends = [link.from.node, link.to.node];
        ends.iter().all(|node| node.switch().is_some())
    });
    let names = between.map(|link| [link.from, link.to].map(|end| fabric.endpoint_name(end)));
    names.collect()
}

fn connect(builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex], [a, b]: [&str; 2]) {
    let [a, b] = [a, b].map(|name| port(devices, name));
    builder.connect_wire(a, b, wire()).unwrap();
}

/// All hosts of the document, where it says.
fn hosts(builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]) {
    let fabric = document();
    for nic in fabric.nics() {
        let host = Host { mac: nic.mac.0, ip: ipv4_octets(nic), received: 0 };
        let host: EndpointIndex = builder.add_endpoint(Box::new(host));
        let at = fabric.endpoint_name(fabric.link(nic.uplink).to);
        let end = port(devices, &at);
        builder.connect_wire(WireEnd::Nic(host, 0), end, wire()).unwrap();
    }
}

/// A lab that is cabled as its document says, with hosts.
async fn lab() -> Lab {
    let wired = |builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]| {
        for [a, b] in &cables() {
            connect(builder, devices, [a, b]);
        }
        hosts(builder, devices);
    };
    let lab = Lab::wired(|_| ServiceOptions::default(), wired).await;
    lab.switches.devices.release_clock(ClockPace::Free).await.unwrap();
    lab
}

fn probing(raw: &mut RawConfig) {
    raw.discovery.enabled = true;
    raw.discovery.interval_ms = 20;
    // Far more than a busy machine makes of an interval.
    raw.discovery.stale_ms = 1_000;
    raw.liveness.hold_down_ms = 20;
}

async fn found(
    controller: &ControllerHandle,
    what: impl Fn(&DiscoveryReport) -> bool,
) -> DiscoveryReport {
    let mut seen = controller.watch_discovery();
    let found = tokio::time::timeout(DEADLINE, seen.wait_for(|seen| what(seen))).await;
    (**found.unwrap().unwrap()).clone()
}

#[tokio::test]
async fn a_fabric_as_documented_has_no_findings() {
    let lab = lab().await;
    let controller = lab.control(probing).await;
    let fabric = &lab.fabric;
    let whole = |seen: &DiscoveryReport| {
        seen.topology.links.len() == 2 * cables().len()
            && seen.topology.hosts.len() == fabric.nics().len()
    };
    let seen = found(&controller, whole).await;
    assert_eq!(seen.findings, []);
    verified(&lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test]
async fn findings_on_cables_name_both_ends() {
    let fabric = document();
    let name = |a: &str, b: &str| {
        let link = fabric.links_named(&format!("{a}-{b}"))[0];
        let link = fabric.link(link);
        [link.from, link.to].map(|end| fabric.endpoint_name(end))
    };
    let [one, other] = [name("leaf2", "spine1"), name("leaf2", "spine2")];
    let (diode, missing) = (name("leaf1", "spine1"), name("leaf1", "spine2"));
    let wired = |builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]| {
        connect(builder, devices, [&one[0], &other[1]]);
        connect(builder, devices, [&other[0], &one[1]]);
        connect(builder, devices, ["leaf1:40", "spine2:41"]);
        let middle = builder.add_endpoint(Box::new(Diode));
        for (nic, end) in (0..).zip(&diode) {
            let end = port(devices, end);
            builder.connect_wire(WireEnd::Nic(middle, nic), end, wire()).unwrap();
        }
    };
    let lab = Lab::wired(|_| ServiceOptions::default(), wired).await;
    lab.switches.devices.release_clock(ClockPace::Free).await.unwrap();
    let controller = lab.control(probing).await;
    let seen = found(&controller, |seen| seen.findings.len() == 5).await;
    let reported: BTreeSet<String> =
        seen.findings.iter().map(|finding| format!("{} {}", finding.about, finding.text)).collect();
    let [a, b] = &diode;
    let crossed = |ends: [&String; 2], should: [&String; 2]| {
        let [a, b] = ends;
        let [wanted_a, wanted_b] = should;
        format!("{a}-{b} crossed: the document connects {a} to {wanted_a} and {b} to {wanted_b}")
    };
    let expected = [
        format!("{a}-{b} one-way: from {a} to {b} and not back"),
        format!("{}-{} missing: nothing gets through", missing[0], missing[1]),
        "leaf1:40-spine2:41 extra: no document has this cable".to_owned(),
        crossed([&one[0], &other[1]], [&one[1], &other[0]]),
        crossed([&other[0], &one[1]], [&other[1], &one[0]]),
    ];
    assert_eq!(reported, BTreeSet::from(expected));
    controller.shutdown().await;
}

#[tokio::test]
async fn a_silent_cable_fails_and_recovers_with_its_probes() {
    let lab = lab().await;
    let controller = lab.control(probing).await;
    let whole = |seen: &DiscoveryReport| seen.topology.links.len() == 2 * cables().len();
    found(&controller, whole).await;
    let cable = lab.fabric.up_links(SwitchId(0))[0];
    let position = cables().iter().position(|[a, b]| {
        let name = lab.fabric.link_name(cable);
        name == format!("{a}>{b}") || name == format!("{b}>{a}")
    });
    let wire = switch::WireIndex(position.unwrap() as u32);
    for (state, works) in [(WireState::Down, false), (WireState::Up, true)] {
        lab.switches.devices.set_wire_state(wire, state).await.unwrap();
        rollout_with(&controller, |had| had.fabric.is_up(cable) == works).await;
        verified(&lab, &controller).await;
    }
    controller.shutdown().await;
}

/// The switches of a lab and where they are reached, and nothing else.
fn inventory(lab: &Lab) -> Fabric {
    let mut inventory = FabricParts {
        name: "found".to_owned(),
        switches: lab.fabric.switches().to_vec(),
        ..FabricParts::default()
    };
    for switch in &mut inventory.switches {
        switch.ports.clear();
        switch.tier = Tier::Leaf;
    }
    Fabric::new(inventory)
}

/// The names of cables between switches, and tiers.
fn shape(fabric: &Fabric) -> (BTreeSet<String>, Vec<Tier>) {
    let links = fabric.links().iter();
    let within =
        links.filter(|link| [link.from, link.to].iter().all(|end| end.node.switch().is_some()));
    let names =
        within.map(|link| [link.from, link.to].map(|end| fabric.endpoint_name(end)).join("-"));
    let tiers = fabric.switches().iter().map(|switch| switch.tier);
    (names.collect(), tiers.collect())
}

/// A controller of a lab of which it knows the switches alone.
async fn learning(lab: &Lab, change: impl FnOnce(&mut RawConfig)) -> ControllerHandle {
    let learning = config(|raw| {
        probing(raw);
        raw.discovery.learn = true;
        raw.discovery.ports = 8;
        change(raw);
    });
    let started = Controller::start(learning, inventory(lab), Policy::default()).await;
    started.unwrap()
}

/// The fabric when as many hosts are found as there are.
async fn all_hosts(lab: &Lab, controller: &ControllerHandle) -> Fabric {
    let hosts = lab.fabric.hosts().len();
    rollout_with(controller, |had| had.fabric.hosts().len() == hosts).await.fabric
}

/// Has a job run between two of the hosts that were found, and waits for its tables.
async fn run_job(lab: &Lab, learned: &Fabric, controller: &ControllerHandle) {
    let found = |nic: usize| learned.nic_with_ip(lab.fabric.nics()[nic].ip).unwrap();
    let [from, to] = [0, 2].map(found);
    let mut job = lab.job("a", 50_000);
    (job.flows[0].src, job.flows[0].dst) = (from, to);
    job.gpus = [from, to].map(|nic| (learned.nic(nic).host, 1)).into();
    let jobs = StateEvent::JobsChanged(vec![job]);
    controller.submit_event(jobs).await.unwrap();
    verified(lab, controller).await;
}

#[tokio::test]
async fn learned_fabrics_survive_restarts_and_silence() {
    let lab = lab().await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
    let first = learning(&lab, stored).await;
    let learned = all_hosts(&lab, &first).await;
    run_job(&lab, &learned, &first).await;
    first.shutdown().await;
    let held = lab.read_all().await;

    // Nothing that it sees counts before the test is over.
    let slowly = |raw: &mut RawConfig| raw.discovery.stale_ms = 600_000;
    let blind = learning(&lab, slowly).await;
    all_hold(&blind).await;
    blind.shutdown().await;
    assert_eq!(lab.read_all().await, held);

    let second = learning(&lab, |raw| {
        stored(raw);
        slowly(raw);
    });
    let second = second.await;
    let realised = second.current_rollout().unwrap();
    assert_eq!(shape(&realised.fabric), shape(&learned));
    assert_eq!(realised.plan.jobs.len(), 1);
    verified(&lab, &second).await;
    assert_eq!(lab.read_all().await, held);
    second.shutdown().await;
}

#[tokio::test]
async fn a_controller_without_a_document_learns_the_fabric_plans_and_programs_it() {
    let lab = lab().await;
    let controller = learning(&lab, |_| {}).await;
    let learned = all_hosts(&lab, &controller).await;
    assert_eq!(shape(&learned), shape(&lab.fabric));

    // A job between two hosts is pinned, and a packet of it arrives.
    run_job(&lab, &learned, &controller).await;
    assert!(controller.current_rollout().unwrap().plan.flows[0].pinned);
    let [src, dst] = [0, 2].map(|nic| &lab.fabric.nics()[nic]);
    let [sender, receiver] = [0, 2].map(|host| lab.switches.devices.endpoint(EndpointIndex(host)));
    let packet = frame([src, dst], 50_000, 0);
    let sent = sender.with_endpoint(move |_: &mut Host, _, out| out.send_packet(0, &packet));
    sent.await.unwrap();
    until(async || {
        receiver.with_endpoint(|host: &mut Host, _, _| host.received).await.unwrap() > 0
    })
    .await;

    // What falls silent has failed, and is not forgotten.
    let wire = switch::WireIndex(0);
    lab.switches.devices.set_wire_state(wire, WireState::Down).await.unwrap();
    let failed = rollout_with(&controller, |had| {
        let links = had.fabric.link_ids();
        links.filter(|link| !had.fabric.is_up(*link)).count() == 2
    });
    assert_eq!(shape(&failed.await.fabric), shape(&lab.fabric));
    assert_eq!(controller.current_rollout().unwrap().plan.jobs.len(), 1);
    controller.shutdown().await;
}

/// Has a host announce addresses, its own or others'.
async fn announce(lab: &Lab, host: u32, addresses: Vec<[u8; 4]>) {
    let endpoint = lab.switches.devices.endpoint(EndpointIndex(host));
    let announced = endpoint.with_endpoint(move |host: &mut Host, _, out| {
        for ip in &addresses {
            out.send_packet(0, &host.announce_address(*ip));
        }
    });
    announced.await.unwrap();
}

#[tokio::test]
async fn an_address_that_answers_at_its_port_cannot_be_taken_over() {
    let lab = lab().await;
    let controller = learning(&lab, |_| {}).await;
    let learned = all_hosts(&lab, &controller).await;
    run_job(&lab, &learned, &controller).await;
    let victim = &lab.fabric.nics()[0];
    let claimed = |seen: &DiscoveryReport| {
        seen.findings.iter().any(|finding| finding.text.contains("the claim is refused"))
    };
    let mut seen = controller.watch_discovery();
    until(async || {
        announce(&lab, 3, vec![ipv4_octets(victim)]).await;
        claimed(&seen.borrow_and_update().clone())
    })
    .await;
    let port = |fabric: &Fabric| {
        let nic = fabric.nic(fabric.nic_with_ip(victim.ip).unwrap());
        fabric.endpoint_name(fabric.link(nic.uplink).to)
    };
    assert_eq!(port(&controller.current_rollout().unwrap().fabric), port(&learned));
    controller.shutdown().await;
}

#[tokio::test]
async fn a_flood_of_invented_addresses_stays_at_its_port() {
    let lab = lab().await;
    let controller = learning(&lab, |_| {}).await;
    let learned = all_hosts(&lab, &controller).await;
    run_job(&lab, &learned, &controller).await;
    for hundred in 0..350_u32 {
        let invented = (0..100).map(|last| [10, 200, (hundred % 256) as u8, last]).collect();
        announce(&lab, 3, invented).await;
    }
    let overfull = |seen: &DiscoveryReport| {
        seen.findings.iter().any(|finding| finding.text.contains("claims more than 16 addresses"))
    };
    let seen = found(&controller, overfull).await;
    assert!(seen.topology.hosts.len() <= lab.fabric.nics().len() + 16);
    // The job of other hosts is where it was, and the fabric still grows and shrinks with cables.
    assert_eq!(controller.current_rollout().unwrap().plan.jobs.len(), 1);
    verified(&lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test]
async fn a_fabric_without_a_document_is_surveyed_and_left_as_it_was() {
    let lab = lab().await;
    let blind = inventory(&lab);
    let config = config(|_| {});
    let lasts = Duration::from_secs(3);
    let OneShotDiscovery { topology, findings, .. } =
        discover_once(&GrpcNetwork, &blind, &config, lasts).await;
    assert_eq!(findings, []);
    let all = (0..4).map(SwitchId::from).collect();
    assert_eq!(topology.cables().len(), cables().len());
    // Ids of switches are the same, so the document can judge.
    assert_eq!(compare_cabling(&lab.fabric, &topology, &all), []);
    let empty = lab.read_all().await;
    assert!(empty.values().all(|tables| tables.is_empty()), "{empty:?}");

    // An election id is used once, and the switches may still see the survey before.
    let mut later = config;
    later.term += 1;
    let known = discover_once(&GrpcNetwork, &lab.fabric, &later, lasts).await;
    assert_eq!(known.findings, []);
    assert_eq!(known.topology.cables().len(), cables().len());
    assert_eq!(known.topology.hosts.len(), lab.fabric.nics().len());
    let assumed = DiscoveryDefaults { gbps: 100.0, gpus: 8 };
    let found = document_observed_fabric(&lab.fabric, &known.topology, assumed);
    let found = Fabric::try_from(&found.document).unwrap();
    let names = |fabric: &Fabric| {
        let links = fabric.link_ids();
        links.map(|link| fabric.link_name(link)).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&found), names(&lab.fabric));
}

#[tokio::test]
async fn a_survey_does_not_disturb_a_controller() {
    let lab = lab().await;
    let controller = lab.control(|_| {}).await;
    let before = verified(&lab, &controller).await;
    let config = config(|raw| raw.election.term = 0);
    let found = discover_once(&GrpcNetwork, &lab.fabric, &config, Duration::from_millis(50)).await;
    assert_eq!(found.findings.len(), 4);
    let text = &found.findings[0].text;
    assert!(text.contains("another controller is its primary"), "{text}");
    assert_eq!(verified(&lab, &controller).await.generation, before.generation);
    controller.shutdown().await;
}

/// Hosts at two leaves, which pass on everything but ARP once they are told to. NIC 0 is the first.
struct RelayingHosts {
    hosts: [Host; 2],
    relays: bool,
}

impl NetworkEndpoint for RelayingHosts {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], at: u64, out: &mut EndpointOutbox) {
        match packet[12..14] {
            [8, 6] => self.hosts[nic as usize].receive_packet(nic, packet, at, out),
            _ if self.relays => out.send_packet(1 - nic, packet),
            _ => out.send_packet(nic, &self.hosts[nic as usize].announcement()),
        }
    }

    fn handle_timer(&mut self, _: u64, _: u64, _: &mut EndpointOutbox) {}
}

/// Found by attack: two hosts that relay probes became a cable, on which sources and DSCP are
/// trusted. Only the document of an operator makes one where a host was found.
#[tokio::test]
async fn hosts_that_relay_probes_stay_hosts() {
    let fabric = document();
    let ends = [0, 2].map(|nic| {
        let nic = &fabric.nics()[nic];
        (nic.mac.0, ipv4_octets(nic), fabric.endpoint_name(fabric.link(nic.uplink).to))
    });
    let relay_ends = ends.clone();
    let wired = |builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]| {
        for [a, b] in &cables() {
            connect(builder, devices, [a, b]);
        }
        let hosts = relay_ends.clone().map(|(mac, ip, _)| Host { mac, ip, received: 0 });
        let relay = builder.add_endpoint(Box::new(RelayingHosts { hosts, relays: false }));
        for (nic, (_, _, at)) in (0..).zip(&relay_ends) {
            let end = port(devices, at);
            builder.connect_wire(WireEnd::Nic(relay, nic), end, wire()).unwrap();
        }
    };
    let lab = Lab::wired(|_| ServiceOptions::default(), wired).await;
    lab.switches.devices.release_clock(ClockPace::Free).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("crux.redb");
    let stored = |raw: &mut RawConfig| raw.store.path = Some(store.clone());
    let controller = learning(&lab, stored).await;
    let learned = rollout_with(&controller, |had| had.fabric.hosts().len() == 2).await.fabric;
    assert_eq!(learned.cables().count(), cables().len() + 2);

    let relay = lab.switches.devices.endpoint(EndpointIndex(0));
    relay.with_endpoint(|hosts: &mut RelayingHosts, _, _| hosts.relays = true).await.unwrap();
    let cable = format!("{}-{}", ends[0].2, ends[1].2);
    let is_reported = |seen: &DiscoveryReport| {
        seen.findings
            .iter()
            .any(|finding| finding.about == cable && finding.text.contains("a host relays them"))
    };
    found(&controller, is_reported).await;
    // For longer than what is found must last to count.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let after = controller.current_rollout().unwrap().fabric;
    assert_eq!((after.hosts().len(), shape(&after)), (2, shape(&learned)));
    assert!(found(&controller, is_reported).await.topology.links.len() >= 2 * cables().len());
    controller.shutdown().await;

    let mut document = topology::spec::explicit_document(&inventory(&lab));
    document.links.push(topology::spec::LinkDocument {
        a: ends[0].2.clone(),
        b: ends[1].2.clone(),
        gbps: 100.0,
        scheduler: None,
        metres: None,
    });
    let documented = Fabric::try_from(&document).unwrap();
    let again = config(|raw| {
        probing(raw);
        stored(raw);
        (raw.discovery.learn, raw.discovery.ports) = (true, 8);
    });
    let again = Controller::start(again, documented, Policy::default()).await.unwrap();
    let names = |fabric: &Fabric| shape(fabric).0.iter().any(|name| *name == cable);
    rollout_with(&again, |had| names(&had.fabric) && had.fabric.hosts().is_empty()).await;
    again.shutdown().await;
}
