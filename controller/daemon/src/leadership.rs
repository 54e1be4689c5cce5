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
    let refusals = masterships.iter().filter_map(|mastership| match mastership {
        Mastership::Backup { primary: highest } | Mastership::NoPrimary { highest } => {
            Some(highest.term()).filter(|seen| (term..TERM_LIMIT).contains(seen))
        }
        // Its own, won before etcd forgot it: nothing may be written in that term any more.
        Mastership::Primary { election } => Some(election.term()).filter(|won| *won > term),
        _ => None,
    });
    let is_refused = 2 * refusals.clone().count() > connected_count(masterships);
    refusals.max().filter(|_| is_refused)
}

/// Whether most switches answer this controller.
pub fn reaches_most(masterships: &[Mastership]) -> bool {
    is_majority(connected_count(masterships), masterships)
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
    /// The latest such term of the other members that answer.
    pub member_term: u64,
    /// Whether all other members answer.
    pub do_all_answer: bool,
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
    /// The latest term in which several switches had another controller for their primary. Those
    /// that arbitrate like bmv2 forget it with that primary.
    succeeded_term: u64,
    /// Until when it leaves the lead to others, unless one has taken it.
    resigned_until: Option<Instant>,
    /// When to choose again although no mastership changes.
    check_at: Option<Instant>,
}

impl ReplicaStanding {
    /// Whether nobody can have a later state. Switches have seen terms up to `highest`, but those
    /// that begin anew know of none, so whoever has no state asks all others.
    fn has_latest_state(&self, highest: u64) -> bool {
        let is_latest = self.state_term >= self.member_term;
        is_latest && (self.do_all_answer || self.state_term > 0 && self.state_term >= highest)
    }
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
            succeeded_term: 0,
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

    /// Whether most switches lack a primary, so that this controller may soon lead.
    pub fn sees_vacancy(&self) -> bool {
        self.without_primary.is_some()
    }

    /// The term to bid in at every switch, from the masterships at all of them at `now`.
    pub fn choose_term(&mut self, masterships: &[Mastership], now: Instant) -> u64 {
        self.note_won_terms(masterships);
        self.take_request(masterships, 0);
        let vacancies = masterships.iter().filter_map(|mastership| match mastership {
            Mastership::NoPrimary { highest } => Some(highest.term()),
            _ => None,
        });
        // Cut off from most switches, a controller sees few vacancies and must not take over.
        let is_succession = is_majority(vacancies.clone().count(), masterships);
        self.note_vacancies(vacancies.max(), now);
        if let Some((since, highest)) = self.without_primary
            && (is_succession || now.duration_since(since) >= self.primary_grace)
        {
            self.lead_above(highest);
        }
        self.check_at = self.without_primary.map(|(since, _)| since + self.primary_grace);
        self.term
    }

    /// As [`LeaderElection::choose_term`], where controllers replicate the state of their leader.
    ///
    /// The switches are the voters, so only a controller that most of them have for their primary
    /// writes; one that has lost them goes on while a follower confirms that it follows, and else
    /// begins anew in term 0. It leads if most switches have no primary for some time and neither
    /// they nor other members know a later term than that of its state, so a newcomer without state
    /// never leads where another has led.
    pub fn choose_by_majority(
        &mut self,
        masterships: &[Mastership],
        standing: ReplicaStanding,
        now: Instant,
    ) -> ElectionChoice {
        if self.stays_resigned(masterships, now) {
            self.check_at = self.resigned_until;
            return ElectionChoice { term: 0, may_write: false };
        }
        self.note_later_terms(masterships);
        self.note_successor(masterships);
        if self.take_request(masterships, standing.state_term) {
            self.forced_term = Some(self.term);
        }
        // A primary in term 0 writes nothing: it has no more right to lead than this controller.
        let vacancies = masterships.iter().filter_map(|mastership| match mastership {
            Mastership::NoPrimary { highest: id } => Some(id.term()),
            Mastership::Backup { primary: id } if id.term() == 0 => Some(0),
            _ => None,
        });
        // Switches that it has won already are nobody else's.
        let won = primary_count(masterships, self.term);
        let is_succession = is_majority(vacancies.clone().count() + won, masterships);
        self.note_vacancies(vacancies.max().filter(|_| is_succession), now);
        if let Some((since, highest)) = self.without_primary {
            // Nobody has led yet, or the leader has gone: nothing to wait for.
            let is_free = standing.is_leader_leaving || highest.max(standing.state_term) == 0;
            let is_due = is_free || now.duration_since(since) >= self.primary_grace;
            if is_due && standing.has_latest_state(highest.max(self.succeeded_term)) {
                self.lead_above(highest.max(standing.state_term));
            }
        }
        if self.majority_term != self.term
            && self.forced_term != Some(self.term)
            && standing.member_term > standing.state_term
        {
            // A member with a later state has answered since.
            self.term = 0;
        }
        let may_write = self.may_write(masterships, standing);
        let is_lost = self.majority_term == self.term && !may_write;
        if is_lost || standing.state_term > self.term {
            // Some switches let whoever is there write again in an earlier term.
            self.term = 0;
        }
        let primary = primary_count(masterships, self.term);
        // A vacancy may last, and followers may stop confirming.
        let vacancy = self.without_primary.map(|(since, _)| since + self.primary_grace);
        let confirmation = now + self.primary_grace / 4;
        let is_conditional = may_write && !is_majority(primary, masterships);
        let dues = [vacancy, Some(confirmation).filter(|_| is_conditional)];
        self.check_at = dues.into_iter().flatten().filter(|due| *due > now).min();
        ElectionChoice { term: self.term, may_write: may_write && self.term > 0 }
    }

    /// When to choose a term again although no mastership changes.
    pub fn next_due(&self) -> Option<Instant> {
        self.check_at
    }

    fn note_won_terms(&mut self, masterships: &[Mastership]) {
        let won = masterships.iter().filter_map(|mastership| mastership.term());
        self.term = won.fold(self.term, u64::max);
    }

    /// Leads above `state_term` and all terms seen, if an operator wants it. Before most switches
    /// have answered, the term to lead above is not known.
    fn take_request(&mut self, masterships: &[Mastership], state_term: u64) -> bool {
        let seen = masterships.iter().filter_map(|mastership| mastership.highest_term());
        if !self.is_requested || !is_majority(seen.clone().count(), masterships) {
            return false;
        }
        self.is_requested = false;
        self.lead_above(seen.filter(|term| *term < TERM_LIMIT).fold(state_term, u64::max));
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

    /// Gives up a term once most switches have another controller for their primary in a later one:
    /// some would let this one write in it again when the other has left.
    fn note_successor(&mut self, masterships: &[Mastership]) {
        let own = self.term.max(1);
        let later = masterships.iter().filter_map(|mastership| match mastership {
            Mastership::Backup { primary } => Some(primary.term()).filter(|term| *term >= own),
            _ => None,
        });
        if is_majority(later.count(), masterships) {
            self.term = 0;
        }
    }

    /// Remembers in which term another controller was primary of two switches, or of the only one.
    /// One of several may lie. Most of all switches would be too many: of those that a leader has,
    /// a controller that is cut off from some sees fewer, and it must not lead later with an
    /// earlier state.
    fn note_later_terms(&mut self, masterships: &[Mastership]) {
        let terms = masterships.iter().filter_map(|mastership| match mastership {
            Mastership::Backup { primary } => Some(primary.term()),
            _ => None,
        });
        let terms = terms.filter(|term| *term < TERM_LIMIT);
        let [highest, second] = terms.fold([0, 0], |[highest, second], term| {
            [highest.max(term), second.max(highest.min(term))]
        });
        let seen = if masterships.len() == 1 { highest } else { second };
        self.succeeded_term = self.succeeded_term.max(seen);
    }

    fn stays_resigned(&mut self, masterships: &[Mastership], now: Instant) -> bool {
        let Some(until) = self.resigned_until else {
            return false;
        };
        let is_succeeded = masterships.iter().any(
            |mastership| matches!(mastership, Mastership::Backup { primary } if primary.term() > 0),
        );
        let stays = !is_succeeded && now < until;
        (self.term, self.without_primary) = (0, None);
        self.resigned_until.take_if(|_| !stays);
        stays
    }

    fn may_write(&mut self, masterships: &[Mastership], standing: ReplicaStanding) -> bool {
        let is_elected = is_majority(primary_count(masterships, self.term), masterships);
        if is_elected {
            (self.majority_term, self.forced_term) = (self.term, None);
        }
        let leads_on = self.majority_term == self.term && standing.is_followed;
        let is_forced = self.forced_term == Some(self.term);
        self.term > 0 && (is_elected || leads_on || is_forced)
    }
}

/// At how many switches this controller is primary in a term.
fn primary_count(masterships: &[Mastership], term: u64) -> usize {
    masterships.iter().filter(|mastership| mastership.term() == Some(term)).count()
}

/// How many switches have answered a bid of this controller.
fn connected_count(masterships: &[Mastership]) -> usize {
    let is_connected = |mastership: &&Mastership| {
        !matches!(mastership, Mastership::Disconnected | Mastership::Candidate)
    };
    masterships.iter().filter(is_connected).count()
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

    fn primary(term: u64) -> Mastership {
        Mastership::Primary { election: ElectionId::new(term, 9, 1) }
    }

    fn standing(state_term: u64) -> ReplicaStanding {
        ReplicaStanding { state_term, ..ReplicaStanding::default() }
    }

    #[test]
    fn a_follower_leads_where_most_switches_have_no_leader_and_its_state_is_the_latest() {
        let vacant = [no_primary(7), no_primary(7), backup()];
        let new = [no_primary(0), no_primary(0)];
        let asked = |state_term, member_term| ReplicaStanding {
            member_term,
            do_all_answer: true,
            ..standing(state_term)
        };
        let partly = ReplicaStanding { do_all_answer: false, ..asked(7, 8) };
        let leaving = ReplicaStanding { is_leader_leaving: true, ..standing(7) };
        let few = [no_primary(7), backup(), Mastership::Disconnected];
        let cases: [(&[Mastership], ReplicaStanding, [u64; 2]); 11] = [
            (&vacant, standing(7), [0, 8]),
            // Another one has led since, as switches or members know.
            (&vacant, standing(6), [0, 0]),
            (&vacant, partly, [0, 0]),
            (&vacant, asked(7, 8), [0, 0]),
            (&vacant, standing(0), [0, 0]),
            // Whoever knew more is there no more, or begins anew.
            (&vacant, asked(6, 6), [0, 8]),
            // The leader is gone for good.
            (&vacant, leaving, [8, 8]),
            // Few switches are no reason.
            (&few, standing(7), [0, 0]),
            // Nobody has ever led, as all members say.
            (&new, asked(0, 0), [3, 3]),
            (&new, asked(0, 2), [0, 0]),
            (&new, standing(0), [0, 0]),
        ];
        for (masterships, standing, terms) in cases {
            let mut election = LeaderElection::new(3, GRACE);
            let now = Instant::now();
            for (at, term) in [now, now + GRACE].into_iter().zip(terms) {
                let choice = election.choose_by_majority(masterships, standing, at);
                assert_eq!(choice, ElectionChoice { term, may_write: false }, "{masterships:?}");
            }
        }
    }

    #[test]
    fn a_leader_without_most_switches_writes_only_while_it_is_followed() {
        let mut election = LeaderElection::new(3, GRACE);
        let lost = [primary(5), Mastership::Disconnected, Mastership::Disconnected];
        let most = [primary(5), primary(5), Mastership::Disconnected];
        let followed = |state| ReplicaStanding { is_followed: true, ..standing(state) };
        let leaving = ReplicaStanding { is_leader_leaving: true, ..standing(4) };
        let cases: [(&[Mastership], ReplicaStanding, u64, bool); 6] = [
            (&[no_primary(4), no_primary(4), backup()], leaving, 5, false),
            // A follower of its own does not make it the leader.
            (&lost, followed(4), 5, false),
            (&most, standing(5), 5, true),
            (&lost, followed(5), 5, true),
            // It begins anew, as another one may have led when switches are back.
            (&lost, standing(5), 0, false),
            (&most, standing(5), 0, false),
        ];
        let now = Instant::now();
        for (masterships, standing, term, may_write) in cases {
            let choice = election.choose_by_majority(masterships, standing, now);
            assert_eq!(choice, ElectionChoice { term, may_write }, "{masterships:?}");
        }
    }

    #[test]
    fn a_candidate_that_lost_does_not_lead_where_switches_forget() {
        let mut election = LeaderElection::new(3, GRACE);
        let leaving = ReplicaStanding { is_leader_leaving: true, ..standing(4) };
        let vacant = [no_primary(4), no_primary(4), backup()];
        let now = Instant::now();
        assert_eq!(election.choose_by_majority(&vacant, leaving, now).term, 5);
        assert_eq!(election.choose_by_majority(&[backup(); 3], standing(4), now).term, 0);
        // The other one leaves, and a switch promotes whoever is there.
        let promoted = [primary(5), primary(5), no_primary(0)];
        for (state_term, term) in [(4, 0), (7, 8)] {
            let mut election = election.clone();
            election.choose_by_majority(&promoted, standing(state_term), now);
            let vacant = [no_primary(0); 3];
            election.choose_by_majority(&vacant, standing(state_term), now);
            let choice = election.choose_by_majority(&vacant, standing(state_term), now + GRACE);
            assert_eq!(choice, ElectionChoice { term, may_write: false });
        }
    }

    /// Found by the fault campaign (seed 94621), where switches arbitrate like bmv2.
    #[test]
    fn a_controller_that_saw_two_switches_of_a_later_leader_does_not_lead_with_an_earlier_state() {
        let vacant = [no_primary(0), no_primary(0), no_primary(0), Mastership::Disconnected];
        let of_later = |count: usize| {
            let mut seen = [Mastership::Disconnected; 4];
            seen[..count].fill(backup());
            seen
        };
        let now = Instant::now();
        for (count, term) in [(1, 7), (2, 0)] {
            let mut election = LeaderElection::new(3, GRACE);
            election.choose_by_majority(&of_later(count), standing(6), now);
            election.choose_by_majority(&vacant, standing(6), now);
            let choice = election.choose_by_majority(&vacant, standing(6), now + GRACE);
            assert_eq!(choice, ElectionChoice { term, may_write: false }, "{count}");
        }
    }

    #[test]
    fn the_only_switch_is_enough_to_know_of_a_later_leader() {
        let mut election = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        election.choose_by_majority(&[backup()], standing(6), now);
        election.choose_by_majority(&[no_primary(0)], standing(6), now);
        let choice = election.choose_by_majority(&[no_primary(0)], standing(6), now + GRACE);
        assert_eq!(choice, ElectionChoice { term: 0, may_write: false });
    }

    #[test]
    fn a_controller_that_resigned_leads_again_only_if_nobody_does() {
        let mut election = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        election.resign(now);
        let vacant = [no_primary(5), no_primary(5)];
        let cases = [
            (vacant, Duration::ZERO, 0),
            (vacant, 5 * GRACE, 0),
            (vacant, RESIGNATION * GRACE, 0),
            (vacant, (RESIGNATION + 1) * GRACE, 6),
        ];
        for (masterships, after, term) in cases {
            let choice = election.choose_by_majority(&masterships, standing(5), now + after);
            assert_eq!(choice.term, term, "{after:?}");
        }
    }

    #[test]
    fn an_operator_has_a_newcomer_lead_before_most_switches_have_it_for_their_primary() {
        let mut election = LeaderElection::new(3, GRACE);
        let now = Instant::now();
        election.request_lead();
        let choice = election.choose_by_majority(&[no_primary(7), backup()], standing(0), now);
        assert_eq!(choice, ElectionChoice { term: 8, may_write: true });
    }

    #[test]
    fn an_operator_has_a_controller_lead_above_the_term_of_its_state() {
        let mut election = LeaderElection::new(3, GRACE);
        election.request_lead();
        // The switches began anew.
        let vacant = [no_primary(0), no_primary(0)];
        let choice = election.choose_by_majority(&vacant, standing(7), Instant::now());
        assert_eq!(choice, ElectionChoice { term: 8, may_write: true });
    }

    #[test]
    fn a_term_before_that_of_its_state_gives_no_right_to_write() {
        let mut election = LeaderElection::new(3, GRACE);
        let vacant = [no_primary(0); 3];
        let leaving =
            ReplicaStanding { is_leader_leaving: true, do_all_answer: true, ..standing(0) };
        let now = Instant::now();
        assert_eq!(election.choose_by_majority(&vacant, leaving, now).term, 3);
        // Another member's state of term 7 has arrived since.
        let choice = election.choose_by_majority(&[primary(3); 3], standing(7), now);
        assert_eq!(choice, ElectionChoice { term: 0, may_write: false });
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
