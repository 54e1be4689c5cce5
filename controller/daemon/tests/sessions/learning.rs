//! Flows that no job has announced, on the embedded fabric: each is learned once with its queue
//! pair, those of jobs are not, and a host that invents flows changes nothing for others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::learning::LearnedFlows;
use controller::{ControllerHandle, RawConfig, StateEvent};
use switch::{
    ClockPace, DeviceIndex, EmulatedNetworkBuilder, EndpointIndex, EndpointOutbox, NetworkEndpoint,
    QueueLimits, WireEnd, WireSpec,
};
use switch_server::p4runtime::ServiceOptions;
use topology::{Fabric, NicId};

use crate::http::ask;
use crate::lab::{DEADLINE, Lab, all_hold, open_config, parts, serve_controller, until};
use crate::traffic::frame;

/// Where the queue pair is in a frame: after Ethernet, IPv4, UDP and five bytes.
const DEST_QP: usize = 14 + 20 + 8 + 5;
/// Packets that a port may report in an instant, and of a leaf with two hosts in every second.
const BURST: u64 = 32;
const REPORTS: u64 = 50;

/// All hosts; NIC `n` of this endpoint is NIC `n` of the fabric.
pub(crate) struct SilentHosts;

impl NetworkEndpoint for SilentHosts {
    fn receive_packet(&mut self, _: u32, _: &[u8], _: u64, _: &mut EndpointOutbox) {}

    fn handle_timer(&mut self, _: u64, _: u64, _: &mut EndpointOutbox) {}
}

async fn lab() -> Lab {
    let wired = |builder: &mut EmulatedNetworkBuilder, devices: &[DeviceIndex]| {
        let fabric = Fabric::new(parts());
        let hosts = builder.add_endpoint(Box::new(SilentHosts));
        let queue = QueueLimits::of_bytes(64 << 20);
        let wire = WireSpec { bits_per_second: 100_000_000_000, delay_ns: 500, queue };
        for (number, nic) in (0..).zip(fabric.nics()) {
            let end = fabric.link(nic.uplink).to;
            let device = devices[end.node.switch().unwrap().index()];
            let end = WireEnd::Device(device, end.port.try_into().unwrap());
            builder.connect_wire(WireEnd::Nic(hosts, number), end, wire).unwrap();
        }
    };
    let lab = Lab::wired(|_| ServiceOptions::default(), wired).await;
    lab.switches.devices.release_clock(ClockPace::RealTime).await.unwrap();
    lab
}

/// A controller that learns, under a job that has announced the flow from UDP port 50000.
async fn controller(lab: &Lab, change: impl FnOnce(&mut RawConfig)) -> ControllerHandle {
    let learning = |raw: &mut RawConfig| {
        raw.learning.enabled = true;
        change(raw);
    };
    let controller = lab.control(learning).await;
    let job = StateEvent::JobsChanged(vec![lab.job("a", 50_000)]);
    controller.submit_event(job).await.unwrap();
    all_hold(&controller).await;
    controller
}

/// Sends one packet of each of these flows: the sender's NIC, its UDP port, the queue pair.
async fn send(lab: &Lab, flows: Vec<(u32, u16, u32)>) {
    let fabric = lab.fabric.clone();
    let endpoint = lab.switches.devices.endpoint(EndpointIndex(0));
    let sent = endpoint.with_endpoint(move |_: &mut SilentHosts, _, out| {
        for (nic, port, dest_qp) in &flows {
            let ends = [*nic, 2 + nic % 2].map(|nic| fabric.nic(NicId(nic)));
            let mut packet = frame(ends, *port, 0);
            packet[DEST_QP..DEST_QP + 3].copy_from_slice(&dest_qp.to_be_bytes()[1..]);
            out.send_packet(*nic, &packet);
        }
    });
    sent.await.unwrap();
}

async fn learned(
    controller: &ControllerHandle,
    what: impl Fn(&LearnedFlows) -> bool,
) -> Arc<LearnedFlows> {
    let mut flows = controller.watch_learned_flows();
    let found = tokio::time::timeout(DEADLINE, flows.wait_for(|flows| what(flows))).await;
    let found = found.map(|flows| Arc::clone(&flows.unwrap()));
    found.unwrap_or_else(|_| panic!("{:?}", controller.watch_learned_flows().borrow()))
}

#[tokio::test]
async fn a_flow_of_no_job_is_reported_once_with_its_queue_pair() {
    let lab = lab().await;
    let controller = controller(&lab, |_| {}).await;
    for _ in 0..40 {
        send(&lab, vec![(0, 50_000, 5), (0, 50_001, 6), (0, 50_001, 7), (1, 50_002, 8)]).await;
    }
    let found = learned(&controller, |learned| learned.flows.len() == 3).await;
    assert_eq!(found.counts.reports, 3);
    let port = |nic: usize| lab.fabric.link(lab.fabric.nics()[nic].uplink).to.port as u16;
    let flows = found.flows.iter().map(|flow| {
        let tuple = flow.tuple;
        (flow.at.port, tuple.src, tuple.dst, tuple.udp_src_port, tuple.dest_qp)
    });
    let ip = |nic: usize| lab.fabric.nics()[nic].ip;
    let expected = [
        (port(0), ip(0), ip(2), 50_001, 6),
        (port(0), ip(0), ip(2), 50_001, 7),
        (port(1), ip(1), ip(3), 50_002, 8),
    ];
    assert_eq!(flows.collect::<Vec<_>>(), expected);

    // They are of no job until somebody announces them; the reports change no plan.
    assert_eq!(controller.current_rollout().unwrap().plan.jobs.len(), 1);
    let server = serve_controller(&controller, &open_config()).await;
    let (_, answer) = ask(server.local_addr(), "/v1/learned-flows", None).await;
    assert!(answer.contains(r#""leaf":"leaf1","port":1,"src_nic":"h1:0""#), "{answer}");
    let (_, metrics) = ask(server.local_addr(), "/metrics", None).await;
    assert!(metrics.contains("crux_learned_flows{switch=\"leaf1\"} 3"), "{metrics}");
    server.shutdown().await;
    controller.shutdown().await;
}

#[tokio::test]
async fn a_flow_that_goes_on_is_refreshed_and_one_that_stops_is_forgotten() {
    let lab = lab().await;
    let timing = |raw: &mut RawConfig| {
        raw.learning.refresh_ms = 100;
        raw.learning.expire_ms = 3_000;
    };
    let controller = controller(&lab, timing).await;
    until(async || {
        // A report may be lost where its switch is busy; the flow goes on.
        send(&lab, vec![(0, 50_001, 6)]).await;
        !controller.watch_learned_flows().borrow().flows.is_empty()
    })
    .await;
    until(async || {
        send(&lab, vec![(1, 50_002, 7)]).await;
        let learned = controller.watch_learned_flows();
        let learned = learned.borrow();
        let mut times = learned.flows.iter().map(|flow| flow.last_seen - flow.first_seen);
        times.any(|seen| seen > Duration::from_secs(1))
    })
    .await;
    let found = learned(&controller, |learned| learned.flows.is_empty()).await;
    assert_eq!(found.counts.expired, 2);
    controller.shutdown().await;
}

#[tokio::test]
async fn a_host_that_invents_flows_is_metered_and_takes_nothing_from_others() {
    let lab = lab().await;
    let bounds = |raw: &mut RawConfig| raw.learning.port_flows_max = 100;
    let controller = controller(&lab, bounds).await;
    let started = Instant::now();
    let mut burst = 0;
    // Until the port has more flows than it may keep.
    until(async || {
        let invented = (0..500).map(|number| (1, (burst * 500 + number) as u16, number));
        send(&lab, invented.collect()).await;
        burst += 1;
        controller.watch_learned_flows().borrow().counts.refused > 0
    })
    .await;
    send(&lab, vec![(0, 50_001, 6)]).await;
    let is_learned = |learned: &LearnedFlows| {
        learned
            .flows
            .iter()
            .any(|flow| (flow.tuple.udp_src_port, flow.tuple.dest_qp) == (50_001, 6))
    };
    let found = learned(&controller, is_learned).await;
    // Of two ports.
    let limit = 2 * (BURST + REPORTS * (1 + started.elapsed().as_secs()));
    assert!(found.counts.reports <= limit, "{:?}", found.counts);
    let found = learned(&controller, |learned| learned.counts.refused > 0).await;
    assert_eq!(found.flows.len(), 101);
    assert_eq!(found.counts.dropped_lists, 0);
    controller.shutdown().await;
}

#[tokio::test]
async fn nothing_is_reported_where_learning_is_disabled() {
    let lab = lab().await;
    let controller = controller(&lab, |raw| raw.learning.enabled = false).await;
    send(&lab, vec![(0, 50_001, 6); 10]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(**controller.watch_learned_flows().borrow(), LearnedFlows::default());
    controller.shutdown().await;
}
