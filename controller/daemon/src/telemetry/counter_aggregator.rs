//! Load of links by level, and period and volume of jobs, measured with the switches' counters.
//!
//! Pure: counts, the plan in force and time (seconds of a clock that never goes back) come in,
//! [`MeasuredTraffic`] comes out; `counter_reader` is the task around it. A pin counts the bytes
//! of its flow at the leaf where that enters, an adoption entry those of the flows that it adopts,
//! and a port counts by level what leaves it. The decision: bytes are added up as differences, so a
//! pin that is written again, or a switch that restarts, loses only what it counted since the last
//! reading.

use std::collections::{BTreeMap, BTreeSet};

use p4::codec::{CounterCell, CounterValue};
use p4::entry::EntryKey;
use period::{ByteSeries, IterationPeriod};
use planner::{JobId, Plan, PlannedFlow, PlannedJob};
use topology::{Fabric, FabricNode, Finding, LinkId, SwitchId};

use super::pin_hits::{MISS_SECONDS, PinHits};
use super::refused_packets::{RefusalCounter, RefusedPackets};
use crate::config::CountersConfig;
use crate::pipeline::PortLevelCell;
use crate::pipelines;
use crate::southbound::CounterReading;
use crate::state::{LinkUse, PlanRollout};

/// Seconds over which rates are means, and up to twice that.
const RATE_SPAN: f64 = 2.0;
/// Seconds of a job in which its period is searched.
const SERIES_SECONDS: f64 = 60.0;
/// Jobs whose period is looked for, the first of the plan's order; of the others there are rates.
const MAX_SERIES: usize = 256;
/// Unattributed traffic below this share of a link's capacity is not reported.
const UNATTRIBUTED_MIN: f64 = 0.05;
/// Bytes; smaller packets are acknowledgements, which have no pin.
const SMALL_PACKET: u64 = 128;
/// Periods that are less clear than this are not compared with reported iterations.
const SIMILARITY_MIN: f64 = 0.6;

/// What is to be read of a switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterSelection {
    /// Pins, and rows of rules.
    pub pins: Vec<EntryKey>,
    /// Cells.
    pub cells: Vec<CounterCell>,
}

/// What is measured at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredTraffic {
    /// Share of its capacity that a link carries, by class; means over some seconds.
    pub links: BTreeMap<(LinkId, u8), f64>,
    /// What the jobs send.
    pub jobs: BTreeMap<JobId, MeasuredJob>,
    /// What reaches hosts and belongs to no job.
    pub unattributed: Vec<UnattributedTraffic>,
    /// What leaves have refused of hosts.
    pub refused: Vec<RefusedPackets>,
    /// Which pins match what jobs send.
    pub pin_hits: PinHits,
}

/// What a job sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredJob {
    /// All its flows that are pinned or adopted together, bytes/s; a mean over some seconds.
    pub bytes_per_second: f64,
    /// What repeats in it.
    pub period: Option<IterationPeriod>,
}

/// Traffic of no job.
#[derive(Clone, Debug, PartialEq)]
pub struct UnattributedTraffic {
    /// The host that it reaches.
    pub host: String,
    /// The class that it travels in.
    pub level: u8,
    /// How much.
    pub bytes_per_second: f64,
}

/// What a job reports about one of its iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedIteration {
    /// The duration of an iteration, if it was reported.
    pub seconds: Option<f64>,
    /// What all its flows send in one.
    pub bytes: f64,
}

/// Everything counted so far, as far as it matters.
#[derive(Debug)]
pub struct CounterAggregator {
    limits: CountersConfig,
    fabric: Option<Fabric>,
    pins: BTreeMap<SwitchId, BTreeMap<EntryKey, PinCounter>>,
    cells: BTreeMap<SwitchId, BTreeMap<CounterCell, PortLevelCounter>>,
    refusals: BTreeMap<SwitchId, BTreeMap<CounterCell, RefusalCounter>>,
    jobs: BTreeMap<JobId, JobCounter>,
    /// Links to hosts that flows without a pin arrive by.
    unpinned: BTreeSet<LinkId>,
    /// Links whose load is wanted.
    wanted: BTreeSet<LinkId>,
    /// When anything was last read.
    read_at: f64,
}

#[derive(Clone, Debug)]
struct PinCounter {
    job: JobId,
    /// The link by which its flow arrives; none where that is not known.
    arrival_link: Option<LinkId>,
    level: u8,
    meter: ByteCounter,
    /// The flow, if the entry is its pin.
    flow: Option<String>,
    /// When it was first read.
    read_since: Option<f64>,
}

impl PinCounter {
    /// One that has counted nothing.
    fn from_job(job: &PlannedJob, arrives: Option<LinkId>) -> Self {
        Self {
            job: job.id.clone(),
            arrival_link: arrives,
            level: job.level,
            meter: ByteCounter::default(),
            flow: None,
            read_since: None,
        }
    }
}

#[derive(Clone, Debug)]
struct PortLevelCounter {
    link: LinkId,
    level: u8,
    meter: ByteCounter,
}

#[derive(Debug)]
struct JobCounter {
    sent: u64,
    rate: MeanRate,
    series: Option<ByteSeries>,
    /// When the series was last read.
    read_at: f64,
}

impl JobCounter {
    fn new(interval: f64, has_series: bool) -> Self {
        let capacity = (SERIES_SECONDS / interval).ceil() as usize;
        Self {
            sent: 0,
            rate: MeanRate::default(),
            series: has_series.then(|| ByteSeries::new(interval, capacity)),
            read_at: f64::NEG_INFINITY,
        }
    }

    fn measured(&self) -> MeasuredJob {
        MeasuredJob {
            bytes_per_second: self.rate.per_second(),
            period: self.series.as_ref().and_then(ByteSeries::period),
        }
    }

    /// Takes in what some of its pins have counted since they were read before. Its leaves are read
    /// one after the other, in any order: those of one turn are one reading of the series.
    fn add_reading(&mut self, at: f64, bytes: u64, interval: f64) {
        // A switch may return any number; differences of sums that wrap are right once it stops.
        self.sent = self.sent.wrapping_add(bytes);
        if at - self.read_at < 0.5 * interval {
            return;
        }
        self.read_at = at;
        self.rate.record_sum(at, self.sent);
        if let Some(series) = &mut self.series {
            series.record_counter(at, self.sent);
        }
    }
}

/// A counter, and how fast it counts.
#[derive(Clone, Copy, Debug, Default)]
struct ByteCounter {
    last: Option<CounterValue>,
    sum: CounterValue,
    rate: MeanRate,
    /// Mean bytes of the packets in the latest span that had any.
    packet_bytes: u64,
}

impl ByteCounter {
    /// Takes a reading; the bytes since the last one.
    fn record_count(&mut self, at: f64, count: CounterValue) -> u64 {
        let last = self.last.replace(count).unwrap_or(count);
        let packets = counter_increase(last.packets, count.packets);
        let bytes = counter_increase(last.bytes, count.bytes);
        self.sum.bytes = self.sum.bytes.wrapping_add(bytes);
        self.packet_bytes = bytes.checked_div(packets).unwrap_or(self.packet_bytes);
        self.rate.record_sum(at, self.sum.bytes);
        bytes
    }
}

/// What a counter has counted since `before`. A smaller value means that the switch started anew or
/// the entry was written again, so all of it is new.
pub(super) fn counter_increase(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// A mean over the last one to two spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanRate {
    older: Option<(f64, u64)>,
    newer: Option<(f64, u64)>,
    last: Option<(f64, u64)>,
}

impl MeanRate {
    pub(super) fn record_sum(&mut self, at: f64, sum: u64) {
        let reading = (at, sum);
        if self.newer.is_none_or(|(since, _)| at - since >= RATE_SPAN) {
            self.older = self.newer.or(Some(reading));
            self.newer = Some(reading);
        }
        self.last = Some(reading);
    }

    /// Whether it is a mean over a span.
    fn is_known(&self) -> bool {
        self.older.zip(self.last).is_some_and(|((from, _), (to, _))| to - from >= RATE_SPAN)
    }

    /// Per second.
    pub(super) fn per_second(&self) -> f64 {
        match (self.older, self.last) {
            (Some((from, before)), Some((to, now))) if to > from => {
                now.wrapping_sub(before) as f64 / (to - from)
            }
            _ => 0.0,
        }
    }
}

impl CounterAggregator {
    /// An aggregator without counters, until it follows a plan.
    pub fn new(limits: CountersConfig) -> Self {
        Self {
            limits,
            fabric: None,
            pins: BTreeMap::new(),
            cells: BTreeMap::new(),
            refusals: BTreeMap::new(),
            jobs: BTreeMap::new(),
            unpinned: BTreeSet::new(),
            wanted: BTreeSet::new(),
            read_at: 0.0,
        }
    }

    /// Turns to what is in force now. What was counted of pins and jobs that stay is kept.
    pub fn follow_plan(&mut self, rollout: &PlanRollout) {
        let PlanRollout { fabric, plan, .. } = rollout;
        let mut had = std::mem::take(&mut self.pins);
        let has_no_pin = |flow: &&PlannedFlow| !flow.pinned || flow.udp_src_port.is_none();
        let unpinned = plan.flows.iter().filter(has_no_pin);
        self.unpinned = unpinned.filter_map(|flow| flow.links.last().copied()).collect();
        let lowered = rollout.lowered_plan();
        let mut names = flow_names(fabric, &lowered);
        for entry in pipelines::attributed_entries(fabric, &lowered) {
            let before = had.get_mut(&entry.switch).and_then(|pins| pins.remove(&entry.key));
            let (meter, read_since) =
                before.map_or_else(Default::default, |pin| (pin.meter, pin.read_since));
            let flow = names.remove(&(entry.switch, entry.key.clone()));
            let pin = PinCounter::from_job(&plan.jobs[entry.job], entry.arrival_link);
            let pins = self.pins.entry(entry.switch).or_default();
            pins.insert(entry.key, PinCounter { meter, flow, read_since, ..pin });
        }
        self.jobs.retain(|id, _| plan.job(id).is_some());
        for job in &plan.jobs {
            let has_series = self.jobs.len() < MAX_SERIES;
            let interval = self.limits.interval.as_secs_f64();
            let counter = self.jobs.entry(job.id.clone());
            counter.or_insert_with(|| JobCounter::new(interval, has_series));
        }
        if self.fabric.as_ref().is_none_or(|had| had.links() != fabric.links()) {
            self.cells.clear();
            self.add_cells(rollout, |_| true);
            self.refusals.clear();
            for cell in pipelines::refusal_cells(fabric) {
                let counter = RefusalCounter::new(cell.link, cell.reason);
                self.refusals.entry(cell.switch).or_default().insert(cell.cell, counter);
            }
            self.wanted = fabric.link_ids().collect();
        }
        self.fabric = Some(fabric.clone());
    }

    /// Counts nothing but what crosses these links. A link that is new among them is counted anew.
    pub(crate) fn follow_links(&mut self, rollout: &PlanRollout, links: &BTreeSet<LinkId>) {
        self.pins.clear();
        self.jobs.clear();
        self.refusals.clear();
        for cells in self.cells.values_mut() {
            cells.retain(|_, cell| links.contains(&cell.link));
        }
        self.cells.retain(|_, cells| !cells.is_empty());
        let counted: BTreeSet<LinkId> =
            self.cells.values().flat_map(BTreeMap::values).map(|cell| cell.link).collect();
        if &counted != links {
            self.add_cells(rollout, |link| links.contains(&link) && !counted.contains(&link));
        }
        self.wanted.clone_from(links);
        self.fabric = Some(rollout.fabric.clone());
    }

    fn add_cells(&mut self, rollout: &PlanRollout, is_wanted: impl Fn(LinkId) -> bool) {
        let PlanRollout { fabric, plan, .. } = rollout;
        for cell in pipelines::port_level_cells(fabric, plan.levels) {
            let PortLevelCell { switch, cell, link, level } = cell;
            if is_wanted(link) {
                let counter = PortLevelCounter { link, level, meter: ByteCounter::default() };
                self.cells.entry(switch).or_default().insert(cell, counter);
            }
        }
    }

    /// What there is to read of a switch.
    pub fn counters_to_read(&self, switch: SwitchId) -> CounterSelection {
        let pins = self.pins.get(&switch);
        let levels = self.cells.get(&switch).into_iter().flat_map(BTreeMap::keys);
        let refusals = self.refusals.get(&switch).into_iter().flat_map(BTreeMap::keys);
        CounterSelection {
            pins: pins.map_or_else(Vec::new, |pins| pins.keys().cloned().collect()),
            cells: levels.chain(refusals).copied().collect(),
        }
    }

    /// Takes in a reading of a switch, made at `at`.
    pub fn record_reading(&mut self, switch: SwitchId, at: f64, counted: &CounterReading) {
        self.read_at = at;
        let mut sent: BTreeMap<JobId, u64> = BTreeMap::new();
        if let Some(pins) = self.pins.get_mut(&switch) {
            for (key, count) in &counted.pins {
                if let Some(pin) = pins.get_mut(key) {
                    pin.read_since.get_or_insert(at);
                    let bytes = sent.entry(pin.job.clone()).or_default();
                    *bytes = bytes.wrapping_add(pin.meter.record_count(at, *count));
                }
            }
        }
        for (id, bytes) in sent {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.add_reading(at, bytes, self.limits.interval.as_secs_f64());
            }
        }
        if let Some(cells) = self.cells.get_mut(&switch) {
            for (index, count) in &counted.cells {
                if let Some(cell) = cells.get_mut(index) {
                    cell.meter.record_count(at, *count);
                }
            }
        }
        if let Some(refusals) = self.refusals.get_mut(&switch) {
            for (cell, count) in &counted.cells {
                if let Some(counter) = refusals.get_mut(cell) {
                    counter.record_count(at, *count);
                }
            }
        }
    }

    /// Load of links, traffic of jobs and unattributed traffic as of the latest readings.
    pub fn measured_traffic(&self) -> MeasuredTraffic {
        let Some(fabric) = &self.fabric else {
            return MeasuredTraffic::default();
        };
        let cells = self.cells.values().flat_map(BTreeMap::values);
        let links = cells.filter_map(|cell| {
            let capacity = fabric.link(cell.link).bandwidth.bytes_per_second();
            let share = cell.meter.rate.per_second() / capacity;
            (share > 0.0).then_some(((cell.link, cell.level), share))
        });
        MeasuredTraffic {
            links: links.collect(),
            jobs: self.jobs.iter().map(|(id, job)| (id.clone(), job.measured())).collect(),
            unattributed: self.unattributed_traffic(fabric),
            refused: (self.refusals.values().flat_map(BTreeMap::values))
                .filter_map(|counter| counter.refused(fabric))
                .collect(),
            pin_hits: self.pin_hits(),
        }
    }

    /// Which links switches count, and which of them carry something.
    pub(crate) fn link_use(&self) -> LinkUse {
        let mut seen = LinkUse { wanted: self.wanted.clone(), ..LinkUse::default() };
        let mut partly = BTreeSet::new();
        for cell in self.cells.values().flat_map(BTreeMap::values) {
            seen.countable.insert(cell.link);
            if !cell.meter.rate.is_known() {
                partly.insert(cell.link);
            }
            if cell.meter.rate.per_second() > 0.0 {
                seen.busy.insert(cell.link);
            }
        }
        seen.counted = seen.countable.difference(&partly).copied().collect();
        seen
    }

    fn pin_hits(&self) -> PinHits {
        let mut hits = PinHits::default();
        for pin in self.pins.values().flat_map(BTreeMap::values) {
            let since = pin.read_since.filter(|since| self.read_at - since >= MISS_SECONDS);
            let Some((flow, _)) = pin.flow.as_ref().zip(since) else {
                continue;
            };
            hits.pins += 1;
            if pin.meter.last.is_none_or(|count| count.packets == 0) {
                hits.misses.push((pin.job.clone(), flow.clone()));
            }
        }
        hits.misses.sort();
        hits
    }

    /// What leaves a leaf for a host beyond what its pins count; not where flows without a pin
    /// arrive, and not acknowledgements, which have none.
    fn unattributed_traffic(&self, fabric: &Fabric) -> Vec<UnattributedTraffic> {
        let mut counted: BTreeMap<(Option<LinkId>, u8), f64> = BTreeMap::new();
        for pin in self.pins.values().flat_map(BTreeMap::values) {
            *counted.entry((pin.arrival_link, pin.level)).or_default() +=
                pin.meter.rate.per_second();
        }
        let cells = self.cells.values().flat_map(BTreeMap::values);
        let candidates = cells
            .filter(|cell| !self.unpinned.contains(&cell.link))
            .filter(|cell| cell.meter.packet_bytes > SMALL_PACKET);
        let unattributed = candidates.filter_map(|cell| {
            let FabricNode::Host(host) = fabric.link(cell.link).to.node else {
                return None;
            };
            // Flows whose link of arrival is not known may all arrive here.
            let arrivals = [Some(cell.link), None].map(|link| counted.get(&(link, cell.level)));
            let known: f64 = arrivals.into_iter().flatten().sum();
            let excess = cell.meter.rate.per_second() - known;
            let least = UNATTRIBUTED_MIN * fabric.link(cell.link).bandwidth.bytes_per_second();
            // Readings of pins and ports are not of one instant.
            let is_excess = excess > least.max(0.2 * known);
            is_excess.then(|| UnattributedTraffic {
                host: fabric.host(host).name.clone(),
                level: cell.level,
                bytes_per_second: excess,
            })
        });
        unattributed.collect()
    }
}

/// The names of flows by their pins.
fn flow_names(fabric: &Fabric, plan: &Plan) -> BTreeMap<(SwitchId, EntryKey), String> {
    let pinned = plan.flows.iter().filter(|flow| flow.pinned);
    let named = pinned.filter_map(|flow| {
        let key = pipelines::entry_pin(fabric, flow)?;
        Some(((fabric.leaf_of(flow.src), key), flow.name_in(fabric)))
    });
    named.collect()
}

impl MeasuredTraffic {
    /// Where reports of jobs differ from what switches count, by more than `least` of it.
    pub fn find_disputes(
        &self,
        claims: &BTreeMap<JobId, ReportedIteration>,
        least: f64,
    ) -> Vec<(JobId, Finding)> {
        let mut disputes = Vec::new();
        for (id, claim) in claims {
            let period = self.jobs.get(id).and_then(|job| job.period);
            let Some(period) = period.filter(|period| period.clarity >= SIMILARITY_MIN) else {
                continue;
            };
            let pairs = [
                ("seconds", period.seconds, claim.seconds.unwrap_or(0.0)),
                ("bytes", period.bytes, claim.bytes),
            ];
            for (what, counted, reported) in pairs {
                let is_far = (counted - reported).abs() > least * counted.max(reported);
                if reported > 0.0 && is_far {
                    let times = counted / reported;
                    let text = format!(
                        "switches count {times:.1} times the {what} in an iteration that it reports"
                    );
                    let finding = Finding::warning(format!("job {id}"), text);
                    disputes.push((id.clone(), finding));
                }
            }
        }
        disputes
    }

    /// Which hosts send now what their leaves refuse.
    pub fn refusal_findings(&self) -> Vec<Finding> {
        self.refused.iter().filter_map(RefusedPackets::finding).collect()
    }

    /// What reaches hosts and belongs to no job, as findings.
    pub fn unattributed_findings(&self) -> Vec<Finding> {
        let findings = self.unattributed.iter().map(|traffic| {
            let text = format!(
                "{:.2} Gbit/s in class {} belong to no job; announce one, or name it in a jobs \
                 document, and it is planned; a rule of the policy ([[adopt]]) gives it a class",
                traffic.bytes_per_second * 8.0 / 1e9,
                traffic.level
            );
            Finding::info(format!("host {}", traffic.host), text)
        });
        findings.collect()
    }
}

#[cfg(test)]
mod tests;
