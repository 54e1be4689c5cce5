//! Who may write: P4Runtime's arbitration among the controllers of one device.
//!
//! A sans-IO machine: sessions connect, claim an election id for a role, and disconnect; the
//! machine answers with the notices to send and the sessions to close. [`crate::service`] carries
//! both out and asks it before every write. The one decision here: the primary is never stored, it
//! is derived from the election ids of the live sessions, so it cannot disagree with them.
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

/// What happens to the role when its primary leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// P4Runtime 1.1 and later: nobody is promoted; the primary is whoever holds the highest
    /// election id the device has ever seen.
    #[default]
    Specification,
    /// `simple_switch_grpc`: the live session with the highest election id is promoted.
    Bmv2,
}

/// What stays fixed while a device lives.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The only device id this switch answers to.
    pub device_id: u64,
    /// How a vacancy is filled.
    pub dialect: Dialect,
    /// Streams open at once, over all roles.
    pub max_sessions: usize,
}

/// The content of a `MasterArbitrationUpdate` that a controller sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The device it wants to control.
    pub device_id: u64,
    /// The role's name, empty for the default role.
    pub role: String,
    /// `None` (unset, or zero) asks to stay a backup.
    pub election_id: Option<u128>,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A stream was opened.
    Connected(SessionId),
    /// A stream sent its first or a further arbitration update.
    Claimed(SessionId, Claim),
    /// A stream ended, from either side.
    Disconnected(SessionId),
}

/// What the machine asks for, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this notice on the stream.
    Notify(SessionId, Notice),
    /// End the stream with this error; the session is already forgotten.
    Close(SessionId, Refusal),
}

/// The content of a `MasterArbitrationUpdate` that the switch sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The role the notice is about.
    pub role: String,
    /// The election id to beat; `None` while there never was a primary.
    pub election_id: Option<u128>,
    /// What the receiver is now.
    pub standing: Standing,
}

/// What a session is within its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may write (status OK).
    Primary,
    /// Another session may write (status ALREADY_EXISTS).
    Backup,
    /// Nobody may write (status NOT_FOUND).
    Vacant,
}

/// Why a stream is ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// NOT_FOUND.
    #[error("device {asked} is not here; this switch is device {here}")]
    UnknownDevice {
        /// The id the controller asked for.
        asked: u64,
        /// The id of this switch.
        here: u64,
    },
    /// FAILED_PRECONDITION.
    #[error("a stream cannot change its device from {here} to {asked}")]
    DeviceChanged {
        /// The id the controller asked for.
        asked: u64,
        /// The id the stream is bound to.
        here: u64,
    },
    /// FAILED_PRECONDITION.
    #[error("a stream cannot change its role from {bound:?} to {asked:?}")]
    RoleChanged {
        /// The role the controller asked for.
        asked: String,
        /// The role the stream is bound to.
        bound: String,
    },
    /// INVALID_ARGUMENT.
    #[error("election id {0} is in use by another live controller of this role")]
    ElectionIdInUse(u128),
    /// RESOURCE_EXHAUSTED.
    #[error("all {0} sessions of this switch are taken")]
    TooManySessions(usize),
    /// RESOURCE_EXHAUSTED.
    #[error("all {MAX_ROLES} roles of this switch are taken")]
    TooManyRoles,
}

/// Why a write is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// NOT_FOUND.
    #[error("no controller ever claimed this role")]
    UnknownRole,
    /// PERMISSION_DENIED.
    #[error("this election id is not the primary's")]
    NotPrimary,
}

/// The arbitration of one device.
#[derive(Debug)]
pub struct Election {
    rules: Rules,
    /// Live sessions and the role each is bound to, `None` before its first claim.
    sessions: BTreeMap<SessionId, Option<String>>,
    roles: BTreeMap<String, Role>,
}

/// One role: whom it ever saw and who is there now.
#[derive(Debug, Default)]
struct Role {
    /// The highest election id ever claimed.
    highest: Option<u128>,
    /// The live sessions and their election ids.
    members: BTreeMap<SessionId, Option<u128>>,
}

impl Election {
    /// A device nobody has connected to. The default role exists from the start.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let roles = BTreeMap::from([(String::new(), Role::default())]);
        Self {
            rules,
            sessions: BTreeMap::new(),
            roles,
        }
    }

    /// Takes one event and says what it causes. Events of unknown sessions cause nothing.
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        let outputs = match input {
            Input::Connected(session) => self.connected(session),
            Input::Claimed(session, claim) => self.claimed(session, claim),
            Input::Disconnected(session) => self.forget(session),
        };
        debug_assert_eq!(self.check_invariant(), Ok(()));
        outputs
    }

    /// Whether the bearer of `election_id` may write for `role` now.
    ///
    /// # Errors
    /// [`Denial`] when the role is unknown or the id is not its primary's.
    pub fn authorize(&self, role: &str, election_id: Option<u128>) -> Result<(), Denial> {
        let role = self.roles.get(role).ok_or(Denial::UnknownRole)?;
        let primary = role
            .primary(self.rules.dialect)
            .and_then(|session| role.members[&session]);
        match primary {
            Some(id) if election_id == Some(id) => Ok(()),
            _ => Err(Denial::NotPrimary),
        }
    }

    /// The sessions that are primary of their role, in order of role name.
    pub fn primaries(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.roles
            .values()
            .filter_map(|role| role.primary(self.rules.dialect))
    }

    /// Whether `session` is the primary of its role.
    #[must_use]
    pub fn is_primary(&self, session: SessionId) -> bool {
        self.primaries().any(|primary| primary == session)
    }

    fn connected(&mut self, session: SessionId) -> Vec<Output> {
        let limit = self.rules.max_sessions;
        let known = self.sessions.contains_key(&session);
        if !known && self.sessions.len() >= limit {
            return vec![Output::Close(session, Refusal::TooManySessions(limit))];
        }
        self.sessions.entry(session).or_default();
        Vec::new()
    }

    fn claimed(&mut self, session: SessionId, mut claim: Claim) -> Vec<Output> {
        claim.election_id = claim.election_id.filter(|&id| id != 0);
        let Some(bound) = self.sessions.get(&session) else {
            return Vec::new();
        };
        if let Err(refusal) = self.admit(session, bound.as_deref(), &claim) {
            let mut outputs = vec![Output::Close(session, refusal)];
            outputs.extend(self.forget(session));
            return outputs;
        }
        self.sessions.insert(session, Some(claim.role.clone()));
        let dialect = self.rules.dialect;
        let role = self.roles.entry(claim.role.clone()).or_default();
        let before = role.primary(dialect);
        role.members.insert(session, claim.election_id);
        role.highest = role.highest.max(claim.election_id);
        let after = role.primary(dialect);
        if before != after || after == Some(session) {
            role.notify_all(&claim.role, dialect)
        } else {
            vec![role.notify(session, &claim.role, dialect)]
        }
    }

    /// The rules for a claim, in the order of the specification.
    fn admit(&self, session: SessionId, bound: Option<&str>, claim: &Claim) -> Result<(), Refusal> {
        let (asked, here) = (claim.device_id, self.rules.device_id);
        match bound {
            None if asked != here => return Err(Refusal::UnknownDevice { asked, here }),
            Some(_) if asked != here => return Err(Refusal::DeviceChanged { asked, here }),
            Some(bound) if bound != claim.role => {
                let (asked, bound) = (claim.role.clone(), bound.to_owned());
                return Err(Refusal::RoleChanged { asked, bound });
            }
            _ => {}
        }
        match (self.roles.get(&claim.role), claim.election_id) {
            (None, _) if self.roles.len() >= MAX_ROLES => Err(Refusal::TooManyRoles),
            (Some(role), Some(id)) if role.is_used_beside(session, id) => {
                Err(Refusal::ElectionIdInUse(id))
            }
            _ => Ok(()),
        }
    }

    fn forget(&mut self, session: SessionId) -> Vec<Output> {
        let Some(Some(name)) = self.sessions.remove(&session) else {
            return Vec::new();
        };
        let dialect = self.rules.dialect;
        let Some(role) = self.roles.get_mut(&name) else {
            return Vec::new();
        };
        let was_primary = role.primary(dialect) == Some(session);
        role.members.remove(&session);
        if was_primary {
            role.notify_all(&name, dialect)
        } else {
            Vec::new()
        }
    }

    /// What must hold after every transition; the error names what does not.
    ///
    /// # Errors
    /// A sentence about the first rule found broken.
    pub fn check_invariant(&self) -> Result<(), String> {
        if self.sessions.len() > self.rules.max_sessions {
            return Err(format!("{} sessions are too many", self.sessions.len()));
        }
        let bound = self.sessions.values().flatten().count();
        let members: usize = self.roles.values().map(|role| role.members.len()).sum();
        if bound != members {
            return Err(format!(
                "{bound} sessions have a role, {members} are in one"
            ));
        }
        self.roles.iter().try_for_each(|(name, role)| {
            role.check_invariant()
                .map_err(|broken| format!("role {name:?}: {broken}"))
        })
    }
}

impl Role {
    /// The session that may write: the holder of the election id that the dialect announces.
    fn primary(&self, dialect: Dialect) -> Option<SessionId> {
        let winning = self.announced(dialect)?;
        let holds = |&(_, id): &(&SessionId, &Option<u128>)| *id == Some(winning);
        self.members.iter().find(holds).map(|(&session, _)| session)
    }

    /// The election id to beat.
    fn announced(&self, dialect: Dialect) -> Option<u128> {
        match dialect {
            Dialect::Specification => self.highest,
            Dialect::Bmv2 => self.members.values().copied().max().flatten(),
        }
    }

    fn is_used_beside(&self, session: SessionId, id: u128) -> bool {
        self.members
            .iter()
            .any(|(&other, &used)| other != session && used == Some(id))
    }

    /// Tells everyone, the primary last: when it hears that it may write, all others know.
    fn notify_all(&self, name: &str, dialect: Dialect) -> Vec<Output> {
        let primary = self.primary(dialect);
        let others = self
            .members
            .keys()
            .copied()
            .filter(|&session| Some(session) != primary);
        others
            .chain(primary)
            .map(|session| self.notify(session, name, dialect))
            .collect()
    }

    fn notify(&self, session: SessionId, name: &str, dialect: Dialect) -> Output {
        let standing = match self.primary(dialect) {
            Some(primary) if primary == session => Standing::Primary,
            Some(_) => Standing::Backup,
            None => Standing::Vacant,
        };
        let (role, election_id) = (name.to_owned(), self.announced(dialect));
        Output::Notify(
            session,
            Notice {
                role,
                election_id,
                standing,
            },
        )
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

    fn election(dialect: Dialect) -> Election {
        Election::new(Rules {
            device_id: DEVICE,
            dialect,
            max_sessions: 4,
        })
    }

    fn claim(session: u64, election_id: u128) -> Input {
        let claim = Claim {
            device_id: DEVICE,
            role: String::new(),
            election_id: Some(election_id),
        };
        Input::Claimed(SessionId(session), claim)
    }

    /// Runs the inputs, connecting each session first, and renders the outputs of the last one.
    fn last_outputs(dialect: Dialect, sessions: u64, inputs: Vec<Input>) -> Vec<String> {
        let mut election = election(dialect);
        for session in 1..=sessions {
            election.step(Input::Connected(SessionId(session)));
        }
        let last = inputs.into_iter().map(|input| election.step(input)).last();
        last.unwrap_or_default().iter().map(render).collect()
    }

    fn render(output: &Output) -> String {
        match output {
            Output::Notify(
                session,
                Notice {
                    election_id,
                    standing,
                    ..
                },
            ) => {
                format!("{}: {standing:?} {}", session.0, election_id.unwrap_or(0))
            }
            Output::Close(session, refusal) => format!("{}: {refusal}", session.0),
        }
    }

    #[test]
    fn the_highest_election_id_wins_and_everyone_hears_of_it_the_primary_last() {
        let outputs = last_outputs(
            Dialect::Specification,
            3,
            vec![claim(1, 5), claim(2, 3), claim(3, 9)],
        );
        assert_eq!(outputs, ["1: Backup 9", "2: Backup 9", "3: Primary 9"]);
    }

    #[test]
    fn a_backup_that_joins_is_told_alone() {
        let outputs = last_outputs(Dialect::Specification, 2, vec![claim(1, 5), claim(2, 3)]);
        assert_eq!(outputs, ["2: Backup 5"]);
    }

    #[test]
    fn by_the_specification_nobody_is_promoted_when_the_primary_leaves() {
        let leave = Input::Disconnected(SessionId(1));
        let inputs = vec![claim(1, 5), claim(2, 3), leave];
        let outputs = last_outputs(Dialect::Specification, 2, inputs.clone());
        assert_eq!(outputs, ["2: Vacant 5"]);
        let again = [inputs, vec![claim(2, 4)]].concat();
        assert_eq!(
            last_outputs(Dialect::Specification, 2, again.clone()),
            ["2: Vacant 5"]
        );
        let at_last = [again, vec![claim(2, 5)]].concat();
        assert_eq!(
            last_outputs(Dialect::Specification, 2, at_last),
            ["2: Primary 5"]
        );
    }

    #[test]
    fn bmv2_promotes_the_best_backup() {
        let leave = Input::Disconnected(SessionId(1));
        let inputs = vec![claim(1, 5), claim(2, 3), claim(3, 4), leave];
        assert_eq!(
            last_outputs(Dialect::Bmv2, 3, inputs),
            ["2: Backup 4", "3: Primary 4"]
        );
    }

    #[test]
    fn a_primary_may_step_down() {
        let inputs = vec![claim(1, 5), claim(2, 3), claim(1, 1)];
        assert_eq!(
            last_outputs(Dialect::Specification, 2, inputs.clone()),
            ["1: Vacant 5", "2: Vacant 5"]
        );
        assert_eq!(
            last_outputs(Dialect::Bmv2, 2, inputs),
            ["1: Backup 3", "2: Primary 3"]
        );
    }

    #[test]
    fn an_election_id_in_use_closes_the_stream_and_leaves_the_primary_alone() {
        let outputs = last_outputs(Dialect::Specification, 2, vec![claim(1, 5), claim(2, 5)]);
        let refused = "2: election id 5 is in use by another live controller of this role";
        assert_eq!(outputs, [refused]);
    }

    #[test]
    fn zero_never_becomes_primary() {
        let outputs = last_outputs(Dialect::Specification, 2, vec![claim(1, 0), claim(2, 0)]);
        assert_eq!(outputs, ["2: Vacant 0"]);
    }

    #[test]
    fn a_stream_is_bound_to_its_device_and_role() {
        let elsewhere = Claim {
            device_id: 9,
            role: String::new(),
            election_id: None,
        };
        let first = Input::Claimed(SessionId(1), elsewhere);
        let outputs = last_outputs(Dialect::Specification, 1, vec![first.clone()]);
        assert_eq!(
            outputs,
            ["1: device 9 is not here; this switch is device 1"]
        );
        let outputs = last_outputs(Dialect::Specification, 1, vec![claim(1, 5), first]);
        assert_eq!(
            outputs,
            ["1: a stream cannot change its device from 1 to 9"]
        );
        let claim_role = Claim {
            device_id: DEVICE,
            role: "acl".into(),
            election_id: None,
        };
        let inputs = vec![claim(1, 5), Input::Claimed(SessionId(1), claim_role)];
        let outputs = last_outputs(Dialect::Specification, 1, inputs);
        assert_eq!(
            outputs,
            [r#"1: a stream cannot change its role from "" to "acl""#]
        );
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let mut election = election(Dialect::Specification);
        let connect = |n| Input::Connected(SessionId(n));
        assert!((1..=4).all(|n| election.step(connect(n)).is_empty()));
        let refusal = Refusal::TooManySessions(4);
        assert_eq!(
            election.step(connect(5)),
            [Output::Close(SessionId(5), refusal)]
        );
    }

    #[test]
    fn only_the_primary_may_write() {
        let mut election = election(Dialect::Specification);
        election.step(Input::Connected(SessionId(1)));
        election.step(claim(1, 5));
        assert_eq!(election.authorize("", Some(5)), Ok(()));
        assert_eq!(election.authorize("", Some(4)), Err(Denial::NotPrimary));
        assert_eq!(election.authorize("", None), Err(Denial::NotPrimary));
        assert_eq!(election.authorize("acl", Some(5)), Err(Denial::UnknownRole));
        election.step(Input::Disconnected(SessionId(1)));
        assert_eq!(election.authorize("", Some(5)), Err(Denial::NotPrimary));
    }

    fn input() -> impl Strategy<Value = Input> {
        let session = (0u64..6).prop_map(SessionId);
        let claim = (0u64..10, 0usize..3, proptest::option::of(0u128..6)).prop_map(
            |(device, role, election_id)| Claim {
                device_id: if device == 0 { 2 } else { DEVICE },
                role: ["", "acl", "routing"][role].to_owned(),
                election_id,
            },
        );
        prop_oneof![
            2 => session.clone().prop_map(Input::Connected),
            6 => (session.clone(), claim).prop_map(|(by, claim)| Input::Claimed(by, claim)),
            1 => session.prop_map(Input::Disconnected),
        ]
    }

    proptest! {
        /// What every controller was last told agrees with who may write: a session believes it is
        /// primary exactly when it is, so at most one session of a role believes so.
        #[test]
        fn what_sessions_were_told_is_true(
            bmv2 in any::<bool>(),
            inputs in proptest::collection::vec(input(), 0..60),
        ) {
            let dialect = if bmv2 { Dialect::Bmv2 } else { Dialect::Specification };
            let mut election = election(dialect);
            let mut told: BTreeMap<SessionId, Standing> = BTreeMap::new();
            for input in inputs {
                if let Input::Disconnected(session) = input {
                    told.remove(&session);
                }
                for output in election.step(input) {
                    match output {
                        Output::Notify(session, notice) => told.insert(session, notice.standing),
                        Output::Close(session, _) => told.remove(&session),
                    };
                }
                prop_assert_eq!(election.check_invariant(), Ok(()));
                for (&session, &standing) in &told {
                    prop_assert_eq!(standing == Standing::Primary, election.is_primary(session));
                }
            }
        }
    }
}
