//! The reliable transport of one connection, as RoCE NICs do it: a window, cumulative
//! acknowledgements, go-back-N or selective repeat on a sequence error, and a timeout for all other
//! losses, after so many of which the connection is lost.
//!
//! Sans-IO: a [`TransportSender`] takes acknowledgements and times and gives segments; a
//! [`TransportReceiver`] turns each segment into a reply. Neither keeps packets, since a segment
//! can be made again from its number.
//!
//! The decision: no congestion control here. [`crate::dcqcn`] says when a connection may send what
//! its window allows. Without it the window, a small multiple of the bandwidth-delay product,
//! bounds what a connection can have queued, so the queues of the fabric can be sized to lose
//! nothing and equal windows share a link equally.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use switch::Nanos;

use crate::roce::{MTU, PSN_MASK, PacketBody};

/// Settings of a connection; both ends use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSettings {
    /// Packets that may be unacknowledged; above zero and below 2^23.
    pub window: u32,
    /// The receiver acknowledges every `ack_every` packets, and the last of a message.
    pub ack_every: u32,
    /// Time without progress after which the sender repeats.
    pub timeout_ns: Nanos,
    /// What it repeats.
    pub recovery: LossRecovery,
    /// Packets that may overtake one before the receiver counts it as lost, under selective repeat:
    /// 0 where a connection has one path.
    pub reordering: u32,
    /// Timeouts in a row that a connection survives, each as long as the first, as InfiniBand's
    /// transport does (`NCCL_IB_RETRY_CNT`); without it any number, each twice as long as the one
    /// before.
    pub retries: Option<u32>,
}

/// What a sender repeats after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRecovery {
    /// Everything from the first packet that is missing: what follows a gap is thrown away.
    GoBackN,
    /// What is missing: the receiver keeps what follows a gap and names each packet of it (as IRN,
    /// Mittal et al., SIGCOMM 2018, but with one message for each).
    SelectiveRepeat,
}

/// A part of a message, to be sent in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSegment {
    /// Sequence number, `0..2^24`.
    pub psn: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// Whether the message starts here.
    pub first: bool,
    /// Whether the message ends here.
    pub last: bool,
}

/// The sending end of a connection: one message at a time.
///
/// Positions count packets of the connection since its start, without wrapping; `start <=
/// acknowledged <= next <= end` and `next - acknowledged <= window` always hold.
#[derive(Clone, Debug)]
pub struct TransportSender {
    settings: TransportSettings,
    start: u64,
    acknowledged: u64,
    next: u64,
    end: u64,
    /// Highest `next` ever; packets below it are repetitions.
    sent: u64,
    last_payload: u32,
    deadline: Option<Nanos>,
    consecutive_timeouts: u32,
    retransmitted: u64,
    timeouts: u64,
    /// Positions to send again before anything new, under selective repeat.
    repeats: VecDeque<u64>,
    is_lost: bool,
}

impl TransportSender {
    /// A connection with nothing to send.
    pub fn new(settings: TransportSettings) -> Self {
        Self {
            settings,
            start: 0,
            acknowledged: 0,
            next: 0,
            end: 0,
            sent: 0,
            last_payload: 0,
            deadline: None,
            consecutive_timeouts: 0,
            retransmitted: 0,
            timeouts: 0,
            repeats: VecDeque::new(),
            is_lost: false,
        }
    }

    /// Begins a message of `bytes` (at least one byte is sent). The previous message must be done.
    pub fn begin_message(&mut self, bytes: u64, now: Nanos) {
        debug_assert!(self.is_done(), "one message at a time");
        let bytes = bytes.max(1);
        let packets = bytes.div_ceil(u64::from(MTU));
        self.start = self.end;
        self.end += packets;
        self.last_payload = (bytes - (packets - 1) * u64::from(MTU)) as u32;
        self.restart_timer(now);
    }

    /// Whether [`TransportSender::next_segment`] has a segment.
    pub fn can_send(&self) -> bool {
        let window_end = self.acknowledged + u64::from(self.settings.window);
        let has_next = self.next < self.end.min(window_end);
        !self.is_lost && (has_next || !self.repeats.is_empty())
    }

    /// The next segment that the window allows to be sent now.
    pub fn next_segment(&mut self) -> Option<MessageSegment> {
        if !self.can_send() {
            return None;
        }
        if let Some(position) = self.repeats.pop_front() {
            self.retransmitted += 1;
            return Some(self.segment_at(position));
        }
        let segment = self.segment_at(self.next);
        // After going back, positions below `sent` are sent a second time.
        self.retransmitted += u64::from(self.next < self.sent);
        self.next += 1;
        self.sent = self.sent.max(self.next);
        Some(segment)
    }

    /// Everything up to and including `psn` has arrived. Stale and impossible numbers are ignored.
    pub fn handle_ack(&mut self, psn: u32, now: Nanos) {
        let position = self.position_of(psn) + 1;
        // Against `sent`, not `next`: packets from before a go-back may be acknowledged after it.
        if position > self.acknowledged && position <= self.sent {
            self.acknowledged = position;
            self.next = self.next.max(position);
            self.repeats.retain(|repeat| *repeat >= position);
            self.restart_timer(now);
        }
    }

    /// The receiver lacks `psn`. Under go-back-N it has everything before it, and the sender goes
    /// back there; under selective repeat the sender repeats that packet alone.
    pub fn handle_nak(&mut self, psn: u32, now: Nanos) {
        let position = self.position_of(psn);
        if position < self.acknowledged || position >= self.next {
            return;
        }
        match self.settings.recovery {
            LossRecovery::GoBackN => {
                self.acknowledged = position;
                self.next = position;
            }
            LossRecovery::SelectiveRepeat if self.repeats.contains(&position) => {}
            LossRecovery::SelectiveRepeat => self.repeats.push_back(position),
        }
        self.restart_timer(now);
    }

    /// Repeats what is unacknowledged if the deadline has passed, or loses the connection if that
    /// has happened too often.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.timeouts += 1;
        self.consecutive_timeouts += 1;
        if self.settings.retries.is_some_and(|retries| self.consecutive_timeouts > retries) {
            return self.abandon();
        }
        // Under selective repeat too: the sender does not know what the receiver keeps.
        self.next = self.acknowledged;
        self.repeats.clear();
        let doublings = match self.settings.retries {
            Some(_) => 0,
            None => self.consecutive_timeouts.min(6),
        };
        self.deadline = Some(now + (self.settings.timeout_ns << doublings));
    }

    /// Ends the connection; it sends nothing more.
    pub fn abandon(&mut self) {
        self.is_lost = true;
        self.deadline = None;
        self.repeats.clear();
    }

    /// Whether the connection has ended because its retries were exhausted, or was abandoned.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Timeouts since the start of the connection.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// The latest time for [`TransportSender::handle_timeout`]; none while nothing is outstanding.
    pub fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Whether every byte of the last message has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.acknowledged == self.end
    }

    /// Packets sent again since the start of the connection.
    pub fn retransmitted_packets(&self) -> u64 {
        self.retransmitted
    }

    fn restart_timer(&mut self, now: Nanos) {
        self.consecutive_timeouts = 0;
        self.deadline = (!self.is_done()).then(|| now + self.settings.timeout_ns);
    }

    fn segment_at(&self, position: u64) -> MessageSegment {
        let last = position + 1 == self.end;
        MessageSegment {
            psn: sequence_number(position),
            payload: if last { self.last_payload } else { MTU },
            first: position == self.start,
            last,
        }
    }

    /// The position with this sequence number that is nearest to `acknowledged`.
    fn position_of(&self, psn: u32) -> u64 {
        nearest_position(self.acknowledged, psn)
    }
}

/// The reply of the receiving end to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportReply {
    /// The acknowledgement is left to a later segment.
    NoReply,
    /// Everything up to and including this sequence number has arrived.
    Ack(u32),
    /// These sequence numbers are missing: one message for each.
    Missing(Vec<u32>),
}

impl TransportReply {
    /// The packets that say it to the sender.
    pub(crate) fn packets(self) -> impl Iterator<Item = PacketBody> {
        let (ack, missing) = match self {
            Self::NoReply => (None, Vec::new()),
            Self::Ack(psn) => (Some(PacketBody::Ack { psn }), Vec::new()),
            Self::Missing(numbers) => (None, numbers),
        };
        ack.into_iter().chain(missing.into_iter().map(|psn| PacketBody::Nak { psn }))
    }
}

/// The receiving end of a connection: accepts segments in order, and keeps those that follow a gap
/// under selective repeat.
#[derive(Clone, Debug)]
pub struct TransportReceiver {
    ack_every: u32,
    recovery: LossRecovery,
    reordering: u64,
    /// What has arrived behind a gap: position, and whether it ends a message.
    early: BTreeMap<u64, bool>,
    /// One above the highest position that has arrived.
    highest: u64,
    /// Below it, what is missing has been named.
    examined: u64,
    expected: u64,
    unacknowledged: u32,
    /// One sequence error is reported once; the next in-order segment clears it.
    error_reported: bool,
}

impl TransportReceiver {
    /// A connection on which nothing has arrived.
    pub fn new(settings: TransportSettings) -> Self {
        Self {
            ack_every: settings.ack_every,
            recovery: settings.recovery,
            reordering: settings.reordering.into(),
            early: BTreeMap::new(),
            highest: 0,
            examined: 0,
            expected: 0,
            unacknowledged: 0,
            error_reported: false,
        }
    }

    /// A segment with this number arrived; `last` ends a message.
    pub fn receive_segment(&mut self, psn: u32, last: bool) -> TransportReply {
        let position = nearest_position(self.expected, psn);
        match position.cmp(&self.expected) {
            Ordering::Equal => self.accept_segment(last),
            // A duplicate: acknowledged again, because the first acknowledgement may be lost.
            Ordering::Less => TransportReply::Ack(sequence_number(self.expected - 1)),
            Ordering::Greater if self.recovery == LossRecovery::SelectiveRepeat => {
                self.keep_early(position, last)
            }
            Ordering::Greater if self.error_reported => TransportReply::NoReply,
            Ordering::Greater => {
                self.error_reported = true;
                TransportReply::Missing(vec![sequence_number(self.expected)])
            }
        }
    }

    /// Keeps what follows a gap; names what is missing and can no longer have been overtaken.
    fn keep_early(&mut self, position: u64, last: bool) -> TransportReply {
        self.highest = self.highest.max(position + 1);
        self.early.insert(position, last);
        let first = self.examined.max(self.expected);
        self.examined = first.max((self.highest - 1).saturating_sub(self.reordering));
        let missing = (first..self.examined).filter(|position| !self.early.contains_key(position));
        let missing: Vec<u32> = missing.map(sequence_number).collect();
        match missing.is_empty() {
            true => TransportReply::NoReply,
            false => TransportReply::Missing(missing),
        }
    }

    fn accept_segment(&mut self, last: bool) -> TransportReply {
        self.expected += 1;
        self.unacknowledged += 1;
        let mut ends_message = last;
        while let Some(last) = self.early.remove(&self.expected) {
            self.expected += 1;
            self.unacknowledged += 1;
            ends_message |= last;
        }
        self.error_reported = false;
        self.highest = self.highest.max(self.expected);
        if !ends_message && self.unacknowledged < self.ack_every {
            return TransportReply::NoReply;
        }
        self.unacknowledged = 0;
        TransportReply::Ack(sequence_number(self.expected - 1))
    }
}

/// Sequence number of a position.
fn sequence_number(position: u64) -> u32 {
    (position & u64::from(PSN_MASK)) as u32
}

/// The position nearest to `reference` whose sequence number is `psn`; never below zero.
fn nearest_position(reference: u64, psn: u32) -> u64 {
    let half = (PSN_MASK >> 1) + 1;
    let ahead = psn.wrapping_sub(sequence_number(reference)) & PSN_MASK;
    let behind = PSN_MASK + 1 - ahead;
    if ahead < half || reference < u64::from(behind) {
        reference + u64::from(ahead)
    } else {
        reference - u64::from(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: TransportSettings = TransportSettings {
        window: 8,
        ack_every: 3,
        timeout_ns: 1000,
        recovery: LossRecovery::GoBackN,
        reordering: 0,
        retries: None,
    };
    const SELECTIVE: TransportSettings =
        TransportSettings { recovery: LossRecovery::SelectiveRepeat, ..SETTINGS };
    const PATIENT: TransportSettings = TransportSettings { reordering: 3, ..SELECTIVE };

    /// What the network does with the n-th segment that is sent.
    type Fate = fn(usize) -> Delivery;

    enum Delivery {
        Deliver,
        Lose,
        Duplicate,
        /// Comes after the segment that is sent next.
        Late,
    }

    /// Sends messages of the given packet counts over a network of that kind; gives the packets
    /// sent again, and fails if a message is not delivered once and in order.
    fn run(settings: TransportSettings, messages: &[u64], fate: Fate) -> u64 {
        let (mut sender, mut receiver) =
            (TransportSender::new(settings), TransportReceiver::new(settings));
        let (mut now, mut sent) = (0, 0);
        for packets in messages {
            sender.begin_message(packets * u64::from(MTU), now);
            let mut rounds = 0;
            while !sender.is_done() {
                let mut arrivals = Vec::new();
                let mut late = None;
                while let Some(segment) = sender.next_segment() {
                    let overtaken = late.take();
                    match fate(sent) {
                        Delivery::Deliver => arrivals.push(segment),
                        Delivery::Lose => {}
                        Delivery::Duplicate => arrivals.extend([segment, segment]),
                        Delivery::Late => late = Some(segment),
                    }
                    arrivals.extend(overtaken);
                    sent += 1;
                }
                arrivals.extend(late);
                for segment in arrivals {
                    match receiver.receive_segment(segment.psn, segment.last) {
                        TransportReply::Ack(psn) => sender.handle_ack(psn, now),
                        TransportReply::Missing(numbers) => {
                            numbers.into_iter().for_each(|psn| sender.handle_nak(psn, now));
                        }
                        TransportReply::NoReply => {}
                    }
                }
                now += 500;
                sender.handle_timeout(now);
                rounds += 1;
                assert!(rounds < 10_000, "no progress");
            }
        }
        assert_eq!(receiver.expected, messages.iter().sum::<u64>());
        sender.retransmitted_packets()
    }

    #[test]
    fn messages_arrive_whatever_the_network_does() {
        for settings in [SETTINGS, SELECTIVE, PATIENT] {
            let retransmitted = |fate: Fate| run(settings, &[1, 8, 9, 100, 2], fate);
            assert_eq!(retransmitted(|n| pick(n, 20, Delivery::Duplicate)), 0);
            assert!(retransmitted(|n| pick(n, 20, Delivery::Lose)) > 0);
            let late = retransmitted(|n| pick(n, 20, Delivery::Late));
            assert_eq!(late == 0, settings.reordering > 0);
            assert!(retransmitted(|n| pick(n, 50, Delivery::Lose)) > 0);
        }
    }

    #[test]
    fn selective_repeat_sends_what_is_missing_and_go_back_n_what_follows_it() {
        // One loss in a window of eight.
        let one_lost: Fate = |n| if n == 2 { Delivery::Lose } else { Delivery::Deliver };
        assert_eq!(run(SELECTIVE, &[8], one_lost), 1);
        assert_eq!(run(SETTINGS, &[8], one_lost), 6);
    }

    #[test]
    fn what_is_overtaken_is_repeated_only_once_it_counts_as_lost() {
        let late: Fate = |n| pick(n, 20, Delivery::Late);
        assert_eq!(run(PATIENT, &[1, 8, 9, 100, 2], late), 0);
        assert!(run(SELECTIVE, &[1, 8, 9, 100, 2], late) > 0);
        let mut receiver = TransportReceiver::new(PATIENT);
        let mut reply = |psn| receiver.receive_segment(psn, false);
        assert_eq!([1, 2, 3].map(&mut reply), [const { TransportReply::NoReply }; 3]);
        assert_eq!(reply(4), TransportReply::Missing(vec![0]));
        assert_eq!([5, 7, 8, 9].map(&mut reply), [const { TransportReply::NoReply }; 4]);
        assert_eq!(reply(10), TransportReply::Missing(vec![6]));
    }

    #[test]
    fn a_connection_is_lost_after_its_retries() {
        let settings = TransportSettings { retries: Some(2), ..SETTINGS };
        let mut sender = TransportSender::new(settings);
        sender.begin_message(1, 0);
        for retry in 1..=2 {
            sender.next_segment();
            sender.handle_timeout(retry * 1000);
            assert_eq!((sender.is_lost(), sender.deadline()), (false, Some((retry + 1) * 1000)));
        }
        sender.handle_timeout(3000);
        assert_eq!((sender.is_lost(), sender.timeouts(), sender.deadline()), (true, 3, None));
        assert!(!sender.can_send());
    }

    /// `fate` in so many per cent of the cases, spread without a period.
    fn pick(n: usize, percent: u32, fate: Delivery) -> Delivery {
        let spread = (n as u32).wrapping_mul(2_654_435_769) >> 16;
        if spread % 100 < percent { fate } else { Delivery::Deliver }
    }

    #[test]
    fn the_window_bounds_what_is_outstanding() {
        let mut sender = TransportSender::new(SETTINGS);
        sender.begin_message(100 * u64::from(MTU), 0);
        assert_eq!(std::iter::from_fn(|| sender.next_segment()).count(), 8);
        sender.handle_ack(2, 10);
        assert_eq!(std::iter::from_fn(|| sender.next_segment()).count(), 3);
        assert_eq!(sender.deadline(), Some(1010));
    }

    #[test]
    fn timeouts_back_off_and_progress_resets_them() {
        let mut sender = TransportSender::new(SETTINGS);
        sender.begin_message(1, 0);
        assert_eq!(
            sender.next_segment().map(|s| (s.payload, s.first, s.last)),
            Some((1, true, true))
        );
        sender.handle_timeout(999);
        assert_eq!(sender.next_segment(), None);
        sender.handle_timeout(1000);
        assert_eq!(sender.deadline(), Some(3000));
        assert!(sender.next_segment().is_some());
        sender.handle_ack(0, 1500);
        assert_eq!((sender.is_done(), sender.deadline()), (true, None));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let around = u64::from(PSN_MASK) + 1;
        for (reference, psn, position) in [
            (0, 5, 5),
            (0, PSN_MASK, u64::from(PSN_MASK)),
            (around - 2, 1, around + 1),
            (around + 1, PSN_MASK, around - 1),
            (5 * around + 7, 7, 5 * around + 7),
        ] {
            assert_eq!(nearest_position(reference, psn), position, "{reference} {psn}");
        }
    }

    #[test]
    fn impossible_sequence_numbers_are_ignored() {
        let mut sender = TransportSender::new(SETTINGS);
        sender.begin_message(4 * u64::from(MTU), 0);
        sender.next_segment();
        for psn in [3, 4, 77, PSN_MASK] {
            sender.handle_ack(psn, 0);
            sender.handle_nak(psn, 0);
        }
        assert_eq!((sender.acknowledged, sender.next), (0, 1));
    }
}
