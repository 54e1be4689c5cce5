//! The job of the packets that enter at each port, and the levels of jobs.
//!
//! A level belongs to a pair of NICs between which a job has flows: packets of IPv4 have the job of
//! their ingress port and destination, the highest where several jobs share both, and all else that
//! comes in by the port of a NIC has the lowest level. The table matches no address of IPv6: such a
//! port has the highest of its jobs. The decision: the rows of ports come first, since pins depend on
//! their VRFs and nothing above the lowest level may be without a row; then jobs take rows in the
//! order of their ranks, those of their answers last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use p4::entry::{EntryKey, TableEntry};
use p4::sai::{self, Vrf};
use planner::{Plan, PlannedFlow, PlannedJob};
use topology::{Fabric, Finding, NicId, SwitchId};

use super::answers::AnsweredPairs;
use super::pins::{SwitchPins, entry_port};
use super::{SaiBudget, table_level};

/// The rows of one leaf about jobs; none at other switches.
#[derive(Debug, Default)]
pub(super) struct PortClasses {
    rows: BTreeMap<ClassKey, PortClass>,
    /// Positions of the jobs with a level.
    levels: BTreeSet<usize>,
    /// Positions of the jobs of which some packets have no row.
    spilled: BTreeSet<usize>,
}

/// An ingress port, and an address where that matters.
type ClassKey = (u32, Option<Ipv4Addr>);

#[derive(Clone, Copy, Debug)]
struct PortClass {
    vrf: Vrf,
    job: Option<NonZeroU32>,
    /// Position of the job.
    owner: Option<usize>,
}

/// A row that a leaf should have.
struct WantedClass {
    key: ClassKey,
    /// Position of the job.
    job: usize,
    /// What stands for it in tables; the planner gives none that is 0.
    number: Option<NonZeroU32>,
    rank: u32,
    /// Whether only answers match it, which are no traffic of the job that counts.
    is_of_answers: bool,
}

impl PortClasses {
    pub(super) fn new(
        fabric: &Fabric,
        plan: &Plan,
        answers: &AnsweredPairs,
        (switch, pins): (SwitchId, &SwitchPins),
        budget: &SaiBudget,
    ) -> Self {
        let mut classes = Self::default();
        for port in pins.vrf_ports() {
            classes.add_port(port, pins);
        }
        if !budget.names_jobs {
            return classes;
        }
        for port in fabric.nics_on(switch).map(|nic| entry_port(fabric, nic)) {
            if classes.rows.len() < budget.port_classes {
                classes.add_port(port, pins);
            }
        }
        for wanted in wanted_classes(fabric, plan, answers, switch) {
            classes.add_class(&wanted, pins, budget);
        }
        classes
    }

    /// Gives a port its VRF, and the lowest level.
    fn add_port(&mut self, port: u32, pins: &SwitchPins) {
        let class = PortClass { vrf: pins.vrf_of(port), job: None, owner: None };
        self.rows.insert((port, None), class);
    }

    fn add_class(&mut self, wanted: &WantedClass, pins: &SwitchPins, budget: &SaiBudget) {
        let WantedClass { key, job, number, is_of_answers, .. } = *wanted;
        // One row is for what has no job.
        let has_level = self.levels.contains(&job) || self.levels.len() + 1 < budget.job_levels;
        let has_row = self.rows.contains_key(&key) || self.rows.len() < budget.port_classes;
        if has_level && has_row && number.is_some() {
            self.levels.insert(job);
            let owner = Some(job).filter(|_| !is_of_answers);
            self.rows.insert(key, PortClass { vrf: pins.vrf_of(key.0), job: number, owner });
        } else if !is_of_answers {
            self.spilled.insert(job);
        }
    }

    pub(super) fn rows(&self, plan: &Plan, budget: &SaiBudget) -> Vec<TableEntry> {
        let classes = self.rows.iter();
        let classes = classes.map(|(&(port, dst), class)| {
            if budget.names_jobs {
                sai::port_class(port, dst, class.vrf, class.job)
            } else {
                sai::published_port_class(port)
            }
        });
        let levels = self.levels.iter().filter_map(|job| {
            let job = plan.jobs.get(*job)?;
            Some(sai::job_level(NonZeroU32::new(job.number), table_level(job.level)?))
        });
        let has_none = budget.job_levels > 0 && !self.rows.is_empty();
        let lowest = table_level(0).filter(|_| has_none).map(|level| sai::job_level(None, level));
        classes.chain(levels).chain(lowest).collect()
    }

    /// The rows that count what a job sends, with its position.
    pub(super) fn attributed_rows(&self) -> Vec<(EntryKey, usize)> {
        let rows = self.rows.iter().filter_map(|(&(port, dst), class)| {
            let row = sai::port_class(port, dst, class.vrf, class.job);
            Some((Arc::unwrap_or_clone(row.key), class.owner?))
        });
        rows.collect()
    }

    /// A finding that names the jobs without room.
    pub(super) fn finding(
        &self,
        fabric: &Fabric,
        plan: &Plan,
        switch: SwitchId,
    ) -> Option<Finding> {
        let jobs = self.spilled.iter().filter_map(|job| plan.jobs.get(*job));
        let names: Vec<String> = jobs.map(|job| job.id.to_string()).collect();
        let text = format!("no room for levels, packets have the lowest: {}", names.join(", "));
        let about = fabric.switch(switch).name.clone();
        (!names.is_empty()).then(|| Finding::warning(about, text))
    }
}

/// Jobs by the NICs of a leaf and those that their packets go to.
type PairJobs = BTreeMap<NicId, BTreeMap<NicId, usize>>;

/// The jobs of a leaf's ports, in the order in which they take rows: first of what is sent, then of
/// answers.
fn wanted_classes(
    fabric: &Fabric,
    plan: &Plan,
    answers: &AnsweredPairs,
    switch: SwitchId,
) -> Vec<WantedClass> {
    let sent = plan.flows.iter().map(|flow| (flow, (flow.src, flow.dst)));
    let sent = pair_jobs(fabric, plan, switch, sent);
    let answered = plan.flows.iter().filter(|flow| answers.has_no_flow_back(fabric, flow));
    let answered = answered.map(|flow| (flow, (flow.dst, flow.src)));
    let answered = pair_jobs(fabric, plan, switch, answered);
    // What is sent by a port of IPv6 goes before its answers.
    let ports: BTreeSet<u32> = sent.keys().map(|nic| entry_port(fabric, *nic)).collect();
    let mut wanted = classes_of(fabric, plan, &sent, false);
    let of_answers = classes_of(fabric, plan, &answered, true).into_iter();
    wanted
        .extend(of_answers.filter(|class| class.key.1.is_some() || !ports.contains(&class.key.0)));
    wanted.sort_by_key(|class| (class.is_of_answers, class.rank));
    wanted
}

/// The highest job of each pair whose packets come in at a leaf from a NIC.
fn pair_jobs<'a>(
    fabric: &Fabric,
    plan: &Plan,
    switch: SwitchId,
    pairs: impl Iterator<Item = (&'a PlannedFlow, (NicId, NicId))>,
) -> PairJobs {
    let mut of_pairs = PairJobs::new();
    // A host may send from any port of a NIC.
    let of_ports = pairs.flat_map(|(flow, (from, to))| {
        let here = fabric.ports_of(from).filter(|port| fabric.leaf_of(*port) == switch);
        here.map(move |port| (flow, port, to))
    });
    for (flow, from, to) in of_ports {
        let of_port = of_pairs.entry(from).or_default();
        let job = of_port.entry(fabric.first_port(to)).or_insert(flow.job);
        *job = higher_job(plan, *job, flow.job);
    }
    of_pairs
}

/// The rows of pairs, or of whole ports where the table matches no address.
fn classes_of(
    fabric: &Fabric,
    plan: &Plan,
    of_pairs: &PairJobs,
    is_of_answers: bool,
) -> Vec<WantedClass> {
    let make_class = |key: ClassKey, job: usize| {
        let PlannedJob { number, rank, .. } = plan.jobs[job];
        WantedClass { key, job, number: NonZeroU32::new(number), rank, is_of_answers }
    };
    let mut wanted = Vec::new();
    for (nic, jobs) in of_pairs {
        let port = entry_port(fabric, *nic);
        if fabric.nic(*nic).ip.is_ipv6() {
            wanted.extend(highest_job(plan, jobs).map(|job| make_class((port, None), job)));
            continue;
        }
        for (dst, job) in jobs {
            if let IpAddr::V4(address) = fabric.nic(*dst).ip {
                wanted.push(make_class((port, Some(address)), *job));
            }
        }
    }
    wanted
}

/// The job of the highest level of those that a NIC has packets of.
fn highest_job(plan: &Plan, jobs: &BTreeMap<NicId, usize>) -> Option<usize> {
    jobs.values().copied().reduce(|one, other| higher_job(plan, one, other))
}

/// Of two jobs that share packets, the one with the higher level; of equals the first by rank.
fn higher_job(plan: &Plan, one: usize, other: usize) -> usize {
    let order = |job: &PlannedJob| (job.level, Reverse(job.rank));
    if order(&plan.jobs[other]) > order(&plan.jobs[one]) { other } else { one }
}
