//! One switch, sans I/O: packets in, packets out, and the control API.
//!
//! A `Device` runs a [`Program`] as simple_switch does: parse, ingress, traffic manager, egress,
//! deparse. It reads no clock and owns no port; `fabric` gives it packets with their time and
//! queues what comes out, and the P4Runtime service writes its tables. It belongs to one thread.
//! The decision behind it: the queues of a port stand behind egress, as a kernel queue does on a
//! port of BMv2, so a program that asks how long a packet was queued is refused when it is loaded.

mod control;

use std::sync::Arc;

use crate::action::{DROP_PORT, Machine};
use crate::counter::Count;
use crate::phv::{Field, Phv};
use crate::pipeline::Lookups;
use crate::profile::Profile;
use crate::program::Program;
use crate::table::Table;

/// Virtual time, in nanoseconds since the fabric started.
pub type Nanos = u64;

/// What a device is from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The P4Runtime device id.
    pub device_id: u64,
    /// The port that leads to the controller.
    pub cpu_port: u16,
    /// Priority queues per port, 1 to 8. Level 0 is served last.
    pub levels: u8,
}

/// What has become of a device's packets, apart from its P4 counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Packets given to [`Device::process`].
    pub received: u64,
    /// Packets handed out, to ports or to the controller.
    pub sent: u64,
    /// Dropped by the program, in ingress or egress.
    pub dropped_by_program: u64,
    /// Dropped because `standard_metadata.priority` was not below the number of levels, as
    /// simple_switch does.
    pub dropped_by_priority: u64,
    /// Dropped because they were sent to a multicast group, and none is configured.
    pub dropped_by_multicast: u64,
    /// Dropped because no program was loaded.
    pub dropped_without_program: u64,
    /// Packets whose parser ended in an error; the program decides what becomes of them.
    pub parser_errors: u64,
}

/// A packet that leaves a device.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    /// The egress port, possibly the CPU port.
    pub port: u16,
    /// Its priority level, below [`DeviceConfig::levels`].
    pub level: u8,
    /// The packet.
    pub packet: Vec<u8>,
}

/// Where a device puts the packets that leave it, with buffers to reuse.
#[derive(Debug, Default)]
pub struct Outputs {
    /// What came out since the caller last took it.
    pub packets: Vec<Output>,
    spare: Vec<Vec<u8>>,
}

/// More spare buffers than this are given back to the allocator.
const SPARE_LIMIT: usize = 4096;

impl Outputs {
    /// Gives a buffer back once its packet has been consumed.
    pub fn recycle(&mut self, mut packet: Vec<u8>) {
        if self.spare.len() < SPARE_LIMIT {
            packet.clear();
            self.spare.push(packet);
        }
    }

    /// An empty buffer.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}

/// One switch.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    counts: DeviceCounts,
    loaded: Option<Loaded>,
}

/// A program with the state of its objects on this device.
#[derive(Debug)]
struct Loaded {
    program: Arc<Program>,
    tables: Vec<Table>,
    profiles: Vec<Profile>,
    counters: Vec<Vec<Count>>,
    phv: Phv,
    scratch: Vec<u8>,
}

/// What the traffic manager decides after ingress.
enum Verdict {
    Forward { port: u16, level: u8 },
    Program,
    Priority,
    Multicast,
}

impl Device {
    /// A device without a program: it drops every packet.
    pub fn new(config: DeviceConfig) -> Self {
        Self {
            config,
            counts: DeviceCounts::default(),
            loaded: None,
        }
    }

    /// What the device was made as.
    pub fn config(&self) -> DeviceConfig {
        self.config
    }

    /// What has become of its packets.
    pub fn counts(&self) -> DeviceCounts {
        self.counts
    }

    /// The program it runs.
    pub fn program(&self) -> Option<&Arc<Program>> {
        self.loaded.as_ref().map(|loaded| &loaded.program)
    }

    /// Starts running a program, with the entries the program itself has and nothing else.
    pub fn load(&mut self, program: Arc<Program>) {
        self.loaded = Some(Loaded::new(program));
    }

    /// Forgets the program and everything written to it.
    pub fn unload(&mut self) {
        self.loaded = None;
    }

    /// Takes one packet that arrives on `port` at `now` through the switch; what leaves is appended
    /// to `out`.
    pub fn process(&mut self, port: u16, packet: &[u8], now: Nanos, out: &mut Outputs) {
        self.counts.received += 1;
        match &mut self.loaded {
            None => self.counts.dropped_without_program += 1,
            Some(loaded) => {
                let arrival = Arrival {
                    port,
                    packet,
                    now,
                    levels: self.config.levels,
                };
                loaded.process(&arrival, &mut self.counts, out);
            }
        }
    }
}

/// One packet as it arrives.
struct Arrival<'a> {
    port: u16,
    packet: &'a [u8],
    now: Nanos,
    levels: u8,
}

impl Loaded {
    fn new(program: Arc<Program>) -> Self {
        Self {
            tables: program.tables.iter().map(Table::new).collect(),
            profiles: program
                .profiles
                .iter()
                .map(|spec| Profile::new(spec.size))
                .collect(),
            counters: program
                .counters
                .iter()
                .map(|c| vec![Count::default(); c.size])
                .collect(),
            phv: Phv::new(program.slots, program.metadata.clone()),
            scratch: Vec::new(),
            program,
        }
    }

    fn process(&mut self, arrival: &Arrival<'_>, counts: &mut DeviceCounts, out: &mut Outputs) {
        let Self {
            program,
            tables,
            profiles,
            counters,
            phv,
            scratch,
        } = self;
        let standard = &program.standard;
        let bytes = arrival.packet.len();
        phv.reset(bytes as u32);
        phv.assign(standard.ingress_port, i128::from(arrival.port));
        phv.assign(standard.packet_length, bytes as i128);
        assign(phv, standard.ingress_timestamp, micros(arrival.now));
        let mut machine = Machine {
            phv,
            counters,
            scratch,
            payload: &[],
            arrived_bytes: bytes as u64,
            exit: false,
        };
        let mut lookups = Lookups {
            actions: &program.actions,
            profile_specs: &program.profiles,
            tables,
            profiles,
        };
        let parsed = program.parser.parse(arrival.packet, &mut machine);
        machine.payload = &arrival.packet[parsed.bytes..];
        counts.parser_errors += u64::from(parsed.error != program.parser.errors.none);
        assign(machine.phv, standard.parser_error, i128::from(parsed.error));
        let wrong = program
            .verifications
            .iter()
            .any(|sum| !sum.holds(&mut machine));
        assign(machine.phv, standard.checksum_error, i128::from(wrong));

        program.ingress.run(&mut lookups, &mut machine);
        let (port, level) = match standard.verdict(machine.phv, arrival.levels) {
            Verdict::Forward { port, level } => (port, level),
            Verdict::Program => return counts.dropped_by_program += 1,
            Verdict::Priority => return counts.dropped_by_priority += 1,
            Verdict::Multicast => return counts.dropped_by_multicast += 1,
        };

        standard.enter_egress(machine.phv, port, arrival.now);
        program.egress.run(&mut lookups, &mut machine);
        if machine.phv.get(standard.egress_spec.slot) == u128::from(DROP_PORT) {
            return counts.dropped_by_program += 1;
        }
        let mut packet = out.buffer();
        program.deparser.deparse(&mut machine, &mut packet);
        out.packets.push(Output {
            port,
            level,
            packet,
        });
        counts.sent += 1;
    }
}

/// The fields of `standard_metadata` that simple_switch itself reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardMetadata {
    pub(crate) ingress_port: Field,
    pub(crate) egress_spec: Field,
    pub(crate) egress_port: Field,
    pub(crate) packet_length: Field,
    pub(crate) priority: Option<Field>,
    pub(crate) multicast: Option<Field>,
    pub(crate) parser_error: Option<Field>,
    pub(crate) checksum_error: Option<Field>,
    pub(crate) ingress_timestamp: Option<Field>,
    pub(crate) egress_timestamp: Option<Field>,
    pub(crate) enqueue_timestamp: Option<Field>,
}

impl StandardMetadata {
    /// What ingress decided about the packet.
    fn verdict(&self, phv: &Phv, levels: u8) -> Verdict {
        let read = |field: Option<Field>| field.map_or(0, |field| phv.get(field.slot));
        let port = phv.get(self.egress_spec.slot) as u16;
        let level = read(self.priority);
        if read(self.multicast) != 0 {
            Verdict::Multicast
        } else if port == DROP_PORT {
            Verdict::Program
        } else if level >= u128::from(levels) {
            Verdict::Priority
        } else {
            Verdict::Forward {
                port,
                level: level as u8,
            }
        }
    }

    fn enter_egress(&self, phv: &mut Phv, port: u16, now: Nanos) {
        phv.assign(self.egress_port, i128::from(port));
        // Not the drop port, so that egress drops only on purpose.
        phv.assign(self.egress_spec, i128::from(DROP_PORT) + 1);
        phv.assign(self.packet_length, i128::from(phv.packet_length));
        assign(phv, self.enqueue_timestamp, micros(now));
        assign(phv, self.egress_timestamp, micros(now));
    }
}

fn assign(phv: &mut Phv, field: Option<Field>, value: i128) {
    if let Some(field) = field {
        phv.assign(field, value);
    }
}

/// Timestamps of v1model are in microseconds.
fn micros(now: Nanos) -> i128 {
    i128::from(now / 1_000)
}
