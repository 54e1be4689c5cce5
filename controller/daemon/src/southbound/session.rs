//! One session: everything that the controller does with one switch, in one task.
//!
//! Connect, win the election ([`arbitration`](super::arbitration)), then make passes
//! ([`reconcile`](super::reconcile)) for as long as it is won; on any failure begin anew. The
//! decision: the work of a primary is one future that exists exactly as long as the mastership.
//! When the switch says that another is primary, it is dropped where it stands and writes nothing
//! more.

use std::sync::Arc;

use futures::StreamExt;
use p4::Pipeline;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::{Instrument, info, info_span, warn};

use super::arbitration::{Arbitration, ElectionId, Input, Output, Standing};
use super::client::{Address, ClientError};
use super::connection::{Connection, Conversation, Heard, Network, Say};
use super::effort::Effort;
use super::reconcile::Reconciler;
use super::status::Board;
use super::{Desired, Target};
use crate::config::Config;

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct Shared<N> {
    pub(crate) network: N,
    pub(crate) config: Arc<Config>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) desired: watch::Receiver<Arc<Desired>>,
    /// The term to bid in.
    pub(crate) term: watch::Receiver<u64>,
    pub(crate) board: Board,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the switch closed the stream")]
    StreamEnded,
    #[error("the switch did not answer the bid for mastership")]
    NoVerdict,
}

/// Deals with one switch until `stop` is called. Withdraws nothing when it ends.
pub(crate) async fn run<N: Network>(target: Target, shared: Shared<N>, stop: CancellationToken) {
    let span = info_span!("session", switch = %target.name);
    let mut session = Session::new(target, shared);
    stop.run_until_cancelled(session.deal())
        .instrument(span)
        .await;
}

struct Session<N> {
    switch: SwitchId,
    address: Address,
    shared: Shared<N>,
    arbitration: Arbitration,
}

impl<N: Network> Session<N> {
    fn new(target: Target, shared: Shared<N>) -> Self {
        Self {
            switch: target.switch,
            address: target.address,
            arbitration: Arbitration::new(shared.config.controller, shared.config.term),
            shared,
        }
    }

    /// Connects again and again; waits longer after each failure to become primary or backup.
    async fn deal(&mut self) {
        let mut failures = 0;
        loop {
            let error = match self.connected(&mut failures).await {
                Err(error) => error,
                Ok(never) => match never {},
            };
            self.arbitration.step(Input::Closed);
            failures += 1;
            self.report_failure(&error);
            tokio::time::sleep(self.shared.config.southbound.retry.after(failures)).await;
        }
    }

    /// One connection, until it fails.
    async fn connected(
        &mut self,
        failures: &mut u32,
    ) -> Result<std::convert::Infallible, SessionError> {
        let limits = &self.shared.config.southbound;
        let connecting = self.shared.network.connect(&self.address, limits);
        let switch = connecting.await?;
        self.arbitration
            .step(Input::Term(*self.shared.term.borrow()));
        let mut stream = match self.arbitration.step(Input::Opened) {
            Output::Bid(election) => switch.open(election).await?,
            Output::Wait => return Err(SessionError::NoVerdict),
        };
        loop {
            let standing = self.arbitration.standing();
            self.stand(standing);
            let term = self.arbitration.term();
            let hearing = hear(&mut self.arbitration, &mut stream);
            match standing {
                Standing::Primary { election } => {
                    *failures = 0;
                    tokio::select! {
                        biased;
                        heard = hearing => heard?,
                        failed = lead(self.switch, &self.shared, &switch, election) => {
                            return Err(failed.into());
                        }
                    }
                }
                Standing::Backup { .. } | Standing::Vacant { .. } => {
                    *failures = 0;
                    let risen = tokio::select! {
                        biased;
                        heard = hearing => heard.map(|()| None)?,
                        risen = later(&self.shared.term, term) => Some(risen),
                    };
                    if let Some(term) = risen {
                        bid(&mut self.arbitration, Input::Term(term), &stream.say).await?;
                    }
                }
                Standing::Apart | Standing::Candidate => {
                    let deadline = self.shared.config.southbound.rpc_deadline;
                    let heard = timeout(deadline, hearing).await;
                    heard.map_err(|_| SessionError::NoVerdict)??;
                }
            }
        }
    }

    /// A new mastership begins with nothing verified: others may have written in between.
    fn stand(&self, standing: Standing) {
        info!(?standing, "standing");
        self.shared.board.update(self.switch, |line| {
            line.standing = standing;
            if standing.is_primary() {
                line.verified = None;
            }
        });
    }

    fn report_failure(&self, error: &SessionError) {
        let text = chain(error);
        warn!(error = %text, "connection ended; what the switch holds stays there");
        self.shared.board.update(self.switch, |line| {
            line.standing = Standing::Apart;
            line.failures += 1;
            line.last_error = Some(text);
        });
    }
}

/// Listens until the standing changes.
async fn hear(
    arbitration: &mut Arbitration,
    stream: &mut Conversation,
) -> Result<(), SessionError> {
    let standing = arbitration.standing();
    while arbitration.standing() == standing {
        let heard = stream.hear.next().await;
        let verdict = match heard.ok_or(SessionError::StreamEnded)?? {
            Heard::Verdict(verdict) => verdict,
            Heard::Complaint(complaint) => {
                warn!(complaint, "the switch complains");
                continue;
            }
            // Nobody here asked for packets.
            Heard::Packet(_) => continue,
        };
        bid(arbitration, Input::Told(verdict), &stream.say).await?;
    }
    Ok(())
}

/// Waits for a later term to bid in.
async fn later(terms: &watch::Receiver<u64>, term: u64) -> u64 {
    let mut terms = terms.clone();
    let later = terms.wait_for(|later| *later > term).await;
    let later = later.ok().map(|later| *later);
    match later {
        Some(later) => later,
        // The controller ends, and its sessions with it.
        None => std::future::pending().await,
    }
}

/// Takes in what leads to a bid, perhaps, and sends that.
async fn bid(
    arbitration: &mut Arbitration,
    input: Input,
    say: &mpsc::Sender<Say>,
) -> Result<(), SessionError> {
    if let Output::Bid(election) = arbitration.step(input) {
        let said = say.send(Say::Bid(election)).await;
        said.map_err(|_| SessionError::StreamEnded)?;
    }
    Ok(())
}

/// The work of a primary: passes, as long as the connection serves.
async fn lead<N: Network>(
    of: SwitchId,
    shared: &Shared<N>,
    switch: &N::Connection,
    election: ElectionId,
) -> ClientError {
    let limits = &shared.config.southbound;
    let reconciler = Reconciler {
        switch,
        pipeline: &shared.pipeline,
        election,
        limits,
    };
    let mut news = shared.desired.clone();
    let desired = Arc::clone(&news.borrow_and_update());
    let mut effort = Effort::new(of, desired);
    loop {
        // Before anything is desired, whatever the switch holds is better than nothing.
        if let Some(tables) = effort.tables() {
            match reconciler.pass(&tables).await {
                Err(error) => return error,
                Ok(outcome) => effort.take(&outcome, &shared.pipeline.p4info, &shared.board),
            }
        }
        let due = effort.next_pass(limits);
        while let Some(newer) = effort.newer(&mut news, due).await {
            if effort.turn_to(newer, &shared.board).needs_a_pass() {
                break;
            }
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}
