//! `job_pair` and `job_classify`: the job of packets that no pin matches: of flows without a known
//! port, of flows left to ECMP or that stay on their leaf, of a host that sends from other ports than
//! its job stated, and of flows that no job announced.
//!
//! A level belongs to a pair of NICs between which a job has flows: what a NIC sends elsewhere has
//! none. So there is a row for each such pair, and one for each flow only where jobs share the pair.
//! Where several jobs share a pair, nothing distinguishes packets of ports that none of
//! them stated: all have the highest level of the jobs that state none, or of all where each states
//! its own, so that no job is below its level. An adoption rule
//! has a row for each pair of NICs that it names, for packets that have no job by their pair; where
//! it could match a flow with a port as well, rows with ports come first.
//!
//! What is left of `job_pair` counts traffic of no job, by pairs of NICs: such a row changes no
//! packet.

pub(crate) mod adoption_rules;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use p4::ForwardingPipeline;
use p4::entry::{EntryKey, TableEntry, TableId};
use p4::fabric::{self, IpVersion, JobMatch, PortNumber};
use planner::{Plan, PlannedFlow};
use topology::{Fabric, NicId};

use super::switch_context::SwitchContext;

/// UDP destination port of RoCEv2.
const ROCE: u16 = 4791;

/// Rows of flows have a higher priority than those of rules, the first of which is on top.
const OF_FLOW: NonZeroU16 = adoption_rules::FIRST.saturating_add(1);

/// A flow of a job, where it enters the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pipelines::fabric) struct SentFlow {
    /// Index of its job in the plan.
    position: usize,
    /// The number of its job in tables.
    pub(in crate::pipelines::fabric) job: NonZeroU32,
    level: u8,
    rank: u32,
    /// The NIC that receives it.
    to: NicId,
    udp_src_port: Option<u16>,
    /// Whether it has a pin that names its job.
    has_pin: bool,
}

impl SentFlow {
    /// Whether rows follow alike from both, in the same order of jobs.
    fn asks_for_same(&self, other: &Self) -> bool {
        let Self { position, rank, .. } = *self;
        *self == Self { position, rank, ..*other }
    }
}

/// Whether the rows of a leaf with these NICs are the same for both: they depend on which of two
/// jobs has the higher rank, and on neither's number among all jobs.
pub(super) fn is_same_at(sent: [&BTreeMap<NicId, Vec<SentFlow>>; 2], nics: &[NicId]) -> bool {
    let is_same_from = |nic: &NicId| {
        let [now, before] = sent.map(|sent| sent.get(nic).map_or(&[][..], Vec::as_slice));
        now.len() == before.len()
            && now.iter().zip(before).all(|(now, before)| now.asks_for_same(before))
    };
    let [now, before] = sent;
    nics.iter().all(is_same_from) && jobs_by_rank(now, nics) == jobs_by_rank(before, nics)
}

/// The jobs that send from these NICs, the first first.
fn jobs_by_rank(sent: &BTreeMap<NicId, Vec<SentFlow>>, nics: &[NicId]) -> Vec<NonZeroU32> {
    let flows = nics.iter().filter_map(|nic| sent.get(nic)).flatten();
    let ranks: BTreeSet<(u32, NonZeroU32)> = flows.map(|flow| (flow.rank, flow.job)).collect();
    ranks.into_iter().map(|(_, job)| job).collect()
}

/// A row, and whose packets it matches.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::pipelines::fabric) struct ClassRow {
    /// Index of the job in the plan; none where several jobs share the row.
    pub(in crate::pipelines::fabric) owner: Option<usize>,
    /// The NIC that receives its flows.
    pub(in crate::pipelines::fabric) to: NicId,
    /// Whether it counts flows that have no pin.
    pub(in crate::pipelines::fabric) is_for_pair: bool,
    /// Whether pins cover all flows that the plan has for it. Then it serves only hosts that send
    /// from other ports, and is left out before any other.
    is_spare: bool,
    /// The rank of its job: rows of later jobs are the first to be left out.
    rank: u32,
    /// The row, not signed.
    pub(in crate::pipelines::fabric) entry: TableEntry,
}

impl ClassRow {
    /// A row of the job of a flow.
    fn new(flow: &SentFlow, entry: TableEntry) -> Self {
        let SentFlow { position, to, rank, .. } = *flow;
        Self { owner: Some(position), to, is_for_pair: false, is_spare: false, rank, entry }
    }
}

/// The flows that jobs send from each NIC, in the order of the plan. A host may send what it sends
/// from one port of a NIC from the other as well, before a plan follows it there.
pub(in crate::pipelines::fabric) fn sent_flows(
    fabric: &Fabric,
    plan: &Plan,
) -> BTreeMap<NicId, Vec<SentFlow>> {
    let mut sent: BTreeMap<NicId, Vec<SentFlow>> = BTreeMap::new();
    let tuple = |flow: &PlannedFlow, src: NicId| {
        (flow.job, src, fabric.first_port(flow.dst), flow.udp_src_port)
    };
    let of_bonds = plan.flows.iter().filter(|flow| fabric.nic(flow.src).bond.is_some());
    let mut planned_from: BTreeSet<_> = of_bonds.map(|flow| tuple(flow, flow.src)).collect();
    for flow in &plan.flows {
        let planned = plan.jobs.get(flow.job);
        // The planner gives no job the number 0.
        let Some((planned, job)) = planned.zip(planned.and_then(|p| NonZeroU32::new(p.number)))
        else {
            continue;
        };
        let from_port = SentFlow {
            position: flow.job,
            job,
            level: planned.level,
            rank: planned.rank,
            to: fabric.first_port(flow.dst),
            udp_src_port: flow.udp_src_port,
            has_pin: flow.pinned && flow.udp_src_port.is_some(),
        };
        sent.entry(flow.src).or_default().push(from_port);
        let other = fabric.nic(flow.src).bond;
        if let Some(other) = other.filter(|other| planned_from.insert(tuple(flow, *other))) {
            sent.entry(other).or_default().push(SentFlow { has_pin: false, ..from_port });
        }
    }
    sent
}

pub(super) fn build_entries(site: &SwitchContext<'_>) -> Vec<TableEntry> {
    let (fabric, plan) = (site.shared.fabric, site.shared.plan);
    let announced = class_rows(fabric, plan, &site.shared.index.sent, site.nics());
    let adopted = adoption_rules::adoption_rows(fabric, plan, site.nics());
    let announced = announced.into_iter().map(|row| row.entry);
    announced.chain(adopted.into_iter().map(|row| row.entry)).collect()
}

/// The rows of jobs at the leaf that has these NICs. Rules keep the rows that they need; of what
/// is left, jobs of higher rank come first.
pub(in crate::pipelines::fabric) fn class_rows(
    fabric: &Fabric,
    plan: &Plan,
    sent: &BTreeMap<NicId, Vec<SentFlow>>,
    nics: &[NicId],
) -> Vec<ClassRow> {
    // Two ports at one leaf have the same rows, but where the port stands for the address.
    let has_rows = |port: NicId| {
        let is_second = fabric.first_port(port) != port;
        let is_alone = !is_second || fabric.leaves_of(port).only_leaf().is_none();
        is_alone || fabric.nic(port).ip.is_ipv6()
    };
    let nics: &[NicId] = &nics.iter().copied().filter(|port| has_rows(*port)).collect::<Vec<_>>();
    let of_nics = nics.iter().filter_map(|nic| Some((*nic, sent.get(nic)?)));
    let mut rows: Vec<ClassRow> = of_nics
        .flat_map(|(nic, flows)| NicClasses { fabric, plan, nic, flows }.build_rows())
        .collect();
    rows.sort_by_key(|row| (row.is_spare, row.rank));
    let mut room = TableRoom::default();
    for row in adoption_rules::adoption_rows(fabric, plan, nics) {
        room.takes(row.entry.key.table);
    }
    rows.retain(|row| room.takes(row.entry.key.table));
    let known: BTreeSet<&EntryKey> = rows.iter().map(|row| &*row.entry.key).collect();
    let counting = counting_rows(fabric, plan, nics)
        .filter(|row| !known.contains(&*row.entry.key) && room.takes(row.entry.key.table));
    let counting: Vec<ClassRow> = counting.collect();
    rows.extend(counting);
    rows
}

/// The rows that tables have room for yet, by table.
#[derive(Default)]
struct TableRoom(BTreeMap<TableId, u64>);

impl TableRoom {
    /// Takes the room of a row, if there is any.
    fn takes(&mut self, table: TableId) -> bool {
        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        let size = || p4info.table(table).map_or(0, |table| table.size);
        let left = self.0.entry(table).or_insert_with(size);
        let fits = *left > 0;
        *left = left.saturating_sub(1);
        fits
    }
}

/// The rows that count flows of no job from these NICs. Rules adopt and count what they match by
/// rows of their own.
fn counting_rows<'a>(
    fabric: &'a Fabric,
    plan: &'a Plan,
    nics: &'a [NicId],
) -> impl Iterator<Item = ClassRow> + 'a {
    let pairs = plan.counted_pairs.iter().filter(|(nic, to)| {
        let is_adopted =
            plan.rules.iter().any(|rule| adoption_rules::takes_between(fabric, rule, *nic, *to));
        nics.contains(nic) && !is_adopted
    });
    pairs.filter_map(|&(nic, to)| {
        let entry = pair_row(fabric, (nic, to), None)?;
        let (owner, rank) = (None, u32::MAX);
        Some(ClassRow { owner, to, is_for_pair: false, is_spare: true, rank, entry })
    })
}

/// The row of a pair of NICs, at the leaf where its packets enter: of a job, or one that counts.
pub(in crate::pipelines::fabric) fn pair_key(
    fabric: &Fabric,
    pair: (NicId, NicId),
) -> Option<EntryKey> {
    Some(Arc::unwrap_or_clone(pair_row(fabric, pair, None)?.key))
}

/// The row of all RoCEv2 packets from a NIC to another.
fn pair_row(
    fabric: &Fabric,
    (nic, to): (NicId, NicId),
    job: Option<NonZeroU32>,
) -> Option<TableEntry> {
    let port = PortNumber::new(fabric.link(fabric.nic(nic).uplink.reverse()).from.port).ok()?;
    fabric::job_pair(port, [nic, to].map(|nic| fabric.nic(nic).ip), job)
}

/// The RoCEv2 packets from a port of a NIC to another NIC.
fn port_match(fabric: &Fabric, nic: NicId, to: NicId, sport: u16) -> JobMatch {
    let [src, dst] = [nic, to].map(|nic| fabric.nic(nic).ip);
    JobMatch {
        version: IpVersion::of(src),
        src: Some(src.into()),
        dst: Some(dst.into()),
        sport: Some(sport),
        dport: Some(ROCE),
        ..JobMatch::default()
    }
}

/// The flows that jobs send from one NIC.
struct NicClasses<'a> {
    fabric: &'a Fabric,
    plan: &'a Plan,
    nic: NicId,
    flows: &'a [SentFlow],
}

impl NicClasses<'_> {
    fn build_rows(&self) -> Vec<ClassRow> {
        let mut pairs: BTreeMap<NicId, Vec<SentFlow>> = BTreeMap::new();
        for flow in self.flows {
            pairs.entry(flow.to).or_default().push(*flow);
        }
        let rows = pairs.iter().flat_map(|(to, flows)| self.rows_of_pair(*to, flows));
        rows.collect()
    }

    /// The rows for one receiver: one for the packets of all ports that no flow states, and where
    /// several jobs have flows, one for each port.
    fn rows_of_pair(&self, to: NicId, flows: &[SentFlow]) -> Vec<ClassRow> {
        // A row without ports would also match what a rule adopts.
        let is_adopted = self
            .plan
            .rules
            .iter()
            .any(|rule| adoption_rules::takes_between(self.fabric, rule, self.nic, to));
        let open: Vec<SentFlow> =
            flows.iter().filter(|flow| flow.udp_src_port.is_none()).copied().collect();
        let unnamed = if open.is_empty() { flows } else { &open };
        let highest = unnamed.iter().max_by_key(|flow| (flow.level, Reverse(flow.rank)));
        let shared = highest.filter(|_| !is_adopted || !open.is_empty()).and_then(|highest| {
            let row = self.shared_row(highest, flows)?;
            Some(ClassRow { owner: row.owner.filter(|_| only_job(unnamed).is_some()), ..row })
        });
        let mut rows = match &shared {
            Some(_) if only_job(flows).is_some() => Vec::new(),
            _ => self.rows_of_flows(flows),
        };
        rows.extend(shared);
        rows
    }

    /// The row of a pair, with the level of `highest`, for the packets of `flows`.
    fn shared_row(&self, highest: &SentFlow, flows: &[SentFlow]) -> Option<ClassRow> {
        let entry = pair_row(self.fabric, (self.nic, highest.to), Some(highest.job))?;
        Some(ClassRow {
            is_for_pair: flows.iter().any(|flow| !flow.has_pin),
            is_spare: flows.iter().all(|flow| flow.has_pin),
            ..ClassRow::new(highest, entry)
        })
    }

    /// A row for each flow between two NICs that has a port and no pin.
    fn rows_of_flows(&self, flows: &[SentFlow]) -> Vec<ClassRow> {
        let uncovered = flows.iter().filter(|flow| !flow.has_pin);
        let rows = uncovered.filter_map(|flow| {
            let matches = port_match(self.fabric, self.nic, flow.to, flow.udp_src_port?);
            let entry = fabric::job_classify(&matches, OF_FLOW, flow.job)?;
            Some(ClassRow::new(flow, entry))
        });
        rows.collect()
    }
}

/// A flow of the job that has all these flows, if they have the same.
fn only_job(flows: &[SentFlow]) -> Option<SentFlow> {
    let first = flows.first()?;
    flows.iter().all(|flow| flow.job == first.job).then_some(*first)
}
