//! Changes under traffic on the embedded fabric: numbered packets of pinned and unpinned flows all
//! the while, of which none is lost and none overtaken, and counters on the wires that say when a
//! drained part has nothing left to carry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use controller::northbound::{
    controller_view::LinkRow,
    service::{ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest},
};
use controller::{Config, ControllerHandle, PlanRollout, RawConfig, StateEvent};
use planner::Policy;
use switch::{
    ClockPace, DeviceIndex, EmulatedNetworkBuilder, EndpointHandle, EndpointIndex, EndpointOutbox,
    NetworkEndpoint, QueueLimits, WireEnd, WireIndex, WireSpec,
};
use switch_server::p4runtime::ServiceOptions;
use switch_server::testing::faults::{FaultScript, InjectedFault};
use topology::{AvailabilityChange, Fabric, FabricNode, FabricParts, LinkId, Nic, NicId, SwitchId};

use crate::http::ask;
use crate::lab::{DEADLINE, Lab, parts, serve_controller, verified};

/// Between two packets of a flow, in virtual nanoseconds.
const PERIOD: u64 = 1_000_000;

/// UDP source ports of the flows; the last is of no job.
const FLOWS: [u16; 5] = [50_000, 50_001, 50_002, 50_003, 50_004];

/// Ethernet, IPv4, UDP and the transport header of RoCE.
const HEADERS: usize = 14 + 20 + 8 + 12;

/// All hosts together: NIC `n` of this endpoint is NIC `n` of the fabric. Even flows go from the
/// first host to the third, odd ones from the second to the fourth.
struct TrafficHosts {
    fabric: Fabric,
    is_sending: bool,
    sent: u64,
    received: BTreeMap<u16, u64>,
    /// Packets that came after a later one of their flow, or at another host.
    disorder: u64,
}

/// The first spine of every lab.
const SPINE: SwitchId = SwitchId(2);

/// Every write takes its time.
fn slow_writes() -> FaultScript {
    let by = Duration::from_millis(30);
    FaultScript((1..=1_000).map(|nth| InjectedFault::DelayWrite { nth, by }).collect())
}

fn ends(flow: u16) -> [NicId; 2] {
    let odd = usize::from(flow % 2);
    [NicId::from(odd), NicId::from(odd + 2)]
}

impl TrafficHosts {
    fn frame(&self, flow: u16, number: u64) -> Vec<u8> {
        let [src, dst] = ends(flow).map(|nic| self.fabric.nic(nic));
        frame([src, dst], flow, number)
    }
}

/// The address of a NIC of a fabric that has IPv4 alone.
pub(crate) fn ipv4_octets(nic: &Nic) -> [u8; 4] {
    match nic.ip {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(ip) => panic!("{ip} is no IPv4 address"),
    }
}

/// A numbered packet of a flow, which is told by its UDP source port.
pub(crate) fn frame([src, dst]: [&Nic; 2], flow: u16, number: u64) -> Vec<u8> {
    let length = (HEADERS + 10 - 14) as u16;
    let parts: [&[u8]; 11] = [
        &dst.mac.0,
        &src.mac.0,
        &[8, 0, 0x45, 0],
        &length.to_be_bytes(),
        &[0, 0, 0, 0, 64, 17, 0, 0],
        &ipv4_octets(src),
        &ipv4_octets(dst),
        &flow.to_be_bytes(),
        &4_791_u16.to_be_bytes(),
        &(length - 20).to_be_bytes(),
        &[0; 2 + 12],
    ];
    let mut frame = parts.concat();
    let words = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&flow.to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame
}

impl NetworkEndpoint for TrafficHosts {
    fn receive_packet(&mut self, nic: u32, packet: &[u8], _: u64, _: &mut EndpointOutbox) {
        let Some((flow, rest)) = packet.get(HEADERS..).and_then(|rest| rest.split_first_chunk())
        else {
            return;
        };
        let flow = u16::from_be_bytes(*flow);
        let number = u64::from_be_bytes(rest[..8].try_into().unwrap());
        let next = self.received.entry(flow).or_default();
        if number != *next || ends(flow)[1] != NicId(nic) {
            self.disorder += 1;
        }
        *next += 1;
    }

    fn handle_timer(&mut self, _: u64, now: u64, out: &mut EndpointOutbox) {
        if !self.is_sending {
            return;
        }
        for flow in FLOWS {
            let nic = ends(flow)[0];
            out.send_packet(nic.0, &self.frame(flow, self.sent));
        }
        self.sent += 1;
        out.set_timer(now + PERIOD, 0);
    }
}

/// A lab with all cables of its fabric, whose hosts are one endpoint. Its clock runs.
pub(crate) async fn cabled_lab(
    parts: FabricParts,
    options: impl Fn(usize) -> ServiceOptions,
    hosts: Box<dyn NetworkEndpoint>,
) -> Lab {
    let fabric = Fabric::new(parts.clone());
    let wired = |builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]| {
        connect_cables(&fabric, builder, devices, hosts);
    };
    let lab = Lab::of_parts(parts, options, wired).await;
    lab.switches.devices.release_clock(ClockPace::RealTime).await.unwrap();
    lab
}

/// Wires for all cables of a fabric, whose hosts are one endpoint.
pub(crate) fn connect_cables(
    fabric: &Fabric,
    builder: &mut EmulatedNetworkBuilder,
    devices: &[DeviceIndex],
    hosts: Box<dyn NetworkEndpoint>,
) {
    let hosts = builder.add_endpoint(hosts);
    for link in fabric.cables().map(|cable| fabric.link(cable)) {
        let [a, b] = [link.from, link.to].map(|end| match end.node {
            FabricNode::Switch(switch) => WireEnd::Device(devices[switch.index()], end.port as u16),
            FabricNode::Host(host) => WireEnd::Nic(hosts, fabric.host(host).nics[0].0),
        });
        let wire = WireSpec {
            bits_per_second: 10_000_000_000,
            delay_ns: 500,
            queue: QueueLimits::of_bytes(1 << 20),
        };
        builder.connect_wire(a, b, wire).unwrap();
    }
}

/// A lab with wires, under traffic.
pub(crate) struct Busy {
    pub(crate) lab: Lab,
    hosts: EndpointHandle,
}

impl Busy {
    pub(crate) async fn new() -> Self {
        Self::with_options(|_| ServiceOptions::default()).await
    }

    /// Switches with these options.
    async fn with_options(options: impl Fn(usize) -> ServiceOptions) -> Self {
        Self::of_parts(parts(), options).await
    }

    /// A fabric of these parts, the first two leaves of which have two hosts each.
    pub(crate) async fn of_parts(
        parts: FabricParts,
        options: impl Fn(usize) -> ServiceOptions,
    ) -> Self {
        let hosts = TrafficHosts {
            fabric: Fabric::new(parts.clone()),
            is_sending: false,
            sent: 0,
            received: BTreeMap::new(),
            disorder: 0,
        };
        let lab = cabled_lab(parts, options, Box::new(hosts)).await;
        let hosts = lab.switches.devices.endpoint(EndpointIndex(0));
        Self { lab, hosts }
    }

    /// Looks at the hosts, or has them do something.
    async fn with<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut TrafficHosts, &mut EndpointOutbox) -> R + Send + 'static,
    ) -> R {
        let done = self.hosts.with_endpoint(|hosts: &mut TrafficHosts, _, out| what(hosts, out));
        done.await.unwrap()
    }

    pub(crate) async fn send(&self) {
        self.with(|hosts, out| {
            hosts.is_sending = true;
            out.set_timer(0, 0);
        })
        .await;
    }

    /// A controller with these jobs, and traffic once it has verified them.
    async fn begin(&self, jobs: usize, change: impl FnOnce(&mut RawConfig)) -> ControllerHandle {
        let controller = self.lab.control(change).await;
        controller.submit_event(self.jobs(jobs)).await.unwrap();
        verified(&self.lab, &controller).await;
        self.send().await;
        self.arrive(20).await;
        controller
    }

    /// Waits until this many more packets of every flow have arrived.
    pub(crate) async fn arrive(&self, more: u64) {
        let least = |hosts: &mut TrafficHosts, _: &mut EndpointOutbox| {
            let received = FLOWS.map(|flow| hosts.received.get(&flow).copied().unwrap_or(0));
            received.into_iter().min().unwrap_or(0)
        };
        let begun = self.with(least).await;
        let arriving = async {
            while self.with(least).await < begun + more {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, arriving).await.unwrap();
    }

    /// Packets that were put on these cables, either way.
    pub(crate) async fn carried(&self, cables: &[LinkId]) -> u64 {
        let mut carried = 0;
        for cable in cables {
            let wire = WireIndex(cable.cable_index() as u32);
            let counts = self.lab.switches.devices.wire_counts(wire).await.unwrap();
            let levels = counts.iter().flat_map(|direction| &direction.levels);
            carried += levels.map(|level| level.sent.packets).sum::<u64>();
        }
        carried
    }

    /// Stops sending; nothing that was sent is missing and nothing came out of order.
    pub(crate) async fn settle(&self) {
        let sent = self.with(|hosts, _| {
            hosts.is_sending = false;
            hosts.sent
        });
        let sent = sent.await;
        let all = move |hosts: &mut TrafficHosts, _: &mut EndpointOutbox| {
            FLOWS.iter().all(|flow| hosts.received.get(flow) == Some(&sent))
        };
        let arriving = async {
            while !self.with(all).await {
                tokio::task::yield_now().await;
            }
        };
        let arrived = tokio::time::timeout(DEADLINE, arriving).await;
        let (received, disorder) =
            self.with(|hosts, _| (hosts.received.clone(), hosts.disorder)).await;
        assert!(arrived.is_ok(), "{sent} sent of each flow, received {received:?}");
        assert_eq!(disorder, 0);
    }

    /// The first flows, a job each.
    pub(crate) fn jobs(&self, count: usize) -> StateEvent {
        let job = |port: &u16| {
            let mut job = self.lab.job(&format!("job{port}"), *port);
            [job.flows[0].src, job.flows[0].dst] = ends(*port);
            job
        };
        StateEvent::JobsChanged(FLOWS[..count].iter().map(job).collect())
    }

    /// Has the controller drain these, and waits until switches are seen to hold that.
    async fn drain(&self, controller: &ControllerHandle, drained: &[&str]) {
        let policy = Policy {
            drained: drained.iter().map(|name| (*name).to_owned()).collect(),
            ..Policy::default()
        };
        controller.submit_event(StateEvent::PolicyChanged(policy)).await.unwrap();
        verified(&self.lab, controller).await;
        let mut drainage = controller.watch_drains();
        let complete = drainage.wait_for(|drainage| drainage.complete.len() == drained.len());
        let complete = tokio::time::timeout(DEADLINE, complete).await.unwrap();
        assert_eq!(complete.unwrap().under_way, BTreeSet::new());
    }

    /// Drains something, checks that its cables then carry nothing, and gives it back.
    async fn drain_and_return(&self, controller: &ControllerHandle, name: &str, cables: &[LinkId]) {
        assert!(self.carried(cables).await > 0, "{name} is in use");
        self.drain(controller, &[name]).await;
        let flows = controller.current_rollout().unwrap().plan.flows.clone();
        let uses = |link: &LinkId| cables.contains(link) || cables.contains(&link.reverse());
        assert!(!flows.iter().any(|flow| flow.links.iter().any(uses)));
        // What was on its way when the last pin left.
        self.arrive(10).await;
        let before = self.carried(cables).await;
        self.arrive(100).await;
        assert_eq!(self.carried(cables).await, before, "{name} is drained");
        self.drain(controller, &[]).await;
        self.arrive(20).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_a_switch_and_a_cable_loses_and_reorders_nothing() {
    let busy = Busy::new().await;
    let controller = busy.begin(4, |_| {}).await;

    let fabric = &busy.lab.fabric;
    for spine in [SwitchId(2), SwitchId(3)] {
        let cables: Vec<LinkId> = fabric.switch(spine).ports.values().copied().collect();
        let name = &fabric.switch(spine).name;
        busy.drain_and_return(&controller, name, &cables).await;
    }
    let flow = &controller.current_rollout().unwrap().plan.flows[0];
    let cable = flow.links[1];
    let ends = [fabric.link(cable).from.node, fabric.link(cable).to.node];
    let name = ends.map(|node| fabric.node_name(node)).join("-");
    busy.drain_and_return(&controller, &name, &[cable]).await;
    busy.settle().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_come_and_go_and_everything_drained_lose_and_reorder_nothing() {
    let busy = Busy::new().await;
    let controller = busy.begin(0, |_| {}).await;
    for count in [1, 3, 0, 4, 2] {
        busy.arrive(20).await;
        controller.submit_event(busy.jobs(count)).await.unwrap();
        verified(&busy.lab, &controller).await;
    }
    // To drain the last way is not to cut it.
    busy.drain(&controller, &["spine1", "spine2"]).await;
    busy.arrive(20).await;
    busy.drain(&controller, &[]).await;
    busy.arrive(20).await;
    busy.settle().await;
    controller.shutdown().await;
}

/// One spine is far slower than all others, so a switch that uses the cable before that spine
/// knows of it loses packets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cable_and_a_switch_that_come_back_are_used_without_a_loss() {
    let slow = |switch: usize| ServiceOptions {
        faults: match SwitchId::from(switch) {
            SPINE => slow_writes(),
            _ => FaultScript::default(),
        },
        ..ServiceOptions::default()
    };
    let busy = Busy::with_options(slow).await;
    let patient = |raw: &mut RawConfig| raw.liveness.return_ms = 60_000;
    let controller = busy.begin(4, patient).await;
    let cables: Vec<LinkId> = busy.lab.fabric.down_links(SPINE).to_vec();
    let failures = [
        (AvailabilityChange::LinkDown(cables[0]), AvailabilityChange::LinkUp(cables[0])),
        (AvailabilityChange::LinkDown(cables[1]), AvailabilityChange::LinkUp(cables[1])),
        (AvailabilityChange::SwitchDown(SPINE), AvailabilityChange::SwitchUp(SPINE)),
    ];
    for (fails, works) in failures {
        // Believed to have failed, so that nothing is lost by that.
        let failed = StateEvent::FabricChanged(vec![fails]);
        let generation = controller.submit_event(failed).await.unwrap().generation;
        let repaired = controller.await_verified(generation, DEADLINE);
        repaired.await.unwrap();
        busy.arrive(20).await;
        controller.submit_event(StateEvent::FabricChanged(vec![works])).await.unwrap();
        let is_used = |realised: &PlanRollout| {
            let mut cables = cables.iter();
            cables.all(|cable| realised.fabric.is_usable(*cable))
        };
        controller.await_rollout(is_used).await.unwrap();
        verified(&busy.lab, &controller).await;
        let before = busy.carried(&cables).await;
        busy.arrive(20).await;
        assert!(busy.carried(&cables).await > before, "it is used again");
    }
    busy.settle().await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_changes_of_policy_lose_and_reorder_nothing() {
    let busy = Busy::new().await;
    let controller = busy.begin(4, |_| {}).await;

    let service = NorthboundService::new(controller.access().clone(), &Config::default());
    let texts = [
        "[[job]]\nmatch = 'job50000'\nlevel = 0\n",
        "[[job]]\nmatch = 'job50001'\nexempt = true\n",
        "fairness = 0.5\n",
        "levels = 4\n",
        "levels = 8\n",
    ];
    for text in texts.into_iter().cycle().take(200) {
        let text = DocumentFile { file: "policy.toml".to_owned(), text: text.to_owned() };
        let order = ApplyPolicyRequest {
            change: PreviewPolicyRequest { policy: Some(text), ..PreviewPolicyRequest::default() },
            ..ApplyPolicyRequest::default()
        };
        let done = service.apply_policy(&order).await.unwrap();
        assert!(done.applied, "{done:?}");
    }
    assert_eq!(service.get_policy().await.unwrap().number, 201);
    busy.arrive(20).await;
    busy.settle().await;
    verified(&busy.lab, &controller).await;
    controller.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_load_is_shown_beside_planned_load() {
    let busy = Busy::new().await;
    let controller = busy.lab.control(|_| {}).await;
    controller.submit_event(busy.jobs(4)).await.unwrap();
    verified(&busy.lab, &controller).await;
    let mut raw = RawConfig::default();
    raw.northbound.anyone = true;
    raw.counters.enabled = true;
    raw.counters.interval_ms = 20;
    // The test asks again at once.
    raw.northbound.requests_per_second = 1_000_000;
    let server = serve_controller(&controller, &Config::try_from(raw).unwrap()).await;
    let address = server.local_addr();
    busy.send().await;
    let wanted = [
        "crux_link_measured_load_ratio{link=\"leaf1:",
        "crux_job_measured_bytes_per_second{job=\"job50000\"} ",
    ];
    let shown = async {
        loop {
            let (_, text) = ask(address, "/metrics", None).await;
            let values = wanted.map(|line| text.lines().find(|shown| shown.starts_with(line)));
            let value = values[1].and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            if values[0].is_some() && value.is_some_and(|value| value > 0.0) {
                return value;
            }
        }
    };
    let rate = tokio::time::timeout(DEADLINE, shown).await.unwrap().unwrap();
    // 64 bytes a millisecond, of virtual time; that is never ahead of the clock.
    assert!(rate < 70_000.0, "{rate}");
    let (_, links) = ask(address, "/v1/links", None).await;
    let links: Vec<LinkRow> = serde_json::from_str(&links).unwrap();
    let measured = links.iter().filter_map(|row| row.measured);
    assert!(measured.fold(0.0, f64::max) > 0.0, "{links:?}");
    busy.settle().await;
    server.shutdown().await;
    controller.shutdown().await;
}
