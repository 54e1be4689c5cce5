//! What a session needs of a switch, and of whoever leads to it and to etcd: the seam between
//! sessions and the network.
//!
//! [`Grpc`](super::Grpc) is the network that there is; the fault campaign brings another one, in
//! which everything that can go wrong does, in an order that a seed decides. The decision: the seam
//! speaks the controller's own types, so that nothing above it knows protobufs, and calls are
//! futures that hold no lock and may be dropped at any await.

use std::future::Future;

use futures::stream::BoxStream;
use p4::codec::{PacketIn, PacketOut, WriteError};
use p4::{Extent, Pipeline, Tables, Update};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::arbitration::ElectionId;
use super::client::{Address, ClientError};
use super::dialect::Verdict;
use crate::config::{Etcd, Southbound};
use crate::etcd::{EtcdError, Registry};

/// What leads to switches, and to etcd where that is used.
pub trait Network: Clone + Send + Sync + 'static {
    /// One connection to one switch.
    type Connection: Connection;
    /// One connection to etcd.
    type Registry: Registry;

    /// Connects within the limits' deadline.
    ///
    /// # Errors
    /// The address is none, or nobody answers there in time.
    fn connect(
        &self,
        address: &Address,
        limits: &Southbound,
    ) -> impl Future<Output = Result<Self::Connection, ClientError>> + Send;

    /// Connects to a server of an etcd within its deadline.
    ///
    /// # Errors
    /// The address is none, or nobody answers there in time.
    fn registry(
        &self,
        server: &str,
        etcd: &Etcd,
    ) -> impl Future<Output = Result<Self::Registry, EtcdError>> + Send;

    /// Where long computations run: beside the tasks that serve the network. A network in which
    /// nothing happens by chance runs them in place.
    fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Panicked>> + Send {
        async { spawn_blocking(work).await.map_err(|_| Panicked) }
    }
}

/// A computation panicked, which no event should make it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked")]
pub struct Panicked;

/// One connection to one switch. An error of any call ends its use.
pub trait Connection: Send + Sync + 'static {
    /// Opens the stream, with a bid as its first message: some servers answer the call only then.
    fn open(
        &self,
        bid: ElectionId,
    ) -> impl Future<Output = Result<Conversation, ClientError>> + Send;

    /// The cookie of the program that the switch runs; `None` if it runs none.
    fn cookie(&self) -> impl Future<Output = Result<Option<u64>, ClientError>> + Send;

    /// Has the switch run `pipeline`.
    fn push(
        &self,
        pipeline: &Pipeline,
        election: ElectionId,
        entries: Entries,
    ) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// What a part of the switch's tables holds, and nothing else.
    fn tables(
        &self,
        pipeline: &Pipeline,
        of: &Extent,
    ) -> impl Future<Output = Result<Tables, ClientError>> + Send;

    /// Writes a batch. The inner result is the switch's word on the updates.
    fn write(
        &self,
        updates: &[Update],
        election: ElectionId,
    ) -> impl Future<Output = Result<Result<(), WriteError>, ClientError>> + Send;
}

/// What becomes of the entries of the program before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// They stay, or the switch refuses the program.
    Kept,
    /// They go.
    Dropped,
}

/// Both directions of a stream channel. Dropping it closes the stream.
pub struct Conversation {
    /// To the switch.
    pub say: mpsc::Sender<Say>,
    /// From the switch; ends with the stream, after the error that ended it if there was one.
    pub hear: BoxStream<'static, Result<Heard, ClientError>>,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").finish_non_exhaustive()
    }
}

/// What a session says on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// It would be primary with this election id.
    Bid(ElectionId),
    /// A packet for the switch to send on.
    Packet(PacketOut),
}

/// What a switch says on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Who may write.
    Verdict(Verdict),
    /// A packet for the controller.
    Packet(PacketIn),
    /// A complaint, in the switch's words.
    Complaint(String),
}
