//! One port: its line, the medium behind it, and what it counts.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::capture::CaptureWriter;
use super::flow_control::{self, FlowControl, PortPauses};
use super::packet_socket::{FrameBatch, PacketSocket, SendStatus};
use super::transmitter::{self, EgressItem, PortTransmitter};
use super::{PauseFrameCounts, PortConfig, PortMedium, PortState, PortStatus, PortsError};
use crate::device::{Device, DeviceOutputs, QueuedPacket};
use crate::run::counter::CounterData;
use crate::scheduler::{LevelPause, QueueWait};
use crate::time::Nanos;
use crate::traffic::pause_frame::quanta_nanos;
use crate::traffic::{PauseFrame, TrafficSettings};
use link_monitor::{LinkState, LinkUpdate};

/// A port of the device.
#[derive(Debug)]
pub(super) struct DevicePort {
    status: PortStatus,
    transmitter: PortTransmitter<QueuedPacket>,
    output: PortOutput,
    pauses: PortPauses,
    /// The rate at which quanta of pauses count.
    quanta_rate: u64,
    send_status: SendStatus,
    capture: Option<InterfaceCapture>,
    /// What a call has sent and refused, kept for its buffers.
    sent: Vec<Vec<u8>>,
    refused: Vec<Vec<u8>>,
}

/// Where packets leave.
#[derive(Debug)]
enum PortOutput {
    Interface {
        socket: Option<PacketSocket>,
        /// The kernel's index of the interface that the socket is bound to, once reported.
        index: Option<u32>,
    },
    File(CaptureWriter),
}

/// What is recorded of an interface.
#[derive(Debug)]
struct InterfaceCapture {
    received: CaptureWriter,
    sent: CaptureWriter,
}

/// A device's egress at the end of its ports' queues.
#[derive(Debug)]
pub(super) struct DeviceEgress<'a> {
    pub(super) device: &'a mut Device,
    /// Where buffers go back to, and what egress sends elsewhere.
    pub(super) outputs: &'a mut DeviceOutputs,
    /// Where a packet's room in the shared buffer goes back to.
    pub(super) flow_control: Option<&'a mut FlowControl>,
}

impl transmitter::PacketEgress<QueuedPacket> for DeviceEgress<'_> {
    fn finish_packet(
        &mut self,
        departure: QueuedPacket,
        wait: QueueWait,
        now: Nanos,
    ) -> Option<Vec<u8>> {
        if let Some(flow_control) = &mut self.flow_control {
            flow_control.release(&departure);
        }
        self.device.run_egress(departure, wait, now, self.outputs)
    }

    fn discard_packet(&mut self, departure: QueuedPacket) {
        if let Some(flow_control) = &mut self.flow_control {
            flow_control.release(&departure);
        }
        self.device.discard_packet(departure, self.outputs);
    }
}

impl DeviceEgress<'_> {
    /// Runs egress for a port that is not attached to anything; what it sends is lost.
    pub(super) fn finish_unattached(&mut self, departure: QueuedPacket, now: Nanos) {
        let wait = QueueWait::no_wait(now);
        if let Some(packet) = self.device.run_egress(departure, wait, now, self.outputs) {
            self.outputs.recycle_buffer(packet);
        }
    }
}

/// What an update of an interface changes at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortChange {
    /// Nothing new.
    Unchanged,
    /// Its state is another.
    Changed,
    /// It has a socket on a new incarnation of its interface.
    Attached,
}

impl DevicePort {
    /// Opens the medium of a port; `record` is the folder for what passes an interface.
    pub(super) fn open(
        config: &PortConfig,
        levels: u8,
        record: Option<&Path>,
    ) -> Result<Self, PortsError> {
        let (name, exit) = match &config.medium {
            PortMedium::Interface(name) => (name.clone(), PortOutput::open_interface(name)?),
            PortMedium::Files { input, output } => {
                let recorder = CaptureWriter::create(output)?;
                (input.display().to_string(), PortOutput::File(recorder))
            }
        };
        let recorders = record
            .filter(|_| matches!(exit, PortOutput::Interface { .. }))
            .map(|folder| InterfaceCapture::create(folder, &name))
            .transpose()?;
        Ok(Self {
            status: PortStatus {
                number: config.number,
                name,
                state: PortState::Up,
                neighbour: None,
                received: CounterData::default(),
                oversized: 0,
                pause_frames: PauseFrameCounts::default(),
                sent: CounterData::default(),
                lost: 0,
                levels: Vec::new(),
            },
            transmitter: PortTransmitter::new(levels, config.shape),
            output: exit,
            pauses: PortPauses::default(),
            quanta_rate: flow_control::quanta_rate(config.shape),
            send_status: SendStatus::All,
            capture: recorders,
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
    pub(super) fn send_status(&self) -> SendStatus {
        self.send_status
    }

    /// The port and what has happened to its packets.
    pub(super) fn status(&self) -> PortStatus {
        PortStatus { levels: self.transmitter.queue_counts().collect(), ..self.status.clone() }
    }

    /// What wakes the thread for this port; none for files and for an absent interface.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.output {
            PortOutput::Interface { socket, .. } => socket.as_ref().map(AsFd::as_fd),
            PortOutput::File(_) => None,
        }
    }

    /// Fills the batch with frames that have arrived; how many.
    pub(super) fn receive_batch(&mut self, batch: &mut FrameBatch) -> usize {
        // Reading also clears an error of the interface, which rtnetlink reports as well.
        self.send_status = SendStatus::All;
        match &self.output {
            PortOutput::Interface { socket, .. } => {
                socket.as_ref().map_or(0, |socket| socket.receive_batch(batch).unwrap_or(0))
            }
            PortOutput::File(_) => 0,
        }
    }

    pub(super) fn count_received(&mut self, packet: &[u8]) {
        self.status.received.add_packet(packet.len() as u64);
        if let Some(recorders) = &mut self.capture {
            recorders.received.write_packet(packet, since_epoch());
        }
    }

    pub(super) fn count_oversized(&mut self) {
        if self.status.oversized == 0 {
            let interface = &self.status.name;
            tracing::warn!(interface, "a frame is too long; turn the sender's offloads off");
        }
        self.status.oversized += 1;
    }

    /// Takes a packet from the device; a full queue drops and counts it.
    pub(super) fn enqueue_packet(
        &mut self,
        departure: QueuedPacket,
        now: Nanos,
        egress: &mut DeviceEgress<'_>,
    ) {
        let (level, bytes) = (departure.level, departure.queued_bytes());
        let packet = EgressItem { item: departure, level, bytes };
        self.transmitter.enqueue_packet(packet, now, egress);
    }

    /// Adds what its queues do beyond strict priority.
    pub(super) fn set_traffic(&mut self, settings: &TrafficSettings) {
        self.transmitter.set_traffic(settings, self.status.number.into());
    }

    /// Bytes that wait at a level.
    pub(super) fn queued_bytes(&mut self, level: u8) -> u64 {
        self.transmitter.scheduler().queued_bytes(level)
    }

    /// Counts a packet for which the shared buffer has no room.
    pub(super) fn count_refused(&mut self, level: u8, bytes: u64) {
        self.transmitter.scheduler().count_refused(level, bytes);
    }

    /// Sends a frame that is not of the device before all packets.
    pub(super) fn send_control(&mut self, frame: Vec<u8>) {
        self.transmitter.send_control(frame);
    }

    /// Sends a pause, or its end, to the neighbour.
    pub(super) fn send_pause(&mut self, frame: &PauseFrame) {
        self.status.pause_frames.sent += 1;
        self.transmitter.send_control(frame.to_bytes());
    }

    /// Handles a frame of MAC control from the neighbour.
    pub(super) fn receive_control(
        &mut self,
        frame: &[u8],
        limit_ns: Option<Nanos>,
        now: Nanos,
        egress: &mut DeviceEgress<'_>,
    ) {
        let Ok(frame) = PauseFrame::parse(frame) else {
            self.status.pause_frames.refused += 1;
            return;
        };
        self.status.pause_frames.received += 1;
        for (level, quanta) in (0..).zip(frame.quanta) {
            match quanta {
                None => {}
                Some(0) => self.end_pause(level, now, egress),
                Some(quanta) => {
                    let scheduler = self.transmitter.scheduler();
                    let number = scheduler.set_pause(level, LevelPause::Begins, now);
                    let until = now.saturating_add(quanta_nanos(quanta, self.quanta_rate));
                    let limit = limit_ns.map(|limit| (now.saturating_add(limit), number));
                    self.pauses.begin(level, until, limit);
                }
            }
        }
    }

    fn end_pause(&mut self, level: u8, now: Nanos, egress: &mut DeviceEgress<'_>) {
        self.pauses.end(level);
        self.transmitter.scheduler().set_pause(level, LevelPause::Ends, now);
        self.transmitter.resume(now, egress);
    }

    /// Ends pauses whose quanta have passed, and breaks those that last too long.
    fn expire_pauses(&mut self, now: Nanos, egress: &mut DeviceEgress<'_>) {
        for (level, number) in self.pauses.take_broken(now) {
            for departure in self.transmitter.scheduler().break_pause(level, number) {
                transmitter::PacketEgress::discard_packet(egress, departure);
            }
        }
        for level in self.pauses.ended(now) {
            self.end_pause(level, now, egress);
        }
    }

    /// Whether [`Port::send_due_packets`] has something to do.
    pub(super) fn has_due_packets(&self, now: Nanos) -> bool {
        if self.pauses.next_deadline().is_some_and(|due| due <= now) {
            return true;
        }
        let is_blocked = self.send_status == SendStatus::Full;
        !is_blocked
            && (self.transmitter.has_ready()
                || self.transmitter.next_deadline().is_some_and(|due| due <= now))
    }

    /// When it will have, if nothing else happens.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let of_packets = match self.send_status {
            SendStatus::Full => None,
            SendStatus::All if self.transmitter.has_ready() => Some(0),
            SendStatus::All => self.transmitter.next_deadline(),
        };
        of_packets.into_iter().chain(self.pauses.next_deadline()).min()
    }

    /// Lets out what has left the wire by `now`.
    pub(super) fn send_due_packets(&mut self, now: Nanos, egress: &mut DeviceEgress<'_>) {
        self.expire_pauses(now, egress);
        self.transmitter.advance_to(now, egress);
        while self.transmitter.has_ready() {
            self.send_ready();
            if let Some(recorders) = &mut self.capture {
                let time = since_epoch();
                self.sent.iter().for_each(|packet| recorders.sent.write_packet(packet, time));
            }
            for packet in self.sent.drain(..) {
                self.status.sent.add_packet(packet.len() as u64);
                egress.outputs.recycle_buffer(packet);
            }
            self.status.lost += self.refused.len() as u64;
            self.refused.drain(..).for_each(|packet| egress.outputs.recycle_buffer(packet));
            if self.send_status == SendStatus::Full {
                return;
            }
            self.transmitter.advance_to(now, egress);
        }
    }

    fn send_ready(&mut self) {
        let ready = self.transmitter.ready_packets();
        match &mut self.output {
            PortOutput::Interface { socket, .. } => match socket {
                Some(socket) if self.status.state == PortState::Up => {
                    self.send_status =
                        socket.send_packets(ready, &mut self.sent, &mut self.refused);
                }
                _ => self.refused.extend(ready.drain(..)),
            },
            PortOutput::File(recorder) => {
                let time = since_epoch();
                ready.iter().for_each(|packet| recorder.write_packet(packet, time));
                self.sent.extend(ready.drain(..));
            }
        }
    }

    /// Handles an update of an interface, this port's or another.
    pub(super) fn handle_link_update(&mut self, update: &LinkUpdate) -> PortChange {
        let PortOutput::Interface { socket, index } = &mut self.output else {
            return PortChange::Unchanged;
        };
        if update.name != self.status.name {
            return PortChange::Unchanged;
        }
        let is_other = index.is_some_and(|index| index != update.index);
        if update.state == LinkState::Absent {
            // The removal of an interface that has been created again already changes nothing.
            if is_other || self.status.state == PortState::Absent {
                return PortChange::Unchanged;
            }
            *socket = None;
            *index = None;
            self.status.state = PortState::Absent;
            return PortChange::Changed;
        }
        *index = Some(update.index);
        if socket.is_none() || is_other {
            *socket = PacketSocket::open(&update.name).ok();
            self.send_status = SendStatus::All;
            self.status.state = update.state.into();
            return PortChange::Attached;
        }
        let changed = self.status.state != update.state.into();
        self.status.state = update.state.into();
        if changed { PortChange::Changed } else { PortChange::Unchanged }
    }
}

impl From<LinkState> for PortState {
    fn from(state: LinkState) -> Self {
        match state {
            LinkState::Up => Self::Up,
            LinkState::Down => Self::Down,
            LinkState::Absent => Self::Absent,
        }
    }
}

impl PortOutput {
    fn open_interface(name: &str) -> Result<Self, PortsError> {
        let socket = PacketSocket::open(name)
            .map_err(|source| PortsError::Interface { name: name.to_owned(), source })?;
        Ok(Self::Interface { socket: Some(socket), index: None })
    }
}

impl InterfaceCapture {
    fn create(folder: &Path, interface: &str) -> Result<Self, PortsError> {
        Ok(Self {
            received: CaptureWriter::create(&folder.join(format!("{interface}_in.pcap")))?,
            sent: CaptureWriter::create(&folder.join(format!("{interface}_out.pcap")))?,
        })
    }
}

/// Captures carry the time of day.
fn since_epoch() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
