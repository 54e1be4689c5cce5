//! One session: everything that the controller does with one switch, in one task.
//!
//! Connect, win the election ([`arbitration`](super::arbitration)), then make passes
//! ([`reconcile`](super::reconcile)) for as long as it is won; on any failure begin anew. The
//! decision: the work of a primary is one future that exists exactly as long as the mastership.
//! When the switch says that another is primary, it is dropped where it stands and writes nothing
//! more.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use p4::ForwardingPipeline;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::{Instrument, info, info_span, warn};

use super::arbitration::{
    ArbitrationInput, ArbitrationOutput, ElectionId, Mastership, MastershipArbitration,
};
use super::client::{ClientError, SwitchAddress};
use super::connection::{
    IncomingMessage, OutgoingMessage, StreamChannel, SwitchConnection, SwitchNetwork,
};
use super::packet_io::PacketIo;
use super::reconcile::SwitchReconciler;
use super::reconcile_state::ReconcileState;
use super::status::StatusBoard;
use super::write_permit::WritePermit;
use super::{DesiredTables, ReadLimiter, SwitchTarget, error_chain};
use crate::config::Config;

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct SessionContext<N> {
    pub(crate) network: N,
    pub(crate) config: Arc<Config>,
    pub(crate) pipeline: Arc<ForwardingPipeline>,
    pub(crate) desired: watch::Receiver<Arc<DesiredTables>>,
    /// In which term to bid, and whether to write.
    pub(crate) write_permit: watch::Receiver<WritePermit>,
    pub(crate) board: StatusBoard,
    /// Where packets from switches go, and what says which to send.
    pub(crate) packet_io: PacketIo,
    /// Whose turn it is to read.
    pub(crate) read_limiter: ReadLimiter,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the switch closed the stream")]
    StreamEnded,
    #[error("the switch did not answer the bid for mastership")]
    NoArbitrationReply,
}

/// Deals with one switch until `stop` is called. Withdraws nothing when it ends.
pub(crate) async fn run_session<N: SwitchNetwork>(
    target: SwitchTarget,
    shared: SessionContext<N>,
    stop: CancellationToken,
) {
    let span = info_span!("session", switch = %target.name);
    let mut session = SwitchSession::new(target, shared);
    stop.run_until_cancelled(session.reconnect_forever()).instrument(span).await;
}

struct SwitchSession<N> {
    switch: SwitchId,
    address: SwitchAddress,
    context: SessionContext<N>,
    arbitration: MastershipArbitration,
    /// The standing that the board shows.
    shown_mastership: Mastership,
}

impl<N: SwitchNetwork> SwitchSession<N> {
    fn new(target: SwitchTarget, shared: SessionContext<N>) -> Self {
        Self {
            switch: target.switch,
            address: target.address,
            arbitration: MastershipArbitration::new(shared.config.controller, 0),
            shown_mastership: Mastership::Disconnected,
            context: shared,
        }
    }

    /// Connects again and again; waits longer after each failure to become primary or backup.
    async fn reconnect_forever(&mut self) {
        let mut failures = 0;
        loop {
            let error = match self.run_connection(&mut failures).await {
                Err(error) => error,
                Ok(never) => match never {},
            };
            self.arbitration.step(ArbitrationInput::StreamClosed);
            self.shown_mastership = Mastership::Disconnected;
            failures += 1;
            self.report_failure(&error);
            tokio::time::sleep(self.context.config.southbound.backoff.wait_after(failures)).await;
        }
    }

    /// One connection, until it fails.
    async fn run_connection(&mut self, failures: &mut u32) -> Result<Infallible, SessionError> {
        let mut mandate = self.context.write_permit.clone();
        self.arbitration.step(wait_for_term(&mut mandate).await);
        let limits = &self.context.config.southbound;
        let connecting = self.context.network.connect_switch(&self.address, limits);
        let switch = connecting.await?;
        let mut stream = match self.arbitration.step(ArbitrationInput::StreamOpened) {
            ArbitrationOutput::Bid(election) => switch.open_stream(election).await?,
            ArbitrationOutput::Wait => return Err(SessionError::NoArbitrationReply),
        };
        loop {
            let now = *mandate.borrow_and_update();
            if let Some(input) = now.arbitration_input() {
                send_bid(&mut self.arbitration, input, &stream.outgoing).await?;
            }
            let standing = self.arbitration.mastership();
            self.show_mastership(standing);
            let say = stream.outgoing.clone();
            let antenna = &self.context.packet_io;
            let hearing =
                receive_messages(self.switch, antenna, &mut self.arbitration, &mut stream);
            if standing == Mastership::Candidate {
                let deadline = self.context.config.southbound.rpc_deadline;
                let heard = timeout(deadline, hearing).await;
                heard.map_err(|_| SessionError::NoArbitrationReply)??;
                continue;
            }
            *failures = 0;
            tokio::select! {
                biased;
                heard = hearing => heard?,
                failed = serve_mastership(self.switch, &self.context, (&switch, say), standing) => {
                    return Err(failed.into());
                }
                changed = mandate.wait_for(|next| needs_attention(standing, now, *next)) => {
                    changed.map_err(|_| SessionError::StreamEnded)?;
                }
            }
        }
    }

    /// A new standing begins with nothing verified: others may have written in between.
    fn show_mastership(&mut self, standing: Mastership) {
        if self.shown_mastership != standing {
            info!(?standing, "standing");
            self.shown_mastership = standing;
            self.context.board.update_status(self.switch, |line| {
                line.mastership = standing;
                line.verified = None;
            });
        }
    }

    fn report_failure(&self, error: &SessionError) {
        let text = error_chain(error);
        warn!(error = %text, "connection ended; what the switch holds stays there");
        self.context.board.update_status(self.switch, |line| {
            line.mastership = Mastership::Disconnected;
            line.failures += 1;
            line.last_error = Some(text);
        });
    }
}

/// Listens until the standing changes.
async fn receive_messages(
    of: SwitchId,
    antenna: &PacketIo,
    arbitration: &mut MastershipArbitration,
    stream: &mut StreamChannel,
) -> Result<(), SessionError> {
    let standing = arbitration.mastership();
    while arbitration.mastership() == standing {
        let heard = stream.incoming.next().await;
        let verdict = match heard.ok_or(SessionError::StreamEnded)?? {
            IncomingMessage::Mastership(verdict) => verdict,
            IncomingMessage::StreamError(complaint) => {
                warn!(complaint, "the switch complains");
                continue;
            }
            IncomingMessage::Packet(packet) => {
                antenna.deliver_packet_in(of, packet);
                continue;
            }
        };
        send_bid(arbitration, ArbitrationInput::StatusReceived(verdict), &stream.outgoing).await?;
    }
    Ok(())
}

/// Waits until it is known in which term to bid.
async fn wait_for_term(mandate: &mut watch::Receiver<WritePermit>) -> ArbitrationInput {
    let known = mandate.wait_for(|mandate| mandate.arbitration_input().is_some()).await;
    match known.ok().and_then(|mandate| mandate.arbitration_input()) {
        Some(input) => input,
        // The controller ends, and its sessions with it.
        None => std::future::pending().await,
    }
}

/// Whether a mandate after the present one is a reason to look up. A leader's is renewed all the
/// time, and where switches elect, a primary stays what it is.
fn needs_attention(standing: Mastership, now: WritePermit, next: WritePermit) -> bool {
    match (now, next) {
        (WritePermit::Leader { term, .. }, WritePermit::Leader { term: next, .. }) => term != next,
        (WritePermit::Open { .. }, WritePermit::Open { .. }) => {
            now != next && !standing.is_primary()
        }
        _ => now != next,
    }
}

/// Takes in what leads to a bid, perhaps, and sends that.
async fn send_bid(
    arbitration: &mut MastershipArbitration,
    input: ArbitrationInput,
    say: &mpsc::Sender<OutgoingMessage>,
) -> Result<(), SessionError> {
    if let ArbitrationOutput::Bid(election) = arbitration.step(input) {
        let said = say.send(OutgoingMessage::Bid(election)).await;
        said.map_err(|_| SessionError::StreamEnded)?;
    }
    Ok(())
}

/// The work of a primary, whenever its mandate lets it write; of all others, none.
async fn serve_mastership<N: SwitchNetwork>(
    of: SwitchId,
    shared: &SessionContext<N>,
    (switch, say): (&N::Connection, mpsc::Sender<OutgoingMessage>),
    standing: Mastership,
) -> ClientError {
    let Mastership::Primary { election } = standing else {
        return std::future::pending().await;
    };
    let mut mandate = shared.write_permit.clone();
    loop {
        let may_write = |mandate: &WritePermit| mandate.allows_write(election, Instant::now());
        if mandate.wait_for(may_write).await.is_err() {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            () = wait_for_expiry(&mut mandate, election) => warn!("no mandate to write any more"),
            failed = reconcile_forever(of, shared, switch, election) => return failed,
            never = shared.packet_io.send_packets_out(of, say.clone()) => match never {},
        }
        shared.board.update_status(of, |line| line.verified = None);
    }
}

/// Waits until the mandate does not let a primary write with this election id.
async fn wait_for_expiry(mandate: &mut watch::Receiver<WritePermit>, election: ElectionId) {
    loop {
        let now = *mandate.borrow_and_update();
        if !now.allows_write(election, Instant::now()) {
            return;
        }
        let changed = mandate.changed();
        let changed = match now.expires_at() {
            Some(end) => timeout_at(end, changed).await.unwrap_or(Ok(())),
            None => changed.await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The work of a primary: passes, as long as the connection serves.
async fn reconcile_forever<N: SwitchNetwork>(
    of: SwitchId,
    shared: &SessionContext<N>,
    switch: &N::Connection,
    election: ElectionId,
) -> ClientError {
    let limits = &shared.config.southbound;
    let mut news = shared.desired.clone();
    let desired = Arc::clone(&news.borrow_and_update());
    let mut effort = ReconcileState::new(of, desired);
    loop {
        // Before anything is desired, whatever the switch holds is better than nothing.
        if let Some(tables) = effort.desired_tables() {
            let reconciler = SwitchReconciler {
                switch,
                pipeline: &shared.pipeline,
                election,
                limits,
                unknown_entries: effort.unknown_entries(),
                read_limiter: &shared.read_limiter,
            };
            let made = match effort.held_tables(limits) {
                Some(held) => reconciler.incremental_reconcile(&tables, held).await,
                None => reconciler.full_reconcile(&tables).await,
            };
            match made {
                Err(error) => return error,
                Ok(outcome) => {
                    effort.record_outcome(&outcome, &shared.pipeline.p4info, &shared.board);
                }
            }
        }
        let due = effort.next_reconcile(limits);
        while let Some(newer) = effort.wait_for_newer(&mut news, due).await {
            if effort.adopt_generation(newer, &shared.board).needs_reconcile() {
                break;
            }
        }
    }
}
