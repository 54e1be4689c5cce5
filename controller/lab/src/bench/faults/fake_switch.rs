//! A minimal switch: mastership, the program's cookie, and table entries.
//!
//! The election is that of the embedded switch; tables reject what P4Runtime requires them to
//! reject. The decision: no packets and no bytes. Those are tested on the embedded switch, and ten
//! thousand testbeds must run within minutes.

use std::collections::BTreeMap;

use controller::southbound::MastershipStatus;
use controller::southbound::arbitration::ElectionId;
use p4::{SwitchTables, TableEntry, TableUpdate, UpdateKind};
use switch_server::p4runtime::election::{
    ArbitrationError, ArbitrationNotice, ArbitrationRequest, ArbitrationStatus, ControllerElection,
    ElectionAction, ElectionEvent, ElectionSettings, SessionId, SwitchDialect,
};
use tokio::sync::mpsc;
use tonic::Code;

use super::foreign_primary::ForeignPrimary;
use super::lying_switch::SwitchLie;

const DEVICE_ID: u64 = 1;
/// The number of a controller that is not ours.
const FOREIGN: u32 = 0;
const MAX_SESSIONS: usize = 16;
/// Notices that a stream can queue; a full queue means that its controller hangs.
const NOTICES: usize = 64;

/// The state of one switch and its streams.
pub(super) struct FakeSwitch {
    pub(super) is_on: bool,
    /// Rises with every restart.
    pub(super) incarnation: u64,
    pub(super) program: Option<u64>,
    pub(super) tables: SwitchTables,
    /// What it lies about, if it does.
    pub(super) lie: Option<SwitchLie>,
    /// Whose it is, if not the controllers'.
    pub(super) foreign: Option<ForeignPrimary>,
    /// Updates that will be refused, and with which code.
    refusals: u32,
    refusal: Code,
    /// Bids with an election id that another stream held.
    pub(super) ids_in_use: u32,
    dialect: SwitchDialect,
    election: ControllerElection,
    streams: BTreeMap<SessionId, SwitchStream>,
    sessions: u64,
}

/// A stream with the controller at its other end.
struct SwitchStream {
    controller: u32,
    /// The latest bid.
    bid: ElectionId,
    notices: mpsc::Sender<MastershipStatus>,
}

impl FakeSwitch {
    pub(super) fn new(dialect: SwitchDialect) -> Self {
        Self {
            is_on: true,
            incarnation: 0,
            program: None,
            tables: SwitchTables::default(),
            lie: None,
            foreign: None,
            refusals: 0,
            refusal: Code::Internal,
            ids_in_use: 0,
            dialect,
            election: new_election(dialect),
            streams: BTreeMap::new(),
            sessions: 0,
        }
    }

    /// Restarts without a program, entries or streams.
    pub(super) fn restart(&mut self) {
        let ids_in_use = self.ids_in_use;
        let incarnation = self.incarnation + 1;
        let sessions = self.sessions;
        *self = Self { incarnation, ids_in_use, sessions, ..Self::new(self.dialect) };
    }

    /// Stops, and forgets everything.
    pub(super) fn stop(&mut self) {
        self.restart();
        self.is_on = false;
    }

    /// Refuses the next updates with this code.
    pub(super) fn refuse_updates(&mut self, updates: u32, code: Code) {
        (self.refusals, self.refusal) = (updates, code);
    }

    /// Opens a stream with a bid; the switch answers on it.
    pub(super) fn open_stream(
        &mut self,
        controller: u32,
        bid: ElectionId,
    ) -> (SessionId, mpsc::Receiver<MastershipStatus>) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let (to, notices) = mpsc::channel(NOTICES);
        self.streams.insert(session, SwitchStream { controller, bid, notices: to });
        let outputs = self.election.handle_event(ElectionEvent::Connected(session));
        self.apply_outputs(outputs);
        self.bid_election(session, bid);
        (session, notices)
    }

    pub(super) fn bid_election(&mut self, session: SessionId, bid: ElectionId) {
        if let Some(stream) = self.streams.get_mut(&session) {
            stream.bid = bid;
        }
        let claim = ArbitrationRequest {
            device_id: DEVICE_ID,
            role: String::new(),
            election_id: Some(bid.0),
        };
        let outputs =
            self.election.handle_event(ElectionEvent::ArbitrationReceived(session, claim));
        self.apply_outputs(outputs);
    }

    pub(super) fn close_stream(&mut self, session: SessionId) {
        self.streams.remove(&session);
        let outputs = self.election.handle_event(ElectionEvent::Disconnected(session));
        self.apply_outputs(outputs);
    }

    /// Ends all streams and changes nothing else.
    pub(super) fn close_streams(&mut self) {
        while let Some((session, _)) = self.streams.first_key_value() {
            self.close_stream(*session);
        }
    }

    /// Restarts with the program of somebody else, who is primary.
    pub(super) fn give_away(&mut self, foreign: ForeignPrimary) {
        self.restart();
        self.foreign = Some(foreign);
        self.open_foreign_stream();
    }

    /// The stream of somebody else, who comes back as soon as it ends.
    pub(super) fn open_foreign_stream(&mut self) {
        if let Some(foreign) = self.foreign {
            // It does not read what it is sent.
            drop(self.open_stream(FOREIGN, foreign.election));
        }
    }

    pub(super) fn is_primary_foreign(&self) -> bool {
        self.foreign.is_some_and(|foreign| self.primary() == Some(foreign.election))
    }

    /// Ends the streams of a controller that does not answer.
    pub(super) fn close_streams_of(&mut self, controller: u32) {
        let streams = self.streams.iter().filter(|(_, stream)| stream.controller == controller);
        for session in streams.map(|(session, _)| *session).collect::<Vec<_>>() {
            self.close_stream(session);
        }
    }

    /// The election id of the primary, if there is one.
    pub(super) fn primary(&self) -> Option<ElectionId> {
        let session = self.election.primary_sessions().next()?;
        self.streams.get(&session).map(|stream| stream.bid)
    }

    /// Whether the holder of this election id may write.
    pub(super) fn authorize_write(&self, election: ElectionId) -> Result<(), Code> {
        self.election.authorize_write("", Some(election.0)).map_err(|_| Code::PermissionDenied)
    }

    /// Applies a batch; one code for each update.
    pub(super) fn apply_batch(&mut self, updates: &[TableUpdate]) -> Result<Vec<Code>, Code> {
        if self.program.is_none() {
            return Err(Code::FailedPrecondition);
        }
        Ok(updates.iter().map(|update| self.apply_update(update)).collect())
    }

    fn apply_update(&mut self, update: &TableUpdate) -> Code {
        if self.refusals > 0 {
            self.refusals -= 1;
            return self.refusal;
        }
        let TableEntry { key, .. } = &update.entry;
        let is_default = matches!(key.row, p4::entry::TableRow::Default);
        let is_there = self.tables.get(key).is_some();
        match update.kind {
            UpdateKind::Insert if is_there && !is_default => return Code::AlreadyExists,
            UpdateKind::Modify | UpdateKind::Delete if !is_there => return Code::NotFound,
            UpdateKind::Insert | UpdateKind::Modify => {
                self.tables.insert(update.entry.clone());
            }
            UpdateKind::Delete => {
                self.tables.remove(key);
            }
        }
        Code::Ok
    }

    fn apply_outputs(&mut self, outputs: Vec<ElectionAction>) {
        for output in outputs {
            match output {
                ElectionAction::Notify(session, notice) => {
                    if let Some(stream) = self.streams.get(&session) {
                        // The receiver of a closed stream is gone; its notice is dropped.
                        let _unheard = stream.notices.try_send(mastership_status(&notice));
                    }
                }
                ElectionAction::Close(session, refusal) => {
                    self.ids_in_use +=
                        u32::from(matches!(refusal, ArbitrationError::ElectionIdInUse(_)));
                    self.streams.remove(&session);
                }
            }
        }
    }
}

fn new_election(dialect: SwitchDialect) -> ControllerElection {
    ControllerElection::new(ElectionSettings {
        device_id: DEVICE_ID,
        dialect,
        max_sessions: MAX_SESSIONS,
    })
}

fn mastership_status(notice: &ArbitrationNotice) -> MastershipStatus {
    let highest = ElectionId(notice.election_id.unwrap_or_default());
    match notice.status {
        ArbitrationStatus::Primary => MastershipStatus::Primary,
        ArbitrationStatus::Backup => MastershipStatus::Backup { highest },
        ArbitrationStatus::NoPrimary => MastershipStatus::NoPrimary { highest },
    }
}
