//! The protocol between lead and hosts: JSON, one line a message, over TCP or a Unix socket.
//!
//! Unix sockets reach from one network namespace into another, so that hosts of an emulated network
//! need no second network to be led.

use std::ops::AddAssign;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, Lines, ReadHalf,
    WriteHalf,
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use command_io::CommandError;

/// Where the lead listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeadAddress {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for LeadAddress {
    type Err = String;

    /// A text with a slash is a path.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            Ok(Self::Unix(text.into()))
        } else if text.contains(':') {
            Ok(Self::Tcp(text.to_owned()))
        } else {
            Err("neither HOST:PORT nor the path of a socket".to_owned())
        }
    }
}

/// A message from a host to the lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HostMessage {
    /// This host is ready.
    Ready(String),
    /// The message of this flow has been sent and acknowledged.
    Done(u32),
    /// What was counted, after [`LeadMessage::Stop`].
    Counted(PacketCounts),
}

/// What a host has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PacketCounts {
    /// Packets sent again.
    pub(super) retransmitted: u64,
    /// Packets that were damaged or for another host.
    pub(super) unreadable: u64,
    /// Packets that arrived with a mark.
    pub(super) marked: u64,
    /// Congestion notifications sent.
    pub(super) notifications: u64,
    /// Timeouts of connections.
    pub(super) timeouts: u64,
}

impl AddAssign for PacketCounts {
    fn add_assign(&mut self, other: Self) {
        self.retransmitted += other.retransmitted;
        self.unreadable += other.unreadable;
        self.marked += other.marked;
        self.notifications += other.notifications;
        self.timeouts += other.timeouts;
    }
}

/// A message from the lead to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LeadMessage {
    /// Begin these flows.
    Begin(Vec<u32>),
    /// Report the counters, and end.
    Stop,
}

/// A TCP or Unix stream.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

type BoxedStream = Box<dyn ByteStream>;

/// The reading half of a stream.
pub(super) struct MessageReader(Lines<BufReader<ReadHalf<BoxedStream>>>);
/// The writing half of a stream.
pub(super) struct MessageWriter(BufWriter<WriteHalf<BoxedStream>>);

fn split_stream(stream: BoxedStream) -> (MessageReader, MessageWriter) {
    let (read, write) = tokio::io::split(stream);
    let lines = BufReader::new(read).lines();
    (MessageReader(lines), MessageWriter(BufWriter::new(write)))
}

impl MessageReader {
    /// The next message; none when the other side has closed the stream.
    pub(super) async fn next<T: for<'a> Deserialize<'a>>(
        &mut self,
    ) -> Result<Option<T>, CommandError> {
        let line = self.0.next_line().await.map_err(CommandError::failed)?;
        line.map(|line| serde_json::from_str(&line)).transpose().map_err(CommandError::failed)
    }
}

impl MessageWriter {
    pub(super) async fn send_message(
        &mut self,
        message: &impl Serialize,
    ) -> Result<(), CommandError> {
        let line = serde_json::to_string(message).map_err(CommandError::failed)?;
        let sent = async {
            self.0.write_all(line.as_bytes()).await?;
            self.0.write_all(b"\n").await?;
            self.0.flush().await
        };
        sent.await.map_err(CommandError::failed)
    }
}

/// Connects to the lead.
pub(super) async fn connect_lead(
    address: &LeadAddress,
) -> Result<(MessageReader, MessageWriter), CommandError> {
    let stream: std::io::Result<BoxedStream> = match address {
        LeadAddress::Tcp(address) => {
            TcpStream::connect(address).await.map(|s| Box::new(s) as BoxedStream)
        }
        LeadAddress::Unix(path) => {
            UnixStream::connect(path).await.map(|s| Box::new(s) as BoxedStream)
        }
    };
    let stream = stream.map_err(|error| CommandError::input("--lead", error))?;
    Ok(split_stream(stream))
}

/// The listening socket of the lead.
pub(super) enum LeadListener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl LeadListener {
    pub(super) async fn bind_address(address: &LeadAddress) -> Result<Self, CommandError> {
        let listener = match address {
            LeadAddress::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            LeadAddress::Unix(path) => {
                UnixListener::bind(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        };
        listener.map_err(|error| CommandError::input("--listen", error))
    }

    pub(super) async fn accept_host(&self) -> Result<(MessageReader, MessageWriter), CommandError> {
        let stream: std::io::Result<BoxedStream> = match self {
            Self::Tcp(listener) => listener.accept().await.map(|(s, _)| Box::new(s) as BoxedStream),
            Self::Unix(listener, _) => {
                listener.accept().await.map(|(s, _)| Box::new(s) as BoxedStream)
            }
        };
        stream.map(split_stream).map_err(CommandError::failed)
    }
}

impl Drop for LeadListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // A socket file left behind would block the next run.
            let _gone = std::fs::remove_file(path);
        }
    }
}
