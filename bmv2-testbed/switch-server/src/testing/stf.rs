//! STF: the small test format of the P4 compiler's own corpus, read and run on a device.
//!
//! A case is lines of text: entries to add, packets to send, packets to expect.
//! [`StfCase::parse`] reads it, [`StfCase::run_on`] runs it on a fresh device, or
//! [`StfCase::run_against`] on any [`StfTarget`], and reports where the outputs differ from what is
//! expected. Names may be given from any dot on, as the corpus does, and in quotes, as p4testgen
//! does. What this runner does not know is an error, never skipped: a case that passes has been
//! played in full.

mod p4runtime_target;
mod runner;
mod target;
mod values;

use thiserror::Error;

pub use self::p4runtime_target::P4RuntimeTarget;
pub use self::target::{StfTarget, TargetError};
use values::{PacketPattern, parse_hex_bytes};

/// Why a case cannot be parsed or run, or how its result differs from the expected one.
#[derive(Debug, Error)]
pub enum StfError {
    /// A line that is no statement.
    #[error("line {line}: {problem}")]
    Syntax {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A statement that the device refuses.
    #[error("line {line}: the switch refuses this")]
    Refused {
        /// Its number, from 1.
        line: usize,
        /// Why.
        #[source]
        error: TargetError,
    },
    /// The outputs, registers or counters are not as expected.
    #[error("{0}")]
    Differs(String),
}

/// One test case: statements to run against a switch.
#[derive(Clone, Debug)]
pub struct StfCase {
    statements: Vec<(usize, StfStatement)>,
}

/// One line of a case.
#[derive(Clone, Debug)]
enum StfStatement {
    Add(StfEntry),
    SetDefault {
        table: String,
        call: StfCall,
    },
    Packet {
        port: u16,
        bytes: Vec<u8>,
    },
    /// A packet on this port; without a pattern any number of any packets.
    Expect {
        port: u16,
        pattern: Option<PacketPattern>,
    },
    Mirror {
        session: u16,
        port: u16,
    },
    MirrorToGroup {
        session: u16,
        group: u16,
    },
    CreateGroup {
        group: u16,
    },
    CreateNode {
        instance: u16,
        ports: Vec<u16>,
    },
    Associate {
        group: u16,
        node: usize,
    },
    WriteRegister {
        name: String,
        cell: usize,
        value: u128,
    },
    ResetRegister {
        name: String,
    },
    /// A register cell to be read, which must exist; the format cannot express its value.
    ReadRegister {
        name: String,
        cell: usize,
    },
    CheckCounter {
        name: String,
        cell: CounterCell,
        /// What it must have counted, if the case says.
        expected: Option<ExpectedCount>,
    },
    Wait,
}

/// A cell of an indexed counter, or the direct counter of the entry with this handle.
#[derive(Clone, Debug)]
enum CounterCell {
    Index(usize),
    Entry(String),
}

#[derive(Clone, Copy, Debug)]
enum ExpectedCount {
    Packets(u64),
    Bytes(u64),
}

#[derive(Clone, Debug)]
struct StfEntry {
    /// The name by which later statements refer to it.
    handle: Option<String>,
    table: String,
    priority: Option<u32>,
    keys: Vec<(String, String)>,
    call: StfCall,
}

#[derive(Clone, Debug)]
struct StfCall {
    action: String,
    arguments: Vec<(String, String)>,
}

impl StfCase {
    /// Reads a case.
    ///
    /// # Errors
    ///
    /// [`StfError::Syntax`], with the line.
    pub fn parse(text: &str) -> Result<Self, StfError> {
        let mut statements = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let unquoted = line.split('#').next().unwrap_or_default().replace('"', "");
            let content = unquoted.trim();
            if content.is_empty() {
                continue;
            }
            let statement = parse_statement(content).ok_or_else(|| StfError::Syntax {
                line: at + 1,
                problem: format!("{content:?}"),
            })?;
            statements.push((at + 1, statement));
        }
        Ok(Self { statements })
    }
}

fn parse_statement(line: &str) -> Option<StfStatement> {
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Some(match (command, words.as_slice()) {
        ("add", _) => StfStatement::Add(parse_entry(rest)?),
        ("setdefault", _) => {
            let (table, call) = rest.trim().split_once(char::is_whitespace)?;
            StfStatement::SetDefault { table: table.to_owned(), call: self::parse_call(call)? }
        }
        ("packet", [port, digits @ ..]) => StfStatement::Packet {
            port: port.parse().ok()?,
            bytes: parse_hex_bytes(&digits.concat())?,
        },
        ("expect", [port]) => StfStatement::Expect { port: port.parse().ok()?, pattern: None },
        ("expect", [port, digits @ ..]) => {
            let pattern = Some(PacketPattern::parse(&digits.concat())?);
            StfStatement::Expect { port: port.parse().ok()?, pattern }
        }
        ("wait", _) => StfStatement::Wait,
        _ => {
            return parse_replication(command, &words)
                .or_else(|| parse_array_access(command, &words));
        }
    })
}

fn parse_replication(command: &str, words: &[&str]) -> Option<StfStatement> {
    let numbers: Option<Vec<u16>> = words.iter().map(|word| word.parse().ok()).collect();
    Some(match (command, numbers?.as_slice()) {
        ("mirroring_add", [session, port]) => {
            StfStatement::Mirror { session: *session, port: *port }
        }
        ("mirroring_add_mc", [session, group]) => {
            StfStatement::MirrorToGroup { session: *session, group: *group }
        }
        ("mirroring_get", [_]) => StfStatement::Wait,
        ("mc_mgrp_create", [group]) => StfStatement::CreateGroup { group: *group },
        ("mc_node_create", [instance, ports @ ..]) => {
            StfStatement::CreateNode { instance: *instance, ports: ports.to_vec() }
        }
        ("mc_node_associate", [group, node]) => {
            StfStatement::Associate { group: *group, node: usize::from(*node) }
        }
        _ => return None,
    })
}

fn parse_array_access(command: &str, words: &[&str]) -> Option<StfStatement> {
    let [name, rest @ ..] = words else {
        return None;
    };
    let name = (*name).to_owned();
    Some(match (command, rest) {
        ("register_read", [cell]) => StfStatement::ReadRegister { name, cell: cell.parse().ok()? },
        ("register_reset", []) => StfStatement::ResetRegister { name },
        ("register_write", [cell, value]) => {
            let value = values::parse_number(value)?;
            StfStatement::WriteRegister { name, cell: cell.parse().ok()?, value }
        }
        ("check_counter", _) => {
            let (name, cell) = parse_cell(&name)?;
            let expected = match rest {
                [] => None,
                ["bytes", "==", bytes] => Some(ExpectedCount::Bytes(bytes.parse().ok()?)),
                ["packets", "==", packets] | ["==", packets] => {
                    Some(ExpectedCount::Packets(packets.parse().ok()?))
                }
                _ => return None,
            };
            StfStatement::CheckCounter { name, cell, expected }
        }
        _ => return None,
    })
}

/// `name(3)`, `name($handle)`, or just `name`, which is its cell 0.
fn parse_cell(text: &str) -> Option<(String, CounterCell)> {
    let Some((name, cell)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
        return Some((text.to_owned(), CounterCell::Index(0)));
    };
    let cell = match cell.strip_prefix('$') {
        Some(handle) => CounterCell::Entry(handle.to_owned()),
        None => CounterCell::Index(cell.parse().ok()?),
    };
    Some((name.to_owned(), cell))
}

/// `table [priority] key:value ... action(name:value, ...) [= handle]`.
fn parse_entry(text: &str) -> Option<StfEntry> {
    let open = text.find('(')?;
    let start = text[..open].trim_end().rfind(char::is_whitespace)?;
    let mut words = text[..start].split_whitespace().peekable();
    let table = words.next()?.to_owned();
    let priority = words.peek().and_then(|word| word.parse().ok());
    if priority.is_some() {
        words.next();
    }
    let keys = words.map(parse_named_value).collect::<Option<_>>()?;
    let handle = text.rsplit_once(')')?.1.trim().strip_prefix('=');
    let handle = handle.map(|handle| handle.trim().to_owned());
    Some(StfEntry { handle, table, priority, keys, call: parse_call(&text[start..])? })
}

/// `action(name:value, ...)`.
fn parse_call(text: &str) -> Option<StfCall> {
    let (action, rest) = text.trim().split_once('(')?;
    let (arguments, _) = rest.split_once(')')?;
    let arguments = arguments.split(',').map(str::trim).filter(|word| !word.is_empty());
    Some(StfCall {
        action: action.trim().to_owned(),
        arguments: arguments.map(parse_named_value).collect::<Option<_>>()?,
    })
}

fn parse_named_value(word: &str) -> Option<(String, String)> {
    let (name, value) = word.rsplit_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let read = parse_statement(line).map(|statement| format!("{statement:?}"));
        assert_eq!(read.unwrap_or_default(), expected);
    }

    #[test]
    fn lines_are_read_as_they_are_meant() {
        check("packet 2 12 aB", "Packet { port: 2, bytes: [18, 171] }");
        check("mc_node_create 7 1 2", "CreateNode { instance: 7, ports: [1, 2] }");
        check(
            "check_counter c(3) packets == 9",
            r#"CheckCounter { name: "c", cell: Index(3), expected: Some(Packets(9)) }"#,
        );
        check(
            "check_counter c($A) bytes == 12",
            r#"CheckCounter { name: "c", cell: Entry("A"), expected: Some(Bytes(12)) }"#,
        );
        check("expect", "");
        check("fly 3", "");
        let entry = r#"Add(StfEntry { handle: Some("A"), table: "t", priority: Some(5), "#;
        let keys = r#"keys: [("h.a", "0x1*")], "#;
        let call = r#"call: StfCall { action: "act", arguments: [("x", "1"), ("y", "2")] } })"#;
        check("add t 5 h.a:0x1* act(x:1, y:2) = A", &format!("{entry}{keys}{call}"));
    }
}
