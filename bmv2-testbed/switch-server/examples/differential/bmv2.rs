//! A `simple_switch_grpc` process whose ports are one stream of messages.
//!
//! bmv2 takes packets on a nanomsg PAIR socket (`--packet-in`). What nanomsg says over a Unix
//! socket is little: eight bytes of greeting, then each message with its length in front. So no
//! interface and no privilege is needed, and nothing is lost between the two switches.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::program;

/// "SP", version 0, protocol PAIR (RFC draft sp-protocol-ids).
const GREETING: [u8; 8] = [0, b'S', b'P', 0, 0, 16, 0, 0];
/// `MSG_TYPE_PACKET_IN` and `MSG_TYPE_PACKET_OUT` of bmv2's dev_mgr_packet_in.cpp.
const PACKET_IN: i32 = 3;
const PACKET_OUT: i32 = 4;

/// A packet on a port.
pub(crate) type Sent = (u16, Vec<u8>);

/// A running bmv2.
pub(crate) struct Bmv2 {
    process: Child,
    folder: PathBuf,
    wire: UnixStream,
    received: mpsc::Receiver<Sent>,
    /// Where it serves P4Runtime.
    pub(crate) address: String,
}

impl Bmv2 {
    /// Starts `simple_switch_grpc` without a program, with eight priority queues.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("differential-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("packets");
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let program = program::installed().ok_or("simple_switch_grpc is not on PATH")?;
        let packets = format!("ipc://{}", socket.display());
        let own = ["--log-level", "off", "--packet-in", &packets];
        let process = program::start(&program, 1, address, (&own, &[]))?;
        let mut wire = connect(&socket)?;
        wire.write_all(&GREETING)?;
        let mut greeting = [0; 8];
        wire.read_exact(&mut greeting)?;
        let (sender, received) = mpsc::channel();
        let reader = wire.try_clone()?;
        std::thread::spawn(move || read_all(reader, &sender));
        Ok(Self { process, folder, wire, received, address: address.to_string() })
    }

    /// Gives it packets, each on its port.
    pub(crate) fn send(&mut self, packets: &[Sent]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for (port, packet) in packets {
            let length = packet.len() + 12;
            bytes.push(1);
            bytes.extend((length as u64).to_be_bytes());
            for word in [PACKET_IN, i32::from(*port), packet.len() as i32] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(packet);
        }
        self.wire.write_all(&bytes)
    }

    /// Takes `count` packets, or as many as come until nothing more comes for `patience`.
    pub(crate) fn receive(&self, count: usize, timeout: Duration) -> Vec<Sent> {
        let mut packets = Vec::new();
        while packets.len() < count {
            match self.received.recv_timeout(timeout) {
                Ok(packet) => packets.push(packet),
                Err(_) => break,
            }
        }
        packets
    }
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to end or to remove.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

fn connect(socket: &PathBuf) -> Result<UnixStream, Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Reads messages until the other end is gone.
fn read_all(mut from: UnixStream, to: &mpsc::Sender<Sent>) {
    let mut header = [0; 9 + 12];
    while from.read_exact(&mut header).is_ok() {
        let word = |at: usize| header[at..at + 4].try_into().map_or(0, i32::from_le_bytes);
        let (kind, port, length) = (word(9), word(13), word(17));
        let mut packet = vec![0; usize::try_from(length).unwrap_or(0)];
        if from.read_exact(&mut packet).is_err() {
            return;
        }
        if kind == PACKET_OUT && to.send((port as u16, packet)).is_err() {
            return;
        }
    }
}
