//! What a session needs of a switch and of the network: the seam between the two.
//!
//! [`GrpcNetwork`](super::GrpcNetwork) is the network that there is; the fault campaign brings
//! another one, in which everything that can go wrong does, in an order that a seed decides. The
//! decision: the seam speaks the controller's own types, so that nothing above it knows protobufs,
//! and calls are futures that hold no lock and may be dropped at any await. Both traits are used as
//! objects: the controller is compiled once, whichever network it is given.

use async_trait::async_trait;
use futures::stream::BoxStream;
use p4::codec::{DigestList, DigestTiming, PacketIn, PacketOut, WriteError};
use p4::{ForwardingPipeline, SwitchTables, TableScope, TableUpdate};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::arbitration::ElectionId;
use super::client::{ClientError, SwitchAddress};
use super::mastership_status::MastershipStatus;
use super::running_program::RunningProgram;
use crate::config::SouthboundConfig;

/// Opens connections to switches.
#[async_trait]
pub trait SwitchNetwork: Send + Sync + 'static {
    /// Connects within the limits' deadline.
    ///
    /// # Errors
    /// The address is invalid, or nobody answers there in time.
    async fn connect_switch(
        &self,
        address: &SwitchAddress,
        limits: &SouthboundConfig,
    ) -> Result<Box<dyn SwitchConnection>, ClientError>;

    /// Where long computations run: beside the tasks that serve the network. A network in which
    /// nothing happens by chance runs them in place.
    async fn run_blocking(&self, work: Computation) -> Result<(), ComputationPanicked> {
        spawn_blocking(work).await.map_err(|_| ComputationPanicked)
    }
}

/// What takes too long for a task that serves the network: planning and lowering.
pub type Computation = Box<dyn FnOnce() + Send>;

/// Runs a computation where `network` wants it, and waits for its result.
pub(crate) async fn compute<T: Send + 'static>(
    network: &dyn SwitchNetwork,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ComputationPanicked> {
    let (sender, result) = oneshot::channel();
    // Nobody waits for the result of a computation that was superseded.
    network.run_blocking(Box::new(move || drop(sender.send(work())))).await?;
    // The sender is dropped without a result only if the work panicked in place.
    result.await.map_err(|_| ComputationPanicked)
}

/// A computation panicked, which no event should make it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked")]
pub struct ComputationPanicked;

/// One connection to one switch. An error of any call ends its use.
#[async_trait]
pub trait SwitchConnection: Send + Sync + 'static {
    /// Opens the stream, with a bid as its first message: some servers answer the call only then.
    async fn open_stream(&self, bid: ElectionId) -> Result<StreamChannel, ClientError>;

    /// The cookie of the program that the switch runs; `None` if it runs none, or one without a
    /// cookie.
    async fn read_cookie(&self) -> Result<Option<u64>, ClientError>;

    /// The program that the switch runs; `None` if it runs none.
    async fn read_program(&self) -> Result<Option<RunningProgram>, ClientError>;

    /// Has the switch run `pipeline`.
    async fn push_pipeline(
        &self,
        pipeline: &ForwardingPipeline,
        election: ElectionId,
        entries: ExistingEntries,
    ) -> Result<(), ClientError>;

    /// What a part of the switch's tables holds, and nothing else.
    async fn read_tables(
        &self,
        pipeline: &ForwardingPipeline,
        of: &TableScope,
    ) -> Result<SwitchTables, ClientError>;

    /// Writes a batch. The inner result is the switch's word on the updates.
    async fn write_updates(
        &self,
        updates: &[TableUpdate],
        election: ElectionId,
    ) -> Result<Result<(), WriteError>, ClientError>;

    /// Has the switch send digests. The inner result is the switch's reason for a refusal.
    async fn subscribe_digests(
        &self,
        timing: &DigestTiming,
        election: ElectionId,
    ) -> Result<Result<(), String>, ClientError>;
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
