//! The trail as syslog: each record as a message of RFC 5424, in a datagram (RFC 5426).
//!
//! The decision: the message is the record as JSON, hash included, so that what a collector has can
//! be compared with the files. A collector that is away costs a record there and nothing here.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::record::{AuditAction, AuditRecord};
use crate::clock::timestamp_from_unix;

/// The facility `log audit`.
const FACILITY: u8 = 13;
/// Severities of what was refused and of everything else.
const WARNING: u8 = 4;
const NOTICE: u8 = 5;
/// Where Linux keeps the name of the machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Where the records go.
#[derive(Debug)]
enum SyslogSocket {
    /// A collector, over UDP.
    Udp(UdpSocket),
    /// The daemon of this machine.
    Local(UnixDatagram),
}

/// Sends records to a syslog daemon or collector.
#[derive(Debug)]
pub(super) struct SyslogSender {
    socket: SyslogSocket,
    host: String,
}

impl SyslogSender {
    /// Sends to `host:port`, or to the datagram socket at an absolute path.
    ///
    /// # Errors
    /// The name of the host is not known, or nobody has that socket.
    pub(super) fn open(target: &str) -> io::Result<Self> {
        let socket = if Path::new(target).is_absolute() {
            let socket = UnixDatagram::unbound()?;
            socket.connect(target)?;
            socket.set_nonblocking(true)?;
            SyslogSocket::Local(socket)
        } else {
            let is_v6 = target.starts_with('[');
            let socket = UdpSocket::bind(if is_v6 { "[::]:0" } else { "0.0.0.0:0" })?;
            socket.connect(target)?;
            socket.set_nonblocking(true)?;
            SyslogSocket::Udp(socket)
        };
        let host = fs::read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned();
        Ok(Self { socket, host: if host.is_empty() { "-".to_owned() } else { host } })
    }

    /// Sends a record.
    ///
    /// # Errors
    /// Nobody receives it, or the socket takes none now. The record is lost there.
    pub(super) fn send_record(&self, record: &AuditRecord) -> io::Result<()> {
        let message = syslog_message(record, &self.host);
        match &self.socket {
            SyslogSocket::Udp(socket) => socket.send(message.as_bytes())?,
            SyslogSocket::Local(socket) => socket.send(message.as_bytes())?,
        };
        Ok(())
    }
}

/// The message of a record.
fn syslog_message(record: &AuditRecord, host: &str) -> String {
    let severity = match record.entry.action {
        AuditAction::Denied | AuditAction::PolicyRefused => WARNING,
        _ => NOTICE,
    };
    let priority = 8 * FACILITY + severity;
    let at = timestamp_from_unix(record.entry.at_ms);
    let at = at.map_or("-".to_owned(), |at| format!("{at:.3}"));
    let process = std::process::id();
    let text = serde_json::to_string(record).expect("a record has text for keys");
    format!("<{priority}>1 {at} {host} crux {process} audit - {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::record::AuditEntry;

    #[test]
    fn a_record_is_a_message_of_rfc_5424() {
        let entry = AuditEntry {
            sequence: 3,
            at_ms: 1_700_000_000_250,
            action: AuditAction::Denied,
            who: String::new(),
            address: "10.0.0.9".to_owned(),
            reason: "unknown token".to_owned(),
            detail: String::new(),
            count: 2,
        };
        let record = AuditRecord::following(AuditRecord::first_hash(), entry);
        let message = syslog_message(&record, "tor1");
        let process = std::process::id();
        let head = format!("<108>1 2023-11-14T22:13:20.250Z tor1 crux {process} audit - ");
        let text = message.strip_prefix(&head).unwrap_or_else(|| panic!("{message}"));
        assert_eq!(serde_json::from_str::<AuditRecord>(text).unwrap(), record);
    }
}
