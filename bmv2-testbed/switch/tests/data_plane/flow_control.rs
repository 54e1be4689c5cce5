//! Shared buffers and pauses on the wires of an emulated network: a device that runs `queue.p4`
//! between fast senders and a slow wire.

use std::sync::Arc;

use switch::{
    BufferCounts, BufferSettings, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkHandle,
    EndpointHandle, EndpointIndex, EndpointOutbox, LevelPause, Nanos, NetworkEndpoint, NicPause,
    Program, QueueLimits, TrafficSettings, WireEnd, WireIndex, WireSpec,
};

use super::support::config;

/// On a wire of 10 Gbit/s, a microsecond.
const BYTES: usize = 1_250;
const MICROSECOND: Nanos = 1_000;
const GIGABIT: u64 = 1_000_000_000;

/// Sends packets back to back, and stops while its switch pauses it if it obeys.
struct PausableSender {
    obeys: bool,
    left: u32,
    paused: bool,
    pauses: Vec<(Nanos, LevelPause)>,
    received: u64,
}

impl PausableSender {
    fn boxed(packets: u32, obeys: bool) -> Box<Self> {
        Box::new(Self { obeys, left: packets, paused: false, pauses: Vec::new(), received: 0 })
    }

    /// A packet of IPv4 with class selector 0, for level 0.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0; BYTES];
        packet[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        packet
    }
}

impl NetworkEndpoint for PausableSender {
    fn receive_packet(&mut self, _: u32, _: &[u8], _: Nanos, _: &mut EndpointOutbox) {
        self.received += 1;
    }

    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox) {
        if self.left > 0 && !(self.paused && self.obeys) {
            self.left -= 1;
            out.send_packet(0, &Self::packet());
            out.set_timer(now + MICROSECOND, token);
        }
    }

    fn handle_pause(&mut self, pause: NicPause, now: Nanos, out: &mut EndpointOutbox) {
        self.pauses.push((now, pause.pause));
        self.paused = pause.pause == LevelPause::Begins;
        if !self.paused {
            out.set_timer(now, 0);
        }
    }
}

struct IncastNetwork {
    network: EmulatedNetworkHandle,
    senders: Vec<EndpointHandle>,
    sink: EndpointHandle,
    slow: WireIndex,
}

impl IncastNetwork {
    /// Two senders of 10 Gbit/s at ports 1 and 3, and a sink of 1 Gbit/s at port 2.
    async fn start(traffic: TrafficSettings, obeys: bool) -> Self {
        let mut builder = EmulatedNetworkBuilder::new();
        let device = builder.add_device_with_traffic(config(1), traffic);
        let fast = WireSpec {
            bits_per_second: 10 * GIGABIT,
            delay_ns: MICROSECOND,
            queue: QueueLimits::of_bytes(u64::MAX),
        };
        let mut endpoints = Vec::new();
        for port in [1, 3] {
            let sender = builder.add_endpoint(PausableSender::boxed(400, obeys));
            let ends = (WireEnd::Nic(sender, 0), WireEnd::Device(device, port));
            builder.connect_wire(ends.0, ends.1, fast).unwrap();
            endpoints.push(sender);
        }
        let sink = builder.add_endpoint(PausableSender::boxed(0, true));
        let wire = WireSpec { bits_per_second: GIGABIT, ..fast };
        let ends = (WireEnd::Device(device, 2), WireEnd::Nic(sink, 0));
        let slow = builder.connect_wire(ends.0, ends.1, wire).unwrap();
        let network = builder.spawn().unwrap();
        let program = Program::from_json(include_bytes!("../programs/queue.json")).unwrap();
        let load = move |device: &mut switch::Device| device.load_program(Arc::new(program));
        network.device(DeviceIndex(0)).with_device(load).await.unwrap();
        let handle = |endpoint: EndpointIndex| network.endpoint(endpoint);
        let senders: Vec<_> = endpoints.into_iter().map(handle).collect();
        for sender in &senders {
            let start =
                |_: &mut PausableSender, now, out: &mut EndpointOutbox| out.set_timer(now, 0);
            sender.with_endpoint(start).await.unwrap();
        }
        let sink = network.endpoint(sink);
        Self { network, senders, sink, slow }
    }

    /// What the sink has, and what the buffer has seen, after 20 ms.
    async fn finish(&self) -> (u64, BufferCounts) {
        self.network.run_until(20_000 * MICROSECOND).await.unwrap();
        let received = self.sink.with_endpoint(|sink: &mut PausableSender, _, _| sink.received);
        let counts = self.network.buffer_counts(DeviceIndex(0)).await.unwrap();
        (received.await.unwrap(), counts.unwrap())
    }
}

fn traffic(bytes: u64, lossless: u8) -> TrafficSettings {
    let buffer = BufferSettings {
        bytes,
        reserve_bytes: 0,
        alpha: 0.5,
        lossless,
        xon_offset_bytes: 2 * BYTES as u64,
        mtu_bytes: BYTES as u64,
    };
    TrafficSettings { buffer: Some(buffer), ..TrafficSettings::default() }
}

#[tokio::test]
async fn senders_that_obey_lose_nothing_in_a_small_buffer() {
    let funnel = IncastNetwork::start(traffic(60_000, 1), true).await;
    let (received, counts) = funnel.finish().await;
    assert_eq!((received, counts.refused.len()), (800, 0));
    assert!(counts.pauses[&(1, 0)] > 1 && counts.pauses[&(3, 0)] > 1, "{counts:?}");
    for sender in &funnel.senders {
        let seen = sender.with_endpoint(|sender: &mut PausableSender, _, _| sender.pauses.clone());
        let seen = seen.await.unwrap();
        // They alternate, and every pause has ended.
        let kinds: Vec<_> = seen.iter().map(|(_, kind)| *kind).collect();
        assert!(kinds.chunks(2).all(|two| two == [LevelPause::Begins, LevelPause::Ends]));
        assert!(seen.iter().zip(&seen[1..]).all(|(one, next)| one.0 < next.0));
    }
    // The slow wire was never idle: 800 packets of 10 us, and the first one's way.
    let slow = funnel.network.wire_counts(funnel.slow).await.unwrap();
    assert_eq!(slow[0].levels[0].sent.packets, 800);
}

#[tokio::test]
async fn senders_that_do_not_obey_fill_the_headroom_and_lose_the_rest() {
    let funnel = IncastNetwork::start(traffic(60_000, 1), false).await;
    let (received, counts) = funnel.finish().await;
    let refused: u64 = counts.refused.values().sum();
    assert!(refused > 0 && received + refused == 800, "{received} {counts:?}");
    let slow = funnel.network.wire_counts(funnel.slow).await.unwrap();
    assert_eq!(slow[0].levels[0].dropped.packets, refused);
}

#[tokio::test]
async fn lossy_levels_drop_and_pause_nobody() {
    let funnel = IncastNetwork::start(traffic(60_000, 0), true).await;
    let (received, counts) = funnel.finish().await;
    let refused: u64 = counts.refused.values().sum();
    assert!(counts.pauses.is_empty() && refused > 0 && received + refused == 800, "{counts:?}");
}

/// Two switches in a row, of which the second's slow port is paused for ever: its queue fills, the
/// first switch is paused, and where pauses have a limit, that breaks them.
#[tokio::test]
async fn a_pause_storm_is_broken_where_pauses_have_a_limit() {
    for (limit, arrives) in [(None, 800), (Some(100 * MICROSECOND), 0)] {
        let settings = TrafficSettings { pause_limit_ns: limit, ..traffic(60_000, 1) };
        let mut builder = EmulatedNetworkBuilder::new();
        let devices =
            [1, 2].map(|id| builder.add_device_with_traffic(config(id), settings.clone()));
        let sender = builder.add_endpoint(PausableSender::boxed(800, true));
        let sink = builder.add_endpoint(PausableSender::boxed(0, true));
        let fast = WireSpec {
            bits_per_second: 10 * GIGABIT,
            delay_ns: MICROSECOND,
            queue: QueueLimits::of_bytes(u64::MAX),
        };
        let slow = WireSpec { bits_per_second: GIGABIT / 100, ..fast };
        let ends = [
            (WireEnd::Nic(sender, 0), WireEnd::Device(devices[0], 1), fast),
            (WireEnd::Device(devices[0], 2), WireEnd::Device(devices[1], 1), fast),
            (WireEnd::Device(devices[1], 2), WireEnd::Nic(sink, 0), slow),
        ];
        let wires = ends.map(|(a, b, wire)| builder.connect_wire(a, b, wire).unwrap());
        let network = builder.spawn().unwrap();
        for device in 0..2 {
            let json = include_bytes!("../programs/queue.json");
            let program = Arc::new(Program::from_json(json).unwrap());
            let load = move |device: &mut switch::Device| device.load_program(program);
            network.device(DeviceIndex(device)).with_device(load).await.unwrap();
        }
        let start = |_: &mut PausableSender, now, out: &mut EndpointOutbox| out.set_timer(now, 0);
        network.endpoint(sender).with_endpoint(start).await.unwrap();
        network.run_until(1_000_000 * MICROSECOND).await.unwrap();
        let between = network.wire_counts(wires[1]).await.unwrap();
        let counts = between[0].levels[0];
        assert!(counts.pauses > 0, "{counts:?}");
        let received = network.endpoint(sink);
        let received = received.with_endpoint(|sink: &mut PausableSender, _, _| sink.received);
        assert_eq!(received.await.unwrap() + counts.storm_drops, 800, "{counts:?}");
        assert_eq!(counts.storm_drops == 0, arrives == 800, "{counts:?}");
    }
}
