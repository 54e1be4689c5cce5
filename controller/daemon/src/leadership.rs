//! Which of several controllers leads all switches, decided from their arbitration alone.
//!
//! Elections are held switch by switch ([`arbitration`](crate::southbound::arbitration)); this
//! module combines them. Sans-IO: masterships and time are arguments, the term to bid in is the
//! result. The decision: the winner of the highest election leads everywhere. A term that won one
//! switch is bid at all of them, so after a partition or a restart the order of (term, controller)
//! alone decides. Terms rise only where a switch has no primary, so controllers do not outbid each
//! other in turns. A switch without a primary is a reason to lead only if the primary has left most
//! switches, or does not return in time: a broken connection is no succession. A controller that
//! starts bids in term 0, in which nobody writes: the leader goes on leading, whatever the number
//! of the newcomer. For a standby no switch is a reason: it stays in term 0 until an operator has
//! it lead.

use std::time::Duration;

use tokio::time::Instant;
use topology::Finding;

use crate::southbound::arbitration::Mastership;

/// Terms from here on are nobody's: a switch that lies must not use up all terms.
const TERM_LIMIT: u64 = 0b11 << 62;

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
    /// Whether it leaves vacant switches alone, until an operator has it lead.
    is_standby: bool,
    /// Whether an operator wants this controller to lead.
    is_requested: bool,
    /// When to choose again although no mastership changes.
    check_at: Option<Instant>,
}

impl LeaderElection {
    /// A controller that leads in no term below `first_term`, and as a standby only on request.
    pub fn new(first_term: u64, grace: Duration, is_standby: bool) -> Self {
        Self {
            term: 0,
            first_term,
            primary_grace: grace,
            without_primary: None,
            is_standby,
            is_requested: false,
            check_at: None,
        }
    }

    /// Has this controller take the lead from any other.
    pub fn request_lead(&mut self) {
        self.is_requested = true;
    }

    /// The term to bid in at every switch, from the masterships at all of them at `now`.
    pub fn choose_term(&mut self, masterships: &[Mastership], now: Instant) -> u64 {
        // A controller that restarts may be primary where an earlier run has left its stream.
        let won = masterships.iter().filter_map(|mastership| mastership.term());
        self.term = won.fold(self.term, u64::max);
        self.take_request(masterships);
        if self.is_standby {
            return self.term;
        }
        let vacancies = masterships.iter().filter_map(|mastership| match mastership {
            Mastership::NoPrimary { highest } => Some(highest.term()),
            _ => None,
        });
        // Cut off from most switches, a controller sees few vacancies and must not take over.
        let is_succession = is_majority(vacancies.clone().count(), masterships);
        let since = self.without_primary.map_or(now, |(since, _)| since);
        self.without_primary = vacancies.max().map(|highest| (since, highest));
        if let Some((since, highest)) = self.without_primary
            && (is_succession || now.duration_since(since) >= self.primary_grace)
        {
            self.lead_above(highest);
        }
        self.check_at = self.without_primary.map(|(since, _)| since + self.primary_grace);
        self.term
    }

    /// When to choose a term again although no mastership changes.
    pub fn next_due(&self) -> Option<Instant> {
        self.check_at
    }

    /// Leads above all terms seen, if an operator wants it. Before most switches have answered, the
    /// term to lead above is not known.
    fn take_request(&mut self, masterships: &[Mastership]) {
        let seen = masterships.iter().filter_map(|mastership| mastership.highest_term());
        if self.is_requested && is_majority(seen.clone().count(), masterships) {
            (self.is_requested, self.is_standby) = (false, false);
            self.lead_above(seen.filter(|term| *term < TERM_LIMIT).max().unwrap_or(0));
        }
    }

    /// Bids in a term above `seen` from now on. Only a higher term can win: switches refuse ids up
    /// to the highest they have seen.
    fn lead_above(&mut self, seen: u64) {
        self.term = self.term.max(seen.saturating_add(1)).max(self.first_term);
        self.without_primary = None;
    }
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
        let mut leadership = LeaderElection::new(3, GRACE, false);
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
        // A controller that is cut off from most switches does not lead.
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
        let mut leadership = LeaderElection::new(3, GRACE, false);
        let now = Instant::now();
        leadership.request_lead();
        assert_eq!(leadership.choose_term(&[backup(), Mastership::Candidate], now), 0);
        assert_eq!(leadership.choose_term(&[backup(), no_primary(u64::MAX)], now), 8);
        let later = Mastership::Backup { primary: ElectionId::new(20, 9, 1) };
        assert_eq!(leadership.choose_term(&[later, later], now), 8);
    }

    #[test]
    fn a_standby_leads_only_on_request() {
        let mut standby = LeaderElection::new(3, GRACE, true);
        let now = Instant::now();
        let vacant = [no_primary(7), no_primary(7), no_primary(0)];
        for at in [now, now + GRACE, now + 100 * GRACE] {
            assert_eq!(standby.choose_term(&vacant, at), 0);
            assert_eq!(standby.next_due(), None);
        }
        standby.request_lead();
        assert_eq!(standby.choose_term(&vacant, now), 8);
        // From then on it is a leader like any other, and outbids what its switches have seen.
        assert_eq!(standby.choose_term(&[no_primary(9), no_primary(9), backup()], now), 10);
    }

    #[test]
    fn a_vacancy_that_was_filled_is_forgotten() {
        let mut leadership = LeaderElection::new(3, GRACE, false);
        let now = Instant::now();
        leadership.choose_term(&[no_primary(7), backup(), backup()], now);
        leadership.choose_term(&[backup(), backup(), backup()], now);
        assert_eq!(leadership.next_due(), None);
        leadership.choose_term(&[no_primary(7), backup(), backup()], now + 5 * GRACE);
        assert_eq!(leadership.next_due(), Some(now + 6 * GRACE));
    }
}
