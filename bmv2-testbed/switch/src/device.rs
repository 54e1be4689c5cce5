//! One switch, sans I/O: packets in, packets out, and the control API.
//!
//! A `Device` runs a [`Program`] as simple_switch does: parse, ingress, queues, egress, deparse. It
//! reads no clock and owns no port and no queue. Its owner (`emulated_network`, `ports`) gives it
//! packets with their time, queues departing packets, and runs their egress when a port is free.
//! The P4Runtime service writes its tables. It belongs to one thread. The decision behind it: a
//! packet waits as a header vector between the two halves, so that egress sees how long it waited,
//! and egress counts nothing that a queue has dropped.

mod control;
pub(crate) mod handle;
mod objects;
mod packet_run;
mod pending_digests;
pub(crate) mod port_report;
pub(crate) mod replication;
mod standard_metadata;

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::device::replication::ReplicationEngine;
use crate::ids::LearnListIndex;
use crate::run::arrays::StatefulArrays;
use crate::run::parser::ValueSetMember;
use crate::run::profile::{ActionProfile, LivePorts};
use crate::run::program::Program;
use crate::run::table::MatchTable;
use crate::scheduler::QueueWait;
use crate::time::Nanos;
use crate::traffic::shared_buffer::PriorityGroup;
use packet_run::{BufferedPacket, PacketRun, Recirculation};
use pending_digests::PendingDigests;
use port_report::PortState;

/// Fixed properties of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The P4Runtime device id.
    pub device_id: u64,
    /// The port that leads to the controller.
    pub cpu_port: u16,
    /// Priority queues per port, 1 to 8. Level 0 is served last.
    pub levels: u8,
    /// Whether packets have the level of their DSCP's class selector unless the program gives them
    /// another one, as on a switch whose ports map DSCP to queues. BMv2 begins with level 0.
    pub trusts_dscp: bool,
}

/// Counts of a device's packets, apart from its P4 counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Packets given to [`Device::receive_packet`].
    pub received: u64,
    /// Packets handed out, to ports or to the controller.
    pub sent: u64,
    /// Dropped by the program, in ingress or egress.
    pub dropped_by_program: u64,
    /// Dropped because `standard_metadata.priority` was not below the number of levels, as
    /// simple_switch does.
    pub dropped_by_priority: u64,
    /// Dropped because they were sent to a multicast group that has no copies.
    pub dropped_by_multicast: u64,
    /// Dropped because an assertion of the program failed, where simple_switch ends itself.
    pub dropped_by_assertion: u64,
    /// Copies dropped because one packet had made too many, or recirculated too often.
    pub dropped_by_loop: u64,
    /// Dropped because no program was loaded, or another one while they waited.
    pub dropped_without_program: u64,
    /// Packets whose parser ended in an error; the program decides about them.
    pub parser_errors: u64,
}

/// A packet that leaves a device.
#[derive(Debug, PartialEq, Eq)]
pub struct OutputPacket {
    /// The egress port, possibly the CPU port.
    pub port: u16,
    /// Its priority level, below [`DeviceConfig::levels`].
    pub level: u8,
    /// The packet.
    pub packet: Vec<u8>,
}

/// A packet after ingress that waits for its port.
#[derive(Debug)]
pub struct QueuedPacket {
    /// The egress port, possibly the CPU port.
    pub port: u16,
    /// Its priority level, below [`DeviceConfig::levels`].
    pub level: u8,
    /// Where it counts in the shared buffer, if the device has one.
    pub(crate) group: PriorityGroup,
    buffered: Box<BufferedPacket>,
}

impl QueuedPacket {
    /// Bytes of the packet as it arrived, which is what it takes in a queue.
    pub fn queued_bytes(&self) -> u64 {
        self.buffered.arrived_bytes
    }
}

/// A message of a packet to the controller (v1model's `digest`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    /// Which list of fields.
    pub list: LearnListIndex,
    /// Their values, in order.
    pub values: Vec<u128>,
}

/// Where a device puts the packets that leave it, with buffers to reuse.
#[derive(Debug, Default)]
pub struct DeviceOutputs {
    /// What [`Device::process_packet`] has sent since the caller last took it.
    pub packets: Vec<OutputPacket>,
    /// What is to wait for its port, in the order of time.
    pub queued: VecDeque<QueuedPacket>,
    spare_buffers: Vec<Vec<u8>>,
}

/// More spare buffers than this are given back to the allocator.
const SPARE_LIMIT: usize = 4096;

impl DeviceOutputs {
    /// Gives a buffer back once its packet has been consumed.
    pub fn recycle_buffer(&mut self, mut packet: Vec<u8>) {
        if self.spare_buffers.len() < SPARE_LIMIT {
            packet.clear();
            self.spare_buffers.push(packet);
        }
    }

    /// Returns an empty buffer, a used one if there is any.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.spare_buffers.pop().unwrap_or_default()
    }
}

/// A switch: ports, queues, tables and the program that it runs.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    counts: DeviceCounts,
    now: Nanos,
    /// How often a program has been loaded.
    loads: u64,
    loaded: Option<LoadedProgram>,
    digests: PendingDigests,
    live_ports: LivePorts,
}

/// A program with the state of its objects on this device.
#[derive(Debug)]
struct LoadedProgram {
    program: Arc<Program>,
    tables: Vec<MatchTable>,
    profiles: Vec<ActionProfile>,
    arrays: StatefulArrays,
    replication: ReplicationEngine,
    value_sets: Vec<Vec<ValueSetMember>>,
    /// Resubmitted and recirculated packets that wait.
    recirculations: VecDeque<Recirculation>,
    scratch: Vec<u8>,
    /// Packet buffers to use again.
    #[expect(clippy::vec_box, reason = "they are moved to queues and back, as pointers")]
    spare_packets: Vec<Box<BufferedPacket>>,
    /// Which load of a program this is.
    load_number: u64,
    /// Copies and rounds since the last arrival or instant.
    pass_count: u32,
}

impl Device {
    /// A device without a program: it drops every packet.
    pub fn new(config: DeviceConfig) -> Self {
        let (counts, digests) = (DeviceCounts::default(), PendingDigests::default());
        let live_ports = LivePorts::default();
        Self { config, counts, now: 0, loads: 0, loaded: None, digests, live_ports }
    }

    /// The fixed properties of the device.
    pub fn config(&self) -> DeviceConfig {
        self.config
    }

    /// Counts of its packets.
    pub fn counts(&self) -> DeviceCounts {
        self.counts
    }

    /// The program it runs.
    pub fn program(&self) -> Option<&Arc<Program>> {
        self.loaded.as_ref().map(|loaded| &loaded.program)
    }

    /// Starts running a program, with the entries the program itself has and nothing else.
    pub fn load_program(&mut self, program: Arc<Program>) {
        self.loads += 1;
        self.digests.take();
        let (seed, live_ports) = (self.config.device_id, &self.live_ports);
        self.loaded = Some(LoadedProgram::new(program, seed, self.loads, live_ports));
    }

    /// Tells the device which of its ports carry packets. Before the first call all do.
    pub fn set_port_states(&mut self, states: &[(u16, PortState)]) {
        let up = states.iter().filter(|(_, state)| *state == PortState::Up);
        let live_ports = up.map(|(port, _)| *port).chain([self.config.cpu_port]);
        let live_ports = LivePorts::reported(live_ports);
        if self.live_ports == live_ports {
            return;
        }
        for profile in self.loaded.iter_mut().flat_map(|loaded| &mut loaded.profiles) {
            profile.set_live_ports(&live_ports);
        }
        self.live_ports = live_ports;
    }

    /// Forgets the program and everything written to it.
    pub fn unload_program(&mut self) {
        self.digests.take();
        self.loaded = None;
    }

    /// Advances the clock of the device, so that control calls see the current time; an earlier
    /// time changes nothing.
    pub fn advance_clock(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// The time of the last [`Device::advance_clock`].
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The digests since the last call; at most 8192 wait, more are lost.
    pub fn take_digests(&mut self) -> Vec<Digest> {
        self.digests.take()
    }

    /// Notified when there is a digest or an idle timeout, so that there may be something to report
    /// to the controller; one permit is kept while nobody waits.
    pub fn notice_signal(&self) -> Arc<Notify> {
        self.digests.signal()
    }

    /// Takes one packet that arrives on `port` at `now` through the switch as if no port had a
    /// queue; what leaves is appended to `out.packets`.
    pub fn process_packet(
        &mut self,
        port: u16,
        packet: &[u8],
        now: Nanos,
        out: &mut DeviceOutputs,
    ) {
        let mut buffer = out.take_buffer();
        buffer.extend_from_slice(packet);
        self.receive_packet(port, buffer, now, out);
        while let Some(departure) = out.queued.pop_front() {
            let (port, level) = (departure.port, departure.level);
            if let Some(packet) = self.run_egress(departure, QueueWait::no_wait(now), now, out) {
                out.packets.push(OutputPacket { port, level, packet });
            }
        }
    }

    /// Takes one packet that arrives on `port` at `now` through ingress; packets to
    /// send are appended to `out.queued`.
    pub fn receive_packet(
        &mut self,
        port: u16,
        packet: Vec<u8>,
        now: Nanos,
        out: &mut DeviceOutputs,
    ) {
        self.counts.received += 1;
        self.advance_clock(now);
        match self.packet_run(now, out) {
            Some(mut passage) => {
                *passage.pass_count = 0;
                passage.process_arrival(port, packet);
            }
            None => {
                self.counts.dropped_without_program += 1;
                out.recycle_buffer(packet);
            }
        }
    }

    /// Runs egress on a packet that has waited and returns what goes on the wire. What egress sends
    /// elsewhere is appended to `out.queued`.
    pub fn run_egress(
        &mut self,
        departure: QueuedPacket,
        wait: QueueWait,
        now: Nanos,
        out: &mut DeviceOutputs,
    ) -> Option<Vec<u8>> {
        let goes_on = now > self.now;
        self.advance_clock(now);
        match self.packet_run(now, out) {
            Some(mut passage) if passage.load_number == departure.buffered.load_number => {
                *passage.pass_count *= u32::from(!goes_on);
                passage.process_departure(departure, wait)
            }
            _ => {
                self.counts.dropped_without_program += 1;
                None
            }
        }
    }

    /// Takes back a packet that a full queue has refused and counted.
    pub fn discard_packet(&mut self, departure: QueuedPacket, out: &mut DeviceOutputs) {
        if let Some(mut passage) = self.packet_run(self.now, out) {
            passage.recycle_packet(departure.buffered);
        }
    }

    fn packet_run<'a>(
        &'a mut self,
        now: Nanos,
        out: &'a mut DeviceOutputs,
    ) -> Option<PacketRun<'a>> {
        let loaded = self.loaded.as_mut()?;
        Some(PacketRun {
            program: &loaded.program,
            tables: &mut loaded.tables,
            profiles: &loaded.profiles,
            arrays: &mut loaded.arrays,
            replication: &loaded.replication,
            value_sets: &loaded.value_sets,
            scratch: &mut loaded.scratch,
            recirculations: &mut loaded.recirculations,
            digests: &mut self.digests,
            spare_packets: &mut loaded.spare_packets,
            load_number: loaded.load_number,
            pass_count: &mut loaded.pass_count,
            now,
            levels: self.config.levels,
            trusts_dscp: self.config.trusts_dscp,
            counts: &mut self.counts,
            out,
        })
    }
}

impl LoadedProgram {
    fn new(program: Arc<Program>, seed: u64, epoch: u64, live_ports: &LivePorts) -> Self {
        let profiles = program.profiles.iter();
        let profiles = profiles.map(|spec| ActionProfile::new(spec.size, live_ports.clone()));
        Self {
            tables: program.tables.iter().map(MatchTable::new).collect(),
            profiles: profiles.collect(),
            arrays: StatefulArrays::new(
                &program.counters,
                &program.meters,
                &program.registers,
                seed,
            ),
            replication: ReplicationEngine::default(),
            value_sets: vec![Vec::new(); program.value_sets.len()],
            recirculations: VecDeque::new(),
            scratch: Vec::new(),
            spare_packets: Vec::new(),
            load_number: epoch,
            pass_count: 0,
            program,
        }
    }
}
