//! Which of several controllers leads all switches, decided from their arbitration alone.
//!
//! Elections are held switch by switch ([`arbitration`](crate::southbound::arbitration)); this
//! module combines them. Sans-IO: masterships and time are arguments, the term to bid in is the
//! result. The decision: the winner of the highest election leads everywhere. A term that won one
//! switch is bid at all of them, so after a partition or a restart the order of (term, controller)
//! alone decides. Terms rise only where a switch has no primary, so controllers do not outbid each
//! other in turns. A switch without a primary is a reason to lead only if the primary has left most
//! switches, or does not return in time: a broken connection is no succession. A controller that
//! starts bids in term 0, in which nobody writes: whoever leads goes on leading, whatever the
//! number of the newcomer. Where controllers replicate the state of their leader, the switches are
//! voters as well: without most of them nobody writes, so there are not two leaders.

use std::time::Duration;

use tokio::time::Instant;
use topology::Finding;

use crate::southbound::arbitration::Mastership;

/// Terms from here on are nobody's: a switch that lies must not use up all terms.
const TERM_LIMIT: u64 = 0b11 << 62;

/// How long a controller that resigned waits for another leader, in multiples of the grace.
const RESIGNATION: u32 = 10;

/// The highest term by which most connected switches refuse the leader of `term`, if they do.
///
/// A leader's term is a revision of etcd, which begins anew when etcd is lost, or goes back when an
/// older state of it is restored; the switches still know the terms from before. One switch alone
/// may lie, so it takes most of them.
pub fn refused_term(masterships: &[Mastership], term: u64) -> Option<u64> {
    let is_connected = |mastership: &&Mastership| {
        !matches!(mastership, Mastership::Disconnected | Mastership::Candidate)
    };
    let connected = masterships.iter().filter(is_connected).count();
    let refusals = masterships.iter().filter_map(|mastership| match mastership {
        Mastership::Backup { primary: highest } | Mastership::NoPrimary { highest } => {
            Some(highest.term()).filter(|seen| (term..TERM_LIMIT).contains(seen))
        }
        // Its own, won before etcd forgot it: nothing may be written in that term any more.
        Mastership::Primary { election } => Some(election.term()).filter(|won| *won > term),
        _ => None,
    });
    let is_refused = 2 * refusals.clone().count() > connected;
    refusals.max().filter(|_| is_refused)
}

/// Why a controller that etcd elects takes no lead.
pub fn etcd_elects() -> Finding {
    let text = "refused: etcd elects the leader; stop the leader (SIGTERM), and another follows";
    Finding::error("cluster", text)
}

/// What a controller that replicates its state knows beside the masterships: it follows a leader,
/// or is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStanding {
    /// The term in which the state that it has was in force; 0 if it has none.
    pub state_term: u64,
    /// Whether the leader that it follows has said that it leaves.
    pub is_leader_leaving: bool,
    /// Whether a follower has confirmed lately that it follows.
    pub is_followed: bool,
}

/// What follows from the masterships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionChoice {
    /// The term to bid in at every switch.
    pub term: u64,
    /// Whether this controller may write where it is primary.
    pub may_write: bool,
}

/// The election of a leader as one controller observes it.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// The term to bid in; 0 until there is a reason to lead.
    term: u64,
    /// The lowest term to lead in.
    first_term: u64,
    /// How long a primary may be away from few switches.
    primary_grace: Duration,
    /// Since when some switch has no primary, and the highest term seen at one.
    without_primary: Option<(Instant, u64)>,
    /// Whether an operator wants this controller to lead.
    is_requested: bool,
    /// The term in which an operator has it lead before most switches have answered.
    forced_term: Option<u64>,
    /// The term in which most switches had this controller for their primary.
    majority_term: u64,
    /// Until when it leaves the lead to others, unless one has taken it.
    resigned_until: Option<Instant>,
    /// When to choose again although no mastership changes.
    check_at: Option<Instant>,
}

impl LeaderElection {
    /// A controller that leads in no term below `first_term`.
    pub fn new(first_term: u64, grace: Duration) -> Self {
        Self {
            term: 0,
            first_term,
            primary_grace: grace,
            without_primary: None,
            is_requested: false,
            forced_term: None,
            majority_term: 0,
            resigned_until: None,
            check_at: None,
        }
    }

    /// Has this controller lead, whoever leads now.
    pub fn request_lead(&mut self) {
        (self.is_requested, self.resigned_until) = (true, None);
    }

    /// Leaves the lead to another controller. If none takes it in time, this one leads again.
    pub fn resign(&mut self, now: Instant) {
        self.resigned_until = Some(now + RESIGNATION * self.primary_grace);
    }

    /// Whether it leaves the lead to others.
    pub fn is_resigned(&self) -> bool {
        self.resigned_until.is_some()
    }

    /// Whether most switches lack a primary, so that this controller may soon lead.
    pub fn sees_vacancy(&self) -> bool {
        self.without_primary.is_some()
    }

    /// The term to bid in at every switch, from the masterships at all of them at `now`.
    pub fn choose_term(&mut self, masterships: &[Mastership], now: Instant) -> u64 {
        self.note_won_terms(masterships);
        self.take_request(masterships);
        let vacancies = vacant_terms(masterships);
        // Cut off from most switches, a controller sees few vacancies and must not take over.
        let is_succession = is_majority(vacancies.clone().count(), masterships);
        self.note_vacancies(vacancies.max(), now);
        if let Some((since, highest)) = self.without_primary
            && (is_succession || now.duration_since(since) >= self.primary_grace)
        {
            self.lead_above(highest);
        }
        self.term
    }

    /// As [`LeaderElection::choose_term`], where controllers replicate the state of their leader.
    ///
    /// The switches are the voters, so only a controller that most of them have for their primary
    /// writes; one that has lost them goes on while a follower confirms that it follows. It leads
    /// if most switches have no primary for some time and no later term than that of its state was
    /// seen, so a newcomer without state never leads where another has led.
    pub fn choose_by_majority(
        &mut self,
        masterships: &[Mastership],
        standing: ReplicaStanding,
        now: Instant,
    ) -> ElectionChoice {
        self.check_at = None;
        if self.stays_resigned(masterships, now) {
            return ElectionChoice { term: 0, may_write: false };
        }
        self.note_won_terms(masterships);
        if self.take_request(masterships) {
            self.forced_term = Some(self.term);
        }
        let vacancies = vacant_terms(masterships);
        let is_succession = is_majority(vacancies.clone().count(), masterships);
        self.note_vacancies(vacancies.max().filter(|_| is_succession), now);
        if let Some((since, highest)) = self.without_primary {
            // Nobody has led yet, or the leader has gone: nothing to wait for.
            let is_free = standing.is_leader_leaving || highest.max(standing.state_term) == 0;
            let is_due = is_free || now.duration_since(since) >= self.primary_grace;
            if is_due && standing.state_term >= highest {
                self.lead_above(highest.max(standing.state_term));
            }
        }
        let may_write = self.may_write(masterships, standing, now);
        ElectionChoice { term: self.term, may_write }
    }

    /// When to choose a term again although no mastership changes.
    pub fn next_due(&self) -> Option<Instant> {
        let vacancy = self.without_primary.map(|(since, _)| since + self.primary_grace);
        [vacancy, self.resigned_until, self.check_at].into_iter().flatten().min()
    }

    fn note_won_terms(&mut self, masterships: &[Mastership]) {
        let won = masterships.iter().filter_map(|mastership| mastership.term());
        self.term = won.fold(self.term, u64::max);
    }

    /// Leads above all terms seen, if an operator wants it. Before most switches have answered, the
    /// term to lead above is not known.
    fn take_request(&mut self, masterships: &[Mastership]) -> bool {
        let seen = masterships.iter().filter_map(|mastership| mastership.highest_term());
        if !self.is_requested || !is_majority(seen.clone().count(), masterships) {
            return false;
        }
        self.is_requested = false;
        self.lead_above(seen.filter(|term| *term < TERM_LIMIT).max().unwrap_or(0));
        true
    }

    /// Bids in a term above `seen` from now on. Only a higher term can win: switches refuse ids up
    /// to the highest they have seen.
    fn lead_above(&mut self, seen: u64) {
        self.term = self.term.max(seen.saturating_add(1)).max(self.first_term);
        self.without_primary = None;
    }

    fn note_vacancies(&mut self, highest: Option<u64>, now: Instant) {
        let since = self.without_primary.map_or(now, |(since, _)| since);
        self.without_primary = highest.map(|highest| (since, highest));
    }

    fn stays_resigned(&mut self, masterships: &[Mastership], now: Instant) -> bool {
        let Some(until) = self.resigned_until else {
            return false;
        };
        let is_succeeded =
            masterships.iter().any(|mastership| matches!(mastership, Mastership::Backup { .. }));
        let stays = !is_succeeded && now < until;
        (self.term, self.without_primary) = (0, None);
        self.resigned_until.take_if(|_| !stays);
        stays
    }

    fn may_write(
        &mut self,
        masterships: &[Mastership],
        standing: ReplicaStanding,
        now: Instant,
    ) -> bool {
        let primary = masterships.iter().filter(|one| one.term() == Some(self.term)).count();
        if is_majority(primary, masterships) {
            (self.majority_term, self.forced_term) = (self.term, None);
        }
        let leads_on = self.majority_term == self.term && standing.is_followed;
        let is_forced = self.forced_term == Some(self.term);
        if self.term > 0 && leads_on && !is_majority(primary, masterships) {
            // Its followers may stop confirming.
            self.check_at = Some(now + self.primary_grace / 4);
        }
        self.term > 0 && (is_majority(primary, masterships) || leads_on || is_forced)
    }
}

/// The highest terms that switches without a primary have seen.
fn vacant_terms(masterships: &[Mastership]) -> impl Iterator<Item = u64> + Clone {
    masterships.iter().filter_map(|mastership| match mastership {
        Mastership::NoPrimary { highest } => Some(highest.term()),
        _ => None,
    })
}

fn is_majority(count: usize, masterships: &[Mastership]) -> bool {
    2 * count > masterships.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::southbound::arbitration::ElectionId;

    const GRACE: Duration = Duration::from_secs(1);

    fn no_primary(term: u64) -> Mastership {
        let highest = ElectionId::new(term, 9, 1);
        Mastership::NoPrimary { highest }
    }

    fn backup() -> Mastership {
        let behind = ElectionId::new(7, 9, 1);
        Mastership::Backup { primary: behind }
    }

    fn check(masterships: &[Mastership], at_once: u64, in_the_end: u64) {
        let mut leadership = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        assert_eq!(leadership.choose_term(masterships, now), at_once, "{masterships:?}");
        let due = leadership.next_due().unwrap_or(now + 9 * GRACE);
        assert_eq!(leadership.choose_term(masterships, due), in_the_end);
    }

    #[test]
    fn a_primary_that_left_most_switches_is_succeeded_at_once() {
        check(&[no_primary(7), no_primary(7), backup()], 8, 8);
    }

    #[test]
    fn a_primary_that_lost_one_switch_may_come_back() {
        check(&[no_primary(7), backup(), backup()], 0, 8);
        // Whoever is cut off from most switches knows little.
        check(&[no_primary(7), Mastership::Disconnected, Mastership::Disconnected], 0, 8);
    }

    #[test]
    fn a_newcomer_leads_switches_that_nobody_has_led_in_its_first_term() {
        check(&[no_primary(0), no_primary(0)], 3, 3);
    }

    #[test]
    fn a_term_that_won_somewhere_is_bid_everywhere() {
        let election = ElectionId::new(12, 1, 4);
        let won = Mastership::Primary { election };
        check(&[won, backup(), backup()], 12, 12);
        check(&[backup(), backup()], 0, 0);
    }

    #[test]
    fn a_leader_outbids_terms_that_most_switches_have_seen() {
        let leads = Mastership::Primary { election: ElectionId::new(5, 1, 1) };
        let lies = no_primary(u64::MAX);
        let cases = [
            (vec![no_primary(9), no_primary(7), leads], 5, Some(9)),
            (vec![no_primary(5), Mastership::Disconnected], 5, Some(5)),
            (vec![no_primary(9), leads, leads], 5, None),
            (vec![leads, leads], 4, Some(5)),
            (vec![no_primary(4), no_primary(4)], 5, None),
            (vec![lies, no_primary(7), no_primary(7)], 5, Some(7)),
            (vec![Mastership::Candidate, Mastership::Disconnected], 5, None),
        ];
        for (masterships, term, expected) in cases {
            assert_eq!(refused_term(&masterships, term), expected, "{masterships:?}");
        }
    }

    #[test]
    fn an_operator_has_a_controller_lead_above_the_leader_once() {
        let mut leadership = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        leadership.request_lead();
        assert_eq!(leadership.choose_term(&[backup(), Mastership::Candidate], now), 0);
        assert_eq!(leadership.choose_term(&[backup(), no_primary(u64::MAX)], now), 8);
        let later = Mastership::Backup { primary: ElectionId::new(20, 9, 1) };
        assert_eq!(leadership.choose_term(&[later, later], now), 8);
    }

    #[test]
    fn a_vacancy_that_was_filled_is_forgotten() {
        let mut leadership = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        leadership.choose_term(&[no_primary(7), backup(), backup()], now);
        leadership.choose_term(&[backup(), backup(), backup()], now);
        assert_eq!(leadership.next_due(), None);
        leadership.choose_term(&[no_primary(7), backup(), backup()], now + 5 * GRACE);
        assert_eq!(leadership.next_due(), Some(now + 6 * GRACE));
    }
}
