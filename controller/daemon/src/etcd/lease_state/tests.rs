//! Instants one by one, and any schedule of lost and late calls against a model of etcd.

use super::*;
use proptest::prelude::*;

const LASTS: Duration = Duration::from_secs(10);

fn election(revision: u64, lease: i64) -> ElectedLeader {
    ElectedLeader { revision, lease, controller: 1 }
}

fn leader(revision: u64, lease: i64) -> Option<ElectedLeader> {
    Some(election(revision, lease))
}

fn standby(term: u64, leader: Option<u32>) -> WritePermit {
    WritePermit::Standby { term, leader }
}

#[test]
fn a_permit_expires_before_the_lease_may_have_ended() {
    let asked = Instant::now();
    let mut lease_state = LeaseState::default();
    assert_eq!(lease_state.write_permit(), WritePermit::Unknown);
    lease_state.record_grant(5, 40, asked, LASTS);
    assert_eq!(lease_state.write_permit(), standby(40, None));
    lease_state.observe_leader(leader(41, 5));
    assert_eq!(lease_state.write_permit(), standby(40, None), "not yet");
    lease_state.record_prepared(election(41, 5));
    let term = LEADER_TERMS | 41;
    let until = asked + Duration::from_secs(8);
    assert_eq!(lease_state.write_permit(), WritePermit::Leader { term, until });
    let later = asked + Duration::from_secs(6);
    lease_state.record_renewal(later, Some(LASTS));
    let until = later + Duration::from_secs(8);
    assert_eq!(lease_state.write_permit(), WritePermit::Leader { term, until });
    assert_eq!(lease_state.renewal_due(), Some(later + Duration::from_secs(2)));
}

#[test]
fn an_expired_lease_ends_leadership_and_preparation() {
    let asked = Instant::now();
    let mut lease_state = LeaseState::default();
    lease_state.record_grant(5, 40, asked, LASTS);
    lease_state.observe_leader(leader(41, 5));
    lease_state.record_prepared(election(41, 5));
    lease_state.record_renewal(asked, None);
    assert_eq!(lease_state.write_permit(), WritePermit::Unknown);
    lease_state.record_grant(6, 50, asked, LASTS);
    lease_state.observe_leader(leader(41, 5));
    assert_eq!(lease_state.write_permit(), standby(50, Some(1)));
}

#[test]
fn a_new_election_requires_new_preparation() {
    let mut lease_state = LeaseState::default();
    lease_state.record_grant(5, 40, Instant::now(), LASTS);
    lease_state.observe_leader(leader(41, 5));
    lease_state.record_prepared(election(41, 5));
    lease_state.observe_leader(leader(60, 5));
    assert_eq!(lease_state.write_permit(), standby(40, None));
}

/// Found by the fault campaign: an etcd that was lost twice elected a controller at the revision at
/// which it had led before, and it never led again.
#[test]
fn an_election_at_an_earlier_revision_is_another_one() {
    let mut lease_state = LeaseState::default();
    lease_state.record_grant(5, 3, Instant::now(), LASTS);
    lease_state.observe_leader(leader(4, 5));
    let first = lease_state.won_election();
    lease_state.record_prepared(election(4, 5));
    lease_state.record_renewal(Instant::now(), None);
    lease_state.record_grant(6, 3, Instant::now(), LASTS);
    lease_state.observe_leader(leader(4, 6));
    assert_ne!(lease_state.won_election(), first);
    lease_state.record_prepared(election(4, 5));
    assert_eq!(lease_state.write_permit(), standby(3, None), "prepared for the one before");
}

/// Finding H7: etcd was lost, and every switch refused the leader of the new one.
#[test]
fn leaders_bid_above_terms_that_etcd_has_forgotten() {
    let mut lease_state = LeaseState::default();
    lease_state.record_grant(5, 3, Instant::now(), LASTS);
    lease_state.observe_leader(leader(4, 5));
    lease_state.record_prepared(election(4, 5));
    let term = |lease_state: &LeaseState| match lease_state.write_permit() {
        WritePermit::Leader { term, .. } => term,
        permit => panic!("{permit:?}"),
    };
    assert_eq!(term(&lease_state), LEADER_TERMS | 4);
    lease_state.record_seen_term(LEADER_TERMS | 900);
    assert_eq!(term(&lease_state), LEADER_TERMS | 901);
    lease_state.record_grant(6, 40, Instant::now(), LASTS);
    lease_state.observe_leader(leader(41, 6));
    lease_state.record_prepared(election(41, 6));
    assert_eq!(term(&lease_state), LEADER_TERMS | 901);
}

/// etcd, as far as leases go.
#[derive(Default)]
struct Model {
    revision: u64,
    leases: Vec<(i64, Instant)>,
    leader: Option<ElectedLeader>,
}

impl Model {
    fn pass(&mut self, now: Instant) {
        self.leases.retain(|(_, ends)| *ends > now);
        let leases = &self.leases;
        let holds = |leader: &ElectedLeader| leases.iter().any(|(id, _)| *id == leader.lease);
        self.leader = self.leader.filter(holds);
    }

    fn grant(&mut self, now: Instant) -> (i64, u64) {
        self.revision += 1;
        let lease = self.revision.cast_signed();
        self.leases.push((lease, now + LASTS));
        (lease, self.revision)
    }

    fn renew(&mut self, lease: i64, now: Instant) -> Option<Duration> {
        let held = self.leases.iter_mut().find(|(id, _)| *id == lease)?;
        held.1 = now + LASTS;
        Some(LASTS)
    }

    fn stand(&mut self, lease: i64) {
        if self.leader.is_none() && self.leases.iter().any(|(id, _)| *id == lease) {
            self.revision += 1;
            self.leader = leader(self.revision, lease);
        }
    }
}

/// What one controller does at one moment.
#[derive(Clone, Copy, Debug)]
struct Step {
    who: usize,
    /// Since the step before, and until etcd has heard, and until its answer is there.
    waits_ms: [u64; 3],
    /// Whether the question arrives, and whether the answer does.
    arrives: [bool; 2],
}

fn step() -> impl Strategy<Value = Step> {
    let waits = [0u64..4_000, 0u64..900, 0u64..900];
    (0usize..2, waits, any::<[bool; 2]>()).prop_map(|(who, waits_ms, arrives)| Step {
        who,
        waits_ms,
        arrives,
    })
}

/// One round of a member: its lease, then an election if nobody leads.
fn play(step: Step, model: &mut Model, members: &mut [LeaseState; 2], now: &mut Instant) {
    *now += Duration::from_millis(step.waits_ms[0]);
    model.pass(*now);
    let asked = *now;
    *now += Duration::from_millis(step.waits_ms[1]);
    model.pass(*now);
    let lease_state = &mut members[step.who];
    if !step.arrives[0] {
        return;
    }
    let lease = lease_state.lease_id();
    let granted = lease.is_none().then(|| model.grant(*now));
    let renewed = lease.map(|lease| model.renew(lease, *now));
    let holder = lease.or(granted.map(|(lease, _)| lease));
    holder.into_iter().for_each(|lease| model.stand(lease));
    let seen = model.leader;
    *now += Duration::from_millis(step.waits_ms[2]);
    model.pass(*now);
    if !step.arrives[1] {
        return;
    }
    if let Some((lease, revision)) = granted {
        lease_state.record_grant(lease, revision, asked, LASTS);
    }
    if let Some(lasts) = renewed {
        lease_state.record_renewal(asked, lasts);
    }
    lease_state.observe_leader(seen);
    lease_state
        .won_election()
        .into_iter()
        .for_each(|election| lease_state.record_prepared(election));
}

proptest! {
    /// Whatever is lost or late, at most one leads at any time, and it is the one that etcd says.
    #[test]
    fn at_most_one_member_leads(steps in proptest::collection::vec(step(), 1..80)) {
        let mut now = Instant::now();
        let mut model = Model::default();
        let mut members = [LeaseState::default(), LeaseState::default()];
        let mut terms = std::collections::BTreeMap::new();
        for step in steps {
            play(step, &mut model, &mut members, &mut now);
            for (who, member) in members.iter().enumerate() {
                let WritePermit::Leader { term, until } = member.write_permit() else { continue };
                if now < until {
                    let leads = model.leader.map(|leader| LEADER_TERMS | leader.revision);
                    prop_assert_eq!(leads, Some(term));
                    prop_assert_eq!(*terms.entry(term).or_insert(who), who);
                }
            }
        }
    }
}
