//! One session: everything that the controller does with one switch, in one task.
//!
//! Connect, win the election ([`arbitration`](super::arbitration)), then make passes
//! ([`reconcile`](super::reconcile)) for as long as it is won; on any failure begin anew. The
//! decision: the work of a primary is one future that exists exactly as long as the mastership.
//! When the switch says that another is primary, it is dropped where it stands and writes nothing
//! more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use topology::{SwitchId, error_chain};
use tracing::{Instrument, error_span, info, warn};

use super::arbitration::{
    ArbitrationInput, ArbitrationOutput, ElectionId, Mastership, MastershipArbitration,
};
use super::batch_size::BatchSize;
use super::client::{ClientError, SwitchAddress};
use super::connection::{
    IncomingMessage, OutgoingMessage, StreamChannel, SwitchConnection, SwitchNetwork,
};
use super::digest_queue::{DigestQueue, ReceivedDigests};
use super::packet_io::PacketIo;
use super::reconcile::SwitchReconciler;
use super::reconcile_state::ReconcileState;
use super::running_program::read_replaceable;
use super::session_log::{SessionLog, StreamBudget, failures_after};
use super::status::StatusBoard;
use super::write_permit::WritePermit;
use super::{DesiredTables, ReadLimiter, ReadSchedule, SwitchTarget};
use crate::config::Config;
use crate::pipeline::SwitchPipeline;
use crate::pipelines::pipeline_of;
use crate::supervision::TaskSupervisor;

impl SessionError {
    /// Whether the switch exceeded a bound.
    fn is_limit(&self) -> bool {
        match self {
            Self::StreamFlooded => true,
            Self::Client(ClientError::Call { code, .. }) => *code == Code::ResourceExhausted,
            _ => false,
        }
    }

    /// Whether the switch ended the connection for its HTTP/2 pings.
    fn is_too_many_pings(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_too_many_pings())
    }
}

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct SessionContext {
    pub(crate) network: Arc<dyn SwitchNetwork>,
    pub(crate) config: Arc<Config>,
    pub(crate) desired: watch::Receiver<Arc<DesiredTables>>,
    /// In which term to bid, and whether to write.
    pub(crate) write_permit: watch::Receiver<WritePermit>,
    pub(crate) board: StatusBoard,
    /// Where packets from switches go, and what says which to send.
    pub(crate) packet_io: PacketIo,
    /// Where digests from switches go.
    pub(crate) digests: DigestQueue,
    /// Whose turn it is to read.
    pub(crate) read_limiter: ReadLimiter,
    pub(crate) read_schedule: ReadSchedule,
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
    #[error("the switch floods the stream with errors and answers to bids")]
    StreamFlooded,
}

/// The session with one switch.
pub(crate) struct SwitchSession {
    name: String,
    switch: SwitchId,
    address: SwitchAddress,
    context: SessionContext,
    arbitration: MastershipArbitration,
    /// Time between two HTTP/2 pings of the next connection.
    ping_interval: Duration,
    /// The mastership that the board shows.
    shown_mastership: Mastership,
    log: SessionLog,
}

impl SwitchSession {
    pub(crate) fn new(target: SwitchTarget, shared: SessionContext) -> Self {
        Self {
            name: target.name,
            switch: target.switch,
            address: target.address,
            arbitration: MastershipArbitration::in_run(
                shared.config.controller,
                0,
                shared.config.term,
            ),
            ping_interval: shared.config.southbound.ping_interval,
            shown_mastership: Mastership::Disconnected,
            log: SessionLog::default(),
            context: shared,
        }
    }

    /// Runs until `stop`. Entries stay on the switch when it ends.
    pub(crate) async fn run_session(mut self, supervisor: TaskSupervisor, stop: CancellationToken) {
        // Of the highest level, so that every line names the switch, whatever the filter.
        let span = error_span!("session", switch = %self.name);
        let name = format!("session {}", self.name);
        let running = supervisor
            .run_restarting(&name, &mut self, |session| session.reconnect_forever().boxed());
        stop.run_until_cancelled(running).instrument(span).await;
    }

    /// Connects again and again; waits longer after each connection that did not last.
    async fn reconnect_forever(&mut self) {
        // A session that panicked is run again, and still has the mastership of its last stream.
        self.close_stream();
        let backoff = self.context.config.southbound.backoff;
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = match self.run_connection().await {
                Err(error) => error,
                Ok(never) => match never {},
            };
            self.close_stream();
            failures = failures_after(failures, begun.elapsed(), backoff.longest);
            self.report_failure(&error);
            if error.is_too_many_pings() {
                // gRFC A8: the client doubles its interval each time a server complains.
                self.ping_interval = self.ping_interval.saturating_mul(2);
            }
            tokio::time::sleep(backoff.wait_after(failures)).await;
        }
    }

    /// Forgets the stream, if there was one. A session that panicked comes here, too.
    fn close_stream(&mut self) {
        self.arbitration.step(ArbitrationInput::StreamClosed);
        self.shown_mastership = Mastership::Disconnected;
    }

    /// One connection, until it fails.
    async fn run_connection(&mut self) -> Result<Infallible, SessionError> {
        let mut permit = self.context.write_permit.clone();
        // Before connecting: a connection without a bid only takes room at the switch.
        self.arbitration.step(wait_for_term(&mut permit).await);
        let mut limits = self.context.config.southbound.clone();
        limits.ping_interval = self.ping_interval;
        let connecting = self.context.network.connect_switch(&self.address, &limits);
        let switch = connecting.await?;
        let pipeline = pipeline_of(self.address.pipeline);
        // Before the bid: where another program runs, a bid would only take the switch away from
        // the controller that it belongs to.
        read_replaceable(&*switch, pipeline, &limits).await?;
        let mut budget = StreamBudget::new(Instant::now());
        let mut stream = match self.arbitration.step(ArbitrationInput::StreamOpened) {
            ArbitrationOutput::Bid(election) => switch.open_stream(election).await?,
            ArbitrationOutput::Wait => return Err(SessionError::NoArbitrationReply),
        };
        loop {
            // Marked as seen before it is acted on, so that the select below wakes for every later
            // permit.
            let now = *permit.borrow_and_update();
            if let Some(input) = now.arbitration_input() {
                send_bid(&mut self.arbitration, input, &stream.outgoing).await?;
            }
            let mastership = self.arbitration.mastership();
            self.show_mastership(mastership);
            let outgoing = stream.outgoing.clone();
            let context = &self.context;
            let receiver = MessageReceiver {
                switch: self.switch,
                context,
                log: &self.log,
                budget: &mut budget,
            };
            let receiving = receiver.receive_messages(&mut self.arbitration, &mut stream);
            // Only a bid has to be answered in time. A backup may wait on its stream for months.
            if mastership == Mastership::Candidate {
                let deadline = self.context.config.southbound.rpc_deadline;
                let received = timeout(deadline, receiving).await;
                received.map_err(|_| SessionError::NoArbitrationReply)??;
                continue;
            }
            let primary = PrimaryWork { switch: self.switch, pipeline, context, log: &self.log };
            tokio::select! {
                biased;
                // The stream first: a mastership that is lost has to end the work before its next
                // write.
                received = receiving => received?,
                failed = primary.serve_mastership(&*switch, outgoing, mastership) => {
                    return Err(failed.into());
                }
                changed = permit.wait_for(|next| needs_attention(mastership, now, *next)) => {
                    changed.map_err(|_| SessionError::StreamEnded)?;
                }
            }
        }
    }

    /// Publishes a new mastership, which begins unverified: others may have written in between.
    fn show_mastership(&mut self, mastership: Mastership) {
        if self.shown_mastership != mastership {
            self.log.log_limited("mastership", |omitted| {
                info!(mastership = mastership.name(), omitted, "mastership");
            });
            self.shown_mastership = mastership;
            self.context.board.update_status(self.switch, |line| {
                line.mastership = mastership;
                line.verified = None;
            });
        }
    }

    fn report_failure(&self, error: &SessionError) {
        let text = error_chain(error);
        self.log.log_limited("connection", |omitted| {
            let what = "connection ended; what the switch holds stays there";
            warn!(error = %text, omitted, "{what}");
        });
        self.context.board.update_status(self.switch, |line| {
            line.mastership = Mastership::Disconnected;
            line.verified = None;
            line.failures += 1;
            line.limited += u64::from(error.is_limit());
            line.health.record_failure(Instant::now());
            line.last_error = Some(text);
        });
    }
}

/// Receives what a switch sends on one stream.
struct MessageReceiver<'a> {
    switch: SwitchId,
    context: &'a SessionContext,
    log: &'a SessionLog,
    budget: &'a mut StreamBudget,
}

impl MessageReceiver<'_> {
    /// Receives messages until the mastership changes.
    async fn receive_messages(
        self,
        arbitration: &mut MastershipArbitration,
        stream: &mut StreamChannel,
    ) -> Result<(), SessionError> {
        let of = self.switch;
        let mastership = arbitration.mastership();
        while arbitration.mastership() == mastership {
            let received = stream.incoming.next().await;
            let message = received.ok_or(SessionError::StreamEnded)??;
            let outgoing = &stream.outgoing;
            match message {
                IncomingMessage::Packet(packet) => {
                    self.context.packet_io.deliver_packet_in(of, packet);
                }
                IncomingMessage::Digests(list) => {
                    let digests = ReceivedDigests { switch: of, list, stream: outgoing.clone() };
                    self.context.digests.deliver_digests(digests);
                }
                // Packets and digests have bounded queues; everything else that a switch may send
                // is counted.
                _ if !self.budget.admit_message(Instant::now()) => {
                    return Err(SessionError::StreamFlooded);
                }
                IncomingMessage::StreamError(complaint) => {
                    self.log.log_limited("stream", |omitted| {
                        warn!(complaint, omitted, "the switch reported an error on the stream");
                    });
                }
                IncomingMessage::Mastership(status) => {
                    let input = ArbitrationInput::StatusReceived(status);
                    send_bid(arbitration, input, outgoing).await?;
                }
            }
        }
        Ok(())
    }
}

/// Waits until it is known in which term to bid.
async fn wait_for_term(permit: &mut watch::Receiver<WritePermit>) -> ArbitrationInput {
    let known = permit.wait_for(|permit| permit.arbitration_input().is_some()).await;
    match known.ok().and_then(|permit| permit.arbitration_input()) {
        Some(input) => input,
        // The controller ends, and its sessions with it.
        None => std::future::pending().await,
    }
}

/// Whether the permit `next` after `now` requires the session to act. A leader's permit is renewed
/// all the time, and where switches elect, a primary remains primary in any term.
fn needs_attention(mastership: Mastership, now: WritePermit, next: WritePermit) -> bool {
    match (now, next) {
        (WritePermit::Leader { term, .. }, WritePermit::Leader { term: next, .. }) => term != next,
        (WritePermit::Open { .. }, WritePermit::Open { .. }) => {
            now != next && !mastership.is_primary()
        }
        _ => now != next,
    }
}

/// Applies an input to the arbitration and sends the bid that may result.
async fn send_bid(
    arbitration: &mut MastershipArbitration,
    input: ArbitrationInput,
    outgoing: &mpsc::Sender<OutgoingMessage>,
) -> Result<(), SessionError> {
    if let ArbitrationOutput::Bid(election) = arbitration.step(input) {
        let sent = outgoing.send(OutgoingMessage::Bid(election)).await;
        sent.map_err(|_| SessionError::StreamEnded)?;
    }
    Ok(())
}

/// The work of a primary on one switch.
struct PrimaryWork<'a> {
    switch: SwitchId,
    pipeline: &'static dyn SwitchPipeline,
    context: &'a SessionContext,
    log: &'a SessionLog,
}

impl PrimaryWork<'_> {
    /// The work of a primary, whenever its permit lets it write; all others do nothing.
    async fn serve_mastership(
        &self,
        switch: &dyn SwitchConnection,
        outgoing: mpsc::Sender<OutgoingMessage>,
        mastership: Mastership,
    ) -> ClientError {
        let Mastership::Primary { election } = mastership else {
            return std::future::pending().await;
        };
        let (of, context) = (self.switch, self.context);
        let mut permit = context.write_permit.clone();
        loop {
            let writable = permit.wait_for(|permit| permit.allows_write(election, Instant::now()));
            if writable.await.is_err() {
                return std::future::pending().await;
            }
            tokio::select! {
                biased;
                // First in order: a permit that has expired ends reconciliation before its next
                // write.
                () = wait_for_expiry(&mut permit, election) => warn!("the write permit has ended"),
                failed = self.reconcile_forever(switch, election) => return failed,
                never = context.packet_io.send_packets_out(of, outgoing.clone()) => match never {},
            }
            // Another leader may write from now on.
            context.board.update_status(of, |line| line.verified = None);
        }
    }

    /// Reconciles the switch as long as the connection works.
    async fn reconcile_forever(
        &self,
        switch: &dyn SwitchConnection,
        election: ElectionId,
    ) -> ClientError {
        let mut desired_updates = self.context.desired.clone();
        let desired = Arc::clone(&desired_updates.borrow_and_update());
        let schedule = self.context.read_schedule.clone();
        let batch_size = BatchSize::new(self.context.config.southbound.batch.get());
        let log = self.log.clone();
        let mut state =
            ReconcileState::new(self.switch, self.pipeline, desired, schedule, batch_size, log);
        let mut is_subscribed = false;
        loop {
            if let Err(error) = self.make_pass(&mut state, switch, election).await {
                return error;
            }
            // A program that was pushed has no subscription, whatever was there before.
            is_subscribed &= !state.take_pipeline_push();
            if !is_subscribed && self.pipeline.reports_flows() && state.desired_tables().is_some() {
                if let Err(error) = subscribe_digests(self.context, switch, election).await {
                    return error;
                }
                is_subscribed = true;
            }
            let waiting = self.wait_for_work(&mut state, &mut desired_updates, switch, election);
            if let Err(error) = waiting.await {
                return error;
            }
        }
    }

    /// One pass over the switch, if anything is desired of it.
    async fn make_pass(
        &self,
        state: &mut ReconcileState,
        switch: &dyn SwitchConnection,
        election: ElectionId,
    ) -> Result<(), ClientError> {
        // Before anything is desired, the entries on the switch keep traffic flowing; they stay.
        let Some(tables) = state.desired_tables() else {
            state.postpone_full_read();
            return Ok(());
        };
        let reconciler = self.reconciler(switch, election, state);
        let outcome = match state.held_tables(reconciler.limits) {
            // Nobody else may write in this mastership, so what it has seen is what the switch
            // holds.
            Some(held) => reconciler.incremental_reconcile(&tables, held).await?,
            None => reconciler.full_reconcile(&tables).await?,
        };
        state.record_outcome(&outcome, &self.pipeline.program().p4info, &self.context.board);
        Ok(())
    }

    /// Waits for a generation that needs a pass, or until one is due; checks parts of the switch
    /// meanwhile.
    async fn wait_for_work(
        &self,
        state: &mut ReconcileState,
        updates: &mut watch::Receiver<Arc<DesiredTables>>,
        switch: &dyn SwitchConnection,
        election: ElectionId,
    ) -> Result<(), ClientError> {
        let (limits, board) = (&self.context.config.southbound, &self.context.board);
        loop {
            let due = state.next_wake(limits);
            if let Some(newer) = state.wait_for_newer(updates, due).await {
                if state.adopt_generation(newer, board).needs_reconcile() {
                    return Ok(());
                }
                continue;
            }
            let p4info = &self.pipeline.program().p4info;
            let Some((held, part)) = state.take_check(p4info, limits) else {
                return Ok(());
            };
            let reconciler = self.reconciler(switch, election, state);
            let is_intact = reconciler.check_part(&held, &part).await?;
            state.record_check(is_intact, board);
            if !is_intact {
                return Ok(());
            }
        }
    }

    fn reconciler<'b>(
        &'b self,
        switch: &'b dyn SwitchConnection,
        election: ElectionId,
        state: &'b ReconcileState,
    ) -> SwitchReconciler<'b> {
        SwitchReconciler {
            switch,
            pipeline: self.pipeline,
            election,
            limits: &self.context.config.southbound,
            unknown_entries: state.unknown_entries(),
            read_limiter: &self.context.read_limiter,
            batch_size: state.batch_size(),
            log: self.log,
        }
    }
}

/// Waits until the permit no longer lets a primary write with this election id.
async fn wait_for_expiry(permit: &mut watch::Receiver<WritePermit>, election: ElectionId) {
    loop {
        let now = *permit.borrow_and_update();
        if !now.allows_write(election, Instant::now()) {
            return;
        }
        let result = match now.expires_at() {
            // A timeout is no error: the loop looks again, with the clock beyond the end.
            Some(end) => timeout_at(end, permit.changed()).await.unwrap_or(Ok(())),
            None => permit.changed().await,
        };
        if result.is_err() {
            return;
        }
    }
}

/// Has the switch report unknown flows, if the controller learns them. A switch that refuses serves
/// without.
async fn subscribe_digests(
    shared: &SessionContext,
    switch: &dyn SwitchConnection,
    election: ElectionId,
) -> Result<(), ClientError> {
    let learning = &shared.config.learning;
    if learning.is_enabled
        && let Err(reason) = switch.subscribe_digests(&learning.digest_timing(), election).await?
    {
        warn!(reason, "the switch refuses to report unknown flows");
    }
    Ok(())
}
