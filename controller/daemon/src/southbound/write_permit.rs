//! The permit to bid at switches and to write to them, as far as the cluster decides it.
//!
//! Mastership at the switch is the subject of [`arbitration`](super::arbitration); a write needs
//! both. The decision: the permit of a leader expires by itself. It carries the instant until which
//! it holds, so a leader that is cut off from etcd stops in time without being notified.

use tokio::time::Instant;

use super::arbitration::{ArbitrationInput, ElectionId};

/// What a controller may do at switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePermit {
    /// The term to bid in is not known yet; the controller does not bid.
    #[default]
    Unknown,
    /// The primary of a switch may write to it: the switches elect.
    Open {
        /// The term to bid in; 0 before there is a reason to lead.
        term: u64,
    },
    /// This controller was elected to write to all switches, and nobody else was.
    Leader {
        /// The term of that election, which no other won.
        term: u64,
        /// From here on, another may be elected.
        until: Instant,
    },
    /// Another controller was elected, or none: this one is ready and writes nothing.
    Standby {
        /// A term below every leader's.
        term: u64,
        /// The number of the controller that was elected, if one was.
        leader: Option<u32>,
    },
}

impl WritePermit {
    /// The input that it is for the arbitration at a switch.
    pub fn arbitration_input(self) -> Option<ArbitrationInput> {
        match self {
            Self::Unknown => None,
            Self::Open { term } | Self::Standby { term, .. } => {
                Some(ArbitrationInput::TermChosen(term))
            }
            Self::Leader { term, .. } => Some(ArbitrationInput::ElectionWon(term)),
        }
    }

    /// Whether a session that is primary with this election id may write at `now`.
    pub fn allows_write(self, election: ElectionId, now: Instant) -> bool {
        match self {
            Self::Unknown | Self::Standby { .. } => false,
            Self::Open { .. } => true,
            // The id has to carry the term: one of an earlier election does not fence the leaders
            // in between.
            Self::Leader { term, until } => election.term() == term && now < until,
        }
    }

    /// Whether this controller may write where it is primary at `now`.
    pub fn may_write(self, now: Instant) -> bool {
        matches!(self, Self::Open { term: 1.. }) || self.is_leader(now)
    }

    /// Whether this controller was elected and still is at `now`.
    pub fn is_leader(self, now: Instant) -> bool {
        matches!(self, Self::Leader { until, .. } if now < until)
    }

    /// Whether it is known who writes, this controller or another.
    pub fn is_settled(self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Open { .. } | Self::Leader { .. } => true,
            Self::Standby { leader, .. } => leader.is_some(),
        }
    }

    /// The number of another controller that leads, and so verifies the switches.
    pub fn other_leader(self) -> Option<u32> {
        match self {
            Self::Standby { leader, .. } => leader,
            Self::Unknown | Self::Open { .. } | Self::Leader { .. } => None,
        }
    }

    /// What it allows, for people.
    pub fn describe(self) -> String {
        match self {
            Self::Unknown => "writes nothing until it is known who leads".to_owned(),
            Self::Open { term } => format!("bids at every switch in term {term}"),
            Self::Leader { .. } => "was elected, and writes to the switches".to_owned(),
            Self::Standby { leader: Some(number), .. } => {
                format!("stands by: controller {number} leads")
            }
            Self::Standby { leader: None, .. } => "stands by: no controller leads".to_owned(),
        }
    }

    /// When it ends by itself.
    pub fn expires_at(self) -> Option<Instant> {
        match self {
            Self::Leader { until, .. } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_leader_writes_and_only_until_its_permit_expires() {
        let now = Instant::now();
        let until = now + Duration::from_secs(3);
        let elected = WritePermit::Leader { term: 7, until };
        let standby = WritePermit::Standby { term: 7, leader: None };
        let id = |term| ElectionId::new(term, 1, 1);
        let cases = [
            (WritePermit::Unknown, 7, now, false),
            (standby, 7, now, false),
            (WritePermit::Open { term: 7 }, 3, now, true),
            (elected, 7, now, true),
            (elected, 6, now, false),
            (elected, 7, until, false),
        ];
        for (permit, term, at, expected) in cases {
            assert_eq!(permit.allows_write(id(term), at), expected, "{permit:?}");
        }
    }
}
