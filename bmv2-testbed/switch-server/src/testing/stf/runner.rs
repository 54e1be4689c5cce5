//! Playing a case on a device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::values::{PacketPattern, parse_masked, parse_number};
use super::{
    CounterCell, ExpectedCount, StfCall, StfCase, StfEntry, StfError, StfStatement, StfTarget,
    TargetError,
};
use switch::CounterData;
use switch::Program;
use switch::ReplicationUpdate;
use switch::{ActionCall, KeyField, MatchKey, Replica};
use switch::{ActionIndex, TableIndex};
use switch::{Device, DeviceConfig};
use switch::{KeySpec, MatchKind, TableSpec, bit_mask};

impl StfCase {
    /// Plays the case on a new device that runs the program.
    ///
    /// # Errors
    ///
    /// When a statement cannot be carried out, or what comes out is not what is expected.
    pub fn run_on(&self, program: &Arc<Program>) -> Result<(), StfError> {
        let mut device = Device::new(DeviceConfig {
            device_id: 1,
            cpu_port: 510,
            levels: 8,
            trusts_dscp: false,
        });
        device.load_program(Arc::clone(program));
        self.run_against(program, &mut device)
    }

    /// Plays the case on a target that runs the program.
    ///
    /// # Errors
    ///
    /// As for [`StfCase::run_on`].
    pub fn run_against(
        &self,
        program: &Program,
        target: &mut impl StfTarget,
    ) -> Result<(), StfError> {
        let mut play = StfRunner::new(program, target);
        for (line, statement) in &self.statements {
            play.run_statement(statement).map_err(|problem| problem.at_line(*line))?;
        }
        play.compare_outputs()
    }
}

/// What is wrong with a statement.
enum StatementError {
    Unknown(String),
    Refused(TargetError),
    Differs(String),
}

impl StatementError {
    fn at_line(self, line: usize) -> StfError {
        match self {
            Self::Unknown(problem) => StfError::Syntax { line, problem },
            Self::Refused(error) => StfError::Refused { line, error },
            Self::Differs(what) => StfError::Differs(format!("line {line}: {what}")),
        }
    }
}

impl From<TargetError> for StatementError {
    fn from(error: TargetError) -> Self {
        Self::Refused(error)
    }
}

struct StfRunner<'a, T> {
    program: &'a Program,
    target: &'a mut T,
    sent: BTreeMap<u16, Vec<Vec<u8>>>,
    expected: BTreeMap<u16, Vec<Option<PacketPattern>>>,
    nodes: Vec<Vec<Replica>>,
    groups: BTreeMap<u16, Vec<Replica>>,
    /// Entries that have a name.
    handles: BTreeMap<String, (TableIndex, MatchKey)>,
}

impl<'a, T: StfTarget> StfRunner<'a, T> {
    fn new(program: &'a Program, target: &'a mut T) -> Self {
        Self {
            program,
            target,
            sent: BTreeMap::new(),
            expected: BTreeMap::new(),
            nodes: Vec::new(),
            groups: BTreeMap::new(),
            handles: BTreeMap::new(),
        }
    }

    fn run_statement(&mut self, statement: &StfStatement) -> Result<(), StatementError> {
        match statement {
            StfStatement::Add(entry) => self.add_entry(entry)?,
            StfStatement::SetDefault { table, call } => {
                let (index, spec) = self.find_table(table)?;
                let call = self.resolve_call(&spec.actions, call)?;
                self.target.set_default_action(index, &call)?;
            }
            StfStatement::Packet { port, bytes } => self.send_packet(*port, bytes)?,
            StfStatement::Expect { port, pattern } => {
                self.expected.entry(*port).or_default().push(pattern.clone());
            }
            StfStatement::CheckCounter { name, cell, expected } => {
                let count = self.read_counter(name, cell)?;
                let (counted, wanted) = match expected {
                    None => return Ok(()),
                    Some(ExpectedCount::Packets(packets)) => (count.packets, *packets),
                    Some(ExpectedCount::Bytes(bytes)) => (count.bytes, *bytes),
                };
                if counted != wanted {
                    let what = format!("{name}({cell:?}) counted {counted}, not {wanted}");
                    return Err(StatementError::Differs(what));
                }
            }
            StfStatement::Wait => {}
            StfStatement::WriteRegister { .. }
            | StfStatement::ResetRegister { .. }
            | StfStatement::ReadRegister { .. } => self.run_register_access(statement)?,
            _ => self.run_replication(statement)?,
        }
        Ok(())
    }

    fn read_counter(
        &mut self,
        name: &str,
        cell: &CounterCell,
    ) -> Result<CounterData, StatementError> {
        match cell {
            CounterCell::Index(cell) => {
                let mut counters = self.program.names.counters.iter();
                let found = counters.find(|(full, _)| matches_name(full, name));
                let (_, index) = found.ok_or_else(|| unknown_object("counter", name))?;
                Ok(self.target.read_counter_cell(*index, *cell)?)
            }
            CounterCell::Entry(handle) => {
                let (table, key) =
                    self.handles.get(handle).ok_or_else(|| unknown_object("entry", handle))?;
                Ok(self.target.read_entry_counter(*table, key)?)
            }
        }
    }

    fn send_packet(&mut self, port: u16, bytes: &[u8]) -> Result<(), StatementError> {
        for output in self.target.process_packet(port, bytes)? {
            self.sent.entry(output.port).or_default().push(output.packet);
        }
        Ok(())
    }

    fn add_entry(&mut self, entry: &StfEntry) -> Result<(), StatementError> {
        let (index, spec) = self.find_table(&entry.table)?;
        let mut fields = Vec::new();
        for key in &spec.keys {
            let given = entry.keys.iter().find(|(name, _)| matches_key(key, name));
            fields.push(match given {
                Some((_, text)) => {
                    parse_key_field(key, text).ok_or_else(|| unknown_object("value", text))?
                }
                None => wildcard_field(key).ok_or_else(|| unknown_object("key", &key.name))?,
            });
        }
        let priority = match spec.takes_priority() {
            true => entry.priority.unwrap_or(0) + 1,
            false => 0,
        };
        let call = self.resolve_call(&spec.actions, &entry.call)?;
        let key = MatchKey { fields, priority };
        self.target.insert_entry(index, &key, &call)?;
        if let Some(handle) = &entry.handle {
            self.handles.insert(handle.clone(), (index, key));
        }
        Ok(())
    }

    fn resolve_call(
        &self,
        allowed: &[ActionIndex],
        call: &StfCall,
    ) -> Result<ActionCall, StatementError> {
        let action = *allowed
            .iter()
            .find(|action| {
                let spec = self.program.action(**action);
                spec.is_some_and(|spec| matches_name(&spec.name, &call.action))
            })
            .ok_or_else(|| unknown_object("action", &call.action))?;
        let parameters = self.program.action(action).map_or(&[][..], |spec| &spec.parameters);
        let arguments = parameters.iter().map(|parameter| {
            let given = call.arguments.iter().find(|(given, _)| *given == parameter.name);
            given
                .and_then(|(_, text)| parse_number(text))
                .ok_or_else(|| unknown_object("argument", &parameter.name))
        });
        Ok(ActionCall { action, arguments: arguments.collect::<Result<_, _>>()? })
    }

    fn find_table(&self, name: &str) -> Result<(TableIndex, TableSpec), StatementError> {
        let mut tables = self.program.tables();
        let exact = self.program.table_named(name);
        let found = match exact {
            Some(index) => self.program.table(index).map(|spec| (index, spec)),
            None => tables.find(|(_, spec)| matches_name(&spec.name, name)),
        };
        let (index, spec) = found.ok_or_else(|| unknown_object("table", name))?;
        Ok((index, spec.clone()))
    }

    fn run_register_access(&mut self, statement: &StfStatement) -> Result<(), StatementError> {
        let (StfStatement::WriteRegister { name, .. }
        | StfStatement::ResetRegister { name }
        | StfStatement::ReadRegister { name, .. }) = statement
        else {
            return Ok(());
        };
        let mut registers = self.program.names.registers.iter();
        let found = registers.find(|(full, _)| matches_name(full, name)).map(|(_, index)| *index);
        let register = found.ok_or_else(|| unknown_object("register", name))?;
        let size = self.program.register(register).map_or(0, |spec| spec.size);
        match statement {
            StfStatement::WriteRegister { cell, value, .. } => {
                self.target.write_register(register, *cell, *value)?;
            }
            StfStatement::ReadRegister { cell, .. } => {
                self.target.read_register(register, *cell)?;
            }
            _ => {
                for cell in 0..size {
                    self.target.write_register(register, cell, 0)?;
                }
            }
        }
        Ok(())
    }

    fn run_replication(&mut self, statement: &StfStatement) -> Result<(), StatementError> {
        match statement {
            StfStatement::Mirror { session, port } => {
                let replicas = vec![Replica { port: *port, instance: 0 }];
                self.target.insert_clone_session(*session, replicas)?;
            }
            StfStatement::MirrorToGroup { session, group } => {
                let replicas = self.groups.get(group).cloned().unwrap_or_default();
                self.target.insert_clone_session(*session, replicas)?;
            }
            StfStatement::CreateGroup { group } => {
                self.groups.insert(*group, Vec::new());
                self.target.write_multicast_group(ReplicationUpdate::Insert, *group, Vec::new())?;
            }
            StfStatement::CreateNode { instance, ports } => {
                self.nodes.push(
                    ports.iter().map(|port| Replica { port: *port, instance: *instance }).collect(),
                );
            }
            StfStatement::Associate { group, node } => {
                let node = self.nodes.get(*node).cloned();
                let node = node.ok_or_else(|| unknown_object("multicast", "node"))?;
                let replicas = self.groups.entry(*group).or_default();
                replicas.extend(node);
                self.target.write_multicast_group(
                    ReplicationUpdate::Modify,
                    *group,
                    replicas.clone(),
                )?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares what came out with what was expected, port by port.
    fn compare_outputs(self) -> Result<(), StfError> {
        // A case that expects no packet at all is about its counters.
        let ports: BTreeSet<u16> = match self.expected.is_empty() {
            true => BTreeSet::new(),
            false => self.sent.keys().chain(self.expected.keys()).copied().collect(),
        };
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
                if !pattern.matches_packet(packet) {
                    let packet: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
                    let what = format!("port {port}: packet {number} is {packet}");
                    return Err(StfError::Differs(what));
                }
            }
        }
        Ok(())
    }
}

fn unknown_object(what: &str, name: &str) -> StatementError {
    StatementError::Unknown(format!("there is no {what} {name}"))
}

/// Whether `name` is the full name, or its end from a dot on.
fn matches_name(full: &str, name: &str) -> bool {
    full.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// The corpus writes the elements of a stack as `name$0`.
fn matches_key(key: &KeySpec, name: &str) -> bool {
    let name = match name.split_once('$') {
        Some((stack, rest)) if rest.starts_with(|letter: char| letter.is_ascii_digit()) => {
            let end = rest.find('.').unwrap_or(rest.len());
            format!("{stack}[{}]{}", &rest[..end], &rest[end..])
        }
        _ => name.to_owned(),
    };
    let key_name = key.name.strip_suffix(".$valid$").unwrap_or(&key.name);
    [key_name, &key.name].iter().any(|key| matches_name(key, &name) || matches_name(&name, key))
}

fn wildcard_field(key: &KeySpec) -> Option<KeyField> {
    match key.kind {
        MatchKind::Exact => None,
        MatchKind::Lpm => Some(KeyField::Lpm { value: 0, prefix: 0 }),
        MatchKind::Ternary => Some(KeyField::Ternary { value: 0, mask: 0 }),
        MatchKind::Range => Some(KeyField::Range { low: 0, high: bit_mask(key.bits) }),
        MatchKind::Optional => Some(KeyField::Optional(None)),
    }
}

fn parse_key_field(key: &KeySpec, text: &str) -> Option<KeyField> {
    let all = bit_mask(key.bits);
    Some(match key.kind {
        MatchKind::Exact => KeyField::Exact(parse_number(text)?),
        MatchKind::Optional => KeyField::Optional(Some(parse_number(text)?)),
        MatchKind::Lpm => match text.split_once('/') {
            Some((value, prefix)) => {
                let prefix = prefix.parse().ok().filter(|prefix| *prefix <= key.bits)?;
                KeyField::Lpm {
                    value: parse_number(value)? & all & !bit_mask(key.bits - prefix),
                    prefix,
                }
            }
            None => {
                let (value, mask) = parse_masked(text)?;
                prefix_from_mask(key.bits, value, mask)
            }
        },
        MatchKind::Ternary => {
            let (value, mask) = parse_masked(text)?;
            KeyField::Ternary { value: value & mask & all, mask: mask & all }
        }
        MatchKind::Range => {
            let (low, high) =
                text.split_once("->").or(text.split_once("..")).unwrap_or((text, text));
            KeyField::Range { low: parse_number(low)?, high: parse_number(high)? }
        }
    })
}

/// A masked number as a prefix: the leading bits of the mask.
fn prefix_from_mask(bits: u32, value: u128, mask: u128) -> KeyField {
    let free = (mask & bit_mask(bits)).trailing_zeros().min(bits);
    KeyField::Lpm { value: value & bit_mask(bits) & !bit_mask(free), prefix: bits - free }
}
