//! The thread that owns a device, its ports and the clock.
//!
//! One round: commands, updates of interfaces, one batch of every port that has something, and then
//! out of every port whatever its line has let go. Between rounds it sleeps until a file descriptor
//! or the first due packet wakes it. The decision: every port gets one batch a round, so that a
//! flooded port costs the others no more than that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::capture::CaptureReplay;
use super::flow_control::FlowControl;
use super::packet_socket::{BATCH, FrameBatch, SendStatus};
use super::port::{DeviceEgress, DevicePort, PortChange};
use super::{
    PortConfig, PortMedium, PortState, PortStatus, PortsCommand, PortsError, PortsOptions,
};
use crate::device::{Device, DeviceOutputs, QueuedPacket};
use crate::lldp::{self, LldpAgent};
use crate::scheduler::QueueWait;
use crate::time::Nanos;
use crate::traffic::shared_buffer::PriorityGroup;
use crate::traffic::{BufferCounts, PauseFrame};
use link_monitor::{LinkMonitor, LinkUpdate};

/// Ports have nine bits.
const PORT_LIMIT: u16 = 512;
/// Commands that are run before packets have their turn again.
const COMMANDS_PER_ROUND: usize = 64;
/// Wakes of one round.
const EVENTS_PER_ROUND: usize = 64;

/// Whose file descriptor woke the thread; ports are their number.
const TOKEN_WAKEUP: u64 = 1 << 32;
const TOKEN_LINKS: u64 = TOKEN_WAKEUP + 1;
const TOKEN_TIMER: u64 = TOKEN_WAKEUP + 2;

/// The owner.
#[derive(Debug)]
pub(super) struct PortsDriver {
    device: Device,
    /// By number.
    ports: Vec<Option<DevicePort>>,
    /// Numbers of the ports there are, in order.
    numbers: Vec<u16>,
    outputs: DeviceOutputs,
    packet_ins: Option<mpsc::Sender<Vec<u8>>>,
    /// Sent to a controller that did not take them in time, or to none.
    packet_ins_lost: u64,
    /// What queues do beyond strict priority.
    flow_control: Option<FlowControl>,
    lldp: Option<LldpAgent>,
    replay: CaptureReplay,
    options: PortsOptions,
    states: watch::Sender<Vec<(u16, PortState)>>,
    links: LinkMonitor,
    wakeup: Arc<EventFd>,
    timer: TimerFd,
    epoll: Epoll,
    started_at: Instant,
    now: Nanos,
    stopped: bool,
}

impl PortsDriver {
    /// A device without ports.
    pub(super) fn new(
        device: Device,
        options: &PortsOptions,
        wakeup: Arc<EventFd>,
    ) -> Result<Self, PortsError> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let driver = Self {
            device,
            ports: Vec::new(),
            numbers: Vec::new(),
            outputs: DeviceOutputs::default(),
            packet_ins: None,
            packet_ins_lost: 0,
            flow_control: options.traffic.as_ref().map(FlowControl::new),
            lldp: options.lldp.clone().map(LldpAgent::new),
            replay: CaptureReplay::default(),
            options: options.clone(),
            states: watch::Sender::new(Vec::new()),
            links: LinkMonitor::open().map_err(PortsError::Start)?,
            wakeup,
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(start_error)?,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(start_error)?,
            started_at: Instant::now(),
            now: 0,
            stopped: false,
        };
        register_fd(&driver.epoll, driver.wakeup.as_fd(), TOKEN_WAKEUP).map_err(start_error)?;
        register_fd(&driver.epoll, driver.links.as_fd(), TOKEN_LINKS).map_err(start_error)?;
        register_fd(&driver.epoll, driver.timer.as_fd(), TOKEN_TIMER).map_err(start_error)?;
        Ok(driver)
    }

    pub(super) fn device_mut(&mut self) -> &mut Device {
        self.device.advance_clock(self.now);
        &mut self.device
    }

    pub(super) fn watch_states(&self) -> watch::Receiver<Vec<(u16, PortState)>> {
        self.states.subscribe()
    }

    pub(super) fn set_packet_ins(&mut self, to: mpsc::Sender<Vec<u8>>) {
        self.packet_ins = Some(to);
    }

    /// Attaches a port.
    pub(super) fn add_port(&mut self, config: &PortConfig) -> Result<(), PortsError> {
        let number = config.number;
        let at = self.reserve_port_slot(number)?;
        if let PortMedium::Files { input, .. } = &config.medium {
            self.replay.add_file(number, input)?;
        }
        let levels = self.device.config().levels;
        let mut port = DevicePort::open(config, levels, self.options.record.as_deref())?;
        if let Some(flow_control) = &mut self.flow_control {
            flow_control.add_port(number, config.shape);
            port.set_traffic(flow_control.settings());
        }
        let listened =
            port.as_fd().map_or(Ok(()), |fd| register_fd(&self.epoll, fd, u64::from(number)));
        listened.map_err(|errno| PortsError::Start(errno.into()))?;
        self.ports[at] = Some(port);
        self.numbers.push(number);
        self.numbers.sort_unstable();
        self.publish_states();
        // Reports about the interface from before now were ignored, so request its state again.
        self.links.request_links().map_err(PortsError::Start)
    }

    /// Detaches a port; false if it does not exist.
    pub(super) fn remove_port(&mut self, number: u16) -> bool {
        let place = self.ports.get_mut(usize::from(number));
        let removed = place.and_then(Option::take).is_some();
        self.numbers.retain(|other| *other != number);
        self.publish_states();
        removed
    }

    /// All ports, by number.
    pub(super) fn port_statuses(&self) -> Vec<PortStatus> {
        let ports = self.numbers.iter().filter_map(|n| self.ports[usize::from(*n)].as_ref());
        let statuses = ports.map(DevicePort::status).map(|status| {
            let lldp = self.lldp.as_ref();
            let neighbour = lldp.and_then(|agent| agent.neighbour(status.number, self.now));
            PortStatus { neighbour: neighbour.cloned(), ..status }
        });
        statuses.collect()
    }

    /// Gives the device a packet as if it had arrived on `port` now.
    pub(super) fn inject_packet(&mut self, port: u16, packet: &[u8]) {
        self.read_clock();
        self.receive_packet(port, packet);
        self.queue_departures();
    }

    /// Has a packet arrive at a port of the device now.
    fn receive_packet(&mut self, port: u16, packet: &[u8]) {
        let mut buffer = self.outputs.take_buffer();
        buffer.extend_from_slice(packet);
        self.device.receive_packet(port, buffer, self.now, &mut self.outputs);
    }

    /// Ends after this round.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Works until [`PortsDriver::stop`].
    pub(super) fn run_loop(mut self, mut commands: mpsc::Receiver<PortsCommand>) {
        let mut events = [EpollEvent::empty(); EVENTS_PER_ROUND];
        let mut batch = FrameBatch::default();
        while !self.stopped {
            let woken = self.wait_for_events(&mut events).unwrap_or_else(|error| {
                tracing::error!(%error, "the ports cannot wait for packets; stopping");
                self.stopped = true;
                0
            });
            // One reading for the whole round: packets of a batch have one time of arrival.
            self.read_clock();
            // Departures before arrivals: what has left makes room in queues for what arrives.
            self.send_due();
            for event in &events[..woken] {
                match event.data() {
                    TOKEN_WAKEUP => self.run_commands(&mut commands),
                    TOKEN_LINKS => self
                        .links
                        .receive_updates()
                        .iter()
                        .for_each(|update| self.handle_link_update(update)),
                    // Non-blocking, and whether it fails makes no difference: it was due.
                    TOKEN_TIMER => drop(self.timer.wait()),
                    number => self.receive_batch(number as u16, &mut batch),
                }
            }
            self.replay_packets();
            self.announce_ports();
            self.send_due();
        }
    }

    fn run_commands(&mut self, commands: &mut mpsc::Receiver<PortsCommand>) {
        let _count = self.wakeup.read();
        // Bounded, so that a burst of commands does not keep packets waiting.
        for _ in 0..COMMANDS_PER_ROUND {
            match commands.try_recv() {
                Ok(command) => command(self),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.stop(),
            }
        }
        // There may be more commands: wake up again for the next round.
        let _written = self.wakeup.write(1);
    }

    /// Takes one batch from a port through the device.
    fn receive_batch(&mut self, number: u16, batch: &mut FrameBatch) {
        let Some(Some(port)) = self.ports.get_mut(usize::from(number)) else {
            return;
        };
        let count = port.receive_batch(batch);
        let limit = self.flow_control.as_ref().and_then(|flow| flow.settings().pause_limit_ns);
        let is_lossless = self.flow_control.as_ref().is_some_and(FlowControl::is_lossless);
        for frame in batch.frames(count) {
            match frame {
                Some(frame) if is_lossless && PauseFrame::is_mac_control(frame) => {
                    let mut egress = DeviceEgress {
                        device: &mut self.device,
                        outputs: &mut self.outputs,
                        flow_control: self.flow_control.as_mut(),
                    };
                    port.receive_control(frame, limit, self.now, &mut egress);
                }
                Some(frame) if lldp::takes_frame(&mut self.lldp, number, frame, self.now) => {}
                Some(frame) => {
                    port.count_received(frame);
                    let before = self.outputs.queued.len();
                    let mut buffer = self.outputs.take_buffer();
                    buffer.extend_from_slice(frame);
                    self.device.receive_packet(number, buffer, self.now, &mut self.outputs);
                    if is_lossless {
                        let group = PriorityGroup::of_frame(number, frame);
                        let made = self.outputs.queued.range_mut(before..);
                        made.for_each(|departure| departure.group = group);
                    }
                }
                None => port.count_oversized(),
            }
        }
        self.queue_departures();
    }

    /// Queues the departing packets of the device, and those that their egress makes.
    fn queue_departures(&mut self) {
        let cpu_port = self.device.config().cpu_port;
        while let Some(departure) = self.outputs.queued.pop_front() {
            if departure.port == cpu_port {
                self.send_packet_in(departure);
                continue;
            }
            let Some(Some(port)) = self.ports.get_mut(usize::from(departure.port)) else {
                // Egress counts a packet whether or not there is an interface, as in bmv2.
                let now = self.now;
                self.device_egress().finish_unattached(departure, now);
                continue;
            };
            let (level, bytes) = (departure.level, departure.queued_bytes());
            let admits = self
                .flow_control
                .as_mut()
                .is_none_or(|flow| flow.admit(&departure, port.queued_bytes(level)));
            let mut egress = DeviceEgress {
                device: &mut self.device,
                outputs: &mut self.outputs,
                flow_control: self.flow_control.as_mut(),
            };
            if admits {
                port.enqueue_packet(departure, self.now, &mut egress);
            } else {
                port.count_refused(level, bytes);
                self.device.discard_packet(departure, &mut self.outputs);
            }
        }
        self.send_pauses();
    }

    fn device_egress(&mut self) -> DeviceEgress<'_> {
        DeviceEgress {
            device: &mut self.device,
            outputs: &mut self.outputs,
            flow_control: self.flow_control.as_mut(),
        }
    }

    /// Sends the pauses that the buffer asks for.
    fn send_pauses(&mut self) {
        let Some(flow_control) = &mut self.flow_control else {
            return;
        };
        for (number, frame) in flow_control.take_frames(self.now) {
            if let Some(Some(port)) = self.ports.get_mut(usize::from(number)) {
                port.send_pause(&frame);
            }
        }
    }

    /// What the shared buffer has seen, if there is one.
    pub(super) fn buffer_counts(&self) -> Option<BufferCounts> {
        self.flow_control.as_ref().and_then(FlowControl::buffer_counts)
    }

    /// The controller's port has no queue.
    fn send_packet_in(&mut self, departure: QueuedPacket) {
        let (wait, outputs) = (QueueWait::no_wait(self.now), &mut self.outputs);
        if let Some(packet) = self.device.run_egress(departure, wait, self.now, outputs) {
            let sent = self.packet_ins.as_ref().map(|to| to.try_send(packet));
            self.packet_ins_lost += u64::from(!matches!(sent, Some(Ok(()))));
        }
    }

    /// Lets out of every port what has left its wire.
    fn send_due(&mut self) {
        for number in &self.numbers {
            let Some(port) = &mut self.ports[usize::from(*number)] else {
                continue;
            };
            if !port.has_due_packets(self.now) {
                continue;
            }
            let before = port.send_status();
            let mut egress = DeviceEgress {
                device: &mut self.device,
                outputs: &mut self.outputs,
                flow_control: self.flow_control.as_mut(),
            };
            port.send_due_packets(self.now, &mut egress);
            if let (true, Some(fd)) = (port.send_status() != before, port.as_fd()) {
                let mut event =
                    EpollEvent::new(interest_flags(port.send_status()), u64::from(*number));
                // Fails only for a descriptor that is not listened to, which cannot send either.
                let _modified = self.epoll.modify(fd, &mut event);
            }
        }
        self.queue_departures();
    }

    /// Packets of capture files arrive once their time has come.
    fn replay_packets(&mut self) {
        if self.now < duration_nanos(self.options.replay_after) {
            return;
        }
        for _ in 0..BATCH {
            let Some(recorded) = self.replay.next_packet() else {
                return;
            };
            if let Some(Some(port)) = self.ports.get_mut(usize::from(recorded.port)) {
                port.count_received(&recorded.packet);
                self.receive_packet(recorded.port, &recorded.packet);
                self.queue_departures();
            }
        }
    }

    /// Tells the neighbours who this is, when that is due.
    fn announce_ports(&mut self) {
        if let Some(agent) = &mut self.lldp
            && agent.take_due(self.now)
        {
            let ports = self.ports.iter_mut().flatten();
            ports.for_each(|port| port.send_control(agent.announcement(port.number())));
        }
    }

    fn handle_link_update(&mut self, update: &LinkUpdate) {
        let mut changed = false;
        for number in &self.numbers {
            let Some(port) = &mut self.ports[usize::from(*number)] else {
                continue;
            };
            let change = port.handle_link_update(update);
            if change == PortChange::Attached {
                // Fails only for an interface that has gone again, which is reported next.
                let _fleeting =
                    port.as_fd().map(|fd| register_fd(&self.epoll, fd, u64::from(*number)));
            }
            if change != PortChange::Unchanged {
                changed = true;
                let state = update.state;
                tracing::info!(port = number, interface = update.name, ?state, "port");
            }
        }
        if changed {
            self.publish_states();
        }
    }

    /// Publishes the states of all ports, if a port has been added, removed or changed.
    fn publish_states(&mut self) {
        let ports = self.numbers.iter().filter_map(|n| self.ports[usize::from(*n)].as_ref());
        let states: Vec<_> = ports.map(|port| (port.number(), port.state())).collect();
        self.device.set_port_states(&states);
        self.states.send_if_modified(|known| {
            let differs = *known != states;
            *known = states;
            differs
        });
    }

    /// Sleeps until something is to be done; how many descriptors have something.
    fn wait_for_events(&mut self, events: &mut [EpollEvent]) -> io::Result<usize> {
        self.read_clock();
        let timeout = match self.next_deadline() {
            Some(due) if due <= self.now => EpollTimeout::ZERO,
            Some(due) => {
                self.arm_timer(due)?;
                EpollTimeout::NONE
            }
            None => EpollTimeout::NONE,
        };
        match self.epoll.wait(events, timeout) {
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The next time at which work is due although no descriptor is ready.
    fn next_deadline(&self) -> Option<Nanos> {
        let ports = self.numbers.iter().filter_map(|n| self.ports[usize::from(*n)].as_ref());
        let replay =
            (!self.replay.is_finished()).then(|| duration_nanos(self.options.replay_after));
        let pauses = self.flow_control.as_ref().and_then(FlowControl::next_deadline);
        let lldp = self.lldp.as_ref().map(LldpAgent::due);
        ports.filter_map(DevicePort::next_deadline).chain(replay).chain(pauses).chain(lldp).min()
    }

    fn arm_timer(&self, due: Nanos) -> io::Result<()> {
        let wait = i64::try_from(due - self.now).unwrap_or(i64::MAX);
        let once = Expiration::OneShot(TimeSpec::nanoseconds(wait));
        self.timer.set(once, TimerSetTimeFlags::empty())?;
        Ok(())
    }

    fn reserve_port_slot(&mut self, number: u16) -> Result<usize, PortsError> {
        if number >= PORT_LIMIT {
            return Err(PortsError::Number(number, "the highest is 511"));
        }
        if number == self.device.config().cpu_port {
            return Err(PortsError::Number(number, "it leads to the controller"));
        }
        let place = usize::from(number);
        if self.ports.len() <= place {
            self.ports.resize_with(place + 1, || None);
        }
        match self.ports[place] {
            None => Ok(place),
            Some(_) => Err(PortsError::Number(number, "it is taken")),
        }
    }

    fn read_clock(&mut self) {
        self.now = duration_nanos(self.started_at.elapsed());
    }
}

fn start_error(error: nix::Error) -> PortsError {
    PortsError::Start(error.into())
}

/// Makes a descriptor wake the thread when it becomes readable.
fn register_fd(epoll: &Epoll, fd: BorrowedFd<'_>, token: u64) -> nix::Result<()> {
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))
}

/// What a port's descriptor shall wake the thread for.
fn interest_flags(sending: SendStatus) -> EpollFlags {
    match sending {
        SendStatus::All => EpollFlags::EPOLLIN,
        SendStatus::Full => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
    }
}

fn duration_nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
