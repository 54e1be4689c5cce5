//! A switch in as few words as possible: who may write, which program, which entries.
//!
//! The election is the embedded switch's own; the tables refuse what P4Runtime says they must. The
//! decision: no packets and no bytes. What happens to those is tested on the embedded switch, and
//! here ten thousand worlds must fit into minutes.

use std::collections::BTreeMap;

use controller::southbound::Verdict;
use controller::southbound::arbitration::ElectionId;
use p4::{TableEntry, Tables, Update, UpdateKind};
use switch::election::{
    Claim, Dialect, Election, Input, Notice, Output, Refusal, Rules, SessionId, Standing,
};
use tokio::sync::mpsc;
use tonic::Code;

const DEVICE_ID: u64 = 1;
const MAX_SESSIONS: usize = 16;
/// Notices that a stream holds; more means that its controller hangs.
const NOTICES: usize = 64;

/// One switch.
pub(super) struct Device {
    pub(super) is_on: bool,
    /// Rises with every restart.
    pub(super) incarnation: u64,
    pub(super) program: Option<u64>,
    pub(super) tables: Tables,
    /// Updates that will be refused, whatever they are, and how.
    refusals: u32,
    refusal: Code,
    /// Election ids that were bid although another stream held them.
    pub(super) ids_in_use: u32,
    dialect: Dialect,
    election: Election,
    streams: BTreeMap<SessionId, mpsc::Sender<Verdict>>,
    sessions: u64,
}

impl Device {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            is_on: true,
            incarnation: 0,
            program: None,
            tables: Tables::default(),
            refusals: 0,
            refusal: Code::Internal,
            ids_in_use: 0,
            dialect,
            election: election(dialect),
            streams: BTreeMap::new(),
            sessions: 0,
        }
    }

    /// Empty, and nobody is connected.
    pub(super) fn restart(&mut self) {
        let ids_in_use = self.ids_in_use;
        let incarnation = self.incarnation + 1;
        let sessions = self.sessions;
        *self = Self {
            incarnation,
            ids_in_use,
            sessions,
            ..Self::new(self.dialect)
        };
    }

    /// Refuses the next updates with this code.
    pub(super) fn refuse(&mut self, updates: u32, code: Code) {
        (self.refusals, self.refusal) = (updates, code);
    }

    /// A stream that begins with a bid; the switch answers on it.
    pub(super) fn open(&mut self, bid: ElectionId) -> (SessionId, mpsc::Receiver<Verdict>) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let (to, notices) = mpsc::channel(NOTICES);
        self.streams.insert(session, to);
        let outputs = self.election.step(Input::Connected(session));
        self.carry_out(outputs);
        self.bid(session, bid);
        (session, notices)
    }

    pub(super) fn bid(&mut self, session: SessionId, bid: ElectionId) {
        let claim = Claim {
            device_id: DEVICE_ID,
            role: String::new(),
            election_id: Some(bid.0),
        };
        let outputs = self.election.step(Input::Claimed(session, claim));
        self.carry_out(outputs);
    }

    pub(super) fn close(&mut self, session: SessionId) {
        self.streams.remove(&session);
        let outputs = self.election.step(Input::Disconnected(session));
        self.carry_out(outputs);
    }

    /// Ends all streams, and nothing else.
    pub(super) fn close_all(&mut self) {
        while let Some((session, _)) = self.streams.first_key_value() {
            self.close(*session);
        }
    }

    /// Whether the bearer of this id may write.
    pub(super) fn authorize(&self, election: ElectionId) -> Result<(), Code> {
        let authorized = self.election.authorize("", Some(election.0));
        authorized.map_err(|_| Code::PermissionDenied)
    }

    /// Carries out a batch; a result for each update.
    pub(super) fn write(&mut self, updates: &[Update]) -> Result<Vec<Code>, Code> {
        if self.program.is_none() {
            return Err(Code::FailedPrecondition);
        }
        Ok(updates.iter().map(|update| self.update(update)).collect())
    }

    fn update(&mut self, update: &Update) -> Code {
        if self.refusals > 0 {
            self.refusals -= 1;
            return self.refusal;
        }
        let TableEntry { key, .. } = &update.entry;
        let is_default = matches!(key.row, p4::entry::Row::Default);
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

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Notify(session, notice) => {
                    if let Some(to) = self.streams.get(&session) {
                        // A stream that is gone hears nothing.
                        let _unheard = to.try_send(verdict(&notice));
                    }
                }
                Output::Close(session, refusal) => {
                    self.ids_in_use += u32::from(matches!(refusal, Refusal::ElectionIdInUse(_)));
                    self.streams.remove(&session);
                }
            }
        }
    }
}

fn election(dialect: Dialect) -> Election {
    Election::new(Rules {
        device_id: DEVICE_ID,
        dialect,
        max_sessions: MAX_SESSIONS,
    })
}

fn verdict(notice: &Notice) -> Verdict {
    let highest = ElectionId(notice.election_id.unwrap_or_default());
    match notice.standing {
        Standing::Primary => Verdict::Primary,
        Standing::Backup => Verdict::Backup { highest },
        Standing::Vacant => Verdict::Vacant { highest },
    }
}
