//! The flows that switches have reported and that are not silent.
//!
//! Sans-IO: reports and times are arguments. The decision: two bounds. A port keeps a limited
//! number of flows, so a host that invents flows loses its own; and all ports together do, where
//! the port with the most flows gives one up for a port with fewer. A port within its fair share
//! never loses a flow to another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use p4::codec::RoceTuple;
use planner::JobId;
use tokio::time::Instant;

use super::queue_pair_join::QueuePairCounts;
use crate::config::LearningConfig;
use crate::discovery::SwitchPort;

/// A flow that no job has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedFlow {
    /// The port by which it enters the fabric.
    pub at: SwitchPort,
    /// What it is.
    pub tuple: RoceTuple,
    /// When it was first reported.
    pub first_seen: Instant,
    /// When it was last reported or counted. A flow that goes on is reported once in an interval.
    pub last_seen: Instant,
    /// Bytes that its pin has counted; none where it has no pin.
    pub bytes: Option<u64>,
    /// Bytes that all flows of no job between its NICs were counted for; none where nothing counts
    /// them.
    pub pair_bytes: Option<u64>,
    /// The job of its processes, where its hosts report that.
    pub stated_job: Option<JobId>,
}

/// What became of reports, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearningCounts {
    /// Reports of flows.
    pub reports: u64,
    /// Reports of new flows for which their port had no room.
    pub refused: u64,
    /// Flows that made room for a flow of a port with fewer.
    pub evicted: u64,
    /// Flows that were forgotten because they were silent.
    pub expired: u64,
    /// Digests that do not decode.
    pub malformed: u64,
    /// Lists of digests that found the queue full.
    pub dropped_lists: u64,
    /// Reports of queue pairs for which there was no room.
    pub refused_hosts: u64,
}

/// All learned flows at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedFlows {
    /// By port, then by addresses.
    pub flows: Vec<LearnedFlow>,
    /// What became of reports.
    pub counts: LearningCounts,
    /// What became of the queue pairs that hosts report now.
    pub queue_pairs: QueuePairCounts,
}

/// What the pin of a connection has counted, or the row of a pair of NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedConnection {
    /// The port by which it enters the fabric.
    pub at: SwitchPort,
    /// The sender.
    pub src: IpAddr,
    /// The receiver.
    pub dst: IpAddr,
    /// The sender's UDP port; none for all flows of no job between these addresses.
    pub udp_src_port: Option<u16>,
    /// Bytes so far; none where nothing counts them.
    pub bytes: Option<u64>,
}

/// When a flow was reported.
#[derive(Clone, Copy, Debug)]
struct ReportTimes {
    first: Instant,
    last: Instant,
    bytes: Option<u64>,
    pair_bytes: Option<u64>,
}

/// Learned flows within bounds.
#[derive(Clone, Debug)]
pub struct LearnedFlowTable {
    limits: LearningConfig,
    ports: BTreeMap<SwitchPort, BTreeMap<RoceTuple, ReportTimes>>,
    /// The ports by the number of their flows.
    by_size: BTreeSet<(usize, SwitchPort)>,
    total: usize,
    counts: LearningCounts,
    /// Whether flows have come or gone since that was last asked.
    is_changed: bool,
}

impl LearnedFlowTable {
    /// A table with these bounds and without flows.
    pub fn new(limits: LearningConfig) -> Self {
        Self {
            limits,
            ports: BTreeMap::new(),
            by_size: BTreeSet::new(),
            total: 0,
            counts: LearningCounts::default(),
            is_changed: false,
        }
    }

    /// Takes in the report of a flow by its leaf.
    pub fn record_flow(&mut self, at: SwitchPort, tuple: RoceTuple, now: Instant) {
        self.counts.reports += 1;
        self.keep_flow(at, tuple, now);
    }

    /// Takes in a flow: a new one if there is room, or one more sign of life.
    pub fn keep_flow(&mut self, at: SwitchPort, tuple: RoceTuple, now: Instant) {
        if let Some(known) = self.ports.get_mut(&at).and_then(|flows| flows.get_mut(&tuple)) {
            known.last = now;
            return;
        }
        if !self.make_room(at) {
            self.counts.refused += 1;
            return;
        }
        let size = self.port_size(at);
        self.ports
            .entry(at)
            .or_default()
            .insert(tuple, ReportTimes { first: now, last: now, bytes: None, pair_bytes: None });
        self.resize_port(at, size);
        self.check_invariant();
    }

    /// Takes in what the pin of some flows has counted: it is no more reported, so it lives as long
    /// as it is counted. What the row of a pair counts is of no single flow, and keeps none alive.
    pub fn record_bytes(&mut self, counted: &CountedConnection, now: Instant) {
        let flows = self.ports.get_mut(&counted.at);
        let ends = (counted.src, counted.dst);
        for (tuple, times) in flows.into_iter().flatten() {
            match counted.udp_src_port {
                _ if (tuple.src, tuple.dst) != ends => (),
                None => times.pair_bytes = counted.bytes,
                Some(port) if port != tuple.udp_src_port => (),
                Some(_) if counted.bytes.is_none() || times.bytes != counted.bytes => {
                    (times.last, times.bytes) = (now, counted.bytes);
                }
                Some(_) => (),
            }
        }
    }

    /// Whether flows have come or gone since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Counts digests that do not decode.
    pub fn record_malformed(&mut self, digests: u64) {
        self.counts.malformed += digests;
    }

    /// Forgets the flows that have been silent for too long.
    pub fn expire_flows(&mut self, now: Instant) {
        let ports: Vec<SwitchPort> = self.ports.keys().copied().collect();
        for port in ports {
            let size = self.port_size(port);
            if let Some(flows) = self.ports.get_mut(&port) {
                let limit = self.limits.expire_after;
                flows.retain(|_, times| now.duration_since(times.last) < limit);
                self.counts.expired += (size - flows.len()) as u64;
            }
            self.resize_port(port, size);
        }
        self.check_invariant();
    }

    /// Forgets all flows, as their ports belong to another fabric.
    pub fn clear_flows(&mut self) {
        *self = Self { counts: self.counts, is_changed: true, ..Self::new(self.limits) };
    }

    /// All flows, and the counts with the lists that were dropped before they came here.
    pub fn all_flows(&self, dropped_lists: u64) -> LearnedFlows {
        let ports = self.ports.iter();
        let flows = ports.flat_map(|(at, flows)| {
            flows.iter().map(|(tuple, times)| LearnedFlow {
                at: *at,
                tuple: *tuple,
                first_seen: times.first,
                last_seen: times.last,
                bytes: times.bytes,
                pair_bytes: times.pair_bytes,
                stated_job: None,
            })
        });
        let counts = LearningCounts { dropped_lists, ..self.counts };
        LearnedFlows { flows: flows.collect(), counts, ..LearnedFlows::default() }
    }

    /// Whether a port may have another flow; the port with the most flows may lose one for it.
    fn make_room(&mut self, at: SwitchPort) -> bool {
        let size = self.port_size(at);
        if size >= self.limits.port_flows_max.get() {
            return false;
        }
        if self.total < self.limits.flows_max.get() {
            return true;
        }
        let fullest = self.by_size.last().copied().filter(|(most, _)| *most > size + 1);
        if let Some((most, port)) = fullest {
            self.evict_oldest(port);
            self.resize_port(port, most);
        }
        fullest.is_some()
    }

    /// Forgets the flow of a port that was reported the longest ago.
    fn evict_oldest(&mut self, port: SwitchPort) {
        let Some(flows) = self.ports.get_mut(&port) else {
            return;
        };
        let oldest = flows.iter().min_by_key(|(tuple, times)| (times.last, **tuple));
        if let Some(oldest) = oldest.map(|(tuple, _)| *tuple) {
            flows.remove(&oldest);
            self.counts.evicted += 1;
        }
    }

    fn port_size(&self, port: SwitchPort) -> usize {
        self.ports.get(&port).map_or(0, BTreeMap::len)
    }

    /// Brings the indexes up to date for a port that had `before` flows.
    fn resize_port(&mut self, port: SwitchPort, before: usize) {
        let size = self.port_size(port);
        self.by_size.remove(&(before, port));
        self.total = self.total + size - before;
        self.is_changed |= size != before;
        match size {
            0 => drop(self.ports.remove(&port)),
            size => drop(self.by_size.insert((size, port))),
        }
    }

    fn check_invariant(&self) {
        debug_assert_eq!(self.by_size.len(), self.ports.len());
        debug_assert_eq!(self.by_size.iter().map(|(size, _)| size).sum::<usize>(), self.total);
        debug_assert!(self.total <= self.limits.flows_max.get());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use proptest::prelude::*;
    use topology::SwitchId;

    use super::*;
    use crate::config::RawLearning;

    const SECOND: Duration = Duration::from_secs(1);

    fn port(number: u16) -> SwitchPort {
        SwitchPort { switch: SwitchId(u32::from(number) / 8), port: number % 8 }
    }

    fn tuple(number: u32) -> RoceTuple {
        RoceTuple {
            src: Ipv4Addr::new(10, 0, 0, 1).into(),
            dst: Ipv4Addr::from_bits(number).into(),
            udp_src_port: 49_152,
            dest_qp: number & 0x00ff_ffff,
        }
    }

    fn table(port_flows_max: usize, flows_max: usize) -> LearnedFlowTable {
        let raw = RawLearning { port_flows_max, flows_max, ..RawLearning::default() };
        LearnedFlowTable::new(LearningConfig::try_from(&raw).unwrap())
    }

    fn flows_at(table: &LearnedFlowTable, at: SwitchPort) -> usize {
        table.all_flows(0).flows.iter().filter(|flow| flow.at == at).count()
    }

    #[test]
    fn a_flow_is_kept_while_it_is_reported() {
        let (mut table, start) = (table(4, 8), Instant::now());
        table.record_flow(port(1), tuple(1), start);
        table.record_flow(port(1), tuple(2), start);
        table.record_flow(port(1), tuple(1), start + 30 * SECOND);
        table.expire_flows(start + 60 * SECOND);
        let LearnedFlows { flows, counts, .. } = table.all_flows(7);
        let expected = LearnedFlow {
            at: port(1),
            tuple: tuple(1),
            first_seen: start,
            last_seen: start + 30 * SECOND,
            bytes: None,
            pair_bytes: None,
            stated_job: None,
        };
        assert_eq!(flows, [expected]);
        let expected =
            LearningCounts { reports: 3, expired: 1, dropped_lists: 7, ..Default::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_host_that_invents_flows_fills_its_own_port() {
        let (mut table, now) = (table(1_024, 2_048), Instant::now());
        for victim in 1..=4 {
            table.record_flow(port(victim), tuple(7), now);
        }
        for number in 0..1_000_000 {
            table.record_flow(port(0), tuple(number), now);
        }
        assert_eq!(flows_at(&table, port(0)), 1_024);
        assert_eq!(table.all_flows(0).counts.refused, 1_000_000 - 1_024);
        table.record_flow(port(1), tuple(8), now);
        assert_eq!(flows_at(&table, port(1)), 2);
    }

    #[test]
    fn hosts_that_invent_flows_together_take_none_of_another() {
        let (mut table, now) = (table(1_024, 1_000), Instant::now());
        for number in 0..100_000 {
            table.record_flow(port((number % 3) as u16), tuple(number), now);
        }
        // 250 is the share of each of four ports.
        for number in 0..1_000 {
            table.record_flow(port(3), tuple(number), now + SECOND);
        }
        for at in 0..4 {
            assert!((249..=251).contains(&flows_at(&table, port(at))), "{at}");
        }
        assert_eq!(table.all_flows(0).flows.len(), 1_000);
    }

    #[test]
    fn another_fabric_begins_empty() {
        let (mut table, now) = (table(4, 8), Instant::now());
        table.record_flow(port(1), tuple(1), now);
        table.clear_flows();
        let LearnedFlows { flows, counts, .. } = table.all_flows(0);
        assert_eq!((flows.len(), counts.reports), (0, 1));
    }

    proptest! {
        /// Whatever is reported and expires: the bounds hold, and a port within its share keeps
        /// what it has.
        #[test]
        fn bounds_hold_and_shares_are_kept(
            steps in proptest::collection::vec((0..6_u16, 0..40_u32, 0..20_u64), 1..300),
        ) {
            let (mut table, mut now) = (table(16, 30), Instant::now());
            for (at, number, wait) in steps {
                let before: Vec<usize> = (0..6).map(|at| flows_at(&table, port(at))).collect();
                table.record_flow(port(at), tuple(number), now);
                for (at, before) in (0..6).zip(before) {
                    let after = flows_at(&table, port(at));
                    prop_assert!(after <= 16 && (after >= before || before > 30 / 6));
                }
                if wait == 0 {
                    now += 30 * SECOND;
                    table.expire_flows(now);
                    let flows = table.all_flows(0).flows;
                    prop_assert!(flows.iter().all(|flow| now - flow.last_seen < 60 * SECOND));
                }
            }
        }
    }
}
