//! Ports on this machine: capture files everywhere, veth pairs where the test is run as root.
//!
//! Of two devices that are joined by two veth pairs, one forwards and the other stands for hosts:
//! it sends by packet-out and counts what it receives.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use switch::PortNames;
use switch::ports::{
    self, FrameBatch, PacketSocket, PortConfig, PortMedium, PortShape, PortState, PortStatus,
    PortsError, PortsHandle, PortsOptions,
};
use switch::{
    BufferSettings, Device, DeviceCounts, LldpIdentity, LldpNeighbour, PauseFrame, Program,
    QueueLimits, TrafficSettings,
};

use super::support::{ByName, CPU, FLOW, HERE, THERE, device, exact};

const TIMEOUT: Duration = Duration::from_secs(20);

/// `HERE` is behind port 1 and `THERE` behind port 2.
fn switch_of_two_hosts() -> Device {
    let mut switch = device();
    for (port, host) in [(1, HERE), (2, THERE)] {
        switch.add("local_host", &[exact(host)], "to_host", &[port, 0x0200_0000_0009]);
    }
    switch
}

fn interface(number: u16, name: &str) -> PortConfig {
    PortConfig {
        number,
        medium: PortMedium::Interface(name.to_owned()),
        shape: PortShape::default(),
    }
}

fn options(ports: Vec<PortConfig>) -> PortsOptions {
    PortsOptions { ports, ..PortsOptions::default() }
}

/// Waits until the ports look as wanted, and gives them.
async fn await_ports(
    ports: &PortsHandle,
    wanted: impl Fn(&[PortStatus]) -> bool,
) -> Vec<PortStatus> {
    let observation = async {
        loop {
            let status = ports.status().await.unwrap();
            if wanted(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(TIMEOUT, observation).await;
    match seen {
        Ok(status) => status,
        Err(_) => panic!("not as wanted: {:?}", ports.status().await),
    }
}

fn write_capture(file: &Path, packets: &[(u64, Vec<u8>)]) {
    let mut writer = PcapWriter::new(File::create(file).unwrap()).unwrap();
    for (millis, packet) in packets {
        let time = Duration::from_millis(*millis);
        let packet = PcapPacket::new(time, packet.len() as u32, packet);
        writer.write_packet(&packet).unwrap();
    }
}

/// The packets of a file, which must be complete.
fn read_capture(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.push(packet.unwrap().data.into_owned());
    }
    packets
}

/// `queue.p4` sends everything to port 2, which is attached to nothing here, and counts it.
#[tokio::test]
async fn egress_counts_packets_for_a_port_without_an_interface() {
    let mut device = Device::new(super::support::config(1));
    let program = include_bytes!("../programs/queue.json");
    device.load_program(Arc::new(Program::from_json(program).unwrap()));
    let ports = ports::spawn_ports(device, &options(Vec::new())).unwrap();
    for _ in 0..3 {
        ports.device().inject_packet(1, FLOW.packet(100)).await.unwrap();
    }
    let device = ports.device();
    let counted = device.with_device(|device| {
        let left = device.program().unwrap().counter_named("EgressImpl.left").unwrap();
        let cells = device.counter_cells(left).unwrap();
        cells.iter().map(|cell| cell.packets).sum::<u64>()
    });
    assert_eq!(counted.await.unwrap(), 3);
    ports.stop().await;
}

/// A TUN interface carries no Ethernet frames.
#[test]
fn an_interface_without_an_ethernet_address_is_refused_with_the_reason() {
    let name = format!("tun{}", std::process::id() % 100_000);
    if !ip(&["tuntap", "add", "dev", &name, "mode", "tun"]) {
        eprintln!("skipped: TUN interfaces need root (CAP_NET_ADMIN) and the ip command");
        return;
    }
    let opened = PacketSocket::open(&name);
    ip(&["link", "del", &name]);
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
    assert_eq!(PacketSocket::open(&name).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn packets_of_capture_files_are_forwarded_in_the_order_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let numbered = |sport| super::support::Flow { sport, ..FLOW }.packet(100);
    write_capture(&file("a_in.pcap"), &[(1, numbered(1)), (3, numbered(3))]);
    write_capture(&file("b_in.pcap"), &[(2, numbered(2)), (4, numbered(4))]);
    let port = |number, name: &str| PortConfig {
        number,
        medium: PortMedium::Files {
            input: file(&format!("{name}_in.pcap")),
            output: file(&format!("{name}_out.pcap")),
        },
        shape: PortShape::default(),
    };
    let ports = vec![port(1, "a"), port(2, "b")];
    let ports = ports::spawn_ports(switch_of_two_hosts(), &options(ports)).unwrap();
    await_ports(&ports, |status| status[1].sent.packets == 4).await;
    // Files are complete once the ports have stopped.
    ports.stop().await;
    let source_ports = read_capture(&file("b_out.pcap"));
    let source_ports: Vec<u8> = source_ports.iter().map(|packet| packet[35]).collect();
    assert_eq!(source_ports, [1, 2, 3, 4]);
    assert!(read_capture(&file("a_out.pcap")).is_empty());
}

#[test]
fn ports_that_cannot_be_had_are_named() {
    let refused = |port| ports::spawn_ports(device(), &options(vec![port])).unwrap_err();
    let missing = refused(interface(1, "no-such-port"));
    // Without the right to open packet sockets that is what it says; the name is there anyhow.
    assert!(missing.to_string().contains("no-such-port"), "{missing}");
    for (number, config) in [(512, "lo"), (CPU, "lo")] {
        let error = refused(interface(number, config));
        assert!(matches!(error, PortsError::Number(refused, _) if refused == number));
    }
    let file = PortConfig {
        medium: PortMedium::Files { input: "/no/such/file".into(), output: "/no/such/file".into() },
        ..interface(1, "")
    };
    assert!(matches!(refused(file), PortsError::Capture { .. }));
}

/// Two veth pairs, `swN` and `hoN` with a mark of the test in their names; gone when dropped.
struct Cables {
    mark: String,
}

impl Cables {
    /// `None`, and a line that says so, where this process may not make them.
    fn lay(test: &str) -> Option<Self> {
        let mark = format!("{test}{}", std::process::id() % 100_000);
        let cables = Self { mark };
        for number in 1..=2 {
            if !cables.lay_one(number) {
                eprintln!("skipped: veth pairs need root (CAP_NET_ADMIN) and the ip command");
                return None;
            }
        }
        Some(cables)
    }

    fn lay_one(&self, number: u16) -> bool {
        let (near, far) = (self.switch(number), self.host(number));
        let made = ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]);
        if made {
            for end in [&near, &far] {
                let quiet = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
                // A kernel without IPv6 is quiet already.
                let _absent = std::fs::write(quiet, "1");
                assert!(ip(&["link", "set", end, "up"]));
            }
        }
        made
    }

    fn switch(&self, number: u16) -> String {
        format!("sw{number}{}", self.mark)
    }

    fn host(&self, number: u16) -> String {
        format!("ho{number}{}", self.mark)
    }

    /// The device that forwards and the one that stands for hosts.
    fn devices(&self) -> (PortsHandle, PortsHandle) {
        let ports = |name: fn(&Self, u16) -> String| {
            let port = |number| interface(number, &name(self, number));
            options(vec![port(1), port(2)])
        };
        let switch = ports::spawn_ports(switch_of_two_hosts(), &ports(Self::switch)).unwrap();
        let hosts = ports::spawn_ports(device(), &ports(Self::host)).unwrap();
        (switch, hosts)
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for number in 1..=2 {
            ip(&["link", "del", &self.switch(number)]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// Sends a packet out of a port of the device that stands for hosts.
async fn send(hosts: &PortsHandle, port: u16, packet: &[u8]) {
    let mut out = vec![(port >> 1) as u8, (port << 7) as u8];
    out.extend_from_slice(packet);
    hosts.device().send_packet_out(out).await.unwrap();
}

#[tokio::test]
async fn packets_cross_veth_pairs() {
    let Some(cables) = Cables::lay("a") else {
        return;
    };
    let (switch, hosts) = cables.devices();
    for _ in 0..500 {
        send(&hosts, 1, &FLOW.packet(1400)).await;
    }
    let seen = await_ports(&hosts, |ports| ports[1].received.packets == 500).await;
    assert_eq!((seen[0].received.packets, seen[1].received.bytes), (0, 500 * 1400));
    let counts: DeviceCounts = switch.device_counts().await.unwrap();
    assert_eq!((counts.received, counts.sent), (500, 500));
    switch.stop().await;
    hosts.stop().await;
}

/// LLDP frames are the switch's own: neighbours hear of it, and its program sees none.
#[tokio::test]
async fn neighbours_know_each_other_by_lldp() {
    let Some(cables) = Cables::lay("f") else {
        return;
    };
    let start = |system: &str, name: fn(&Cables, u16) -> String, device: Device| {
        let port = |number| interface(number, &name(&cables, number));
        let port_names = PortNames::new([(2, format!("{system}-two"))]).unwrap();
        let lldp = Some(LldpIdentity { system: system.to_owned(), port_names });
        let options = PortsOptions { lldp, ..options(vec![port(1), port(2)]) };
        ports::spawn_ports(device, &options).unwrap()
    };
    let switch = start("leaf1", Cables::switch, switch_of_two_hosts());
    let other = start("spine1", Cables::host, device());
    for (ports, system) in [(&switch, "spine1"), (&other, "leaf1")] {
        let seen =
            await_ports(ports, |ports| ports.iter().all(|port| port.neighbour.is_some())).await;
        let known = seen.into_iter().filter_map(|port| port.neighbour);
        let expected = ["Ethernet1".to_owned(), format!("{system}-two")]
            .map(|port| LldpNeighbour { system: system.to_owned(), port });
        assert_eq!(known.collect::<Vec<_>>(), expected);
        assert_eq!(ports.device_counts().await.unwrap().received, 0);
    }
    switch.stop().await;
    other.stop().await;
}

/// The kernel takes the outer tag out of a frame on its way in.
#[test]
fn frames_keep_their_vlan_tags() {
    let Some(cables) = Cables::lay("d") else {
        return;
    };
    let near = PacketSocket::open(&cables.switch(1)).unwrap();
    let far = PacketSocket::open(&cables.host(1)).unwrap();
    let tags: [&[u8]; 4] = [
        &[],
        &[0x81, 0x00, 0x20, 0x64],
        &[0x88, 0xa8, 0x00, 0x65, 0x81, 0x00, 0x00, 0x66],
        // A priority tag: VLAN 0.
        &[0x81, 0x00, 0xe0, 0x00],
    ];
    let plain = FLOW.packet(100);
    let frames = tags.map(|tags| [&plain[..12], tags, &plain[12..]].concat());
    let (mut sent, mut refused) = (Vec::new(), Vec::new());
    far.send_packets(&mut frames.to_vec().into(), &mut sent, &mut refused);
    assert_eq!((sent.len(), refused.len()), (frames.len(), 0));
    let mut batch = FrameBatch::default();
    let mut received: Vec<Vec<u8>> = Vec::new();
    let started = std::time::Instant::now();
    while received.len() < frames.len() && started.elapsed() < TIMEOUT {
        let count = near.receive_batch(&mut batch).unwrap();
        received.extend(batch.frames(count).map(|frame| frame.unwrap().to_vec()));
    }
    assert_eq!(received, frames);
}

/// A switch with a small buffer between a fast host and a slow port of 1 Mbit/s: it pauses the
/// host by frames, and obeys those of the other host.
#[tokio::test]
async fn interfaces_are_paused_by_frames_and_obey_them() {
    let Some(cables) = Cables::lay("e") else {
        return;
    };
    let slow = PortShape {
        bits_per_second: NonZeroU64::new(1_000_000),
        queue: QueueLimits::of_bytes(u64::MAX),
    };
    let ports = [1, 2]
        .map(|number| PortConfig { shape: slow, ..interface(number, &cables.switch(number)) });
    let buffer = BufferSettings {
        bytes: 60_000,
        reserve_bytes: 0,
        xon_offset_bytes: 1_000,
        mtu_bytes: 1_000,
        ..BufferSettings::lossless_levels(1)
    };
    let traffic = TrafficSettings { buffer: Some(buffer), ..TrafficSettings::default() };
    let options = PortsOptions { traffic: Some(traffic), ..options(ports.to_vec()) };
    let switch = ports::spawn_ports(switch_of_two_hosts(), &options).unwrap();
    let [fast, far] = [1, 2].map(|number| PacketSocket::open(&cables.host(number)).unwrap());
    let send = |socket: &PacketSocket, frames: Vec<Vec<u8>>| {
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        socket.send_packets(&mut frames.into(), &mut sent, &mut refused);
        sent.len()
    };
    // Ten milliseconds each on the slow port. Five fill an eighth of what is free, and one finds
    // headroom.
    let data = vec![FLOW.packet(1_250); 6];
    assert_eq!(send(&fast, data), 6);
    let pauses = await_pause_frames(&fast);
    assert!(matches!(pauses.quanta[0], Some(1..)), "{pauses:?}");
    // The other host pauses level 0 for 65,535 quanta: half a minute at this rate.
    let source = [2, 0, 0, 0, 0, 9];
    assert_eq!(send(&far, vec![PauseFrame::for_level(source, 0, u16::MAX).to_bytes()]), 1);
    let seen = await_ports(&switch, |ports| ports[1].pause_frames.received == 1).await;
    assert_eq!((seen[1].levels[0].pauses, seen[1].received.packets), (1, 0));
    // A packet may be on the wire; after that nothing leaves.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let paused = switch.status().await.unwrap()[1].sent.packets;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(switch.status().await.unwrap()[1].sent.packets, paused);
    assert!(paused < 6);
    assert_eq!(send(&far, vec![PauseFrame::for_level(source, 0, 0).to_bytes()]), 1);
    await_ports(&switch, |ports| ports[1].sent.packets == 6).await;
    // The buffer is empty: the fast host may go on.
    let resumed = await_pause_frames(&fast);
    assert_eq!(resumed.quanta[0], Some(0));
    let counts = switch.buffer_counts().await.unwrap().unwrap();
    assert!(counts.pauses[&(1, 0)] == 1 && counts.refused.is_empty(), "{counts:?}");
    switch.stop().await;
}

/// The next frame of flow control that an interface receives.
fn await_pause_frames(socket: &PacketSocket) -> PauseFrame {
    let mut batch = FrameBatch::default();
    let started = std::time::Instant::now();
    while started.elapsed() < TIMEOUT {
        let count = socket.receive_batch(&mut batch).unwrap();
        let mut frames = batch.frames(count).flatten();
        if let Some(frame) = frames.find_map(|frame| PauseFrame::parse(frame).ok()) {
            return frame;
        }
    }
    panic!("no frame of flow control arrived");
}

#[tokio::test]
async fn a_port_follows_its_interface_and_the_others_go_on() {
    let Some(cables) = Cables::lay("b") else {
        return;
    };
    let (switch, hosts) = cables.devices();
    let state = |wanted| move |ports: &[PortStatus]| ports[1].state == wanted;
    assert!(ip(&["link", "set", &cables.host(2), "down"]));
    await_ports(&switch, state(PortState::Down)).await;
    send(&hosts, 1, &FLOW.packet(200)).await;
    let seen = await_ports(&switch, |ports| ports[1].lost == 1).await;
    assert_eq!((seen[0].state, seen[1].sent.packets), (PortState::Up, 0));

    assert!(ip(&["link", "set", &cables.host(2), "up"]));
    await_ports(&switch, state(PortState::Up)).await;
    send(&hosts, 1, &FLOW.packet(200)).await;
    await_ports(&hosts, |ports| ports[1].received.packets == 1).await;

    assert!(ip(&["link", "del", &cables.switch(2)]));
    await_ports(&switch, state(PortState::Absent)).await;
    assert!(cables.lay_one(2));
    await_ports(&switch, state(PortState::Up)).await;
    await_ports(&hosts, state(PortState::Up)).await;
    send(&hosts, 1, &FLOW.packet(200)).await;
    await_ports(&hosts, |ports| ports[1].received.packets == 2).await;
    switch.stop().await;
    hosts.stop().await;
}

#[tokio::test]
async fn ports_come_and_go_at_run_time() {
    let Some(cables) = Cables::lay("c") else {
        return;
    };
    let (switch, hosts) = cables.devices();
    assert!(switch.remove_port(2).await.unwrap());
    assert!(!switch.remove_port(2).await.unwrap());
    let states: Vec<u16> = switch.watch_states().borrow().iter().map(|port| port.0).collect();
    assert_eq!(states, [1]);
    let again = interface(2, &cables.switch(2));
    switch.add_port(again.clone()).await.unwrap();
    let taken = switch.add_port(again).await.unwrap_err();
    assert!(matches!(taken, PortsError::Number(2, _)), "{taken}");
    send(&hosts, 1, &FLOW.packet(200)).await;
    await_ports(&hosts, |ports| ports[1].received.packets == 1).await;
    switch.stop().await;
    hosts.stop().await;
}
