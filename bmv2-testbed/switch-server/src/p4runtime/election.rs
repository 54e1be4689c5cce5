//! P4Runtime's arbitration among the controllers of one device: which session may write.
//!
//! A sans-IO machine: sessions connect, claim an election id for a role, and disconnect; the
//! machine returns the notices to send and the sessions to close. [`crate::p4runtime`] carries both
//! out and checks with it before every write. The one decision here: the primary is never stored,
//! it is derived from the election ids of the live sessions, so it cannot disagree with them.
//!
//! Source: P4Runtime v1.5, "Client Arbitration and Controller Replication".

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// Roles a device remembers; each keeps its highest election id for as long as the device lives.
const MAX_ROLES: usize = 64;

/// One open stream, numbered in order of arrival by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// Whose P4Runtime server a switch behaves like. Here it decides what happens to a role when its
/// primary leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchDialect {
    /// P4Runtime 1.1 and later: no backup is promoted; the primary is the session with the highest
    /// election id the device has ever seen.
    #[default]
    Specification,
    /// `simple_switch_grpc`: the live session with the highest election id is promoted.
    Bmv2,
    /// SONiC's P4RT application ([`pins`](super::pins)). It arbitrates as specified, and refuses
    /// every stream while it has no device id.
    Pins,
}

/// What stays fixed while a device lives.
#[derive(Clone, Copy, Debug)]
pub struct ElectionSettings {
    /// The only device id this switch answers to.
    pub device_id: u64,
    /// What happens when the primary leaves.
    pub dialect: SwitchDialect,
    /// Streams open at once, over all roles.
    pub max_sessions: usize,
}

/// The content of a `MasterArbitrationUpdate` that a controller sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArbitrationRequest {
    /// The device that the controller selects.
    pub device_id: u64,
    /// The role's name, empty for the default role.
    pub role: String,
    /// `None` (unset, or zero) makes the session a backup.
    pub election_id: Option<u128>,
}

/// An event of a controller's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionEvent {
    /// A stream was opened.
    Connected(SessionId),
    /// A stream sent its first or a further arbitration update.
    ArbitrationReceived(SessionId, ArbitrationRequest),
    /// A stream ended, from either side.
    Disconnected(SessionId),
}

/// An action that the service must carry out, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Send this notice on the stream.
    Notify(SessionId, ArbitrationNotice),
    /// End the stream with this error; the session is already forgotten.
    Close(SessionId, ArbitrationError),
}

/// The content of a `MasterArbitrationUpdate` that the switch sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArbitrationNotice {
    /// The role the notice is about.
    pub role: String,
    /// The election id to beat; `None` while there never was a primary.
    pub election_id: Option<u128>,
    /// The state of the receiver within the role.
    pub status: ArbitrationStatus,
}

/// The state of a session within its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArbitrationStatus {
    /// It may write (status OK).
    Primary,
    /// Another session may write (status ALREADY_EXISTS).
    Backup,
    /// Nobody may write (status NOT_FOUND).
    NoPrimary,
}

/// Reasons to end a stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArbitrationError {
    /// NOT_FOUND.
    #[error("unknown device {asked}: this switch is device {here}")]
    UnknownDevice {
        /// The requested id.
        asked: u64,
        /// The id of this switch.
        here: u64,
    },
    /// FAILED_PRECONDITION.
    #[error("this switch has no device id: configure one")]
    NoDeviceId,
    /// FAILED_PRECONDITION.
    #[error("a stream cannot change its device from {here} to {asked}")]
    DeviceChanged {
        /// The requested id.
        asked: u64,
        /// The id the stream is bound to.
        here: u64,
    },
    /// FAILED_PRECONDITION.
    #[error("a stream cannot change its role from {bound:?} to {asked:?}")]
    RoleChanged {
        /// The requested role.
        asked: String,
        /// The role the stream is bound to.
        bound: String,
    },
    /// INVALID_ARGUMENT.
    #[error("election id {0} is in use by another live controller of this role")]
    ElectionIdInUse(u128),
    /// RESOURCE_EXHAUSTED.
    #[error("the stream made way for another one: it sent no arbitration request")]
    NoClaim,
    /// RESOURCE_EXHAUSTED.
    #[error("all {0} sessions of this switch are taken")]
    TooManySessions(usize),
    /// RESOURCE_EXHAUSTED.
    #[error("all {MAX_ROLES} roles of this switch are taken")]
    TooManyRoles,
}

/// Reasons to refuse a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthorizationError {
    /// NOT_FOUND.
    #[error("no controller ever claimed this role")]
    UnknownRole,
    /// PERMISSION_DENIED.
    #[error("this election id is not the primary's")]
    NotPrimary,
}

/// The arbitration of one device.
#[derive(Debug)]
pub struct ControllerElection {
    settings: ElectionSettings,
    /// Live sessions and the role each is bound to, `None` before its first claim.
    sessions: BTreeMap<SessionId, Option<String>>,
    roles: BTreeMap<String, ControllerRole>,
}

/// One role: the highest election id so far, and the live sessions.
#[derive(Debug, Default)]
struct ControllerRole {
    /// The highest election id ever claimed.
    highest: Option<u128>,
    /// The live sessions and their election ids.
    members: BTreeMap<SessionId, Option<u128>>,
}

impl ControllerElection {
    /// A device without sessions. The default role exists from the start.
    #[must_use]
    pub fn new(rules: ElectionSettings) -> Self {
        let roles = BTreeMap::from([(String::new(), ControllerRole::default())]);
        Self { settings: rules, sessions: BTreeMap::new(), roles }
    }

    /// Handles one event and returns the actions that it causes. Events of unknown sessions cause
    /// none.
    pub fn handle_event(&mut self, input: ElectionEvent) -> Vec<ElectionAction> {
        let outputs = match input {
            ElectionEvent::Connected(session) => self.add_session(session),
            ElectionEvent::ArbitrationReceived(session, claim) => {
                self.handle_arbitration(session, claim)
            }
            ElectionEvent::Disconnected(session) => self.remove_session(session),
        };
        debug_assert_eq!(self.check_invariant(), Ok(()));
        outputs
    }

    /// Checks whether the holder of `election_id` may write for `role` now.
    ///
    /// # Errors
    /// [`AuthorizationError`] when the role is unknown or the id is not its primary's.
    pub fn authorize_write(
        &self,
        role: &str,
        election_id: Option<u128>,
    ) -> Result<(), AuthorizationError> {
        let role = self.roles.get(role).ok_or(AuthorizationError::UnknownRole)?;
        let primary =
            role.primary_session(self.settings.dialect).and_then(|session| role.members[&session]);
        match primary {
            Some(id) if election_id == Some(id) => Ok(()),
            _ => Err(AuthorizationError::NotPrimary),
        }
    }

    /// The sessions that are primary of their role, in order of role name.
    pub fn primary_sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.roles.values().filter_map(|role| role.primary_session(self.settings.dialect))
    }

    /// Whether `session` is the primary of its role.
    #[must_use]
    pub fn is_primary(&self, session: SessionId) -> bool {
        self.primary_sessions().any(|primary| primary == session)
    }

    fn add_session(&mut self, session: SessionId) -> Vec<ElectionAction> {
        let limit = self.settings.max_sessions;
        let known = self.sessions.contains_key(&session);
        let mut outputs = Vec::new();
        if !known && self.sessions.len() >= limit {
            let Some(idle) = self.oldest_without_claim() else {
                let refusal = ArbitrationError::TooManySessions(limit);
                return vec![ElectionAction::Close(session, refusal)];
            };
            outputs.extend(self.remove_session(idle));
            outputs.push(ElectionAction::Close(idle, ArbitrationError::NoClaim));
        }
        self.sessions.entry(session).or_default();
        outputs
    }

    /// The first session that has claimed nothing; otherwise streams that say nothing would keep
    /// controllers out.
    fn oldest_without_claim(&self) -> Option<SessionId> {
        let mut idle = self.sessions.iter().filter(|(_, role)| role.is_none());
        idle.next().map(|(session, _)| *session)
    }

    fn handle_arbitration(
        &mut self,
        session: SessionId,
        mut claim: ArbitrationRequest,
    ) -> Vec<ElectionAction> {
        // P4Runtime: 0 is the same as no election id; such a session is always a backup.
        claim.election_id = claim.election_id.filter(|&id| id != 0);
        let Some(bound) = self.sessions.get(&session) else {
            return Vec::new();
        };
        if let Err(refusal) = self.check_arbitration(session, bound.as_deref(), &claim) {
            let mut outputs = vec![ElectionAction::Close(session, refusal)];
            outputs.extend(self.remove_session(session));
            return outputs;
        }
        self.sessions.insert(session, Some(claim.role.clone()));
        let dialect = self.settings.dialect;
        let role = self.roles.entry(claim.role.clone()).or_default();
        let before = role.primary_session(dialect);
        role.members.insert(session, claim.election_id);
        // Never lowered, even when the session ends: P4Runtime has a later primary beat it.
        role.highest = role.highest.max(claim.election_id);
        let after = role.primary_session(dialect);
        if before != after || after == Some(session) {
            role.notify_all(&claim.role, dialect)
        } else {
            vec![role.notify_session(session, &claim.role, dialect)]
        }
    }

    /// The rules for a claim, in the order of the specification.
    fn check_arbitration(
        &self,
        session: SessionId,
        bound: Option<&str>,
        claim: &ArbitrationRequest,
    ) -> Result<(), ArbitrationError> {
        let (asked, here) = (claim.device_id, self.settings.device_id);
        if self.settings.dialect == SwitchDialect::Pins && here == 0 {
            return Err(ArbitrationError::NoDeviceId);
        }
        match bound {
            None if asked != here => return Err(ArbitrationError::UnknownDevice { asked, here }),
            Some(_) if asked != here => {
                return Err(ArbitrationError::DeviceChanged { asked, here });
            }
            Some(bound) if bound != claim.role => {
                let (asked, bound) = (claim.role.clone(), bound.to_owned());
                return Err(ArbitrationError::RoleChanged { asked, bound });
            }
            _ => {}
        }
        match (self.roles.get(&claim.role), claim.election_id) {
            (None, _) if self.roles.len() >= MAX_ROLES => Err(ArbitrationError::TooManyRoles),
            (Some(role), Some(id)) if role.is_used_by_other(session, id) => {
                Err(ArbitrationError::ElectionIdInUse(id))
            }
            _ => Ok(()),
        }
    }

    fn remove_session(&mut self, session: SessionId) -> Vec<ElectionAction> {
        let Some(Some(name)) = self.sessions.remove(&session) else {
            return Vec::new();
        };
        let dialect = self.settings.dialect;
        let Some(role) = self.roles.get_mut(&name) else {
            return Vec::new();
        };
        let was_primary = role.primary_session(dialect) == Some(session);
        role.members.remove(&session);
        if was_primary { role.notify_all(&name, dialect) } else { Vec::new() }
    }

    /// Checks what must hold after every transition.
    ///
    /// # Errors
    /// A sentence about the first rule that is broken.
    pub fn check_invariant(&self) -> Result<(), String> {
        if self.sessions.len() > self.settings.max_sessions {
            return Err(format!("{} sessions are too many", self.sessions.len()));
        }
        let bound = self.sessions.values().flatten().count();
        let members: usize = self.roles.values().map(|role| role.members.len()).sum();
        if bound != members {
            return Err(format!("{bound} sessions have a role, {members} are in one"));
        }
        self.roles.iter().try_for_each(|(name, role)| {
            role.check_invariant().map_err(|broken| format!("role {name:?}: {broken}"))
        })
    }
}

impl ControllerRole {
    /// The session that may write: the holder of the election id that the dialect announces.
    fn primary_session(&self, dialect: SwitchDialect) -> Option<SessionId> {
        let winning = self.announced_election_id(dialect)?;
        self.members.iter().find(|(_, id)| **id == Some(winning)).map(|(&session, _)| session)
    }

    /// The election id to beat.
    fn announced_election_id(&self, dialect: SwitchDialect) -> Option<u128> {
        match dialect {
            SwitchDialect::Specification | SwitchDialect::Pins => self.highest,
            SwitchDialect::Bmv2 => self.members.values().copied().max().flatten(),
        }
    }

    fn is_used_by_other(&self, session: SessionId, id: u128) -> bool {
        self.members.iter().any(|(&other, &used)| other != session && used == Some(id))
    }

    /// Notifies all sessions, the primary last: when it learns that it may write, every other
    /// session has been notified that it may not.
    fn notify_all(&self, name: &str, dialect: SwitchDialect) -> Vec<ElectionAction> {
        let primary = self.primary_session(dialect);
        let others = self.members.keys().copied().filter(|&session| Some(session) != primary);
        others.chain(primary).map(|session| self.notify_session(session, name, dialect)).collect()
    }

    fn notify_session(
        &self,
        session: SessionId,
        name: &str,
        dialect: SwitchDialect,
    ) -> ElectionAction {
        let standing = match self.primary_session(dialect) {
            Some(primary) if primary == session => ArbitrationStatus::Primary,
            Some(_) => ArbitrationStatus::Backup,
            None => ArbitrationStatus::NoPrimary,
        };
        let (role, election_id) = (name.to_owned(), self.announced_election_id(dialect));
        ElectionAction::Notify(session, ArbitrationNotice { role, election_id, status: standing })
    }

    fn check_invariant(&self) -> Result<(), String> {
        let mut ids: Vec<u128> = self.members.values().copied().flatten().collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("an election id is used twice: {ids:?}"));
        }
        if ids.last().copied() > self.highest {
            return Err(format!("{:?} is not the highest of {ids:?}", self.highest));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEVICE: u64 = 1;

    fn election(dialect: SwitchDialect) -> ControllerElection {
        ControllerElection::new(ElectionSettings { device_id: DEVICE, dialect, max_sessions: 4 })
    }

    fn claim(session: u64, election_id: u128) -> ElectionEvent {
        let claim = ArbitrationRequest {
            device_id: DEVICE,
            role: String::new(),
            election_id: Some(election_id),
        };
        ElectionEvent::ArbitrationReceived(SessionId(session), claim)
    }

    /// Runs the inputs, connecting each session first, and renders the outputs of the last one.
    fn last_outputs(
        dialect: SwitchDialect,
        sessions: u64,
        inputs: Vec<ElectionEvent>,
    ) -> Vec<String> {
        let mut election = election(dialect);
        for session in 1..=sessions {
            election.handle_event(ElectionEvent::Connected(SessionId(session)));
        }
        let last = inputs.into_iter().map(|input| election.handle_event(input)).last();
        last.unwrap_or_default().iter().map(render).collect()
    }

    fn render(output: &ElectionAction) -> String {
        match output {
            ElectionAction::Notify(
                session,
                ArbitrationNotice { election_id, status: standing, .. },
            ) => {
                format!("{}: {standing:?} {}", session.0, election_id.unwrap_or(0))
            }
            ElectionAction::Close(session, refusal) => format!("{}: {refusal}", session.0),
        }
    }

    #[test]
    fn the_highest_election_id_wins_and_the_primary_is_notified_last() {
        let outputs = last_outputs(
            SwitchDialect::Specification,
            3,
            vec![claim(1, 5), claim(2, 3), claim(3, 9)],
        );
        assert_eq!(outputs, ["1: Backup 9", "2: Backup 9", "3: Primary 9"]);
    }

    #[test]
    fn a_backup_that_joins_is_notified_alone() {
        let outputs = last_outputs(SwitchDialect::Specification, 2, vec![claim(1, 5), claim(2, 3)]);
        assert_eq!(outputs, ["2: Backup 5"]);
    }

    #[test]
    fn by_the_specification_nobody_is_promoted_when_the_primary_leaves() {
        let leave = ElectionEvent::Disconnected(SessionId(1));
        let inputs = vec![claim(1, 5), claim(2, 3), leave];
        let outputs = last_outputs(SwitchDialect::Specification, 2, inputs.clone());
        assert_eq!(outputs, ["2: NoPrimary 5"]);
        let again = [inputs, vec![claim(2, 4)]].concat();
        assert_eq!(
            last_outputs(SwitchDialect::Specification, 2, again.clone()),
            ["2: NoPrimary 5"]
        );
        let at_last = [again, vec![claim(2, 5)]].concat();
        assert_eq!(last_outputs(SwitchDialect::Specification, 2, at_last), ["2: Primary 5"]);
    }

    #[test]
    fn bmv2_promotes_the_best_backup() {
        let leave = ElectionEvent::Disconnected(SessionId(1));
        let inputs = vec![claim(1, 5), claim(2, 3), claim(3, 4), leave];
        assert_eq!(last_outputs(SwitchDialect::Bmv2, 3, inputs), ["2: Backup 4", "3: Primary 4"]);
    }

    #[test]
    fn a_primary_may_step_down() {
        let inputs = vec![claim(1, 5), claim(2, 3), claim(1, 1)];
        assert_eq!(
            last_outputs(SwitchDialect::Specification, 2, inputs.clone()),
            ["1: NoPrimary 5", "2: NoPrimary 5"]
        );
        assert_eq!(last_outputs(SwitchDialect::Bmv2, 2, inputs), ["1: Backup 3", "2: Primary 3"]);
    }

    #[test]
    fn an_election_id_in_use_closes_the_stream_and_leaves_the_primary_alone() {
        let outputs = last_outputs(SwitchDialect::Specification, 2, vec![claim(1, 5), claim(2, 5)]);
        let refused = "2: election id 5 is in use by another live controller of this role";
        assert_eq!(outputs, [refused]);
    }

    #[test]
    fn zero_never_becomes_primary() {
        let outputs = last_outputs(SwitchDialect::Specification, 2, vec![claim(1, 0), claim(2, 0)]);
        assert_eq!(outputs, ["2: NoPrimary 0"]);
    }

    #[test]
    fn a_stream_is_bound_to_its_device_and_role() {
        let elsewhere = ArbitrationRequest { device_id: 9, role: String::new(), election_id: None };
        let first = ElectionEvent::ArbitrationReceived(SessionId(1), elsewhere);
        let outputs = last_outputs(SwitchDialect::Specification, 1, vec![first.clone()]);
        assert_eq!(outputs, ["1: unknown device 9: this switch is device 1"]);
        let outputs = last_outputs(SwitchDialect::Specification, 1, vec![claim(1, 5), first]);
        assert_eq!(outputs, ["1: a stream cannot change its device from 1 to 9"]);
        let claim_role =
            ArbitrationRequest { device_id: DEVICE, role: "acl".into(), election_id: None };
        let inputs =
            vec![claim(1, 5), ElectionEvent::ArbitrationReceived(SessionId(1), claim_role)];
        let outputs = last_outputs(SwitchDialect::Specification, 1, inputs);
        assert_eq!(outputs, [r#"1: a stream cannot change its role from "" to "acl""#]);
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let mut election = election(SwitchDialect::Specification);
        let connect = |n| ElectionEvent::Connected(SessionId(n));
        assert!((1..=4).all(|n| election.handle_event(connect(n)).is_empty()));
        let idle = ElectionAction::Close(SessionId(1), ArbitrationError::NoClaim);
        assert_eq!(election.handle_event(connect(5)), [idle], "the first that claims nothing");
        for session in 2..=5 {
            election.handle_event(claim(session, session.into()));
        }
        let refusal = ArbitrationError::TooManySessions(4);
        assert_eq!(
            election.handle_event(connect(6)),
            [ElectionAction::Close(SessionId(6), refusal)]
        );
    }

    #[test]
    fn only_the_primary_may_write() {
        let mut election = election(SwitchDialect::Specification);
        election.handle_event(ElectionEvent::Connected(SessionId(1)));
        election.handle_event(claim(1, 5));
        assert_eq!(election.authorize_write("", Some(5)), Ok(()));
        assert_eq!(election.authorize_write("", Some(4)), Err(AuthorizationError::NotPrimary));
        assert_eq!(election.authorize_write("", None), Err(AuthorizationError::NotPrimary));
        assert_eq!(election.authorize_write("acl", Some(5)), Err(AuthorizationError::UnknownRole));
        election.handle_event(ElectionEvent::Disconnected(SessionId(1)));
        assert_eq!(election.authorize_write("", Some(5)), Err(AuthorizationError::NotPrimary));
    }

    fn input() -> impl Strategy<Value = ElectionEvent> {
        let session = (0u64..6).prop_map(SessionId);
        let claim = (0u64..10, 0usize..3, proptest::option::of(0u128..6)).prop_map(
            |(device, role, election_id)| ArbitrationRequest {
                device_id: if device == 0 { 2 } else { DEVICE },
                role: ["", "acl", "routing"][role].to_owned(),
                election_id,
            },
        );
        prop_oneof![
            2 => session.clone().prop_map(ElectionEvent::Connected),
            6 => (session.clone(), claim)
                .prop_map(|(by, claim)| ElectionEvent::ArbitrationReceived(by, claim)),
            1 => session.prop_map(ElectionEvent::Disconnected),
        ]
    }

    proptest! {
        /// The last notice of every session agrees with the election: a session has the status of
        /// the primary exactly when it is the primary, so at most one session of a role has it.
        #[test]
        fn the_last_notices_agree_with_the_election(
            bmv2 in any::<bool>(),
            inputs in proptest::collection::vec(input(), 0..60),
        ) {
            let dialect = match bmv2 {
                true => SwitchDialect::Bmv2,
                false => SwitchDialect::Specification,
            };
            let mut election = election(dialect);
            let mut notified: BTreeMap<SessionId, ArbitrationStatus> = BTreeMap::new();
            for input in inputs {
                if let ElectionEvent::Disconnected(session) = input {
                    notified.remove(&session);
                }
                for output in election.handle_event(input) {
                    match output {
                        ElectionAction::Notify(session, notice) => {
                            notified.insert(session, notice.status)
                        }
                        ElectionAction::Close(session, _) => notified.remove(&session),
                    };
                }
                prop_assert_eq!(election.check_invariant(), Ok(()));
                for (&session, &standing) in &notified {
                    let received_primary = standing == ArbitrationStatus::Primary;
                    prop_assert_eq!(received_primary, election.is_primary(session));
                }
            }
        }
    }
}
