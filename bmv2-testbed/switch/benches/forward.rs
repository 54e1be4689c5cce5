//! Switch hops per second on fabric.p4: one device alone, and a fabric of leaves and spines.
//!
//! `cargo bench -p switch --bench forward`. A hop is one packet through one device; the tables hold
//! 16,000 pins, as in the figures for simple_switch (docs: the data plane).

#![allow(missing_docs, reason = "criterion's macros declare public functions")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot set itself up ends there"
)]

#[path = "../tests/data_plane/support.rs"]
#[allow(dead_code, reason = "shared with the tests, which use all of it")]
mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use switch::{
    Device, DeviceIndex, Endpoint, FabricBuilder, FabricHandle, KeyField, Nanos, Outbox, Outputs,
    Port, Wire,
};

use support::{ByName, FLOW, Flow, LEAF, config, exact, pin_key, prefix, program};

const PACKETS: u64 = 1024;

/// A leaf with 16,000 pins over 64 paths, of which the packets use every fifteenth.
fn pinned_leaf() -> Device {
    let mut leaf = support::leaf();
    for path in 0..64 {
        let ports = [10 + u128::from(path) % 4, 10 + u128::from(path + 1) % 4];
        leaf.add(
            "path",
            &[KeyField::Exact(LEAF), exact(path)],
            "to_uplink",
            &ports,
        );
    }
    for pin in 0..16_000_u16 {
        let arguments = [u128::from(pin % 64), u128::from(pin % 100 + 1)];
        leaf.add(
            "flow_pin",
            &pin_key(Flow { sport: pin, ..FLOW }),
            "pin",
            &arguments,
        );
    }
    for job in 1..=100 {
        leaf.add(
            "job_qos",
            &[exact(job)],
            "set_class",
            &[u128::from(job % 8), 8],
        );
    }
    leaf
}

fn one_device(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("device");
    group.throughput(Throughput::Elements(PACKETS));
    for bytes in [128, 1400] {
        let pinned = |n: u64| {
            Flow {
                sport: (n * 15) as u16,
                ..FLOW
            }
            .packet(bytes)
        };
        let unpinned = |n: u64| {
            Flow {
                sport: 0xc000 + n as u16,
                ..FLOW
            }
            .packet(bytes)
        };
        let cases: [(&str, Vec<Vec<u8>>); 2] = [
            ("pinned", (0..PACKETS).map(pinned).collect()),
            ("ecmp", (0..PACKETS).map(unpinned).collect()),
        ];
        for (name, packets) in cases {
            let mut leaf = pinned_leaf();
            let mut out = Outputs::default();
            group.bench_function(format!("{name}/{bytes}"), |run| {
                run.iter(|| forward_all(&mut leaf, &packets, &mut out));
            });
        }
    }
    group.finish();
}

fn forward_all(leaf: &mut Device, packets: &[Vec<u8>], out: &mut Outputs) {
    for packet in packets {
        leaf.process(1, packet, 0, out);
        while let Some(output) = out.packets.pop() {
            out.recycle(output.packet);
        }
    }
}

/// Sends one packet of one of 64 flows every interval, for ever.
struct Source {
    packets: Vec<Vec<u8>>,
    interval: Nanos,
}

impl Endpoint for Source {
    fn receive(&mut self, _nic: u32, _packet: &[u8], _now: Nanos, _out: &mut Outbox) {}

    fn timer(&mut self, token: u64, now: Nanos, out: &mut Outbox) {
        out.send(0, &self.packets[(token % 64) as usize]);
        out.set_timer(now + self.interval, token + 1);
    }
}

const LEAVES: u16 = 8;
const HOSTS: u16 = 4;
const SPINES: u16 = 4;

fn host_ip(leaf: u16, host: u16) -> u32 {
    0x0a00_0000 | u32::from(leaf) << 8 | u32::from(host)
}

/// 8 leaves, 4 spines, 32 hosts at 80 % load on 10 Gbit/s; every packet takes three hops.
async fn network() -> FabricHandle {
    let mut builder = FabricBuilder::new();
    for id in 0..LEAVES + SPINES {
        builder.add_device(config(u64::from(id)));
    }
    let wire = Wire {
        bits_per_second: 10_000_000_000,
        delay_ns: 1_000,
        queue_bytes: 150_000,
    };
    let mut hosts = Vec::new();
    for leaf in 0..LEAVES {
        for host in 0..HOSTS {
            let dst = host_ip((leaf + 1 + host) % LEAVES, host);
            let flow = Flow {
                src: host_ip(leaf, host),
                dst,
                ..FLOW
            };
            let packet = |n| Flow { sport: n, ..flow }.packet(1000);
            let source = Source {
                packets: (0..64).map(packet).collect(),
                interval: 1_000,
            };
            let endpoint = builder.add_endpoint(Box::new(source));
            let port = Port::Device(DeviceIndex(u32::from(leaf)), 1 + host);
            builder
                .connect(Port::Nic(endpoint, 0), port, wire)
                .expect("both ends are free");
            hosts.push(endpoint);
        }
        for spine in 0..SPINES {
            let up = Port::Device(DeviceIndex(u32::from(leaf)), 100 + spine);
            let down = Port::Device(DeviceIndex(u32::from(LEAVES + spine)), 1 + leaf);
            builder.connect(up, down, wire).expect("both ends are free");
        }
    }
    let fabric = builder.spawn().expect("a thread");
    for id in 0..LEAVES + SPINES {
        let device = fabric.device(DeviceIndex(u32::from(id)));
        device
            .with(move |device| configure(device, id))
            .await
            .expect("the fabric runs");
    }
    for (at, host) in hosts.into_iter().enumerate() {
        let start = move |_: &mut Source, now, out: &mut Outbox| out.set_timer(now + at as u64, 0);
        fabric
            .endpoint(host)
            .with(start)
            .await
            .expect("the fabric runs");
    }
    fabric
}

fn configure(device: &mut Device, id: u16) {
    device.load(program());
    if id < LEAVES {
        for host in 0..HOSTS {
            let to = [u128::from(1 + host), 2];
            device.add("local_host", &[exact(host_ip(id, host))], "to_host", &to);
        }
        device.add(
            "dst_leaf",
            &[prefix(0x0a00_0000, 8)],
            "set_dst_leaf",
            &[LEAF],
        );
        device.ecmp(1, &[100, 101, 102, 103]);
    } else {
        for leaf in 0..LEAVES {
            for host in 0..HOSTS {
                let to = [u128::from(1 + leaf), 2];
                device.add("local_host", &[exact(host_ip(leaf, host))], "to_host", &to);
            }
        }
    }
}

fn whole_fabric(bench: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let fabric = runtime.block_on(network());
    let mut until = 1_000_000;
    runtime
        .block_on(fabric.run_until(until))
        .expect("the fabric runs");
    let mut group = bench.benchmark_group("fabric");
    // Each millisecond 32 hosts send 1000 packets over three hops.
    group.throughput(Throughput::Elements(32 * 1000 * 3));
    group.sample_size(20);
    group.bench_function("one_millisecond", |run| {
        run.iter(|| {
            until += 1_000_000;
            runtime
                .block_on(fabric.run_until(until))
                .expect("the fabric runs");
        });
    });
    group.finish();
    runtime.block_on(fabric.stop());
}

criterion_group!(benches, one_device, whole_fabric);
criterion_main!(benches);
