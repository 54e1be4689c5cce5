//! What a process sends, by communicator and peer, from events in the order of the queue.
//!
//! Pure: the reporter's thread feeds events and takes messages. Everything is bounded:
//! communicators, operations that are remembered, peers of a communicator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::event::{CommunicatorInfo, NcclEvent};
use crate::iteration::{MeasuredOperation, NcclIteration, find_iteration};
use crate::message::PeerMessage;
use crate::message::{CommunicatorMessage, IterationMessage, JobEnvironment, OperationMessage};
use crate::operation::NcclFunction;

/// Communicators that are analysed at the same time; further ones are counted as dropped.
const MAX_COMMUNICATORS: usize = 256;
/// Operations of a communicator that are remembered.
const MAX_HISTORY: usize = 4_096;
/// Peers of a communicator that are listed; bytes to others are added to the last one.
const MAX_PEERS: usize = 4_096;
/// Iterations for which operations may pause and still count as repeating. A burst that a longer
/// pause follows is the begin of a slower iteration, or the end of all.
const LONGEST_PAUSE: f64 = 2.0;

/// Traffic of all communicators of a process.
#[derive(Debug, Default)]
pub struct TrafficAnalysis {
    communicators: BTreeMap<u32, CommunicatorTraffic>,
    /// Events of communicators that are not analysed.
    unassigned: u64,
}

#[derive(Debug)]
struct CommunicatorTraffic {
    info: CommunicatorInfo,
    history: VecDeque<MeasuredOperation>,
    /// Since the last message.
    peers: BTreeMap<u32, u64>,
    /// Of these, for other processes of this host.
    foreign_bytes: u64,
    functions: BTreeMap<NcclFunction, OperationTotals>,
    busy_ns: u64,
    /// Until when busy time is counted.
    busy_until_ns: u64,
    reported_at_ns: u64,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct OperationTotals {
    calls: u64,
    bytes: u64,
}

impl TrafficAnalysis {
    /// Adds a communicator; false if there are too many.
    pub fn open_communicator(&mut self, info: CommunicatorInfo, now_ns: u64) -> bool {
        if self.communicators.len() >= MAX_COMMUNICATORS {
            return false;
        }
        let traffic = CommunicatorTraffic {
            history: VecDeque::new(),
            peers: BTreeMap::new(),
            foreign_bytes: 0,
            functions: BTreeMap::new(),
            busy_ns: 0,
            busy_until_ns: now_ns,
            reported_at_ns: now_ns,
            is_closed: false,
            info,
        };
        self.communicators.insert(traffic.info.number, traffic);
        true
    }

    /// Marks a communicator as closed: its next message is the last.
    pub fn close_communicator(&mut self, number: u32) {
        if let Some(traffic) = self.communicators.get_mut(&number) {
            traffic.is_closed = true;
        }
    }

    /// Adds an event to the traffic of its communicator.
    pub fn apply_event(&mut self, event: &NcclEvent) {
        let known = match event {
            NcclEvent::Operation { communicator, .. }
            | NcclEvent::Transfer { communicator: Some(communicator), .. } => {
                self.communicators.get_mut(communicator)
            }
            NcclEvent::Transfer { communicator: None, .. } => self.widest_communicator(),
        };
        match known {
            Some(traffic) => traffic.apply_event(event),
            None => self.unassigned += 1,
        }
    }

    /// The communicator whose ranks name the receivers of what is sent for other processes (PXN): NCCL
    /// does not say which one it is, and they share the one of all ranks.
    fn widest_communicator(&mut self) -> Option<&mut CommunicatorTraffic> {
        let several = self.communicators.values_mut().filter(|traffic| traffic.info.hosts > 1);
        several.max_by_key(|traffic| (traffic.info.ranks, Reverse(traffic.info.number)))
    }

    /// A message for each communicator about the time since its last one.
    pub fn take_messages(
        &mut self,
        now_ns: u64,
        dropped: u64,
        job: &JobEnvironment,
    ) -> Vec<CommunicatorMessage> {
        let dropped = dropped + self.unassigned;
        let messages: Vec<CommunicatorMessage> = self
            .communicators
            .values_mut()
            .map(|traffic| traffic.take_message(now_ns, job))
            .map(|message| CommunicatorMessage { dropped_events: dropped, ..message })
            .collect();
        self.communicators.retain(|_, traffic| !traffic.is_closed);
        messages
    }
}

impl CommunicatorTraffic {
    fn apply_event(&mut self, event: &NcclEvent) {
        match *event {
            NcclEvent::Operation { number, function, datatype, count, peer, at_ns, .. } => {
                let mut hasher = DefaultHasher::new();
                (function, datatype, count, peer).hash(&mut hasher);
                let signature = hasher.finish();
                if self.history.len() == MAX_HISTORY {
                    self.history.pop_front();
                }
                self.history.push_back(MeasuredOperation { number, signature, at_ns, bytes: 0 });
                let totals = self.functions.entry(function).or_default();
                totals.calls += 1;
                totals.bytes += count.saturating_mul(datatype.bytes.into());
            }
            NcclEvent::Transfer { communicator, operation, peer, bytes, began_ns, ended_ns } => {
                if communicator.is_none() {
                    self.foreign_bytes += bytes;
                }
                self.add_operation_bytes(operation, bytes);
                self.add_peer_bytes(peer, bytes);
                self.busy_ns += ended_ns.saturating_sub(began_ns.max(self.busy_until_ns));
                self.busy_until_ns = self.busy_until_ns.max(ended_ns);
            }
        }
    }

    fn add_operation_bytes(&mut self, operation: Option<u32>, bytes: u64) {
        let Some(number) = operation else { return };
        // Two threads may number and queue operations in different orders, so it may be a few
        // places off; numbers far from each other are in order.
        let from = self.history.partition_point(|known| known.number.wrapping_add(8) < number);
        let found = self.history.range_mut(from..).take(24).find(|known| known.number == number);
        if let Some(known) = found {
            known.bytes += bytes;
        }
    }

    fn add_peer_bytes(&mut self, peer: u32, bytes: u64) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer) {
            *self.peers.entry(peer).or_default() += bytes;
        } else if let Some(mut last) = self.peers.last_entry() {
            *last.get_mut() += bytes;
        }
    }

    /// The iteration, if operations still repeat.
    fn find_current_iteration(&mut self, now_ns: u64) -> Option<NcclIteration> {
        let latest_ns = self.history.back()?.at_ns;
        let pause = now_ns.saturating_sub(latest_ns) as f64 / 1e9;
        let found = find_iteration(self.history.make_contiguous())?;
        (pause <= LONGEST_PAUSE * found.seconds).then_some(found)
    }

    fn take_message(&mut self, now_ns: u64, job: &JobEnvironment) -> CommunicatorMessage {
        let window_ns = now_ns.saturating_sub(self.reported_at_ns).max(1);
        self.reported_at_ns = now_ns;
        let busy_share = std::mem::take(&mut self.busy_ns) as f64 / window_ns as f64;
        let busy_share = busy_share.min(1.0);
        let iteration = self.find_current_iteration(now_ns);
        CommunicatorMessage {
            id: format!("{:016x}", self.info.id),
            name: self.info.name.clone(),
            rank: self.info.rank,
            ranks: self.info.ranks,
            host_count: self.info.hosts,
            process: std::process::id(),
            job: job.clone(),
            window_seconds: window_ns as f64 / 1e9,
            busy_share,
            iteration: iteration.map(|found| IterationMessage {
                seconds: found.seconds,
                bytes: found.bytes,
                operations: found.operations,
                averaged: found.averaged,
                communication_seconds: busy_share * found.seconds,
            }),
            peers: std::mem::take(&mut self.peers)
                .into_iter()
                .map(|(rank, bytes)| PeerMessage { rank, bytes })
                .collect(),
            operations: std::mem::take(&mut self.functions)
                .into_iter()
                .map(|(function, totals)| OperationMessage {
                    function,
                    calls: totals.calls,
                    bytes: totals.bytes,
                })
                .collect(),
            dropped_events: 0,
            foreign_bytes: std::mem::take(&mut self.foreign_bytes),
            is_last: self.is_closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::DataType;

    const MILLISECOND: u64 = 1_000_000;

    /// The iteration that is reported at `now_ms` of equal operations at these times.
    fn reported_seconds(operations_ms: &[u64], now_ms: u64) -> Option<f64> {
        let mut analysis = TrafficAnalysis::default();
        let info =
            CommunicatorInfo { number: 0, id: 1, name: String::new(), hosts: 2, ranks: 2, rank: 0 };
        assert!(analysis.open_communicator(info, 0));
        for (number, at_ms) in operations_ms.iter().enumerate() {
            analysis.apply_event(&NcclEvent::Operation {
                communicator: 0,
                number: number as u32,
                function: NcclFunction::AllReduce,
                datatype: DataType { bytes: 4 },
                count: 1_000,
                peer: 0,
                at_ns: at_ms * MILLISECOND,
            });
        }
        let messages = analysis.take_messages(now_ms * MILLISECOND, 0, &JobEnvironment::default());
        messages[0].iteration.map(|iteration| iteration.seconds)
    }

    #[test]
    fn what_is_sent_for_others_counts_by_its_receivers() {
        let mut analysis = TrafficAnalysis::default();
        let info = |number, hosts, ranks| CommunicatorInfo {
            number,
            id: 1 + u64::from(number),
            name: String::new(),
            hosts,
            ranks,
            rank: 0,
        };
        for of in [info(0, 1, 64), info(1, 2, 16), info(2, 8, 64), info(3, 8, 64)] {
            assert!(analysis.open_communicator(of, 0));
        }
        for peer in [8, 8, 16] {
            analysis.apply_event(&NcclEvent::Transfer {
                communicator: None,
                operation: None,
                peer,
                bytes: 1_000,
                began_ns: 0,
                ended_ns: MILLISECOND,
            });
        }
        let messages = analysis.take_messages(MILLISECOND, 0, &JobEnvironment::default());
        let foreign: Vec<u64> = messages.iter().map(|message| message.foreign_bytes).collect();
        assert_eq!(foreign, [0, 0, 3_000, 0]);
        let peers: Vec<_> = messages[2].peers.iter().map(|peer| (peer.rank, peer.bytes)).collect();
        assert_eq!(peers, [(8, 2_000), (16, 1_000)]);
    }

    /// As seen: four equal operations at once, then a second of computation. They were taken for
    /// iterations of a millisecond, and the agent reported 326 of them in a second.
    #[test]
    fn a_burst_before_a_pause_is_no_iteration() {
        let burst: Vec<u64> = (100..106).collect();
        assert_eq!(reported_seconds(&burst, 107), Some(0.001));
        assert_eq!(reported_seconds(&burst, 600), None);
        let regular: Vec<u64> = (0..20).map(|number| number * 100).collect();
        assert_eq!(reported_seconds(&regular, 1_999), Some(0.1));
        assert_eq!(reported_seconds(&[], 600), None);
    }
}
