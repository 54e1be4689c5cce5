//! The Unix socket on which processes tell of their jobs.
//!
//! A line a message ([`process_message`]). The decision: everything is bounded: processes, bytes
//! of a line, lines that wait. A process that says too much waits, as its own buffer fills up; one
//! that says a line too long is hung up on, since where the next one begins is not known.

use std::io;
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use futures::{SinkExt, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::{Framed, LinesCodec};
use tracing::{info, warn};

use crate::process_message::{self, MAX_LINE, ProcessMessage, ProcessReply};

/// Processes at once.
const MAX_PROCESSES: usize = 64;
/// Lines that wait, of all of them.
const LINE_QUEUE: usize = 256;
/// Answers that wait for a process that does not read; more are lost.
const REPLY_QUEUE: usize = 16;

/// What happens at the socket.
#[derive(Debug)]
pub enum SocketEvent {
    /// A process has come; answers go there.
    Connected(u64, mpsc::Sender<ProcessReply>),
    /// It says something.
    Message(u64, ProcessMessage),
    /// It has gone.
    Disconnected(u64),
}

/// The socket. Dropping it closes it and removes its file.
#[derive(Debug)]
pub struct ProcessSocket {
    path: PathBuf,
    events: mpsc::Receiver<SocketEvent>,
    _tasks: JoinSet<()>,
}

impl ProcessSocket {
    /// Listens at `path`. A file that an agent has left behind is replaced.
    ///
    /// # Errors
    /// Another agent listens there, or the path cannot be used.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if path.exists() {
            if Probe::connect(path).is_ok() {
                let text = "another agent listens there";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        let (to_agent, visits) = mpsc::channel(LINE_QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_processes(listener, to_agent));
        Ok(Self { path: path.to_owned(), events: visits, _tasks: tasks })
    }

    /// The next thing that happens.
    pub async fn next_event(&mut self) -> SocketEvent {
        match self.events.recv().await {
            Some(visit) => visit,
            // The task ends with this value, so it is there.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProcessSocket {
    fn drop(&mut self) {
        // Left behind, it would be replaced by the next agent.
        let _gone = std::fs::remove_file(&self.path);
    }
}

async fn accept_processes(listener: UnixListener, to_agent: mpsc::Sender<SocketEvent>) {
    let mut talks = JoinSet::new();
    for number in 0.. {
        while talks.len() >= MAX_PROCESSES {
            talks.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                talks.spawn(serve_process(number, stream, to_agent.clone()));
                while talks.try_join_next().is_some() {}
            }
            Err(error) => {
                warn!(%error, "a process could not be heard");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// One process, until it goes.
async fn serve_process(number: u64, stream: UnixStream, to_agent: mpsc::Sender<SocketEvent>) {
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE));
    let (answers, mut outgoing) = mpsc::channel(REPLY_QUEUE);
    if to_agent.send(SocketEvent::Connected(number, answers)).await.is_err() {
        return;
    }
    loop {
        let answer = tokio::select! {
            answer = outgoing.recv() => answer,
            line = lines.next() => match line {
                Some(Ok(line)) => match process_message::parse_message(&line) {
                    Ok(said) => {
                        if to_agent.send(SocketEvent::Message(number, said)).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    Err(text) => Some(parse_error_reply(&text)),
                },
                Some(Err(error)) => {
                    info!(%error, "a process is hung up on");
                    let text = format!("{error}; a line has at most {MAX_LINE} bytes");
                    drop(lines.send(reply_line(&parse_error_reply(&text))).await);
                    break;
                }
                None => break,
            },
        };
        let Some(answer) = answer else { break };
        if lines.send(reply_line(&answer)).await.is_err() {
            break;
        }
    }
    drop(to_agent.send(SocketEvent::Disconnected(number)).await);
}

fn parse_error_reply(text: &str) -> ProcessReply {
    ProcessReply {
        job: String::new(),
        severity: "error".to_owned(),
        text: format!("not understood: {text}"),
    }
}

fn reply_line(answer: &ProcessReply) -> String {
    serde_json::to_string(answer).expect("three texts are JSON")
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
        let SocketEvent::Connected(number, answers) = socket.next_event().await else {
            panic!("nobody came");
        };
        write.write_all(b"{\"end\": \"a\"}\nnonsense\n").await.unwrap();
        assert!(
            matches!(socket.next_event().await, SocketEvent::Message(from, ProcessMessage::End(job))
            if from == number && job == "a")
        );
        let answer = read.next_line().await.unwrap().unwrap();
        assert!(answer.contains("not understood"), "{answer}");
        answers.send(parse_error_reply("b")).await.unwrap();
        assert!(read.next_line().await.unwrap().unwrap().contains("b"));
        // No line end within the limit: hung up on.
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
