//! Capture files of `crux switch` are complete whatever ends it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use switch::ports::PacketSocket;

use crate::support::Files;

/// Sends every packet out of port 2.
const PROGRAM: &[u8] = include_bytes!("../../../../bmv2-testbed/switch/tests/programs/queue.json");
const RUNS: usize = 100;
const PACKETS: usize = 300;
const PACKET_BYTES: usize = 60;
/// A capture file has 24 bytes in front, and 16 in front of each packet.
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16 + PACKET_BYTES;
/// A file has its first packets once the writer's buffer of 8 KiB has been full.
const FLUSHED_BYTES: u64 = 8192 - RECORD_BYTES as u64;
/// The last byte of a packet of priority 1.
const URGENT: u8 = 0xff;
const TIMEOUT: Duration = Duration::from_secs(20);

fn packet(number: usize) -> Vec<u8> {
    let mut packet = vec![0; PACKET_BYTES];
    packet[..8].copy_from_slice(&(number as u64).to_be_bytes());
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet
}

/// A capture file of these packets, with the times 0.
fn capture_of(packets: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        for word in [0, 0, PACKET_BYTES as u32, PACKET_BYTES as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// The input of port 1, and none for port 2.
fn write_inputs(files: &Files, packets: impl Iterator<Item = Vec<u8>>) {
    std::fs::write(files.path("a_in.pcap"), capture_of(packets)).unwrap();
    std::fs::write(files.path("b_in.pcap"), capture_of(std::iter::empty())).unwrap();
}

/// Ends the switch by a signal in the midst of its work. The file must then end with a whole packet
/// and have all packets that the switch reports in the field `count` of its log.
fn end_by_signal(switch: Child, signal: &str, file: &Path, count: &str) {
    let started = Instant::now();
    while std::fs::metadata(file).map_or(0, |file| file.len()) < FLUSHED_BYTES {
        assert!(started.elapsed() < TIMEOUT, "{} stays short", file.display());
        std::thread::sleep(Duration::from_millis(1));
    }
    let process = switch.id().to_string();
    assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    let output = switch.wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    assert!(!log.contains('\x1b'), "a log that is no terminal has no colours: {log:?}");
    let bytes = std::fs::read(file).unwrap().len() - HEADER_BYTES;
    assert_eq!(bytes % RECORD_BYTES, 0, "{log}");
    let packets = bytes / RECORD_BYTES;
    assert!(packets >= highest_count(&log, count), "{packets} packets: {log}");
}

/// The highest number of a field in the log.
fn highest_count(log: &str, field: &str) -> usize {
    let field = format!(" {field}=");
    let counts = log.split(&field).skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    });
    counts.max().expect("the switch logs its counts")
}

/// Starts the switch and waits until it serves.
fn start(files: &Files, arguments: &[&str]) -> Child {
    let served = ["switch", "queue.json", "--grpc-server-addr", "127.0.0.1:0", "--log", "info"];
    let mut command = files.command(&[&served, arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut switch = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(switch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("serves P4Runtime"), "{line}");
    switch
}

fn signal(run: usize) -> &'static str {
    ["-TERM", "-INT"][run % 2]
}

#[test]
fn files_that_are_written_instead_of_interfaces_are_complete() {
    let files = Files::with(&[("queue.json", PROGRAM)]);
    write_inputs(&files, (0..PACKETS).map(packet));
    let output = files.path("b_out.pcap");
    for run in 0..RUNS {
        let switch = start(&files, &["-i", "1@a", "-i", "2@b", "--use-files", "0"]);
        end_by_signal(switch, signal(run), &output, "sent");
        std::fs::remove_file(&output).unwrap();
    }
}

/// As in simple_switch_grpc. Packets of priority 1 come before the others.
#[test]
fn there_is_one_priority_queue_by_default() {
    let files = Files::with(&[("queue.json", PROGRAM)]);
    let mut urgent = packet(0);
    (urgent[11], urgent[PACKET_BYTES - 1]) = (1, URGENT);
    write_inputs(&files, std::iter::once(urgent).chain((0..PACKETS).map(packet)));
    let output = files.path("b_out.pcap");
    let ports = ["-i", "1@a", "-i", "2@b", "--use-files", "0"];
    for (flags, dropped) in [(&[][..], true), (&["--priority-queues", "2"], false)] {
        let switch = start(&files, &[&ports, flags].concat());
        end_by_signal(switch, "-TERM", &output, "sent");
        // Egress writes the first twelve bytes.
        let first = &std::fs::read(&output).unwrap()[HEADER_BYTES + 16..][..PACKET_BYTES];
        assert_eq!(first[PACKET_BYTES - 1] == URGENT, !dropped, "{flags:?}");
        std::fs::remove_file(&output).unwrap();
    }
}

/// A veth pair, gone when dropped.
struct Cable {
    near: String,
    far: String,
}

impl Cable {
    /// `None` where this process may not make one.
    fn lay() -> Option<Self> {
        let [near, far] = ["cn", "cf"].map(|end| format!("{end}{}", std::process::id() % 100_000));
        let cable = Self { near, far };
        let made = ip(&["link", "add", &cable.near, "type", "veth", "peer", "name", &cable.far]);
        made.then(|| {
            for end in [&cable.near, &cable.far] {
                // A kernel without IPv6 sends nothing of its own anyhow.
                let quiet = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
                let _absent = std::fs::write(quiet, "1");
                assert!(ip(&["link", "set", end, "up"]));
            }
            cable
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&["link", "del", &self.near]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn recordings_of_interfaces_are_complete() {
    let Some(cable) = Cable::lay() else {
        eprintln!("skipped: veth pairs need root (CAP_NET_ADMIN) and the ip command");
        return;
    };
    let files = Files::with(&[("queue.json", PROGRAM)]);
    let recording: PathBuf = files.path(&format!("{}_in.pcap", cable.near));
    let far = PacketSocket::open(&cable.far).unwrap();
    for run in 0..RUNS {
        // The folder is the working directory, or named as run_exercise.py of the P4 tutorials does.
        let folder: &[&str] = if run % 2 == 0 { &[] } else { &["."] };
        let recorded = ["-i", &format!("1@{}", cable.near), "--pcap"];
        let switch = start(&files, &[&recorded, folder].concat());
        let mut packets: VecDeque<Vec<u8>> = (0..PACKETS).map(packet).collect();
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        far.send_packets(&mut packets, &mut sent, &mut refused);
        assert_eq!(sent.len(), PACKETS);
        end_by_signal(switch, signal(run), &recording, "received");
        std::fs::remove_file(&recording).unwrap();
    }
}
