//! Between ingress and egress: what a program learns of its queue, and what the queue does.

use std::num::NonZeroU64;
use std::sync::Arc;

use switch::{
    CounterData, DeviceHandle, DeviceIndex, EmulatedNetworkBuilder, EmulatedNetworkHandle,
    EndpointOutbox, Nanos, NetworkEndpoint, Program, QueueLimits, WireEnd, WireIndex, WireSpec,
};

use super::support::{MILLISECOND, config, internet_checksum};

/// On a wire of 1 Mbit/s, one millisecond.
const BYTES: usize = 125;
const NOT_ECT: u8 = 0;
const ECT: u8 = 2;
const CE: u8 = 3;

/// Keeps what it receives.
#[derive(Default)]
struct Sink(Vec<(Nanos, Vec<u8>)>);

impl NetworkEndpoint for Sink {
    fn receive_packet(&mut self, _nic: u32, packet: &[u8], now: Nanos, _out: &mut EndpointOutbox) {
        self.0.push((now, packet.to_vec()));
    }

    fn handle_timer(&mut self, _token: u64, _now: Nanos, _out: &mut EndpointOutbox) {}
}

/// A switch that runs `queue.p4`, with a slow wire at port 2.
async fn start(queue: QueueLimits) -> (EmulatedNetworkHandle, DeviceHandle) {
    let mut builder = EmulatedNetworkBuilder::new();
    let device = builder.add_device(config(1));
    let sink = builder.add_endpoint(Box::new(Sink::default()));
    let wire = WireSpec { bits_per_second: 1_000_000, delay_ns: 0, queue };
    let ends = (WireEnd::Device(device, 2), WireEnd::Nic(sink, 0));
    builder.connect_wire(ends.0, ends.1, wire).unwrap();
    let fabric = builder.spawn().unwrap();
    let device = fabric.device(DeviceIndex(0));
    let program = Program::from_json(include_bytes!("../programs/queue.json")).unwrap();
    let load = move |device: &mut switch::Device| device.load_program(Arc::new(program));
    device.with_device(load).await.unwrap();
    (fabric, device)
}

/// A packet of IPv4 at a level.
fn packet(level: u8, ecn: u8) -> Vec<u8> {
    let mut packet = vec![0; BYTES];
    packet[11] = level;
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..16].copy_from_slice(&[0x45, ecn]);
    let sum = internet_checksum(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// What arrived: milliseconds, depth found, milliseconds waited, depth left, ECN.
async fn arrived(fabric: &EmulatedNetworkHandle) -> Vec<(Nanos, u32, u32, u32, u8)> {
    fabric.run_until(20 * MILLISECOND).await.unwrap();
    let sink = fabric.endpoint(switch::EndpointIndex(0));
    let packets = sink.with_endpoint(|sink: &mut Sink, _, _| std::mem::take(&mut sink.0));
    let packets = packets.await.unwrap();
    let read = |(at, packet): &(Nanos, Vec<u8>)| {
        assert_eq!(internet_checksum(&packet[14..34]), 0);
        let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        (at / MILLISECOND, word(0), word(4) / 1_000, word(8), packet[15])
    };
    packets.iter().map(read).collect()
}

async fn offer(device: &DeviceHandle, packets: &[(u8, u8)]) {
    for (level, ecn) in packets {
        device.inject_packet(1, packet(*level, *ecn)).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_learns_how_long_a_packet_waited_and_behind_how_many() {
    let (fabric, device) = start(QueueLimits::of_bytes(10_000)).await;
    offer(&device, &[(0, 0), (0, 0), (0, 0), (1, 0)]).await;
    let seen = arrived(&fabric).await;
    let first = (1, 0, 0, 0, NOT_ECT);
    let overtaking = (2, 2, 1, 2, NOT_ECT);
    assert_eq!(seen, [first, overtaking, (3, 0, 2, 1, 0), (4, 1, 3, 0, 0)]);
}

#[tokio::test]
async fn packets_dropped_by_a_full_queue_are_not_counted_at_egress() {
    let (fabric, device) = start(QueueLimits::of_bytes(2 * BYTES as u64)).await;
    offer(&device, &[(0, 0); 4]).await;
    assert_eq!(arrived(&fabric).await.len(), 3);
    let counted = device.with_device(|device| {
        let left = device.program().unwrap().counter_named("EgressImpl.left");
        device.counter_cells(left.unwrap()).unwrap()[0].packets
    });
    assert_eq!(counted.await, Ok(3));
    let counts = fabric.wire_counts(WireIndex(0)).await.unwrap();
    let level = counts[0].levels[0];
    assert_eq!((level.dropped.packets, level.sent.packets), (1, 3));
    let (empty, deepest) = (CounterData::default(), 2 * BYTES as u64);
    assert_eq!((level.depth, level.deepest), (empty, deepest));
}

#[tokio::test]
async fn packets_of_ecn_capable_senders_are_marked_above_the_threshold() {
    let limits = QueueLimits { bytes: 10_000, mark_from: NonZeroU64::new(BYTES as u64) };
    let (fabric, device) = start(limits).await;
    offer(&device, &[(0, ECT), (0, ECT), (0, ECT), (0, NOT_ECT)]).await;
    let ecn: Vec<u8> = arrived(&fabric).await.iter().map(|seen| seen.4).collect();
    assert_eq!(ecn, [ECT, ECT, CE, NOT_ECT]);
    let counts = fabric.wire_counts(WireIndex(0)).await.unwrap();
    assert_eq!(counts[0].levels[0].marked, 2);
}

#[tokio::test]
async fn a_program_that_is_replaced_takes_its_queue_with_it() {
    let (fabric, device) = start(QueueLimits::of_bytes(10_000)).await;
    offer(&device, &[(0, 0); 3]).await;
    let again = |device: &mut switch::Device| {
        let program = Arc::clone(device.program().unwrap());
        device.load_program(program);
    };
    device.with_device(again).await.unwrap();
    assert_eq!(arrived(&fabric).await.len(), 1);
    let counts = device.with_device(|device| device.counts()).await.unwrap();
    assert_eq!((counts.sent, counts.dropped_without_program), (1, 2));
}
