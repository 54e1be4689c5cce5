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
use p4::Pipeline;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::{Instrument, info, info_span, warn};

use super::arbitration::{Arbitration, ElectionId, Input, Output, Standing};
use super::client::{Address, ClientError};
use super::connection::{Connection, Conversation, Heard, Network, Say};
use super::effort::Effort;
use super::mandate::Mandate;
use super::reconcile::Reconciler;
use super::status::Board;
use super::{Desired, Target, Turns, chain};
use crate::config::Config;
use crate::discovery::Antenna;

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct Shared<N> {
    pub(crate) network: N,
    pub(crate) config: Arc<Config>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) desired: watch::Receiver<Arc<Desired>>,
    /// In which term to bid, and whether to write.
    pub(crate) mandate: watch::Receiver<Mandate>,
    pub(crate) board: Board,
    /// Where packets from switches go, and what says which to send.
    pub(crate) antenna: Antenna,
    /// Whose turn it is to read.
    pub(crate) turns: Turns,
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
    /// The standing that the board shows.
    told: Standing,
}

impl<N: Network> Session<N> {
    fn new(target: Target, shared: Shared<N>) -> Self {
        Self {
            switch: target.switch,
            address: target.address,
            arbitration: Arbitration::new(shared.config.controller, 0),
            told: Standing::Apart,
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
            self.told = Standing::Apart;
            failures += 1;
            self.report_failure(&error);
            tokio::time::sleep(self.shared.config.southbound.retry.after(failures)).await;
        }
    }

    /// One connection, until it fails.
    async fn connected(&mut self, failures: &mut u32) -> Result<Infallible, SessionError> {
        let mut mandate = self.shared.mandate.clone();
        self.arbitration.step(first_term(&mut mandate).await);
        let limits = &self.shared.config.southbound;
        let connecting = self.shared.network.connect(&self.address, limits);
        let switch = connecting.await?;
        let mut stream = match self.arbitration.step(Input::Opened) {
            Output::Bid(election) => switch.open(election).await?,
            Output::Wait => return Err(SessionError::NoVerdict),
        };
        loop {
            let now = *mandate.borrow_and_update();
            if let Some(input) = now.input() {
                bid(&mut self.arbitration, input, &stream.say).await?;
            }
            let standing = self.arbitration.standing();
            self.stand(standing);
            let say = stream.say.clone();
            let antenna = &self.shared.antenna;
            let hearing = hear(self.switch, antenna, &mut self.arbitration, &mut stream);
            if standing == Standing::Candidate {
                let deadline = self.shared.config.southbound.rpc_deadline;
                let heard = timeout(deadline, hearing).await;
                heard.map_err(|_| SessionError::NoVerdict)??;
                continue;
            }
            *failures = 0;
            tokio::select! {
                biased;
                heard = hearing => heard?,
                failed = serve(self.switch, &self.shared, (&switch, say), standing) => {
                    return Err(failed.into());
                }
                changed = mandate.wait_for(|next| matters(standing, now, *next)) => {
                    changed.map_err(|_| SessionError::StreamEnded)?;
                }
            }
        }
    }

    /// A new standing begins with nothing verified: others may have written in between.
    fn stand(&mut self, standing: Standing) {
        if self.told != standing {
            info!(?standing, "standing");
            self.told = standing;
            self.shared.board.update(self.switch, |line| {
                line.standing = standing;
                line.verified = None;
            });
        }
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
    of: SwitchId,
    antenna: &Antenna,
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
            Heard::Packet(packet) => {
                antenna.hear(of, packet);
                continue;
            }
        };
        bid(arbitration, Input::Told(verdict), &stream.say).await?;
    }
    Ok(())
}

/// Waits until it is known in which term to bid.
async fn first_term(mandate: &mut watch::Receiver<Mandate>) -> Input {
    let known = mandate.wait_for(|mandate| mandate.input().is_some()).await;
    match known.ok().and_then(|mandate| mandate.input()) {
        Some(input) => input,
        // The controller ends, and its sessions with it.
        None => std::future::pending().await,
    }
}

/// Whether a mandate after the present one is a reason to look up. A leader's is renewed all the
/// time, and where switches elect, a primary stays what it is.
fn matters(standing: Standing, now: Mandate, next: Mandate) -> bool {
    match (now, next) {
        (Mandate::Leader { term, .. }, Mandate::Leader { term: next, .. }) => term != next,
        (Mandate::Open { .. }, Mandate::Open { .. }) => now != next && !standing.is_primary(),
        _ => now != next,
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

/// The work of a primary, whenever its mandate lets it write; of all others, none.
async fn serve<N: Network>(
    of: SwitchId,
    shared: &Shared<N>,
    (switch, say): (&N::Connection, mpsc::Sender<Say>),
    standing: Standing,
) -> ClientError {
    let Standing::Primary { election } = standing else {
        return std::future::pending().await;
    };
    let mut mandate = shared.mandate.clone();
    loop {
        let may_write = |mandate: &Mandate| mandate.lets_write(election, Instant::now());
        if mandate.wait_for(may_write).await.is_err() {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            () = expiry(&mut mandate, election) => warn!("no mandate to write any more"),
            failed = lead(of, shared, switch, election) => return failed,
            never = shared.antenna.speak(of, say.clone()) => match never {},
        }
        shared.board.update(of, |line| line.verified = None);
    }
}

/// Waits until the mandate does not let a primary write with this election id.
async fn expiry(mandate: &mut watch::Receiver<Mandate>, election: ElectionId) {
    loop {
        let now = *mandate.borrow_and_update();
        if !now.lets_write(election, Instant::now()) {
            return;
        }
        let changed = mandate.changed();
        let changed = match now.ends() {
            Some(end) => timeout_at(end, changed).await.unwrap_or(Ok(())),
            None => changed.await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The work of a primary: passes, as long as the connection serves.
async fn lead<N: Network>(
    of: SwitchId,
    shared: &Shared<N>,
    switch: &N::Connection,
    election: ElectionId,
) -> ClientError {
    let limits = &shared.config.southbound;
    let mut news = shared.desired.clone();
    let desired = Arc::clone(&news.borrow_and_update());
    let mut effort = Effort::new(of, desired);
    loop {
        // Before anything is desired, whatever the switch holds is better than nothing.
        if let Some(tables) = effort.tables() {
            let reconciler = Reconciler {
                switch,
                pipeline: &shared.pipeline,
                election,
                limits,
                others: effort.others(),
                turns: &shared.turns,
            };
            let made = match effort.held(limits) {
                Some(held) => reconciler.short_pass(&tables, held).await,
                None => reconciler.whole_pass(&tables).await,
            };
            match made {
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
