//! The fabric: times to the nanosecond, wires that fail, overload, and the same result every time.

use switch::{
    ClockPace, Device, EmulatedNetworkBuilder, EmulatedNetworkHandle, EndpointIndex,
    EndpointOutbox, Nanos, NetworkEndpoint, OwnerStopped, QueueLimits, WireEnd, WireIndex,
    WireSpec, WireState,
};

use crate::support::{
    ByName, CPU, FLOW, Flow, HERE, MILLISECOND, THERE, config, exact, prefix, program,
};

const GIGABIT: u64 = 1_000_000_000;

/// A host that sends `burst` packets of a flow every `interval`, and notes what it receives.
struct Host {
    flow: Flow,
    bytes: usize,
    burst: u16,
    interval: Nanos,
    received: Vec<(Nanos, Vec<u8>)>,
}

impl Host {
    fn boxed(flow: Flow, burst: u16) -> Box<Self> {
        Box::new(Self { flow, bytes: 1250, burst, interval: MILLISECOND, received: Vec::new() })
    }
}

impl NetworkEndpoint for Host {
    fn receive_packet(&mut self, _nic: u32, packet: &[u8], now: Nanos, _out: &mut EndpointOutbox) {
        self.received.push((now, packet.to_vec()));
    }

    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox) {
        for entropy in 0..self.burst {
            let sport = self.flow.sport.wrapping_add(entropy).wrapping_add(token as u16);
            out.send_packet(0, &Flow { sport, ..self.flow }.packet(self.bytes));
        }
        out.set_timer(now + self.interval, token + 1);
    }
}

/// Two leaves, two spines, one host at each leaf.
struct Network {
    fabric: EmulatedNetworkHandle,
    hosts: [EndpointIndex; 2],
    /// From each leaf to each spine.
    uplinks: Vec<WireIndex>,
}

impl Network {
    /// Leaf 0 is for `HERE`, leaf 1 for `THERE`; leaf ports: 1 host, 10 and 11 spines.
    async fn start(burst: u16) -> Self {
        let mut builder = EmulatedNetworkBuilder::new();
        let devices: Vec<_> = (0..4).map(|id| builder.add_device(config(id))).collect();
        let back = Flow { src: THERE, dst: HERE, ..FLOW };
        let hosts = [FLOW, back].map(|flow| builder.add_endpoint(Host::boxed(flow, burst)));
        let wire = WireSpec {
            bits_per_second: GIGABIT,
            delay_ns: 1_000,
            queue: QueueLimits::of_bytes(50 * 1250),
        };
        let mut uplinks = Vec::new();
        for leaf in 0..2 {
            let nic = WireEnd::Nic(hosts[leaf], 0);
            builder.connect_wire(nic, WireEnd::Device(devices[leaf], 1), wire).unwrap();
            for spine in 0..2 {
                let up = WireEnd::Device(devices[leaf], 10 + spine as u16);
                let down = WireEnd::Device(devices[2 + spine], 1 + leaf as u16);
                uplinks.push(builder.connect_wire(up, down, wire).unwrap());
            }
        }
        let fabric = builder.spawn().unwrap();
        for (at, device) in devices.iter().enumerate() {
            fabric.device(*device).with_device(move |device| configure(device, at)).await.unwrap();
        }
        Self { fabric, hosts, uplinks }
    }

    async fn start_sending(&self) {
        for host in self.hosts {
            let handle = self.fabric.endpoint(host);
            handle.with_endpoint(|_: &mut Host, now, out| out.set_timer(now, 0)).await.unwrap();
        }
    }

    async fn received(&self, host: usize) -> Vec<(Nanos, Vec<u8>)> {
        let handle = self.fabric.endpoint(self.hosts[host]);
        handle.with_endpoint(|host: &mut Host, _, _| host.received.clone()).await.unwrap()
    }
}

/// Devices 0 and 1 are leaves, 2 and 3 spines.
fn configure(device: &mut Device, at: usize) {
    device.load_program(program());
    let hosts = [HERE, THERE];
    if at < 2 {
        device.add("local_host", &[exact(hosts[at])], "to_host", &[1, 0]);
        device.add("dst_leaf", &[prefix(0, 0)], "set_dst_leaf", &[crate::support::LEAF]);
        device.ecmp(1, &[10, 11]);
    } else {
        for (leaf, host) in hosts.into_iter().enumerate() {
            device.add("local_host", &[exact(host)], "to_host", &[1 + leaf as u128, 0]);
        }
    }
}

#[tokio::test]
async fn a_packet_takes_serialisation_and_delay_at_every_hop() {
    let network = Network::start(1).await;
    network.start_sending().await;
    let reached = network.fabric.run_until(MILLISECOND / 2).await.unwrap();
    assert_eq!(reached, MILLISECOND / 2);
    // 1250 bytes at 1 Gbit/s are 10 us, and 1 us of delay, over four wires.
    let received = network.received(1).await;
    assert_eq!(received.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [44_000]);
    assert_eq!(received[0].1[14 + 8], 61);
}

#[tokio::test]
async fn the_same_commands_at_holds_give_the_same_result() {
    let mut results = Vec::new();
    for _ in 0..2 {
        let network = Network::start(60).await;
        network.start_sending().await;
        network.fabric.run_until(5 * MILLISECOND).await.unwrap();
        network.fabric.set_wire_state(network.uplinks[0], WireState::Down).await.unwrap();
        network.fabric.run_until(9 * MILLISECOND).await.unwrap();
        network.fabric.set_wire_state(network.uplinks[0], WireState::Up).await.unwrap();
        network.fabric.run_until(15 * MILLISECOND).await.unwrap();
        let mut wires = Vec::new();
        for wire in &network.uplinks {
            wires.push(network.fabric.wire_counts(*wire).await.unwrap());
        }
        results.push((network.received(0).await, network.received(1).await, wires));
        network.fabric.stop().await;
    }
    assert_eq!(results[0], results[1]);
    let (_, received, wires) = &results[0];
    assert!(received.len() > 500, "{}", received.len());
    assert!(wires[0][0].lost > 0 && wires[0][1].lost > 0);
}

#[tokio::test]
async fn a_wire_that_goes_down_drops_packets_in_flight() {
    let network = Network::start(1).await;
    network.start_sending().await;
    // The packets are on the leaves' uplinks between 11 and 22 us.
    network.fabric.run_until(15_000).await.unwrap();
    for wire in &network.uplinks {
        network.fabric.set_wire_state(*wire, WireState::Down).await.unwrap();
    }
    network.fabric.run_until(MILLISECOND / 2).await.unwrap();
    assert_eq!(network.received(1).await, []);
    let mut lost = 0;
    for wire in &network.uplinks {
        lost += network.fabric.wire_counts(*wire).await.unwrap()[0].lost;
    }
    assert_eq!(lost, 2);
}

#[tokio::test]
async fn packets_beyond_the_queue_of_a_nic_are_counted_drops() {
    let network = Network::start(80).await;
    network.start_sending().await;
    network.fabric.run_until(MILLISECOND / 2).await.unwrap();
    // Host wires are the first and the fourth. One packet is on the wire, 50 wait.
    let counts = network.fabric.wire_counts(WireIndex(0)).await.unwrap();
    assert_eq!(counts[0].levels.len(), 1);
    assert_eq!(counts[0].levels[0].dropped.packets, 80 - 51);
    assert_eq!(counts[1].levels.len(), 8);
}

#[tokio::test]
async fn packet_io_works_while_the_clock_is_held() {
    let network = Network::start(1).await;
    let leaf = network.fabric.device(switch::DeviceIndex(0));
    let mut packet_ins = leaf.subscribe_packet_ins().await.unwrap();
    let any = crate::support::ternary(0, 0);
    let everything = switch::MatchKey { fields: vec![any; 5], priority: 1 };
    leaf.with_device(|leaf| leaf.try_add("acl_punt", everything, "punt", &[]))
        .await
        .unwrap()
        .unwrap();
    leaf.inject_packet(10, FLOW.packet(100)).await.unwrap();
    let packet = packet_ins.recv().await.unwrap();
    assert_eq!(packet[..2], (10_u16 << 7).to_be_bytes());
    let mut out = (1_u16 << 7).to_be_bytes().to_vec();
    out.extend(FLOW.packet(1250));
    leaf.send_packet_out(out).await.unwrap();
    assert_eq!(network.fabric.now().await, Ok(0));
    network.fabric.run_until(MILLISECOND).await.unwrap();
    assert_eq!(network.received(0).await, [(11_000, FLOW.packet(1250))]);
    leaf.inject_packet(CPU, (300_u16 << 7).to_be_bytes().to_vec()).await.unwrap();
    assert_eq!(network.fabric.counts().await.unwrap().unwired, 1);
}

#[tokio::test]
async fn a_released_clock_runs_until_it_is_held() {
    let network = Network::start(1).await;
    network.start_sending().await;
    network.fabric.release_clock(ClockPace::Free).await.unwrap();
    while network.received(1).await.len() < 10 {
        tokio::task::yield_now().await;
    }
    let held = network.fabric.hold_clock().await.unwrap();
    assert!(held >= 9 * MILLISECOND, "{held}");
    assert_eq!(network.fabric.now().await, Ok(held));
    network.fabric.release_clock(ClockPace::RealTime).await.unwrap();
    while network.fabric.now().await.unwrap() < held + MILLISECOND {
        tokio::task::yield_now().await;
    }
    network.fabric.stop().await;
    assert_eq!(network.fabric.now().await, Err(OwnerStopped));
}

#[tokio::test]
async fn an_invalid_fabric_is_refused() {
    let mut builder = EmulatedNetworkBuilder::new();
    let device = builder.add_device(config(1));
    let wire =
        WireSpec { bits_per_second: GIGABIT, delay_ns: 0, queue: QueueLimits::of_bytes(1_000) };
    let (a, b) = (WireEnd::Device(device, 1), WireEnd::Device(device, 2));
    assert!(builder.connect_wire(a, WireEnd::Nic(EndpointIndex(0), 0), wire).is_err());
    assert!(builder.connect_wire(a, a, wire).is_err());
    assert!(builder.connect_wire(a, b, WireSpec { bits_per_second: 0, ..wire }).is_err());
    builder.connect_wire(a, b, wire).unwrap();
    assert!(builder.connect_wire(WireEnd::Device(device, 3), b, wire).is_err());
}
