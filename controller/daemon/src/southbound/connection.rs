//! What a session needs of a switch and of the network: the seam between the two.
//!
//! [`GrpcNetwork`](super::GrpcNetwork) is the network that there is; the fault campaign brings
//! another one, in which everything that can go wrong does, in an order that a seed decides. The
//! decision: the seam speaks the controller's own types, so that nothing above it knows protobufs,
//! and calls are futures that hold no lock and may be dropped at any await.

use std::collections::BTreeSet;
use std::future::Future;

use futures::stream::BoxStream;
use p4::codec::{DigestList, DigestTiming, PacketIn, PacketOut, WriteError};
use p4::entry::TableId;
use p4::{ForwardingPipeline, SwitchTables, TableScope, TableUpdate};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::arbitration::ElectionId;
use super::client::{ClientError, SwitchAddress};
use super::mastership_status::MastershipStatus;
use crate::config::SouthboundConfig;

/// Opens connections to switches.
pub trait SwitchNetwork: Clone + Send + Sync + 'static {
    /// One connection to one switch.
    type Connection: SwitchConnection;
    /// Connects within the limits' deadline.
    ///
    /// # Errors
    /// The address is none, or nobody answers there in time.
    fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> impl Future<Output = Result<Self::Connection, ClientError>> + Send;

    /// Where long computations run: beside the tasks that serve the network. A network in which
    /// nothing happens by chance runs them in place.
    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ComputationPanicked>> + Send {
        async { spawn_blocking(work).await.map_err(|_| ComputationPanicked) }
    }
}

/// A computation panicked, which no event should make it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked")]
pub struct ComputationPanicked;

/// One connection to one switch. An error of any call ends its use.
pub trait SwitchConnection: Send + Sync + 'static {
    /// Opens the stream, with a bid as its first message: some servers answer the call only then.
    fn open_stream(
        &self,
        bid: ElectionId,
    ) -> impl Future<Output = Result<StreamChannel, ClientError>> + Send;

    /// The cookie of the program that the switch runs; `None` if it runs none.
    fn read_cookie(&self) -> impl Future<Output = Result<Option<u64>, ClientError>> + Send;

    /// The tables of the program that the switch runs; none if it runs none.
    fn read_table_ids(&self)
    -> impl Future<Output = Result<BTreeSet<TableId>, ClientError>> + Send;

    /// Has the switch run `pipeline`.
    fn push_pipeline(
        &self,
        pipeline: &ForwardingPipeline,
        election: ElectionId,
        entries: ExistingEntries,
    ) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// What a part of the switch's tables holds, and nothing else.
    fn read_tables(
        &self,
        pipeline: &ForwardingPipeline,
        of: &TableScope,
    ) -> impl Future<Output = Result<SwitchTables, ClientError>> + Send;

    /// Writes a batch. The inner result is the switch's word on the updates.
    fn write_updates(
        &self,
        updates: &[TableUpdate],
        election: ElectionId,
    ) -> impl Future<Output = Result<Result<(), WriteError>, ClientError>> + Send;

    /// Has the switch send digests. The inner result is the switch's reason for a refusal.
    fn subscribe_digests(
        &self,
        timing: &DigestTiming,
        election: ElectionId,
    ) -> impl Future<Output = Result<Result<(), String>, ClientError>> + Send;
}

/// What becomes of the entries of the program before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingEntries {
    /// They stay, or the switch refuses the program.
    Keep,
    /// They go.
    Drop,
}

/// Both directions of a stream channel. Dropping it closes the stream.
pub struct StreamChannel {
    /// To the switch.
    pub outgoing: mpsc::Sender<OutgoingMessage>,
    /// From the switch; ends with the stream, after the error that ended it if there was one.
    pub incoming: BoxStream<'static, Result<IncomingMessage, ClientError>>,
}

impl std::fmt::Debug for StreamChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").finish_non_exhaustive()
    }
}

/// What a session says on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutgoingMessage {
    /// It would be primary with this election id.
    Bid(ElectionId),
    /// A packet for the switch to send on.
    Packet(PacketOut),
    /// The acknowledgement of the list of digests with this number.
    DigestAck(u64),
}

/// What a switch says on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncomingMessage {
    /// Who may write.
    Mastership(MastershipStatus),
    /// A packet for the controller.
    Packet(PacketIn),
    /// Digests for the controller.
    Digests(DigestList),
    /// A complaint, in the switch's words.
    StreamError(String),
}
