//! Capture files (pcap): what a port reads instead of an interface, what it writes, and what is
//! recorded of an interface.
//!
//! Several files are read as one sequence in the order of their packets' times, port by port where
//! these agree, so that a set of files gives the same run every time.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use pcap_file::PcapError;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

use super::PortsError;

/// Packets of capture files yet to arrive, the next one last.
#[derive(Debug, Default)]
pub(super) struct CaptureReplay {
    packets: Vec<CapturedPacket>,
}

/// A packet of a capture file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CapturedPacket {
    time: Duration,
    pub(super) port: u16,
    /// Its place in its file.
    position: usize,
    pub(super) packet: Vec<u8>,
}

impl CaptureReplay {
    /// Adds the packets of a file, to arrive at `port`.
    ///
    /// # Errors
    /// The file is not a pcap file, or ends within a packet.
    pub(super) fn add_file(&mut self, port: u16, file: &Path) -> Result<(), PortsError> {
        self.read_packets(port, file)
            .map_err(|source| PortsError::Capture { file: file.to_owned(), source })?;
        self.packets.sort_by(|a, b| b.cmp(a));
        Ok(())
    }

    fn read_packets(&mut self, port: u16, file: &Path) -> io::Result<()> {
        let opened = BufReader::new(File::open(file)?);
        let mut reader = PcapReader::new(opened).map_err(io_error)?;
        let mut position = 0;
        while let Some(read) = reader.next_packet() {
            let packet = read.map_err(io_error)?;
            let (time, packet) = (packet.timestamp, packet.data.into_owned());
            self.packets.push(CapturedPacket { time, port, position, packet });
            position += 1;
        }
        Ok(())
    }

    /// The next packet.
    pub(super) fn next_packet(&mut self) -> Option<CapturedPacket> {
        self.packets.pop()
    }

    /// Whether all packets have arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.packets.is_empty()
    }
}

/// A capture file that is written; it is whole once this is dropped.
#[derive(Debug)]
pub(super) struct CaptureWriter {
    /// Always there until it is dropped.
    writer: Option<PcapWriter<BufWriter<File>>>,
    /// The first failure; a full disk must not stop a switch.
    failed: bool,
}

impl CaptureWriter {
    /// Starts the file afresh.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn create(file: &Path) -> Result<Self, PortsError> {
        let created = File::create(file)
            .and_then(|file| PcapWriter::new(BufWriter::new(file)).map_err(io_error));
        let writer =
            created.map_err(|source| PortsError::Capture { file: file.to_owned(), source })?;
        Ok(Self { writer: Some(writer), failed: false })
    }

    /// Adds a packet; `time` is since the epoch.
    pub(super) fn write_packet(&mut self, packet: &[u8], time: Duration) {
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(time, length, packet);
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.write_packet(&packet) {
            self.report_failure(error);
        }
    }

    fn report_failure(&mut self, error: impl Display) {
        if !self.failed {
            tracing::error!(%error, "a capture file cannot be written");
        }
        self.failed = true;
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // Dropping the buffer would hide an error.
        let flushed = self.writer.take().map(|writer| writer.into_writer().flush());
        if let Some(Err(error)) = flushed {
            self.report_failure(error);
        }
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}
