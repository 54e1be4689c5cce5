//! The open streams of one device: the election and the message queue of each controller.
//!
//! [`super::election`] decides, this sends. Every stream has a bounded queue. A controller that
//! does not even take its notices loses its stream, and packets never fill the places reserved for
//! notices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use p4rt::stream_message_response::Update;
use p4runtime_proto::{rpc, v1 as p4rt};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::error::RequestFailure;
use crate::p4runtime::election::{
    ArbitrationNotice, ArbitrationRequest, ArbitrationStatus, ControllerElection, ElectionAction,
    ElectionEvent, ElectionSettings, SessionId,
};
use crate::testing::faults::FaultInjector;

/// Messages that may wait for one controller.
pub(super) const MESSAGE_LIMIT: usize = 1024;
/// The part of [`MESSAGE_LIMIT`] that packets leave free.
const RESERVED_FOR_NOTICES: usize = 64;

/// What a stream carries to its controller.
pub(super) type StreamMessage = Result<p4rt::StreamMessageResponse, Status>;

/// All streams of one device.
#[derive(Debug)]
pub(super) struct SessionRegistry {
    election: ControllerElection,
    settings: ElectionSettings,
    outboxes: BTreeMap<SessionId, StreamOutbox>,
    opened: u64,
    closed: bool,
    faults: Arc<Mutex<FaultInjector>>,
}

/// The switch's end of one stream. Dropping it ends the stream and its listener.
#[derive(Debug)]
struct StreamOutbox {
    messages: mpsc::Sender<StreamMessage>,
    /// Never used, only dropped.
    _ended: oneshot::Sender<()>,
}

/// A stream just opened.
#[derive(Debug)]
pub(super) struct OpenedStream {
    pub(super) session: SessionId,
    /// What to send to the controller.
    pub(super) messages: mpsc::Receiver<StreamMessage>,
    /// Resolves when the switch has ended the stream.
    pub(super) ended: oneshot::Receiver<()>,
}

impl SessionRegistry {
    pub(super) fn new(rules: ElectionSettings, faults: Arc<Mutex<FaultInjector>>) -> Self {
        let (election, outboxes) = (ControllerElection::new(rules), BTreeMap::new());
        Self { election, settings: rules, outboxes, opened: 0, closed: false, faults }
    }

    /// Who may write.
    pub(super) fn election(&self) -> &ControllerElection {
        &self.election
    }

    /// Admits a new stream.
    pub(super) fn open_session(&mut self) -> Result<OpenedStream, RequestFailure> {
        if self.closed {
            return Err(RequestFailure::new(Code::Unavailable, "the switch is shutting down"));
        }
        self.opened += 1;
        let session = SessionId(self.opened);
        let mut outputs = self.election.handle_event(ElectionEvent::Connected(session));
        let is_refusal = |output: &mut ElectionAction| match output {
            ElectionAction::Close(refused, _) => *refused == session,
            ElectionAction::Notify(..) => false,
        };
        if let Some(ElectionAction::Close(_, refusal)) = outputs.pop_if(is_refusal) {
            return Err(refusal.into());
        }
        self.apply_actions(outputs);
        let (sender, messages) = mpsc::channel(MESSAGE_LIMIT);
        let (_ended, ended) = oneshot::channel();
        self.outboxes.insert(session, StreamOutbox { messages: sender, _ended });
        Ok(OpenedStream { session, messages, ended })
    }

    /// A controller claims an election id.
    pub(super) fn handle_arbitration(&mut self, session: SessionId, claim: ArbitrationRequest) {
        let outputs =
            self.election.handle_event(ElectionEvent::ArbitrationReceived(session, claim));
        self.apply_actions(outputs);
    }

    /// Ends a session; an error is sent to its controller.
    pub(super) fn end_session(&mut self, session: SessionId, error: Option<Status>) {
        self.close_stream(session, error);
        let outputs = self.election.handle_event(ElectionEvent::Disconnected(session));
        self.apply_actions(outputs);
    }

    /// Ends all streams and admits no more.
    pub(super) fn end_all(&mut self, error: &Status) {
        self.closed = true;
        let sessions: Vec<SessionId> = self.outboxes.keys().copied().collect();
        for session in sessions {
            self.close_stream(session, Some(error.clone()));
        }
        self.election = ControllerElection::new(self.settings);
    }

    /// Sends what a controller may miss: false if it is not taking messages fast enough.
    #[must_use]
    pub(super) fn offer_message(&self, session: SessionId, update: Update) -> DeliveryStatus {
        let outbox = self.outboxes.get(&session).map(|outbox| &outbox.messages);
        let Some(outbox) = outbox.filter(|outbox| outbox.capacity() > RESERVED_FOR_NOTICES) else {
            return DeliveryStatus::Dropped;
        };
        match outbox.try_send(wrap_message(update)) {
            Err(_) => DeliveryStatus::Dropped,
            Ok(()) if self.count_message() => DeliveryStatus::SentAndBroken,
            Ok(()) => DeliveryStatus::Sent,
        }
    }

    fn apply_actions(&mut self, outputs: Vec<ElectionAction>) {
        let mut pending = VecDeque::from(outputs);
        while let Some(output) = pending.pop_front() {
            match output {
                ElectionAction::Close(session, refusal) => {
                    self.close_stream(session, Some(RequestFailure::from(refusal).into()));
                }
                ElectionAction::Notify(session, notice) => {
                    if let Err(error) = self.send_notice(session, notice) {
                        self.close_stream(session, Some(error));
                        pending.extend(
                            self.election.handle_event(ElectionEvent::Disconnected(session)),
                        );
                    }
                }
            }
        }
    }

    fn send_notice(&self, session: SessionId, notice: ArbitrationNotice) -> Result<(), Status> {
        let Some(outbox) = self.outboxes.get(&session) else {
            return Ok(());
        };
        let update = Update::Arbitration(self.arbitration_update(notice));
        let sent = outbox.messages.try_send(wrap_message(update));
        sent.map_err(|_| Status::resource_exhausted("the controller takes no notices"))?;
        if self.count_message() { Err(fault_status()) } else { Ok(()) }
    }

    fn arbitration_update(&self, notice: ArbitrationNotice) -> p4rt::MasterArbitrationUpdate {
        let (code, text) = match notice.status {
            ArbitrationStatus::Primary => (Code::Ok, "you are the primary"),
            ArbitrationStatus::Backup => (Code::AlreadyExists, "another controller is the primary"),
            ArbitrationStatus::NoPrimary => (Code::NotFound, "there is no primary"),
        };
        let role = Some(notice.role).filter(|role| !role.is_empty());
        p4rt::MasterArbitrationUpdate {
            device_id: self.settings.device_id,
            role: role.map(|name| p4rt::Role { name, ..p4rt::Role::default() }),
            election_id: notice.election_id.map(to_uint128),
            status: Some(rpc::Status {
                code: code as i32,
                message: text.to_owned(),
                details: Vec::new(),
            }),
        }
    }

    fn close_stream(&mut self, session: SessionId, error: Option<Status>) {
        if let (Some(outbox), Some(error)) = (self.outboxes.remove(&session), error) {
            // A full queue only means that the controller learns of the end without the reason.
            let _ = outbox.messages.try_send(Err(error));
        }
    }

    fn count_message(&self) -> bool {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).on_message()
    }
}

/// What became of a message that may be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryStatus {
    Sent,
    /// Sent, and the fault script ends the stream after this message.
    SentAndBroken,
    Dropped,
}

/// The error of a stream that the fault script breaks.
pub(super) fn fault_status() -> Status {
    Status::unavailable("the fault script breaks this stream")
}

/// The number behind an election id on the wire.
pub(super) fn from_uint128(id: p4rt::Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn to_uint128(id: u128) -> p4rt::Uint128 {
    let low = u64::try_from(id & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    p4rt::Uint128 { high: u64::try_from(id >> 64).unwrap_or(u64::MAX), low }
}

fn wrap_message(update: Update) -> StreamMessage {
    Ok(p4rt::StreamMessageResponse { update: Some(update) })
}
