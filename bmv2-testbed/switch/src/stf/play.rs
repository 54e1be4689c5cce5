//! Playing a case on a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::value::{Pattern, masked, number};
use super::{Call, Case, Entry, Statement, StfError};
use crate::control::{ActionCall, ControlError, KeyField, MatchKey, Target};
use crate::device::{Device, DeviceConfig, Outputs};
use crate::phv::mask;
use crate::program::{ActionIndex, KeySpec, MatchKind, Program, TableIndex, TableSpec};
use crate::replication::{Change, CloneSession, Replica};

impl Case {
    /// Plays the case on a new device that runs the program.
    ///
    /// # Errors
    ///
    /// When a statement cannot be carried out, or what comes out is not what is expected.
    pub fn run(&self, program: &Arc<Program>) -> Result<(), StfError> {
        let mut device = Device::new(DeviceConfig {
            device_id: 1,
            cpu_port: 510,
            levels: 8,
        });
        device.load(Arc::clone(program));
        let mut play = Play::new(program, device);
        for (line, statement) in &self.statements {
            play.step(statement).map_err(|problem| problem.at(*line))?;
        }
        play.compare()
    }
}

/// What is wrong with a statement.
enum Problem {
    Unknown(String),
    Refused(ControlError),
    Differs(String),
}

impl Problem {
    fn at(self, line: usize) -> StfError {
        match self {
            Self::Unknown(problem) => StfError::Syntax { line, problem },
            Self::Refused(error) => StfError::Refused { line, error },
            Self::Differs(what) => StfError::Differs(format!("line {line}: {what}")),
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        Self::Refused(error)
    }
}

struct Play<'a> {
    program: &'a Program,
    device: Device,
    sent: BTreeMap<u16, Vec<Vec<u8>>>,
    expected: BTreeMap<u16, Vec<Option<Pattern>>>,
    nodes: Vec<Vec<Replica>>,
    groups: BTreeMap<u16, Vec<Replica>>,
}

impl<'a> Play<'a> {
    fn new(program: &'a Program, device: Device) -> Self {
        Self {
            program,
            device,
            sent: BTreeMap::new(),
            expected: BTreeMap::new(),
            nodes: Vec::new(),
            groups: BTreeMap::new(),
        }
    }

    fn step(&mut self, statement: &Statement) -> Result<(), Problem> {
        match statement {
            Statement::Add(entry) => self.add(entry)?,
            Statement::SetDefault { table, call } => {
                let (index, spec) = self.table(table)?;
                let call = self.call(&spec.actions, call)?;
                self.device.set_default(index, call)?;
            }
            Statement::Packet { port, bytes } => self.send(*port, bytes),
            Statement::Expect { port, pattern } => {
                self.expected
                    .entry(*port)
                    .or_default()
                    .push(pattern.clone());
            }
            Statement::CheckCounter {
                name,
                cell,
                packets,
            } => {
                let mut counters = self.program.names.counters.iter();
                let found = counters.find(|(full, _)| is_named(full, name));
                let index = found.map(|(_, index)| *index);
                let index = index.ok_or_else(|| unknown("counter", name))?;
                let cells = self.device.counter(index)?;
                let counted = cells.get(*cell).map_or(0, |count| count.packets);
                if counted != *packets {
                    let what = format!("{name}({cell}) counted {counted} packets, not {packets}");
                    return Err(Problem::Differs(what));
                }
            }
            Statement::Wait => {}
            Statement::WriteRegister { .. }
            | Statement::ResetRegister { .. }
            | Statement::ReadRegister { .. } => self.register(statement)?,
            _ => self.replicate(statement)?,
        }
        Ok(())
    }

    fn send(&mut self, port: u16, bytes: &[u8]) {
        let mut out = Outputs::default();
        self.device.process(port, bytes, 0, &mut out);
        for output in out.packets {
            self.sent
                .entry(output.port)
                .or_default()
                .push(output.packet);
        }
    }

    fn add(&mut self, entry: &Entry) -> Result<(), Problem> {
        let (index, spec) = self.table(&entry.table)?;
        let mut fields = Vec::new();
        for key in &spec.keys {
            let given = entry.keys.iter().find(|(name, _)| is_key(key, name));
            fields.push(match given {
                Some((_, text)) => field(key, text).ok_or_else(|| unknown("value", text))?,
                None => anything(key).ok_or_else(|| unknown("key", &key.name))?,
            });
        }
        let priority = match spec.takes_priority() {
            true => entry.priority.unwrap_or(0) + 1,
            false => 0,
        };
        let call = self.call(&spec.actions, &entry.call)?;
        let key = MatchKey { fields, priority };
        self.device.insert(index, key, Target::Action(call))?;
        Ok(())
    }

    fn call(&self, allowed: &[ActionIndex], call: &Call) -> Result<ActionCall, Problem> {
        let named = |action: &&ActionIndex| {
            let spec = self.program.action(**action);
            spec.is_some_and(|spec| is_named(&spec.name, &call.action))
        };
        let action = *allowed
            .iter()
            .find(named)
            .ok_or_else(|| unknown("action", &call.action))?;
        let parameters = self
            .program
            .action(action)
            .map_or(&[][..], |spec| &spec.parameters);
        let argument = |name: &String| {
            let given = call.arguments.iter().find(|(given, _)| given == name);
            given
                .and_then(|(_, text)| number(text))
                .ok_or_else(|| unknown("argument", name))
        };
        let arguments = parameters.iter().map(|parameter| argument(&parameter.name));
        Ok(ActionCall {
            action,
            arguments: arguments.collect::<Result<_, _>>()?,
        })
    }

    fn table(&self, name: &str) -> Result<(TableIndex, TableSpec), Problem> {
        let mut tables = self.program.tables();
        let exact = self.program.table_named(name);
        let found = match exact {
            Some(index) => self.program.table(index).map(|spec| (index, spec)),
            None => tables.find(|(_, spec)| is_named(&spec.name, name)),
        };
        let (index, spec) = found.ok_or_else(|| unknown("table", name))?;
        Ok((index, spec.clone()))
    }

    fn register(&mut self, statement: &Statement) -> Result<(), Problem> {
        let (Statement::WriteRegister { name, .. }
        | Statement::ResetRegister { name }
        | Statement::ReadRegister { name, .. }) = statement
        else {
            return Ok(());
        };
        let mut registers = self.program.names.registers.iter();
        let found = registers
            .find(|(full, _)| is_named(full, name))
            .map(|(_, index)| *index);
        let register = found.ok_or_else(|| unknown("register", name))?;
        let size = self.device.register(register)?.len();
        match statement {
            Statement::WriteRegister { cell, value, .. } => {
                self.device.set_register(register, *cell, *value)?;
            }
            Statement::ReadRegister { cell, .. } if *cell >= size => {
                return Err(ControlError::NoSuchCell { cell: *cell, size }.into());
            }
            Statement::ResetRegister { .. } => {
                for cell in 0..size {
                    self.device.set_register(register, cell, 0)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn replicate(&mut self, statement: &Statement) -> Result<(), Problem> {
        match statement {
            Statement::Mirror { session, port } => {
                let replicas = vec![Replica {
                    port: *port,
                    instance: 0,
                }];
                let session_of = CloneSession {
                    replicas,
                    packet_bytes: 0,
                };
                self.device
                    .write_clone_session(Change::Insert, *session, session_of)?;
            }
            Statement::MirrorToGroup { session, group } => {
                let replicas = self.groups.get(group).cloned().unwrap_or_default();
                let session_of = CloneSession {
                    replicas,
                    packet_bytes: 0,
                };
                self.device
                    .write_clone_session(Change::Insert, *session, session_of)?;
            }
            Statement::CreateGroup { group } => {
                self.groups.insert(*group, Vec::new());
                self.device
                    .write_group(Change::Insert, *group, Vec::new())?;
            }
            Statement::CreateNode { instance, ports } => {
                let replica = |port: &u16| Replica {
                    port: *port,
                    instance: *instance,
                };
                self.nodes.push(ports.iter().map(replica).collect());
            }
            Statement::Associate { group, node } => {
                let node = self.nodes.get(*node).cloned();
                let node = node.ok_or_else(|| unknown("multicast", "node"))?;
                let replicas = self.groups.entry(*group).or_default();
                replicas.extend(node);
                self.device
                    .write_group(Change::Modify, *group, replicas.clone())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares what came out with what was expected, port by port.
    fn compare(self) -> Result<(), StfError> {
        let ports: Vec<u16> = self
            .sent
            .keys()
            .chain(self.expected.keys())
            .copied()
            .collect();
        for port in ports {
            let sent = self.sent.get(&port).map_or(&[][..], Vec::as_slice);
            let expected = self.expected.get(&port).map_or(&[][..], Vec::as_slice);
            if expected.iter().any(Option::is_none) {
                continue;
            }
            if sent.len() != expected.len() {
                let (sent, expected) = (sent.len(), expected.len());
                let what = format!("port {port}: {sent} packets instead of {expected}");
                return Err(StfError::Differs(what));
            }
            let pairs = expected.iter().flatten().zip(sent).enumerate();
            for (number, (pattern, packet)) in pairs {
                if !pattern.matches(packet) {
                    let packet: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
                    let what = format!("port {port}: packet {number} is {packet}");
                    return Err(StfError::Differs(what));
                }
            }
        }
        Ok(())
    }
}

fn unknown(what: &str, name: &str) -> Problem {
    Problem::Unknown(format!("there is no {what} {name}"))
}

/// Whether `name` is the full name, or its end from a dot on.
fn is_named(full: &str, name: &str) -> bool {
    full.strip_suffix(name)
        .is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// The corpus writes the elements of a stack as `name$0`.
fn is_key(key: &KeySpec, name: &str) -> bool {
    let name = match name.split_once('$') {
        Some((stack, rest)) if rest.starts_with(|letter: char| letter.is_ascii_digit()) => {
            let end = rest.find('.').unwrap_or(rest.len());
            format!("{stack}[{}]{}", &rest[..end], &rest[end..])
        }
        _ => name.to_owned(),
    };
    is_named(&key.name, &name) || is_named(&name, &key.name)
}

fn anything(key: &KeySpec) -> Option<KeyField> {
    match key.kind {
        MatchKind::Exact => None,
        MatchKind::Lpm => Some(KeyField::Lpm {
            value: 0,
            prefix: 0,
        }),
        MatchKind::Ternary => Some(KeyField::Ternary { value: 0, mask: 0 }),
        MatchKind::Range => Some(KeyField::Range {
            low: 0,
            high: mask(key.bits),
        }),
        MatchKind::Optional => Some(KeyField::Optional(None)),
    }
}

fn field(key: &KeySpec, text: &str) -> Option<KeyField> {
    let all = mask(key.bits);
    Some(match key.kind {
        MatchKind::Exact => KeyField::Exact(number(text)?),
        MatchKind::Optional => KeyField::Optional(Some(number(text)?)),
        MatchKind::Lpm => match text.split_once('/') {
            Some((value, prefix)) => {
                let prefix = prefix.parse().ok().filter(|prefix| *prefix <= key.bits)?;
                KeyField::Lpm {
                    value: number(value)? & all & !mask(key.bits - prefix),
                    prefix,
                }
            }
            None => lpm(key.bits, masked(text)?),
        },
        MatchKind::Ternary => {
            let (value, mask) = masked(text)?;
            KeyField::Ternary {
                value: value & mask & all,
                mask: mask & all,
            }
        }
        MatchKind::Range => {
            let (low, high) = text
                .split_once("->")
                .or(text.split_once(".."))
                .unwrap_or((text, text));
            KeyField::Range {
                low: number(low)?,
                high: number(high)?,
            }
        }
    })
}

/// A masked number as a prefix: the leading bits of the mask.
fn lpm(bits: u32, (value, of): (u128, u128)) -> KeyField {
    let free = (of & mask(bits)).trailing_zeros().min(bits);
    KeyField::Lpm {
        value: value & mask(bits) & !mask(free),
        prefix: bits - free,
    }
}
