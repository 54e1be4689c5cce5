//! What lead and hosts say to each other: JSON, a line a message, over TCP or a Unix socket.
//!
//! Unix sockets reach from one network namespace into another, so that hosts of an emulated network
//! need no second network to be led.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, Lines, ReadHalf,
    WriteHalf,
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::failure::Failure;

/// Where the lead listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    /// What has a slash is a path.
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

/// From a host to the lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// This host is ready.
    Ready(String),
    /// The message of this flow has been sent and acknowledged.
    Done(u32),
    /// What was counted, after [`Order::Stop`].
    Counted(Counts),
}

/// What a host has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Packets sent again.
    pub(super) retransmitted: u64,
    /// Packets that were damaged or for another host.
    pub(super) unreadable: u64,
}

/// From the lead to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Begin these flows.
    Begin(Vec<u32>),
    /// Tell what was counted, and end.
    Stop,
}

/// Either kind of stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type AnyStream = Box<dyn Stream>;

/// One side's reading end.
pub(super) struct Incoming(Lines<BufReader<ReadHalf<AnyStream>>>);
/// One side's writing end.
pub(super) struct Outgoing(BufWriter<WriteHalf<AnyStream>>);

fn halves(stream: AnyStream) -> (Incoming, Outgoing) {
    let (read, write) = tokio::io::split(stream);
    let lines = BufReader::new(read).lines();
    (Incoming(lines), Outgoing(BufWriter::new(write)))
}

impl Incoming {
    /// The next message; none when the other side has ended.
    pub(super) async fn next<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Option<T>, Failure> {
        let line = self.0.next_line().await;
        let line = line.map_err(|error| Failure::work(&error))?;
        let message = line.map(|line| serde_json::from_str(&line)).transpose();
        message.map_err(|error| Failure::work(&error))
    }
}

impl Outgoing {
    pub(super) async fn send(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(message).map_err(|error| Failure::work(&error))?;
        let sent = async {
            self.0.write_all(line.as_bytes()).await?;
            self.0.write_all(b"\n").await?;
            self.0.flush().await
        };
        sent.await.map_err(|error| Failure::work(&error))
    }
}

/// Connects to the lead.
pub(super) async fn connect(address: &Address) -> Result<(Incoming, Outgoing), Failure> {
    let stream: std::io::Result<AnyStream> = match address {
        Address::Tcp(address) => TcpStream::connect(address)
            .await
            .map(|s| Box::new(s) as AnyStream),
        Address::Unix(path) => UnixStream::connect(path)
            .await
            .map(|s| Box::new(s) as AnyStream),
    };
    let stream = stream.map_err(|error| Failure::input("--lead", error))?;
    Ok(halves(stream))
}

/// The lead's ear.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) async fn bind(address: &Address) -> Result<Self, Failure> {
        let listener = match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Unix(path) => {
                UnixListener::bind(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        };
        listener.map_err(|error| Failure::input("--listen", error))
    }

    pub(super) async fn accept(&self) -> Result<(Incoming, Outgoing), Failure> {
        let stream: std::io::Result<AnyStream> = match self {
            Self::Tcp(listener) => listener
                .accept()
                .await
                .map(|(s, _)| Box::new(s) as AnyStream),
            Self::Unix(listener, _) => listener
                .accept()
                .await
                .map(|(s, _)| Box::new(s) as AnyStream),
        };
        stream.map(halves).map_err(|error| Failure::work(&error))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Left behind, it would only be in the way of the next run.
            let _gone = std::fs::remove_file(path);
        }
    }
}
