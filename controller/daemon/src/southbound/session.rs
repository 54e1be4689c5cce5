//! One session: everything that the controller does with one switch, in one task.
//!
//! Connect, win the election ([`arbitration`](super::arbitration)), then make passes
//! ([`reconcile`](super::reconcile)) for as long as it is won; on any failure begin anew. The
//! decision: the work of a primary is one future that exists exactly as long as the mastership.
//! When the switch says that another is primary, it is dropped where it stands and writes nothing
//! more.

use std::sync::Arc;
use std::time::Duration;

use p4::Pipeline;
use p4rt::stream_message_request::Update as ToSwitch;
use p4rt::stream_message_response::Update as FromSwitch;
use p4runtime_proto::v1 as p4rt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use topology::SwitchId;
use tracing::{Instrument, debug, info, info_span, warn};

use super::arbitration::{Arbitration, ElectionId, Input, Output, Standing};
use super::client::{Address, Client, ClientError, StreamChannel, call_error};
use super::dialect::Verdict;
use super::reconcile::{Outcome, Reconciler};
use super::status::{Board, REFUSALS_SHOWN, Verified};
use super::{Desired, Target};
use crate::config::{Config, Southbound};

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) desired: watch::Receiver<Arc<Desired>>,
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
pub(crate) async fn run(target: Target, shared: Shared, stop: CancellationToken) {
    let span = info_span!("session", switch = %target.name);
    let mut session = Session::new(target, shared);
    stop.run_until_cancelled(session.deal())
        .instrument(span)
        .await;
}

struct Session {
    switch: SwitchId,
    address: Address,
    shared: Shared,
    arbitration: Arbitration,
}

impl Session {
    fn new(target: Target, shared: Shared) -> Self {
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
        let client = Client::connect(&self.address, &self.shared.config.southbound).await?;
        let mut stream = match self.arbitration.step(Input::Opened) {
            Output::Bid(election) => client.stream(bid(client.device_id(), election)).await?,
            Output::Wait => return Err(SessionError::NoVerdict),
        };
        loop {
            let standing = self.arbitration.standing();
            self.stand(standing);
            let hearing = hear(&mut self.arbitration, &mut stream, client.device_id());
            match standing {
                Standing::Primary { election } => {
                    *failures = 0;
                    tokio::select! {
                        heard = hearing => heard?,
                        failed = lead(self.switch, &self.shared, &client, election) => {
                            return Err(failed.into());
                        }
                    }
                }
                Standing::Backup { .. } => {
                    *failures = 0;
                    hearing.await?;
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
    stream: &mut StreamChannel,
    device_id: u64,
) -> Result<(), SessionError> {
    let standing = arbitration.standing();
    while arbitration.standing() == standing {
        let message = stream.from_switch.message().await;
        let message = message.map_err(|status| call_error("StreamChannel", &status))?;
        let verdict = match message.ok_or(SessionError::StreamEnded)?.update {
            Some(FromSwitch::Arbitration(update)) => Verdict::read(&update),
            Some(FromSwitch::Error(error)) => {
                warn!(
                    code = error.canonical_code,
                    error.message, "the switch complains"
                );
                continue;
            }
            // Packets, digests and timeouts: nobody here asked for them.
            _ => continue,
        };
        if let Output::Bid(election) = arbitration.step(Input::Told(verdict)) {
            let sent = stream.to_switch.send(bid(device_id, election)).await;
            sent.map_err(|_| SessionError::StreamEnded)?;
        }
    }
    Ok(())
}

fn bid(device_id: u64, election: ElectionId) -> p4rt::StreamMessageRequest {
    let update = p4rt::MasterArbitrationUpdate {
        device_id,
        election_id: Some(election.into()),
        ..Default::default()
    };
    p4rt::StreamMessageRequest {
        update: Some(ToSwitch::Arbitration(update)),
    }
}

/// The work of a primary: passes, as long as the connection serves.
async fn lead(
    switch: SwitchId,
    shared: &Shared,
    client: &Client,
    election: ElectionId,
) -> ClientError {
    let limits = &shared.config.southbound;
    let reconciler = Reconciler {
        client,
        pipeline: &shared.pipeline,
        election,
        limits,
    };
    let mut news = shared.desired.clone();
    let mut effort = Effort::on(Arc::clone(&news.borrow_and_update()));
    loop {
        // Before anything is desired, whatever the switch holds is better than nothing.
        let pause = match effort.desired.tables.get(&switch) {
            None => limits.interval,
            Some(tables) => match reconciler.pass(tables).await {
                Err(error) => return error,
                Ok(outcome) => {
                    effort.count(&outcome);
                    report_pass(switch, shared, &effort, &outcome);
                    effort.pause(limits)
                }
            },
        };
        if let Some(newer) = newer_than(effort.desired.generation, &mut news, pause).await {
            effort = Effort::on(newer);
        }
    }
}

/// What it took so far to realise one generation.
struct Effort {
    desired: Arc<Desired>,
    first_write: Option<Instant>,
    /// Passes in a row that left something missing.
    short: u32,
}

impl Effort {
    fn on(desired: Arc<Desired>) -> Self {
        Self {
            desired,
            first_write: None,
            short: 0,
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        self.first_write = self.first_write.or(outcome.first_write);
        self.short = if outcome.missing == 0 {
            0
        } else {
            self.short + 1
        };
    }

    fn pause(&self, limits: &Southbound) -> Duration {
        match self.short {
            0 => limits.interval,
            passes => limits.retry.after(passes),
        }
    }
}

/// Waits for something newer to realise, at most for `pause`. What is not newer does not count.
async fn newer_than(
    generation: u64,
    news: &mut watch::Receiver<Arc<Desired>>,
    pause: Duration,
) -> Option<Arc<Desired>> {
    let newer = news.wait_for(|news| news.generation > generation);
    let newer = timeout(pause, newer).await.ok()?.ok()?;
    Some(Arc::clone(&newer))
}

fn report_pass(switch: SwitchId, shared: &Shared, effort: &Effort, outcome: &Outcome) {
    let refusals = log_pass(shared, &effort.desired, outcome);
    let seen = (outcome.missing == 0).then(|| Verified {
        generation: effort.desired.generation,
        entries: effort
            .desired
            .tables
            .get(&switch)
            .map_or(0, p4::Tables::len),
        first_write: effort.first_write,
        at: Instant::now(),
    });
    shared.board.update(switch, |line| {
        let nothing_new = outcome.pass.updates == 0
            && line.verified.map(|old| old.generation) == seen.map(|new| new.generation);
        if !nothing_new {
            line.verified = seen;
        }
        line.written.add(&outcome.written);
        line.refusals = refusals;
        line.last_pass = Some(outcome.pass);
        line.passes += 1;
    });
}

/// Says in the log what was written, and every refused entry with its reason; returns the first few
/// as text.
fn log_pass(shared: &Shared, desired: &Desired, outcome: &Outcome) -> Vec<String> {
    let (generation, missing) = (desired.generation, outcome.missing);
    if outcome.pass.updates == 0 {
        debug!(generation, read = ?outcome.pass.read, "as it should be");
    } else {
        let written = &outcome.written;
        info!(generation, ?written, missing, pass = ?outcome.pass, "wrote the difference");
    }
    for failure in &outcome.failures {
        warn!(
            generation,
            failure, "a batch failed; the next pass tries again"
        );
    }
    let refusals = outcome.refusals.iter().map(|refusal| {
        let entry = shared.pipeline.p4info.show(&refusal.update.entry);
        let kind = refusal.update.kind;
        let (code, reason) = (refusal.code, &refusal.message);
        warn!(generation, ?kind, %entry, ?code, %reason, "refused; the next pass tries again");
        format!("{kind:?} {entry}: {code:?}: {reason}")
    });
    // All of them are logged; a status shows some.
    let mut refusals: Vec<String> = refusals.collect();
    refusals.truncate(REFUSALS_SHOWN);
    refusals
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}
