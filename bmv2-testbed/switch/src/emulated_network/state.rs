//! The state of an emulated network and its transitions, one event at a time.
//!
//! Sans I/O and deterministic: events are ordered by time and then by the order in which they were
//! caused. A [`WireDirection`] is the sender's scheduler, followed by the packets in flight. Since
//! a wire keeps the order of its packets, only the first packet in flight of each direction is in
//! the event heap, whose size is therefore bounded by the size of the network, not by its traffic.

mod port_reports;
mod wiring;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tokio::sync::{mpsc, watch};

use super::flow_control::DeviceTraffic;
use super::{
    DeviceIndex, EmulatedNetworkError, EndpointIndex, EndpointOutbox, NetworkEndpoint, WireEnd,
    WireIndex, WireSpec,
};
use crate::device::port_report::PortStates;
use crate::device::{Device, DeviceOutputs, QueuedPacket};
use crate::run::counter::CounterData;
use crate::scheduler::{DequeueOutcome, LevelPause, PortScheduler, QueueCounts, QueueWait};
use crate::time::Nanos;
use crate::traffic::shared_buffer::PriorityGroup;

/// Whether a wire carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireState {
    /// It does.
    Up,
    /// Whatever is under way or sent from now on is lost, in both directions.
    Down,
}

/// One direction of a wire, by the end that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireDirectionIndex {
    /// The end that was named first when the wire was connected.
    FromFirst,
    /// The other one.
    FromSecond,
}

/// Packets of one direction of a wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// The queues at the sending end, from level 0.
    pub levels: Vec<QueueCounts>,
    /// Packets lost because the wire was down.
    pub lost: u64,
}

/// Packets that never got onto a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatedNetworkCounts {
    /// Sent to a port without a wire.
    pub unwired: u64,
    /// Sent to a controller that did not take them in time, or to none.
    pub packet_ins_lost: u64,
}

/// Everything in an emulated network.
#[derive(Debug, Default)]
pub(super) struct NetworkState {
    pub(super) now: Nanos,
    sequence: u64,
    events: BinaryHeap<Reverse<NetworkEvent>>,
    pub(super) devices: Vec<DeviceNode>,
    pub(super) endpoints: Vec<EndpointNode>,
    /// Wire `w` is lanes `2w` (from its first port) and `2w + 1`.
    pub(super) directions: Vec<WireDirection>,
    counts: EmulatedNetworkCounts,
    pub(super) outputs: DeviceOutputs,
    pub(super) outbox: EndpointOutbox,
}

#[derive(Debug)]
pub(super) struct DeviceNode {
    pub(super) device: Device,
    pub(super) directions: Vec<Option<u32>>,
    packet_ins: Option<mpsc::Sender<Vec<u8>>>,
    /// What its queues do beyond strict priority.
    pub(super) traffic: Option<Box<DeviceTraffic>>,
    port_states: watch::Sender<PortStates>,
    /// What its neighbours hear that it is called.
    pub(super) lldp_name: Option<String>,
}

pub(super) struct EndpointNode {
    pub(super) endpoint: Box<dyn NetworkEndpoint>,
    directions: Vec<Option<u32>>,
}

impl std::fmt::Debug for EndpointNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointNode").field("lanes", &self.directions).finish_non_exhaustive()
    }
}

/// One direction of a wire.
#[derive(Debug)]
pub(super) struct WireDirection {
    pub(super) scheduler: PortScheduler<WaitingPacket>,
    pub(super) from: WireEnd,
    pub(super) delay: Nanos,
    to: WireEnd,
    in_flight: VecDeque<InFlightPacket>,
    /// Whether a `Free` event is in the heap.
    wake_scheduled: bool,
    state: WireState,
    lost: u64,
    /// What has arrived at the other end.
    delivered: CounterData,
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) enum WaitingPacket {
    /// A packet of an endpoint.
    Packet(Vec<u8>),
    /// A packet of a device, by its number, before egress.
    Queued(u32, QueuedPacket),
}

#[derive(Debug)]
struct InFlightPacket {
    arrives: Nanos,
    sequence: u64,
    packet: Vec<u8>,
}

/// Something to happen; the derived order is by time, then by sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NetworkEvent {
    time: Nanos,
    sequence: u64,
    kind: NetworkEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NetworkEventKind {
    /// The first packet in flight of a wire direction arrives.
    Arrival(u32),
    /// A wire is free in one direction and packets wait.
    WireFree(u32),
    Timer {
        endpoint: u32,
        token: u64,
    },
    /// A pause frame takes effect at the sending end of a wire direction.
    Pause {
        direction: u32,
        level: u8,
        pause: LevelPause,
    },
    /// The pause of this number has lasted for as long as it may.
    PauseLimit {
        direction: u32,
        level: u8,
        number: u64,
    },
}

impl NetworkState {
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// When the next event happens.
    pub(super) fn next_event_time(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse(event)| event.time)
    }

    /// Moves the clock forward over a time in which nothing happens.
    pub(super) fn advance_to(&mut self, time: Nanos) {
        debug_assert!(self.next_event_time().is_none_or(|next| next >= time));
        self.now = self.now.max(time);
    }

    /// Lets the next event happen.
    pub(super) fn process_next_event(&mut self) {
        let Some(Reverse(event)) = self.events.pop() else {
            return;
        };
        self.now = event.time;
        match event.kind {
            NetworkEventKind::Arrival(lane) => self.deliver_arrival(lane, event.sequence),
            NetworkEventKind::WireFree(lane) => {
                self.directions[lane as usize].wake_scheduled = false;
                self.transmit_queued(lane);
                if let WireEnd::Device(device, _) = self.directions[lane as usize].from {
                    self.deliver_departures(device.0, PriorityGroup::NONE);
                }
            }
            NetworkEventKind::Timer { endpoint, token } => {
                let Self { endpoints, outbox, now, .. } = self;
                endpoints[endpoint as usize].endpoint.handle_timer(token, *now, outbox);
                self.deliver_outbox(endpoint);
            }
            NetworkEventKind::Pause { direction, level, pause } => {
                self.apply_pause(direction, level, pause);
            }
            NetworkEventKind::PauseLimit { direction, level, number } => {
                self.break_pause(direction, level, number);
            }
        }
    }

    pub(super) fn device_mut(&mut self, device: DeviceIndex) -> Option<&mut Device> {
        let node = self.devices.get_mut(device.0 as usize)?;
        node.device.advance_clock(self.now);
        Some(&mut node.device)
    }

    /// Gives a device a packet as if it had arrived on `port` now.
    pub(super) fn inject_packet(&mut self, device: DeviceIndex, port: u16, packet: &[u8]) {
        let Some(node) = self.devices.get_mut(device.0 as usize) else {
            return;
        };
        let mut buffer = self.outputs.take_buffer();
        buffer.extend_from_slice(packet);
        node.device.receive_packet(port, buffer, self.now, &mut self.outputs);
        self.deliver_departures(device.0, PriorityGroup::NONE);
    }

    /// Sends the device's packets for the controller here from now on.
    pub(super) fn set_packet_ins(&mut self, device: DeviceIndex, to: mpsc::Sender<Vec<u8>>) {
        if let Some(node) = self.devices.get_mut(device.0 as usize) {
            node.packet_ins = Some(to);
        }
    }

    /// Runs something on an endpoint of type `E` and carries out what it requests.
    pub(super) fn with_endpoint<E: NetworkEndpoint, R>(
        &mut self,
        endpoint: EndpointIndex,
        run: impl FnOnce(&mut E, Nanos, &mut EndpointOutbox) -> R,
    ) -> Option<R> {
        let node = self.endpoints.get_mut(endpoint.0 as usize)?;
        let any: &mut dyn std::any::Any = node.endpoint.as_mut();
        let result = run(any.downcast_mut()?, self.now, &mut self.outbox);
        self.deliver_outbox(endpoint.0);
        Some(result)
    }

    pub(super) fn set_wire_state(&mut self, wire: WireIndex, state: WireState) {
        for lane in self.directions.iter_mut().skip(wire.0 as usize * 2).take(2) {
            lane.state = state;
            if state == WireState::Down {
                lane.lost += lane.in_flight.len() as u64;
                lane.in_flight.clear();
            }
        }
        let lanes = self.directions.iter().skip(wire.0 as usize * 2).take(2);
        let ends: Vec<WireEnd> = lanes.map(|lane| lane.from).collect();
        for end in ends {
            self.publish_port_states(end);
            if let WireEnd::Nic(endpoint, nic) = end {
                let node = &mut self.endpoints[endpoint.0 as usize];
                node.endpoint.handle_carrier(nic, state, self.now, &mut self.outbox);
                self.deliver_outbox(endpoint.0);
            }
        }
    }

    /// Has one direction of a wire carry so many bits a second.
    pub(super) fn set_direction_rate(
        &mut self,
        wire: WireIndex,
        direction: WireDirectionIndex,
        bits_per_second: u64,
    ) {
        let lane = wire.0 as usize * 2 + usize::from(direction == WireDirectionIndex::FromSecond);
        if let Some(line) = self.directions.get_mut(lane) {
            line.scheduler.set_rate(bits_per_second);
        }
    }

    /// Both directions of a wire, that from its first port first.
    pub(super) fn wire_counts(&self, wire: WireIndex) -> Vec<WireCounts> {
        let directions = self.directions.iter().skip(wire.0 as usize * 2).take(2);
        directions
            .map(|direction| WireCounts {
                levels: direction.scheduler.queue_counts().collect(),
                lost: direction.lost,
            })
            .collect()
    }

    pub(super) fn counts(&self) -> EmulatedNetworkCounts {
        self.counts
    }

    fn deliver_arrival(&mut self, lane: u32, sequence: u64) {
        let line = &mut self.directions[lane as usize];
        // The wire may have gone down since, and taken the packet with it.
        if line.in_flight.front().is_none_or(|flight| flight.sequence != sequence) {
            return;
        }
        let Some(flight) = line.in_flight.pop_front() else {
            return;
        };
        let to = line.to;
        line.delivered.add_packet(flight.packet.len() as u64);
        if let Some(next) = line.in_flight.front() {
            let (time, sequence) = (next.arrives, next.sequence);
            self.events.push(Reverse(NetworkEvent {
                time,
                sequence,
                kind: NetworkEventKind::Arrival(lane),
            }));
        }
        match to {
            WireEnd::Device(device, port) => {
                let node = &mut self.devices[device.0 as usize];
                let group = match &node.traffic {
                    None => PriorityGroup::NONE,
                    Some(_) => PriorityGroup::of_frame(port, &flight.packet),
                };
                node.device.receive_packet(port, flight.packet, self.now, &mut self.outputs);
                self.deliver_departures(device.0, group);
            }
            WireEnd::Nic(endpoint, nic) => {
                let node = &mut self.endpoints[endpoint.0 as usize];
                node.endpoint.receive_packet(nic, &flight.packet, self.now, &mut self.outbox);
                self.outputs.recycle_buffer(flight.packet);
                self.deliver_outbox(endpoint.0);
            }
        }
    }

    /// Queues the departing packets of a device, and those that their egress makes; `group` is
    /// where the arriving packet counts that has made them.
    pub(super) fn deliver_departures(&mut self, device: u32, group: PriorityGroup) {
        while let Some(departure) = self.outputs.queued.pop_front() {
            let node = &self.devices[device as usize];
            if departure.port == node.device.config().cpu_port {
                self.send_packet_in(device, departure);
                continue;
            }
            let direction = node.directions.get(usize::from(departure.port)).copied().flatten();
            let (level, bytes) = (departure.level, departure.queued_bytes());
            let is_counted = node.traffic.is_some();
            let waiting = WaitingPacket::Queued(device, departure);
            match direction {
                Some(lane) if is_counted => self.enqueue_counted(lane, group, waiting),
                direction => self.enqueue_packet(direction, level, bytes, waiting),
            }
        }
    }

    /// The controller's port has no queue.
    fn send_packet_in(&mut self, device: u32, departure: QueuedPacket) {
        let node = &mut self.devices[device as usize];
        let (wait, outputs) = (QueueWait::no_wait(self.now), &mut self.outputs);
        if let Some(packet) = node.device.run_egress(departure, wait, self.now, outputs) {
            let sent = node.packet_ins.as_ref().map(|to| to.try_send(packet));
            self.counts.packet_ins_lost += u64::from(!matches!(sent, Some(Ok(()))));
        }
    }

    pub(super) fn deliver_outbox(&mut self, endpoint: u32) {
        let mut outbox = std::mem::take(&mut self.outbox);
        for (nic, packet) in outbox.sends.drain(..) {
            let lanes = &self.endpoints[endpoint as usize].directions;
            let lane = lanes.get(nic as usize).copied().flatten();
            self.enqueue_packet(lane, 0, packet.len() as u64, WaitingPacket::Packet(packet));
            // One buffer out, one back in, so that sending allocates nothing in the long run.
            outbox.spare.push(self.outputs.take_buffer());
        }
        for (at, token) in outbox.timers.drain(..) {
            self.schedule_event(at.max(self.now), NetworkEventKind::Timer { endpoint, token });
        }
        self.outbox = outbox;
    }

    pub(super) fn enqueue_packet(
        &mut self,
        lane: Option<u32>,
        level: u8,
        bytes: u64,
        waiting: WaitingPacket,
    ) {
        let Some(lane) = lane else {
            self.counts.unwired += 1;
            // Egress counts a packet whether or not there is a wire, as in bmv2.
            if let Some(packet) = self.run_egress(waiting, QueueWait::no_wait(self.now)) {
                self.outputs.recycle_buffer(packet);
            }
            return;
        };
        let (line, now) = (&mut self.directions[lane as usize], self.now);
        match line.scheduler.enqueue(level, waiting, bytes, now) {
            Ok(()) => self.transmit_queued(lane),
            Err(waiting) => self.discard_packet(waiting),
        }
    }

    /// Keeps the buffers of what is not sent.
    pub(super) fn discard_packet(&mut self, waiting: WaitingPacket) {
        match waiting {
            WaitingPacket::Packet(packet) => self.outputs.recycle_buffer(packet),
            WaitingPacket::Queued(device, departure) => {
                self.release_buffer(device, &departure);
                let device = &mut self.devices[device as usize].device;
                device.discard_packet(departure, &mut self.outputs);
            }
        }
    }

    /// Puts the next packet on the wire if it is free, and schedules the next attempt.
    /// What egress sends elsewhere is left among the departures of the outputs.
    pub(super) fn transmit_queued(&mut self, lane: u32) {
        if self.directions[lane as usize].wake_scheduled {
            return;
        }
        while let DequeueOutcome::Next(waiting, wait) =
            self.directions[lane as usize].scheduler.dequeue(self.now)
        {
            if let Some(packet) = self.run_egress(waiting, wait) {
                self.put_on_wire(lane, packet);
            }
        }
        let line = &mut self.directions[lane as usize];
        if line.scheduler.has_eligible() {
            line.wake_scheduled = true;
            let free_at = line.scheduler.free_at();
            self.schedule_event(free_at, NetworkEventKind::WireFree(lane));
        }
    }

    /// What goes on the wire of what has waited.
    fn run_egress(&mut self, waiting: WaitingPacket, wait: QueueWait) -> Option<Vec<u8>> {
        match waiting {
            WaitingPacket::Packet(packet) => Some(packet),
            WaitingPacket::Queued(device, departure) => {
                self.release_buffer(device, &departure);
                let device = &mut self.devices[device as usize].device;
                device.run_egress(departure, wait, self.now, &mut self.outputs)
            }
        }
    }

    fn put_on_wire(&mut self, lane: u32, packet: Vec<u8>) {
        let line = &mut self.directions[lane as usize];
        let sent_at = line.scheduler.occupy_wire(packet.len(), self.now);
        if line.state == WireState::Down {
            line.lost += 1;
            return self.outputs.recycle_buffer(packet);
        }
        self.sequence += 1;
        let (arrives, sequence) = (sent_at.saturating_add(line.delay), self.sequence);
        if line.in_flight.is_empty() {
            let what = NetworkEventKind::Arrival(lane);
            self.events.push(Reverse(NetworkEvent { time: arrives, sequence, kind: what }));
        }
        line.in_flight.push_back(InFlightPacket { arrives, sequence, packet });
    }

    pub(super) fn schedule_event(&mut self, time: Nanos, what: NetworkEventKind) {
        self.sequence += 1;
        self.events.push(Reverse(NetworkEvent { time, sequence: self.sequence, kind: what }));
    }
}
