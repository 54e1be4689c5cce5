//! One port: its line, the medium behind it, and what it counts.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::capture::Recorder;
use super::line::{self, Line};
use super::links::LinkNews;
use super::packet_socket::{Batch, PacketSocket, Sent};
use super::{Medium, PortConfig, PortState, PortStatus, PortsError};
use crate::counter::Count;
use crate::device::{Departure, Device, Nanos, Outputs};
use crate::scheduler::Wait;

/// A port of the device.
#[derive(Debug)]
pub(super) struct Port {
    status: PortStatus,
    line: Line<Departure>,
    exit: Exit,
    sending: Sent,
    recorders: Option<Recorders>,
    /// What a call has sent and refused, kept for its buffers.
    sent: Vec<Vec<u8>>,
    refused: Vec<Vec<u8>>,
}

/// Where packets leave.
#[derive(Debug)]
enum Exit {
    Interface {
        socket: Option<PacketSocket>,
        /// The incarnation of the interface that the socket is bound to, once the kernel told it.
        index: Option<u32>,
    },
    File(Recorder),
}

/// What is recorded of an interface.
#[derive(Debug)]
struct Recorders {
    received: Recorder,
    sent: Recorder,
}

/// A device's egress at the end of its ports' queues.
#[derive(Debug)]
pub(super) struct Egress<'a> {
    pub(super) device: &'a mut Device,
    /// Where buffers go back to, and what egress sends elsewhere.
    pub(super) outputs: &'a mut Outputs,
}

impl line::Exit<Departure> for Egress<'_> {
    fn finish(&mut self, departure: Departure, wait: Wait, now: Nanos) -> Option<Vec<u8>> {
        self.device.depart(departure, wait, now, self.outputs)
    }

    fn discard(&mut self, departure: Departure) {
        self.device.discard(departure, self.outputs);
    }
}

/// What news of an interface mean for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing new.
    Nothing,
    /// Its state is another.
    Changed,
    /// It has a socket on a new incarnation of its interface.
    Attached,
}

impl Port {
    /// Opens the medium of a port; `record` is the folder for what passes an interface.
    pub(super) fn open(
        config: &PortConfig,
        levels: u8,
        record: Option<&Path>,
    ) -> Result<Self, PortsError> {
        let (name, exit) = match &config.medium {
            Medium::Interface(name) => (name.clone(), Exit::interface(name)?),
            Medium::Files { input, output } => {
                let recorder = Recorder::create(output)?;
                (input.display().to_string(), Exit::File(recorder))
            }
        };
        let record = record.filter(|_| matches!(exit, Exit::Interface { .. }));
        let recorders = record
            .map(|folder| Recorders::create(folder, &name))
            .transpose()?;
        Ok(Self {
            status: PortStatus {
                number: config.number,
                name,
                state: PortState::Up,
                received: Count::default(),
                oversized: 0,
                sent: Count::default(),
                lost: 0,
                levels: Vec::new(),
            },
            line: Line::new(levels, config.shape),
            exit,
            sending: Sent::All,
            recorders,
            sent: Vec::new(),
            refused: Vec::new(),
        })
    }

    pub(super) fn number(&self) -> u16 {
        self.status.number
    }

    pub(super) fn state(&self) -> PortState {
        self.status.state
    }

    /// Whether the interface takes more.
    pub(super) fn sending(&self) -> Sent {
        self.sending
    }

    /// The port and what has happened to its packets.
    pub(super) fn status(&self) -> PortStatus {
        PortStatus {
            levels: self.line.counts().collect(),
            ..self.status.clone()
        }
    }

    /// What wakes the thread for this port; none for files and for an absent interface.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.exit {
            Exit::Interface { socket, .. } => socket.as_ref().map(AsFd::as_fd),
            Exit::File(_) => None,
        }
    }

    /// Fills the batch with frames that have arrived; how many.
    pub(super) fn receive(&mut self, batch: &mut Batch) -> usize {
        // Reading again is also what clears an error of the interface; news of it come apart.
        self.sending = Sent::All;
        match &self.exit {
            Exit::Interface { socket, .. } => socket
                .as_ref()
                .map_or(0, |socket| socket.receive(batch).unwrap_or(0)),
            Exit::File(_) => 0,
        }
    }

    pub(super) fn count_received(&mut self, packet: &[u8]) {
        self.status.received.add_packet(packet.len() as u64);
        if let Some(recorders) = &mut self.recorders {
            recorders.received.add(packet, since_epoch());
        }
    }

    pub(super) fn count_oversized(&mut self) {
        if self.status.oversized == 0 {
            let interface = &self.status.name;
            tracing::warn!(
                interface,
                "a frame is too long; turn the sender's offloads off"
            );
        }
        self.status.oversized += 1;
    }

    /// Takes a packet from the device; a full queue drops and counts it.
    pub(super) fn enqueue(&mut self, departure: Departure, now: Nanos, egress: &mut Egress<'_>) {
        let (level, bytes) = (departure.level, departure.bytes());
        self.line.enqueue(level, (departure, bytes), now, egress);
    }

    /// Whether [`Port::send_due`] has something to do.
    pub(super) fn has_due(&self, now: Nanos) -> bool {
        let is_blocked = self.sending == Sent::Full;
        !is_blocked && (self.line.has_ready() || self.line.due().is_some_and(|due| due <= now))
    }

    /// When it will have, if nothing else happens.
    pub(super) fn due(&self) -> Option<Nanos> {
        match self.sending {
            Sent::Full => None,
            Sent::All if self.line.has_ready() => Some(0),
            Sent::All => self.line.due(),
        }
    }

    /// Lets out what has left the wire by `now`.
    pub(super) fn send_due(&mut self, now: Nanos, egress: &mut Egress<'_>) {
        self.line.advance(now, egress);
        while self.line.has_ready() {
            self.send_ready();
            if let Some(recorders) = &mut self.recorders {
                let time = since_epoch();
                self.sent
                    .iter()
                    .for_each(|packet| recorders.sent.add(packet, time));
            }
            for packet in self.sent.drain(..) {
                self.status.sent.add_packet(packet.len() as u64);
                egress.outputs.recycle(packet);
            }
            self.status.lost += self.refused.len() as u64;
            self.refused
                .drain(..)
                .for_each(|packet| egress.outputs.recycle(packet));
            if self.sending == Sent::Full {
                return;
            }
            self.line.advance(now, egress);
        }
    }

    fn send_ready(&mut self) {
        let ready = self.line.ready();
        match &mut self.exit {
            Exit::Interface { socket, .. } => match socket {
                Some(socket) if self.status.state == PortState::Up => {
                    self.sending = socket.send(ready, &mut self.sent, &mut self.refused);
                }
                _ => self.refused.extend(ready.drain(..)),
            },
            Exit::File(recorder) => {
                let time = since_epoch();
                ready.iter().for_each(|packet| recorder.add(packet, time));
                self.sent.extend(ready.drain(..));
            }
        }
    }

    /// The kernel has told of an interface, this port's or another.
    pub(super) fn hear(&mut self, news: &LinkNews) -> Heard {
        let Exit::Interface { socket, index } = &mut self.exit else {
            return Heard::Nothing;
        };
        if news.name != self.status.name {
            return Heard::Nothing;
        }
        let is_other = index.is_some_and(|index| index != news.index);
        if news.state == PortState::Absent {
            // The farewell of an incarnation that has a successor already is no news.
            if is_other || self.status.state == PortState::Absent {
                return Heard::Nothing;
            }
            *socket = None;
            *index = None;
            self.status.state = PortState::Absent;
            return Heard::Changed;
        }
        *index = Some(news.index);
        if socket.is_none() || is_other {
            *socket = PacketSocket::open(&news.name).ok();
            self.sending = Sent::All;
            self.status.state = news.state;
            return Heard::Attached;
        }
        let changed = self.status.state != news.state;
        self.status.state = news.state;
        if changed {
            Heard::Changed
        } else {
            Heard::Nothing
        }
    }
}

impl Exit {
    fn interface(name: &str) -> Result<Self, PortsError> {
        let socket = PacketSocket::open(name).map_err(|source| PortsError::Interface {
            name: name.to_owned(),
            source,
        })?;
        Ok(Self::Interface {
            socket: Some(socket),
            index: None,
        })
    }
}

impl Recorders {
    fn create(folder: &Path, interface: &str) -> Result<Self, PortsError> {
        Ok(Self {
            received: Recorder::create(&folder.join(format!("{interface}_in.pcap")))?,
            sent: Recorder::create(&folder.join(format!("{interface}_out.pcap")))?,
        })
    }
}

/// Captures carry the time of day.
fn since_epoch() -> std::time::Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
