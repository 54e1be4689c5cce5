//! What a controller may believe of its lease and of its leadership, and until when.
//!
//! Sans-IO: what etcd answered and when it was asked are arguments, the
//! [`WritePermit`] is a result. The decision: a lease is counted from the moment at which etcd was
//! asked, not from that of its answer, and only four fifths of it are used. etcd counts from when
//! it heard the question, so a controller that hears nothing more stops before etcd gives the
//! leadership to another, as long as their clocks run alike within a fifth.

use std::time::Duration;

use tokio::time::Instant;

use crate::southbound::write_permit::WritePermit;

/// Terms of leaders are above those of all who are ready, whatever their revisions.
const LEADER_TERMS: u64 = 1 << 63;

/// A term for people. Those of elected leaders are revisions of etcd above a bit that sets them
/// apart, which would make them numbers of 19 digits.
pub fn describe_term(term: u64) -> String {
    match term.checked_sub(LEADER_TERMS) {
        Some(revision) => format!("elected at revision {revision} of etcd"),
        None => format!("in term {term}"),
    }
}

/// Who was found to lead. An etcd that was lost counts revisions anew, so an election is told from
/// another one by its lease as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectedLeader {
    /// The revision at which it was elected.
    pub revision: u64,
    /// The lease that this hangs on.
    pub lease: i64,
    /// Its number, as it told.
    pub controller: u32,
}

/// A lease, as far as it is known to last.
#[derive(Clone, Copy, Debug)]
struct HeldLease {
    id: i64,
    /// The revision at which its holder was registered, which is nobody else's.
    registered: u64,
    asked: Instant,
    ttl: Duration,
}

/// A lease and the leadership that may hang on it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseState {
    lease: Option<HeldLease>,
    /// The election that this controller won, as long as it was not seen to have lost.
    elected: Option<ElectedLeader>,
    /// Another controller that was seen to lead.
    leader: Option<u32>,
    /// The election for which it has read and planned all that there is.
    prepared: Option<ElectedLeader>,
    /// A term that switches have seen, which its own must be above. etcd may have forgotten it.
    seen_term: Option<u64>,
}

impl LeaseState {
    /// A lease was granted, and its holder registered.
    pub(super) fn record_grant(
        &mut self,
        id: i64,
        registered: u64,
        asked: Instant,
        lasts: Duration,
    ) {
        let lease = HeldLease { id, registered, asked, ttl: lasts };
        *self = Self { lease: Some(lease), seen_term: self.seen_term, ..Self::default() };
    }

    /// etcd was asked to keep the lease; it lasts so long, or has ended.
    pub(super) fn record_renewal(&mut self, asked: Instant, lasts: Option<Duration>) {
        match (lasts, &mut self.lease) {
            (Some(lasts), Some(lease)) => (lease.asked, lease.ttl) = (asked, lasts),
            _ => *self = Self { seen_term: self.seen_term, ..Self::default() },
        }
    }

    /// Somebody was seen to lead, or nobody.
    pub(super) fn observe_leader(&mut self, leader: Option<ElectedLeader>) {
        let lease = self.lease.map(|lease| lease.id);
        let own = leader.filter(|leader| Some(leader.lease) == lease);
        self.elected = own;
        let other = leader.filter(|_| own.is_none());
        self.leader = other.map(|leader| leader.controller);
    }

    /// All that was stored until this election is planned for.
    pub(super) fn record_prepared(&mut self, election: ElectedLeader) {
        self.prepared = Some(election);
    }

    /// Switches have seen a leader of this term, which a leader's own must be above.
    pub(super) fn record_seen_term(&mut self, term: u64) {
        self.seen_term = self.seen_term.max(Some(term));
    }

    /// The lease that is held.
    pub(super) fn lease_id(&self) -> Option<i64> {
        self.lease.map(|lease| lease.id)
    }

    /// The election that this controller won.
    pub(super) fn won_election(&self) -> Option<ElectedLeader> {
        self.elected
    }

    /// When to renew the lease: often enough that one failure does no harm.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        self.lease.map(|lease| lease.asked + lease.ttl / 5)
    }

    /// The term of an election: its revision, above all terms that switches were seen to know.
    fn leader_term(&self, revision: u64) -> u64 {
        let above = self.seen_term.map_or(0, |seen| seen.saturating_add(1));
        above.max(LEADER_TERMS | revision)
    }

    /// What follows for the switches.
    pub(super) fn write_permit(&self) -> WritePermit {
        let Some(lease) = self.lease else {
            return WritePermit::Unknown;
        };
        match self.elected {
            Some(election) if self.prepared == Some(election) => WritePermit::Leader {
                term: self.leader_term(election.revision),
                until: lease.asked + lease.ttl * 4 / 5,
            },
            _ => WritePermit::Standby { term: lease.registered, leader: self.leader },
        }
    }
}

#[cfg(test)]
mod tests;
