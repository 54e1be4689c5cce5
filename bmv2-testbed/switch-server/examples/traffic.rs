//! Sends and counts packets on interfaces, for measuring switches: `traffic < ORDER.json`.
//!
//! ```json
//! {"seconds": 10,
//!  "senders": [{"interface": "h1", "src": "10.0.0.1", "dst": "10.0.1.1", "first_port": 49152,
//!               "flows": 100, "bytes": 1400, "per_second": 700}],
//!  "counters": ["h4"]}
//! ```
//!
//! Addresses are of IPv4 or IPv6. A sender takes its flows, UDP source ports from `first_port` on,
//! in turn; with `per_second` 0 it sends as fast as the interface takes them. Prints what each
//! sender sent and what each counter received of each of the senders, after the first second and
//! before the end: packets and bytes.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use switch::ports::{FrameBatch, PacketSocket};

#[derive(Deserialize)]
struct Order {
    seconds: f64,
    senders: Vec<Sender>,
    counters: Vec<String>,
}

#[derive(Clone, Deserialize)]
struct Sender {
    interface: String,
    src: IpAddr,
    dst: IpAddr,
    first_port: u16,
    flows: u16,
    bytes: usize,
    per_second: f64,
}

#[derive(Serialize)]
struct Answer {
    sent: Vec<u64>,
    /// By interface, then by source address.
    received: BTreeMap<String, BTreeMap<IpAddr, Received>>,
    /// Over which was counted.
    counted_seconds: f64,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Received {
    packets: u64,
    bytes: u64,
}

type TrafficError = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), TrafficError> {
    let order: Order = serde_json::from_reader(std::io::stdin())?;
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(order.seconds);
    let counters: Vec<_> = order
        .counters
        .iter()
        .map(|interface| {
            let (name, stop) = (interface.clone(), Arc::clone(&stop));
            (interface.clone(), thread::spawn(move || count(&name, start, end, &stop)))
        })
        .collect();
    let senders: Vec<_> = order
        .senders
        .iter()
        .cloned()
        .map(|sender| thread::spawn(move || send(&sender, start, end)))
        .collect();
    let mut sent = Vec::new();
    for sender in senders {
        sent.push(sender.join().map_err(|_| "a sender panicked")??);
    }
    stop.store(true, Ordering::Relaxed);
    let mut received = BTreeMap::new();
    for (interface, counter) in counters {
        received.insert(interface, counter.join().map_err(|_| "a counter panicked")??);
    }
    let counted_seconds = order.seconds - 1.0;
    let answer = Answer { sent, received, counted_seconds };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// Sends at a constant rate until the end; how many packets.
fn send(sender: &Sender, start: Instant, end: Instant) -> Result<u64, TrafficError> {
    let socket = PacketSocket::open(&sender.interface)?;
    let packets = (0..sender.flows).map(|flow| packet(sender, flow));
    let packets: Vec<Vec<u8>> = packets.collect::<Result<_, _>>()?;
    let mut turn = packets.iter().cycle();
    let (mut queue, mut gone, mut refused) = (VecDeque::new(), Vec::new(), Vec::new());
    let mut sent = 0_u64;
    while Instant::now() < end {
        let due = match sender.per_second {
            0.0 => 64,
            rate => ((start.elapsed().as_secs_f64() * rate) as u64).saturating_sub(sent).min(64),
        };
        queue.extend(turn.by_ref().take(due as usize).cloned());
        socket.send_packets(&mut queue, &mut gone, &mut refused);
        sent += due - queue.len() as u64;
        queue.clear();
        gone.clear();
        refused.clear();
        if sender.per_second > 0.0 {
            thread::sleep(Duration::from_secs_f64((1.0 / sender.per_second).min(0.001)));
        }
    }
    Ok(sent)
}

/// Counts from the first second on.
fn count(
    interface: &str,
    start: Instant,
    end: Instant,
    stop: &AtomicBool,
) -> Result<BTreeMap<IpAddr, Received>, TrafficError> {
    let socket = PacketSocket::open(interface)?;
    let mut batch = FrameBatch::default();
    let mut received: BTreeMap<IpAddr, Received> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let count = socket.receive_batch(&mut batch)?;
        let now = Instant::now();
        let counts = now < end && now > start + Duration::from_secs(1);
        for frame in batch.frames(count).flatten() {
            let Some(source) = source_address(frame).filter(|_| counts) else {
                continue;
            };
            let entry = received.entry(source).or_default();
            entry.packets += 1;
            entry.bytes += frame.len() as u64;
        }
        if count == 0 {
            thread::sleep(Duration::from_micros(500));
        }
    }
    Ok(received)
}

fn source_address(frame: &[u8]) -> Option<IpAddr> {
    match frame.get(12..14)? {
        [0x08, 0x00] => {
            let octets: [u8; 4] = frame.get(26..30)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        [0x86, 0xdd] => {
            let octets: [u8; 16] = frame.get(22..38)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// A packet of UDP to port 4791.
fn packet(sender: &Sender, flow: u16) -> Result<Vec<u8>, TrafficError> {
    let mut packet = vec![2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1];
    let length = match (sender.src, sender.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet.extend([0x08, 0x00]);
            packet.extend(ipv4_header(src, dst, (sender.bytes - 14) as u16));
            sender.bytes - 14 - 20
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let length = sender.bytes - 14 - 40;
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend((length as u16).to_be_bytes());
            packet.extend([17, 64]);
            packet.extend(src.octets());
            packet.extend(dst.octets());
            length
        }
        (src, dst) => return Err(format!("{src} and {dst} are of two IP versions").into()),
    };
    packet.extend((sender.first_port + flow).to_be_bytes());
    packet.extend(4791_u16.to_be_bytes());
    packet.extend((length as u16).to_be_bytes());
    packet.resize(sender.bytes, 0);
    Ok(packet)
}

fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr, length: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}
