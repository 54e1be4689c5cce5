//! The Unix socket on which processes report their jobs, one line for each
//! [message](crate::process_message).
//!
//! The decision: everything is bounded: processes, bytes of a line, queued messages. A process that
//! sends too fast is slowed down by its own buffer. One that sends a line that is too long is
//! disconnected, because the start of its next line is unknown.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use futures::{SinkExt, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::{Framed, LinesCodec};
use tracing::{info, warn};

use crate::process_message::{self, MAX_LINE, ProcessMessage, ProcessReply};

/// Processes that may be connected at the same time.
const MAX_PROCESSES: usize = 64;
/// Messages that may be queued, of all processes together.
const LINE_QUEUE: usize = 256;
/// Who may report on the socket: its owner and its group.
const SOCKET_MODE: u32 = 0o660;
/// Replies that may be queued for one process; further ones are dropped.
const REPLY_QUEUE: usize = 16;

/// An event on the socket; processes are numbered.
#[derive(Debug)]
pub enum SocketEvent {
    /// A process has connected: its process id, if the kernel tells it, and what takes replies to
    /// it.
    Connected(u64, Option<u32>, mpsc::Sender<ProcessReply>),
    /// A process sent a message.
    Message(u64, ProcessMessage),
    /// A process has disconnected.
    Disconnected(u64),
}

/// The listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct ProcessSocket {
    path: PathBuf,
    events: mpsc::Receiver<SocketEvent>,
    _tasks: JoinSet<()>,
}

impl ProcessSocket {
    /// Listens on `path`. The file of an agent that no longer runs is replaced.
    ///
    /// # Errors
    /// Another agent listens on this path, or the path cannot be bound.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if path.exists() {
            if Probe::connect(path).is_ok() {
                let text = "another agent listens on this socket";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
        let (to_agent, events) = mpsc::channel(LINE_QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_processes(listener, to_agent));
        Ok(Self { path: path.to_owned(), events, _tasks: tasks })
    }

    /// Waits for the next event.
    pub async fn next_event(&mut self) -> SocketEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task holds the sender and lives as long as this value.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProcessSocket {
    fn drop(&mut self) {
        // If this fails, the next agent replaces the file.
        let _gone = std::fs::remove_file(&self.path);
    }
}

async fn accept_processes(listener: UnixListener, to_agent: mpsc::Sender<SocketEvent>) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        while connections.len() >= MAX_PROCESSES {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve_process(number, stream, to_agent.clone()));
                while connections.try_join_next().is_some() {}
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Serves one process until it disconnects.
async fn serve_process(number: u64, stream: UnixStream, to_agent: mpsc::Sender<SocketEvent>) {
    let pid = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE));
    let (replies, mut outgoing) = mpsc::channel(REPLY_QUEUE);
    if to_agent.send(SocketEvent::Connected(number, pid, replies)).await.is_err() {
        return;
    }
    loop {
        let reply = tokio::select! {
            reply = outgoing.recv() => reply,
            line = lines.next() => match line {
                Some(Ok(line)) => match process_message::parse_message(&line) {
                    Ok(message) => {
                        if to_agent.send(SocketEvent::Message(number, message)).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    Err(text) => Some(parse_error_reply(&text)),
                },
                Some(Err(error)) => {
                    info!(%error, "disconnected a process");
                    let text = format!("{error}; a line has at most {MAX_LINE} bytes");
                    drop(lines.send(reply_line(&parse_error_reply(&text))).await);
                    break;
                }
                None => break,
            },
        };
        let Some(reply) = reply else { break };
        if lines.send(reply_line(&reply)).await.is_err() {
            break;
        }
    }
    drop(to_agent.send(SocketEvent::Disconnected(number)).await);
}

fn parse_error_reply(text: &str) -> ProcessReply {
    ProcessReply {
        job: String::new(),
        severity: "error".to_owned(),
        text: format!("invalid message: {text}"),
        slot: None,
    }
}

fn reply_line(reply: &ProcessReply) -> String {
    serde_json::to_string(reply).expect("texts and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;

    #[tokio::test]
    async fn lines_come_in_and_answers_go_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let mut socket = ProcessSocket::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read).lines();
        let SocketEvent::Connected(number, _, replies) = socket.next_event().await else {
            panic!("nobody came");
        };
        write.write_all(b"{\"end\": \"a\"}\nnonsense\n").await.unwrap();
        assert!(
            matches!(socket.next_event().await, SocketEvent::Message(from, ProcessMessage::End(job))
            if from == number && job == "a")
        );
        let reply = read.next_line().await.unwrap().unwrap();
        assert!(reply.contains("invalid message"), "{reply}");
        replies.send(parse_error_reply("b")).await.unwrap();
        assert!(read.next_line().await.unwrap().unwrap().contains("b"));
        // No line end within the limit: disconnected.
        write.write_all(&vec![b'x'; MAX_LINE + 1]).await.unwrap();
        assert!(
            matches!(socket.next_event().await, SocketEvent::Disconnected(left) if left == number)
        );
        assert!(ProcessSocket::bind(&path).is_err(), "one agent for a socket");
        drop(socket);
        assert!(!path.exists());
        // A file that was left behind is in nobody's way.
        std::os::unix::net::UnixListener::bind(&path).unwrap();
        ProcessSocket::bind(&path).unwrap();
    }
}
