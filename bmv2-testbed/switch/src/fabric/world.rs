//! The state of a fabric and what happens to it, one event at a time.
//!
//! Sans I/O and deterministic: events are ordered by time and then by the order in which they were
//! caused. A direction of a wire is a [`Lane`]: the sender's scheduler, then a line of packets in
//! flight. Since a wire keeps the order of its packets, only the first of each line is in the event
//! heap, which therefore stays as small as the fabric, however much is under way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tokio::sync::mpsc;

use super::{DeviceIndex, Endpoint, EndpointIndex, FabricError, Outbox, Port, Wire, WireIndex};
use crate::device::{Departure, Device, Nanos, Outputs};
use crate::scheduler::{Dequeued, QueueCounts, Scheduler, Wait};

/// Whether a wire carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireState {
    /// It does.
    Up,
    /// Whatever is under way or sent from now on is lost, in both directions.
    Down,
}

/// What one direction of a wire has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// The queues at the sending end, from level 0.
    pub levels: Vec<QueueCounts>,
    /// Packets lost because the wire was down.
    pub lost: u64,
}

/// Packets that never got onto a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounts {
    /// Sent to a port without a wire.
    pub unwired: u64,
    /// Sent to a controller that did not take them in time, or to none.
    pub packet_ins_lost: u64,
}

/// Everything in a fabric.
#[derive(Debug, Default)]
pub(super) struct World {
    now: Nanos,
    sequence: u64,
    events: BinaryHeap<Reverse<Event>>,
    devices: Vec<DeviceNode>,
    endpoints: Vec<EndpointNode>,
    /// Wire `w` is lanes `2w` (from its first port) and `2w + 1`.
    lanes: Vec<Lane>,
    counts: FabricCounts,
    outputs: Outputs,
    outbox: Outbox,
}

#[derive(Debug)]
struct DeviceNode {
    device: Device,
    lanes: Vec<Option<u32>>,
    packet_ins: Option<mpsc::Sender<Vec<u8>>>,
}

struct EndpointNode {
    endpoint: Box<dyn Endpoint>,
    lanes: Vec<Option<u32>>,
}

impl std::fmt::Debug for EndpointNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointNode")
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

/// One direction of a wire.
#[derive(Debug)]
struct Lane {
    scheduler: Scheduler<Waiting>,
    from: Port,
    delay: Nanos,
    to: Port,
    in_flight: VecDeque<Flight>,
    /// Whether a `Free` event is in the heap.
    wakes: bool,
    state: WireState,
    lost: u64,
}

/// What waits to be sent.
#[derive(Debug)]
enum Waiting {
    /// A packet of an endpoint.
    Packet(Vec<u8>),
    /// A packet of a device, by its number, before egress.
    Departure(u32, Departure),
}

#[derive(Debug)]
struct Flight {
    arrives: Nanos,
    sequence: u64,
    packet: Vec<u8>,
}

/// Something to happen; the derived order is by time, then by sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time: Nanos,
    sequence: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The first packet in flight on a lane arrives.
    Arrive(u32),
    /// A lane's wire is free and packets wait.
    Free(u32),
    Timer {
        endpoint: u32,
        token: u64,
    },
}

impl World {
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// When the next event happens.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse(event)| event.time)
    }

    /// Moves the clock forward over a time in which nothing happens.
    pub(super) fn advance_to(&mut self, time: Nanos) {
        debug_assert!(self.next_event().is_none_or(|next| next >= time));
        self.now = self.now.max(time);
    }

    /// Lets the next event happen.
    pub(super) fn step(&mut self) {
        let Some(Reverse(event)) = self.events.pop() else {
            return;
        };
        self.now = event.time;
        match event.what {
            What::Arrive(lane) => self.arrive(lane, event.sequence),
            What::Free(lane) => {
                self.lanes[lane as usize].wakes = false;
                self.transmit(lane);
                if let Port::Device(device, _) = self.lanes[lane as usize].from {
                    self.deliver_departures(device.0);
                }
            }
            What::Timer { endpoint, token } => {
                let Self {
                    endpoints,
                    outbox,
                    now,
                    ..
                } = self;
                endpoints[endpoint as usize]
                    .endpoint
                    .timer(token, *now, outbox);
                self.deliver_outbox(endpoint);
            }
        }
    }

    pub(super) fn device(&mut self, device: DeviceIndex) -> Option<&mut Device> {
        let node = self.devices.get_mut(device.0 as usize)?;
        node.device.advance(self.now);
        Some(&mut node.device)
    }

    /// Gives a device a packet as if it had arrived on `port` now.
    pub(super) fn inject(&mut self, device: DeviceIndex, port: u16, packet: &[u8]) {
        let Some(node) = self.devices.get_mut(device.0 as usize) else {
            return;
        };
        let mut buffer = self.outputs.buffer();
        buffer.extend_from_slice(packet);
        node.device
            .receive(port, buffer, self.now, &mut self.outputs);
        self.deliver_departures(device.0);
    }

    /// Sends the device's packets for the controller here from now on.
    pub(super) fn set_packet_ins(&mut self, device: DeviceIndex, to: mpsc::Sender<Vec<u8>>) {
        if let Some(node) = self.devices.get_mut(device.0 as usize) {
            node.packet_ins = Some(to);
        }
    }

    /// Runs something on an endpoint of type `E` and does what it asks for.
    pub(super) fn with_endpoint<E: Endpoint, R>(
        &mut self,
        endpoint: EndpointIndex,
        run: impl FnOnce(&mut E, Nanos, &mut Outbox) -> R,
    ) -> Option<R> {
        let node = self.endpoints.get_mut(endpoint.0 as usize)?;
        let any: &mut dyn std::any::Any = node.endpoint.as_mut();
        let result = run(any.downcast_mut()?, self.now, &mut self.outbox);
        self.deliver_outbox(endpoint.0);
        Some(result)
    }

    pub(super) fn set_wire(&mut self, wire: WireIndex, state: WireState) {
        for lane in self.lanes.iter_mut().skip(wire.0 as usize * 2).take(2) {
            lane.state = state;
            if state == WireState::Down {
                lane.lost += lane.in_flight.len() as u64;
                lane.in_flight.clear();
            }
        }
    }

    /// Both directions of a wire, that from its first port first.
    pub(super) fn wire_counts(&self, wire: WireIndex) -> Vec<WireCounts> {
        let lanes = self.lanes.iter().skip(wire.0 as usize * 2).take(2);
        let counts = |lane: &Lane| WireCounts {
            levels: lane.scheduler.counts().collect(),
            lost: lane.lost,
        };
        lanes.map(counts).collect()
    }

    pub(super) fn counts(&self) -> FabricCounts {
        self.counts
    }

    fn arrive(&mut self, lane: u32, sequence: u64) {
        let line = &mut self.lanes[lane as usize];
        // The wire may have gone down since, and taken the packet with it.
        if line
            .in_flight
            .front()
            .is_none_or(|flight| flight.sequence != sequence)
        {
            return;
        }
        let Some(flight) = line.in_flight.pop_front() else {
            return;
        };
        let to = line.to;
        if let Some(next) = line.in_flight.front() {
            let (time, sequence) = (next.arrives, next.sequence);
            self.events.push(Reverse(Event {
                time,
                sequence,
                what: What::Arrive(lane),
            }));
        }
        match to {
            Port::Device(device, port) => {
                let node = &mut self.devices[device.0 as usize];
                node.device
                    .receive(port, flight.packet, self.now, &mut self.outputs);
                self.deliver_departures(device.0);
            }
            Port::Nic(endpoint, nic) => {
                let node = &mut self.endpoints[endpoint.0 as usize];
                node.endpoint
                    .receive(nic, &flight.packet, self.now, &mut self.outbox);
                self.outputs.recycle(flight.packet);
                self.deliver_outbox(endpoint.0);
            }
        }
    }

    /// Queues what a device wants to send, and what follows from it.
    fn deliver_departures(&mut self, device: u32) {
        while let Some(departure) = self.outputs.departures.pop_front() {
            let node = &self.devices[device as usize];
            if departure.port == node.device.config().cpu_port {
                self.tell_controller(device, departure);
                continue;
            }
            let lane = node.lanes.get(usize::from(departure.port));
            let (level, bytes) = (departure.level, departure.bytes());
            let lane = lane.copied().flatten();
            self.send(lane, level, bytes, Waiting::Departure(device, departure));
        }
    }

    /// The controller's port has no queue.
    fn tell_controller(&mut self, device: u32, departure: Departure) {
        let node = &mut self.devices[device as usize];
        let (wait, outputs) = (Wait::none(self.now), &mut self.outputs);
        if let Some(packet) = node.device.depart(departure, wait, self.now, outputs) {
            let sent = node.packet_ins.as_ref().map(|to| to.try_send(packet));
            self.counts.packet_ins_lost += u64::from(!matches!(sent, Some(Ok(()))));
        }
    }

    fn deliver_outbox(&mut self, endpoint: u32) {
        let mut outbox = std::mem::take(&mut self.outbox);
        for (nic, packet) in outbox.sends.drain(..) {
            let lanes = &self.endpoints[endpoint as usize].lanes;
            let lane = lanes.get(nic as usize).copied().flatten();
            self.send(lane, 0, packet.len() as u64, Waiting::Packet(packet));
            // One buffer out, one back in, so that sending allocates nothing in the long run.
            outbox.spare.push(self.outputs.buffer());
        }
        for (at, token) in outbox.timers.drain(..) {
            self.schedule(at.max(self.now), What::Timer { endpoint, token });
        }
        self.outbox = outbox;
    }

    fn send(&mut self, lane: Option<u32>, level: u8, bytes: u64, waiting: Waiting) {
        let Some(lane) = lane else {
            self.counts.unwired += 1;
            return self.discard(waiting);
        };
        let (line, now) = (&mut self.lanes[lane as usize], self.now);
        match line.scheduler.enqueue(level, waiting, bytes, now) {
            Ok(()) => self.transmit(lane),
            Err(waiting) => self.discard(waiting),
        }
    }

    /// Keeps the buffers of what is not sent.
    fn discard(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Packet(packet) => self.outputs.recycle(packet),
            Waiting::Departure(device, departure) => {
                let device = &mut self.devices[device as usize].device;
                device.discard(departure, &mut self.outputs);
            }
        }
    }

    /// Puts the next packet on a lane's wire if it is free, and sees to it that the rest follows.
    /// What egress sends elsewhere is left among the departures of the outputs.
    fn transmit(&mut self, lane: u32) {
        if self.lanes[lane as usize].wakes {
            return;
        }
        while let Dequeued::Next(waiting, wait) =
            self.lanes[lane as usize].scheduler.dequeue(self.now)
        {
            if let Some(packet) = self.finish(waiting, wait) {
                self.launch(lane, packet);
            }
        }
        let line = &mut self.lanes[lane as usize];
        if !line.scheduler.is_empty() {
            line.wakes = true;
            let free_at = line.scheduler.free_at();
            self.schedule(free_at, What::Free(lane));
        }
    }

    /// What goes on the wire of what has waited.
    fn finish(&mut self, waiting: Waiting, wait: Wait) -> Option<Vec<u8>> {
        match waiting {
            Waiting::Packet(packet) => Some(packet),
            Waiting::Departure(device, departure) => {
                let device = &mut self.devices[device as usize].device;
                device.depart(departure, wait, self.now, &mut self.outputs)
            }
        }
    }

    fn launch(&mut self, lane: u32, packet: Vec<u8>) {
        let line = &mut self.lanes[lane as usize];
        let sent_at = line.scheduler.occupy(packet.len(), self.now);
        if line.state == WireState::Down {
            line.lost += 1;
            return self.outputs.recycle(packet);
        }
        self.sequence += 1;
        let (arrives, sequence) = (sent_at.saturating_add(line.delay), self.sequence);
        if line.in_flight.is_empty() {
            let what = What::Arrive(lane);
            self.events.push(Reverse(Event {
                time: arrives,
                sequence,
                what,
            }));
        }
        line.in_flight.push_back(Flight {
            arrives,
            sequence,
            packet,
        });
    }

    fn schedule(&mut self, time: Nanos, what: What) {
        self.sequence += 1;
        self.events.push(Reverse(Event {
            time,
            sequence: self.sequence,
            what,
        }));
    }
}

/// Building.
impl World {
    pub(super) fn add_device(&mut self, device: Device) -> DeviceIndex {
        self.devices.push(DeviceNode {
            device,
            lanes: Vec::new(),
            packet_ins: None,
        });
        DeviceIndex(self.devices.len() as u32 - 1)
    }

    pub(super) fn add_endpoint(&mut self, endpoint: Box<dyn Endpoint>) -> EndpointIndex {
        self.endpoints.push(EndpointNode {
            endpoint,
            lanes: Vec::new(),
        });
        EndpointIndex(self.endpoints.len() as u32 - 1)
    }

    /// Whether a port exists and has no wire yet.
    pub(super) fn check_free(&self, port: Port) -> Result<(), FabricError> {
        let lane = match port {
            Port::Device(device, port) => {
                let node = self.devices.get(device.0 as usize);
                node.map(|node| node.lanes.get(usize::from(port)).copied().flatten())
            }
            Port::Nic(endpoint, nic) => {
                let node = self.endpoints.get(endpoint.0 as usize);
                node.map(|node| node.lanes.get(nic as usize).copied().flatten())
            }
        };
        match lane {
            None => Err(FabricError::UnknownPort(port)),
            Some(Some(_)) => Err(FabricError::PortTaken(port)),
            Some(None) => Ok(()),
        }
    }

    /// Joins two free ports.
    pub(super) fn connect(&mut self, a: Port, b: Port, wire: Wire) -> WireIndex {
        let first = self.lanes.len() as u32;
        for (from, to, lane) in [(a, b, first), (b, a, first + 1)] {
            let levels = match from {
                Port::Device(device, _) => self.devices[device.0 as usize].device.config().levels,
                Port::Nic(..) => 1,
            };
            self.lanes.push(Lane {
                scheduler: Scheduler::new(levels, wire.bits_per_second, wire.queue),
                from,
                delay: wire.delay_ns,
                to,
                in_flight: VecDeque::new(),
                wakes: false,
                state: WireState::Up,
                lost: 0,
            });
            let (lanes, at) = match from {
                Port::Device(device, port) => (
                    &mut self.devices[device.0 as usize].lanes,
                    usize::from(port),
                ),
                Port::Nic(endpoint, nic) => {
                    (&mut self.endpoints[endpoint.0 as usize].lanes, nic as usize)
                }
            };
            if lanes.len() <= at {
                lanes.resize(at + 1, None);
            }
            lanes[at] = Some(lane);
        }
        WireIndex(first / 2)
    }
}
