//! The election of one session: when to bid, with which id, and whether it may write.
//!
//! A sans-IO state machine that `session` drives: its inputs are a stream that opened and the
//! responses of the switch, its outputs are the bids to send and the mastership. The decision: an
//! election id is never used twice. Its 128 bits hold (term, controller, bid); every stream makes a
//! new bid, so a stale connection never holds our id. Reuse would evict the real primary on bmv2
//! or be refused elsewhere. Whether to bid for a switch whose primary has left is decided for all
//! switches together, in [`leadership`](crate::leadership). Nobody writes in term 0: who is first
//! in it has only learned that the switch has no leader.

use std::fmt;

use p4runtime_proto::v1 as p4rt;

use super::mastership_status::MastershipStatus;

/// Bids that a run makes at one switch in its first term before it uses those of the next run.
const BIDS_OF_RUN: u32 = 1 << 12;

/// 128 bits that order the controllers of a switch; the highest may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionId(pub u128);

impl ElectionId {
    /// That of a bid without an election id, with which a controller is never primary (P4Runtime,
    /// section on client arbitration).
    pub const NONE: Self = Self(0);
    /// The lowest that can be primary.
    pub const LOWEST: Self = Self(1);

    /// The id of the `bid`-th stream of a controller in a term: term in the upper 64 bits, then 32
    /// bits each for controller and bid.
    pub fn new(term: u64, controller: u32, bid: u32) -> Self {
        Self(u128::from(term) << 64 | u128::from(controller) << 32 | u128::from(bid))
    }

    /// The term it was used in.
    pub fn term(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The controller that bid it.
    pub fn controller(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn low_bits(self) -> u64 {
        self.0 as u64
    }
}

impl From<p4rt::Uint128> for ElectionId {
    fn from(id: p4rt::Uint128) -> Self {
        Self(u128::from(id.high) << 64 | u128::from(id.low))
    }
}

impl From<ElectionId> for p4rt::Uint128 {
    fn from(id: ElectionId) -> Self {
        Self { high: id.term(), low: id.low_bits() }
    }
}

impl fmt::Display for ElectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = self.low_bits();
        write!(f, "{}.{}.{}", self.term(), low >> 32, low as u32)
    }
}

/// Whether this session may write to its switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mastership {
    /// No stream is open.
    #[default]
    Disconnected,
    /// A bid is out and the switch has not answered it.
    Candidate,
    /// Another controller may write; this one waits for it to leave.
    Backup {
        /// The election id of the other, as far as the switch reports it.
        primary: ElectionId,
    },
    /// Nobody may write; it takes a higher election id.
    NoPrimary {
        /// The highest election id that the switch has seen.
        highest: ElectionId,
    },
    /// This session may write, with this election id.
    Primary {
        /// What every write must carry.
        election: ElectionId,
    },
}

impl Mastership {
    /// Its name, as `crux switches` and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Candidate => "candidate",
            Self::Backup { .. } => "backup",
            Self::NoPrimary { .. } => "no_primary",
            Self::Primary { .. } => "primary",
        }
    }
}

impl Mastership {
    /// Whether the session may write.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::Primary { .. })
    }

    /// The highest term that the switch is known to have seen.
    pub fn highest_term(self) -> Option<u64> {
        match self {
            Self::Disconnected | Self::Candidate => None,
            Self::Backup { primary: id } | Self::NoPrimary { highest: id } => Some(id.term()),
            Self::Primary { election } => Some(election.term()),
        }
    }

    /// The term of the election that was won.
    pub fn term(self) -> Option<u64> {
        match self {
            Self::Primary { election } => Some(election.term()),
            _ => None,
        }
    }
}

/// Inputs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArbitrationInput {
    /// A stream to the switch is open.
    StreamOpened,
    /// The switch sent an arbitration update.
    StatusReceived(MastershipStatus),
    /// The term that this controller bids in at all switches.
    TermChosen(u64),
    /// The term in which it was elected through etcd; its bids must carry that term.
    ElectionWon(u64),
    /// The stream ended.
    StreamClosed,
}

/// Outputs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArbitrationOutput {
    /// Nothing; the mastership may have changed.
    Wait,
    /// Send this election id to the switch.
    Bid(ElectionId),
}

/// The election of one session with one switch.
#[derive(Clone, Debug)]
pub struct MastershipArbitration {
    controller: u32,
    term: u64,
    bids: u32,
    last_bid: ElectionId,
    mastership: Mastership,
}

impl MastershipArbitration {
    /// A session of `controller`, a number that no other controller has, that first bids in `term`.
    pub fn new(controller: u32, term: u64) -> Self {
        Self::in_run(controller, term, 0)
    }

    /// A session whose bids follow those of the runs before `run`: an earlier run may have left a
    /// connection that bid in the first term as well.
    pub fn in_run(controller: u32, term: u64, run: u64) -> Self {
        Self {
            controller,
            term,
            // Wrapping is harmless: an id repeats after a million runs, whose connections are long
            // gone.
            bids: (run as u32).wrapping_mul(BIDS_OF_RUN),
            last_bid: ElectionId::default(),
            mastership: Mastership::Disconnected,
        }
    }

    /// Whether the session may write now.
    pub fn mastership(&self) -> Mastership {
        self.mastership
    }

    /// Applies an input and returns what to send; the only transition of the machine.
    pub fn step(&mut self, input: ArbitrationInput) -> ArbitrationOutput {
        let output = match (self.mastership, input) {
            // First, from any state: the switch forgets the bid with its stream.
            (_, ArbitrationInput::StreamClosed) => self.set_mastership(Mastership::Disconnected),
            (Mastership::Disconnected, ArbitrationInput::StreamOpened) => self.next_bid(),
            (mastership, ArbitrationInput::TermChosen(term)) => self.raise_term(mastership, term),
            (mastership, ArbitrationInput::ElectionWon(term)) => {
                self.adopt_elected_term(mastership, term)
            }
            // A stream opens once, and a status before our first bid concerns other controllers.
            (_, ArbitrationInput::StreamOpened)
            | (Mastership::Disconnected, ArbitrationInput::StatusReceived(_)) => {
                ArbitrationOutput::Wait
            }
            (_, ArbitrationInput::StatusReceived(MastershipStatus::Primary)) => {
                let election = self.last_bid;
                self.set_mastership(match election.term() {
                    // In term 0 a session may be primary and still must not write.
                    0 => Mastership::NoPrimary { highest: election },
                    _ => Mastership::Primary { election },
                })
            }
            (_, ArbitrationInput::StatusReceived(MastershipStatus::Backup { highest })) => {
                self.set_mastership(Mastership::Backup { primary: highest })
            }
            (_, ArbitrationInput::StatusReceived(MastershipStatus::NoPrimary { highest })) => {
                self.set_mastership(Mastership::NoPrimary { highest })
            }
        };
        self.check_invariant();
        output
    }

    /// The session holds only ids that it bid, and it has bid once it has a stream.
    pub fn check_invariant(&self) {
        debug_assert!(
            self.mastership == Mastership::Disconnected || self.last_bid != ElectionId::default()
        );
        if let Mastership::Primary { election } = self.mastership {
            debug_assert_eq!(election, self.last_bid);
        }
    }

    fn set_mastership(&mut self, mastership: Mastership) -> ArbitrationOutput {
        self.mastership = mastership;
        ArbitrationOutput::Wait
    }

    /// A bid that no bid before it equals: the counter rises, and where it ends the term does.
    fn next_bid(&mut self) -> ArbitrationOutput {
        (self.term, self.bids) = match self.bids.checked_add(1) {
            Some(bids) => (self.term, bids),
            // Term 0 is never left without a reason to lead.
            None if self.term == 0 => (0, 1),
            None => (self.term.saturating_add(1), 1),
        };
        self.mastership = Mastership::Candidate;
        self.last_bid = ElectionId::new(self.term, self.controller, self.bids);
        ArbitrationOutput::Bid(self.last_bid)
    }

    /// Bids in a later term if that can change the mastership now; otherwise keeps the term for the
    /// next bid. The same input leads to a bid once the mastership allows it.
    fn raise_term(&mut self, mastership: Mastership, term: u64) -> ArbitrationOutput {
        self.term = self.term.max(term);
        match mastership {
            Mastership::Backup { .. } | Mastership::NoPrimary { .. }
                // A second bid in one term would have the primary of that term replaced for
                // nothing.
                if self.term > self.last_bid.term() =>
            {
                self.next_bid()
            }
            _ => ArbitrationOutput::Wait,
        }
    }

    /// Bids in a later term, even where an earlier one was won: an election id of the earlier term
    /// does not fence the leaders in between.
    fn adopt_elected_term(&mut self, mastership: Mastership, term: u64) -> ArbitrationOutput {
        if term <= self.term {
            return ArbitrationOutput::Wait;
        }
        self.term = term;
        match mastership {
            Mastership::Disconnected => ArbitrationOutput::Wait,
            _ => self.next_bid(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ArbitrationInput::{
        ElectionWon, StatusReceived, StreamClosed, StreamOpened, TermChosen,
    };
    use super::ArbitrationOutput::{Bid, Wait};
    use super::MastershipStatus::{Backup, NoPrimary, Primary};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const OTHER: ElectionId = ElectionId(9 << 64 | 1);

    /// What a session of controller 3 in term 5 answers to each input, and where it ends.
    fn check(inputs: &[(ArbitrationInput, ArbitrationOutput)], end: Mastership) {
        let mut arbitration = MastershipArbitration::new(3, 5);
        for (step, (input, output)) in inputs.iter().enumerate() {
            assert_eq!(arbitration.step(*input), *output, "step {step}: {input:?}");
        }
        assert_eq!(arbitration.mastership(), end);
    }

    fn bid(term: u64, bid: u32) -> ArbitrationOutput {
        Bid(ElectionId::new(term, 3, bid))
    }

    #[test]
    fn a_free_switch_is_won_with_the_first_bid() {
        let election = ElectionId::new(5, 3, 1);
        check(
            &[(StreamOpened, bid(5, 1)), (StatusReceived(Primary), Wait)],
            Mastership::Primary { election },
        );
    }

    #[test]
    fn a_chosen_backup_outbids_a_primary_that_left() {
        let election = ElectionId::new(10, 3, 2);
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (StatusReceived(Backup { highest: OTHER }), Wait),
                (StatusReceived(NoPrimary { highest: OTHER }), Wait),
                (TermChosen(10), bid(10, 2)),
                (TermChosen(10), Wait),
                (StatusReceived(Primary), Wait),
            ],
            Mastership::Primary { election },
        );
    }

    #[test]
    fn bmv2_promotes_a_backup_that_bids_nothing_new() {
        let election = ElectionId::new(5, 3, 1);
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (StatusReceived(Backup { highest: OTHER }), Wait),
                (StatusReceived(Primary), Wait),
            ],
            Mastership::Primary { election },
        );
    }

    #[test]
    fn a_higher_id_takes_the_switch_away_without_a_fight() {
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (StatusReceived(Primary), Wait),
                (StatusReceived(Backup { highest: OTHER }), Wait),
            ],
            Mastership::Backup { primary: OTHER },
        );
    }

    #[test]
    fn a_new_stream_bids_anew_in_the_latest_term() {
        let own = ElectionId::new(5, 3, 1);
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (StatusReceived(Primary), Wait),
                (StreamClosed, Wait),
                (StreamOpened, bid(5, 2)),
                (StatusReceived(Backup { highest: own }), Wait),
                (StreamClosed, Wait),
                (TermChosen(6), Wait),
                (StreamOpened, bid(6, 3)),
            ],
            Mastership::Candidate,
        );
    }

    #[test]
    fn a_term_that_rises_under_a_primary_does_not_disturb_it() {
        let election = ElectionId::new(5, 3, 1);
        check(
            &[(StreamOpened, bid(5, 1)), (StatusReceived(Primary), Wait), (TermChosen(8), Wait)],
            Mastership::Primary { election },
        );
    }

    #[test]
    fn an_elected_primary_bids_again_in_the_term_of_its_election() {
        let election = ElectionId::new(8, 3, 2);
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (StatusReceived(Primary), Wait),
                (ElectionWon(8), bid(8, 2)),
                (ElectionWon(8), Wait),
                (StatusReceived(Primary), Wait),
            ],
            Mastership::Primary { election },
        );
    }

    #[test]
    fn a_term_that_rises_while_a_bid_is_out_is_bid_once_that_has_lost() {
        check(
            &[
                (StreamOpened, bid(5, 1)),
                (TermChosen(10), Wait),
                (StatusReceived(NoPrimary { highest: OTHER }), Wait),
                (TermChosen(10), bid(10, 2)),
            ],
            Mastership::Candidate,
        );
    }

    #[test]
    fn an_id_spells_term_controller_and_bid() {
        let id = ElectionId::new(5, 3, 7);
        assert_eq!(id.to_string(), "5.3.7");
        assert_eq!(ElectionId::from(p4rt::Uint128::from(id)), id);
        assert!(ElectionId::new(6, 1, 1) > id && ElectionId::new(5, 4, 1) > id);
    }

    fn input() -> impl Strategy<Value = ArbitrationInput> {
        let highest = (0u64..20, 0u32..4, 0u32..4)
            .prop_map(|(term, controller, bid)| ElectionId::new(term, controller, bid));
        prop_oneof![
            Just(StreamOpened),
            Just(StreamClosed),
            (0u64..20).prop_map(TermChosen),
            (0u64..20).prop_map(ElectionWon),
            Just(StatusReceived(Primary)),
            highest.clone().prop_map(|highest| StatusReceived(Backup { highest })),
            highest.prop_map(|highest| StatusReceived(NoPrimary { highest })),
        ]
    }

    proptest! {
        /// Whatever a switch says, ids only rise and none is used twice.
        #[test]
        fn no_id_is_bid_twice(inputs in proptest::collection::vec(input(), 0..60)) {
            let mut arbitration = MastershipArbitration::new(2, 1);
            let mut used = BTreeSet::new();
            for input in inputs {
                if let Bid(id) = arbitration.step(input) {
                    prop_assert!(used.last().is_none_or(|last| *last < id));
                    prop_assert!(used.insert(id));
                }
            }
        }
    }
}
