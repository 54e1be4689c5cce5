//! The open streams of one device: the election and the way to each controller.
//!
//! [`crate::election`] decides, this sends. Every stream has a bounded queue; a controller that
//! does not even take the notices meant for it loses its stream, and packets never fill the places
//! kept for notices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use p4rt::stream_message_response::Update;
use p4runtime_proto::{rpc, v1 as p4rt};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::error::Failure;
use crate::election::{Claim, Election, Input, Notice, Output, Rules, SessionId, Standing};
use crate::faults::Faults;

/// Messages that may wait for one controller.
pub(super) const QUEUE: usize = 1024;
/// The part of [`QUEUE`] that packets leave free.
const KEPT_FOR_NOTICES: usize = 64;

/// What a stream carries to its controller.
pub(super) type Message = Result<p4rt::StreamMessageResponse, Status>;

/// All streams of one device.
#[derive(Debug)]
pub(super) struct Sessions {
    election: Election,
    rules: Rules,
    outboxes: BTreeMap<SessionId, Outbox>,
    opened: u64,
    closed: bool,
    faults: Arc<Mutex<Faults>>,
}

/// The switch's end of one stream. Dropping it ends the stream and its listener.
#[derive(Debug)]
struct Outbox {
    messages: mpsc::Sender<Message>,
    /// Never used, only dropped.
    _ended: oneshot::Sender<()>,
}

/// A stream just opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: SessionId,
    /// What to send to the controller.
    pub(super) messages: mpsc::Receiver<Message>,
    /// Resolves when the switch has ended the stream.
    pub(super) ended: oneshot::Receiver<()>,
}

impl Sessions {
    pub(super) fn new(rules: Rules, faults: Arc<Mutex<Faults>>) -> Self {
        let (election, outboxes) = (Election::new(rules), BTreeMap::new());
        Self {
            election,
            rules,
            outboxes,
            opened: 0,
            closed: false,
            faults,
        }
    }

    /// Who may write.
    pub(super) fn election(&self) -> &Election {
        &self.election
    }

    /// Admits a new stream.
    pub(super) fn open(&mut self) -> Result<Opened, Failure> {
        if self.closed {
            return Err(Failure::new(
                Code::Unavailable,
                "the switch is shutting down",
            ));
        }
        self.opened += 1;
        let session = SessionId(self.opened);
        if let Some(Output::Close(_, refusal)) = self.election.step(Input::Connected(session)).pop()
        {
            return Err(refusal.into());
        }
        let (sender, messages) = mpsc::channel(QUEUE);
        let (_ended, ended) = oneshot::channel();
        self.outboxes.insert(
            session,
            Outbox {
                messages: sender,
                _ended,
            },
        );
        Ok(Opened {
            session,
            messages,
            ended,
        })
    }

    /// A controller claims an election id.
    pub(super) fn claim(&mut self, session: SessionId, claim: Claim) {
        let outputs = self.election.step(Input::Claimed(session, claim));
        self.carry_out(outputs);
    }

    /// A stream is over; with an error, its controller is told.
    pub(super) fn end(&mut self, session: SessionId, error: Option<Status>) {
        self.hang_up(session, error);
        let outputs = self.election.step(Input::Disconnected(session));
        self.carry_out(outputs);
    }

    /// Ends all streams and admits no more.
    pub(super) fn end_all(&mut self, error: &Status) {
        self.closed = true;
        let sessions: Vec<SessionId> = self.outboxes.keys().copied().collect();
        for session in sessions {
            self.hang_up(session, Some(error.clone()));
        }
        self.election = Election::new(self.rules);
    }

    /// Sends what a controller may miss: false if it is not taking messages fast enough.
    #[must_use]
    pub(super) fn offer(&self, session: SessionId, update: Update) -> Offer {
        let outbox = self.outboxes.get(&session).map(|outbox| &outbox.messages);
        let Some(outbox) = outbox.filter(|outbox| outbox.capacity() > KEPT_FOR_NOTICES) else {
            return Offer::Dropped;
        };
        match outbox.try_send(message(update)) {
            Err(_) => Offer::Dropped,
            Ok(()) if self.breaks_here() => Offer::SentAndBroken,
            Ok(()) => Offer::Sent,
        }
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        let mut pending = VecDeque::from(outputs);
        while let Some(output) = pending.pop_front() {
            match output {
                Output::Close(session, refusal) => {
                    self.hang_up(session, Some(Failure::from(refusal).into()));
                }
                Output::Notify(session, notice) => {
                    if let Err(error) = self.notify(session, notice) {
                        self.hang_up(session, Some(error));
                        pending.extend(self.election.step(Input::Disconnected(session)));
                    }
                }
            }
        }
    }

    fn notify(&self, session: SessionId, notice: Notice) -> Result<(), Status> {
        let Some(outbox) = self.outboxes.get(&session) else {
            return Ok(());
        };
        let update = Update::Arbitration(self.arbitration(notice));
        let sent = outbox.messages.try_send(message(update));
        sent.map_err(|_| Status::resource_exhausted("the controller takes no notices"))?;
        if self.breaks_here() {
            Err(broken())
        } else {
            Ok(())
        }
    }

    fn arbitration(&self, notice: Notice) -> p4rt::MasterArbitrationUpdate {
        let (code, text) = match notice.standing {
            Standing::Primary => (Code::Ok, "you are the primary"),
            Standing::Backup => (Code::AlreadyExists, "another controller is the primary"),
            Standing::Vacant => (Code::NotFound, "there is no primary"),
        };
        let role = Some(notice.role).filter(|role| !role.is_empty());
        p4rt::MasterArbitrationUpdate {
            device_id: self.rules.device_id,
            role: role.map(|name| p4rt::Role {
                name,
                ..p4rt::Role::default()
            }),
            election_id: notice.election_id.map(to_uint128),
            status: Some(rpc::Status {
                code: code as i32,
                message: text.to_owned(),
                details: Vec::new(),
            }),
        }
    }

    fn hang_up(&mut self, session: SessionId, error: Option<Status>) {
        if let (Some(outbox), Some(error)) = (self.outboxes.remove(&session), error) {
            // A full queue only means that the controller learns of the end without the reason.
            let _ = outbox.messages.try_send(Err(error));
        }
    }

    fn breaks_here(&self) -> bool {
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .on_message()
    }
}

/// What became of a message that may be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    Sent,
    /// Sent, and the fault script wants the stream to end here.
    SentAndBroken,
    Dropped,
}

/// The error of a stream that the fault script breaks.
pub(super) fn broken() -> Status {
    Status::unavailable("the fault script breaks this stream")
}

/// The number behind an election id on the wire.
pub(super) fn from_uint128(id: p4rt::Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn to_uint128(id: u128) -> p4rt::Uint128 {
    let low = u64::try_from(id & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    p4rt::Uint128 {
        high: u64::try_from(id >> 64).unwrap_or(u64::MAX),
        low,
    }
}

fn message(update: Update) -> Message {
    Ok(p4rt::StreamMessageResponse {
        update: Some(update),
    })
}
