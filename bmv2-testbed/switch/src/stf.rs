//! STF: the small test format of the P4 compiler's own corpus, read and run on a device.
//!
//! A case is lines of text: entries to add, packets to send, packets to expect. [`Case::parse`]
//! reads it, [`Case::run`] plays it on a fresh device and says in how far the outputs differ from
//! what is expected. Names may be given from any dot on, as the corpus does, and in quotes, as
//! p4testgen does. What this runner does not know is an error, never skipped: a case that passes
//! has been played in full.

mod play;
mod value;

use thiserror::Error;

use crate::control::ControlError;
use value::{Pattern, hex};

/// Why a case cannot be read or played, or did not come out as it says.
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
        error: ControlError,
    },
    /// The outputs, registers or counters are not as expected.
    #[error("{0}")]
    Differs(String),
}

/// One test case.
#[derive(Clone, Debug)]
pub struct Case {
    statements: Vec<(usize, Statement)>,
}

/// One line of a case.
#[derive(Clone, Debug)]
enum Statement {
    Add(Entry),
    SetDefault {
        table: String,
        call: Call,
    },
    Packet {
        port: u16,
        bytes: Vec<u8>,
    },
    /// A packet on this port; without a pattern any number of any packets.
    Expect {
        port: u16,
        pattern: Option<Pattern>,
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
    /// A register cell to be read, which must exist; the format has no way to say its value.
    ReadRegister {
        name: String,
        cell: usize,
    },
    CheckCounter {
        name: String,
        cell: usize,
        packets: u64,
    },
    Wait,
}

#[derive(Clone, Debug)]
struct Entry {
    table: String,
    priority: Option<u32>,
    keys: Vec<(String, String)>,
    call: Call,
}

#[derive(Clone, Debug)]
struct Call {
    action: String,
    arguments: Vec<(String, String)>,
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    ///
    /// [`StfError::Syntax`], with the line.
    pub fn parse(text: &str) -> Result<Self, StfError> {
        let mut statements = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let content = content.replace('"', "");
            let content = content.trim();
            if content.is_empty() {
                continue;
            }
            let statement = statement(content);
            let wrong = || StfError::Syntax {
                line: at + 1,
                problem: format!("{content:?}"),
            };
            statements.push((at + 1, statement.ok_or_else(wrong)?));
        }
        Ok(Self { statements })
    }
}

fn statement(line: &str) -> Option<Statement> {
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Some(match (command, words.as_slice()) {
        ("add", _) => Statement::Add(entry(rest)?),
        ("setdefault", _) => {
            let (table, call) = rest.trim().split_once(char::is_whitespace)?;
            Statement::SetDefault {
                table: table.to_owned(),
                call: self::call(call)?,
            }
        }
        ("packet", [port, digits @ ..]) => Statement::Packet {
            port: port.parse().ok()?,
            bytes: hex(&digits.concat())?,
        },
        ("expect", [port]) => Statement::Expect {
            port: port.parse().ok()?,
            pattern: None,
        },
        ("expect", [port, digits @ ..]) => {
            let pattern = Some(Pattern::parse(&digits.concat())?);
            Statement::Expect {
                port: port.parse().ok()?,
                pattern,
            }
        }
        ("wait", _) => Statement::Wait,
        _ => return replication(command, &words).or_else(|| arrays(command, &words)),
    })
}

fn replication(command: &str, words: &[&str]) -> Option<Statement> {
    let numbers: Option<Vec<u16>> = words.iter().map(|word| word.parse().ok()).collect();
    Some(match (command, numbers?.as_slice()) {
        ("mirroring_add", [session, port]) => Statement::Mirror {
            session: *session,
            port: *port,
        },
        ("mirroring_add_mc", [session, group]) => Statement::MirrorToGroup {
            session: *session,
            group: *group,
        },
        ("mirroring_get", [_]) => Statement::Wait,
        ("mc_mgrp_create", [group]) => Statement::CreateGroup { group: *group },
        ("mc_node_create", [instance, ports @ ..]) => Statement::CreateNode {
            instance: *instance,
            ports: ports.to_vec(),
        },
        ("mc_node_associate", [group, node]) => Statement::Associate {
            group: *group,
            node: usize::from(*node),
        },
        _ => return None,
    })
}

fn arrays(command: &str, words: &[&str]) -> Option<Statement> {
    let [name, rest @ ..] = words else {
        return None;
    };
    let name = (*name).to_owned();
    Some(match (command, rest) {
        ("register_read", [cell]) => Statement::ReadRegister {
            name,
            cell: cell.parse().ok()?,
        },
        ("register_reset", []) => Statement::ResetRegister { name },
        ("register_write", [cell, value]) => {
            let value = value::number(value)?;
            Statement::WriteRegister {
                name,
                cell: cell.parse().ok()?,
                value,
            }
        }
        ("check_counter", ["==" | "packets", ..]) => {
            let (name, cell) = indexed(&name)?;
            let packets = rest.last()?.parse().ok()?;
            Statement::CheckCounter {
                name,
                cell,
                packets,
            }
        }
        _ => return None,
    })
}

/// `name(3)` or just `name`, which is its cell 0.
fn indexed(text: &str) -> Option<(String, usize)> {
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((name, cell)) => Some((name.to_owned(), cell.parse().ok()?)),
        None => Some((text.to_owned(), 0)),
    }
}

/// `table [priority] key:value ... action(name:value, ...)`.
fn entry(text: &str) -> Option<Entry> {
    let open = text.find('(')?;
    let start = text[..open].trim_end().rfind(char::is_whitespace)?;
    let mut words = text[..start].split_whitespace().peekable();
    let table = words.next()?.to_owned();
    let priority = words.peek().and_then(|word| word.parse().ok());
    if priority.is_some() {
        words.next();
    }
    let keys = words.map(named_value).collect::<Option<_>>()?;
    Some(Entry {
        table,
        priority,
        keys,
        call: call(&text[start..])?,
    })
}

/// `action(name:value, ...)`.
fn call(text: &str) -> Option<Call> {
    let (action, rest) = text.trim().split_once('(')?;
    let (arguments, _) = rest.split_once(')')?;
    let arguments = arguments
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    Some(Call {
        action: action.trim().to_owned(),
        arguments: arguments.map(named_value).collect::<Option<_>>()?,
    })
}

fn named_value(word: &str) -> Option<(String, String)> {
    let (name, value) = word.rsplit_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let read = statement(line).map(|statement| format!("{statement:?}"));
        assert_eq!(read.unwrap_or_default(), expected);
    }

    #[test]
    fn lines_are_read_as_they_are_meant() {
        check("packet 2 12 aB", "Packet { port: 2, bytes: [18, 171] }");
        check(
            "mc_node_create 7 1 2",
            "CreateNode { instance: 7, ports: [1, 2] }",
        );
        check(
            "check_counter c(3) packets == 9",
            r#"CheckCounter { name: "c", cell: 3, packets: 9 }"#,
        );
        check("expect", "");
        check("fly 3", "");
        let entry = r#"Add(Entry { table: "t", priority: Some(5), keys: [("h.a", "0x1*")], "#;
        let call = r#"call: Call { action: "act", arguments: [("x", "1"), ("y", "2")] } })"#;
        check("add t 5 h.a:0x1* act(x:1, y:2)", &format!("{entry}{call}"));
    }
}
