//! The connections that two hosts report one end of each.
//!
//! The kernel of a host lists the numbers of both ends of a queue pair and not the address of the
//! other end, and numbers repeat between NICs. Pure. The decision: ends are joined within one job,
//! once all its hosts report, and only where nothing else is possible. The ends of a job that have
//! one pair of numbers are joined if there are two; where there are more, only NICs between which
//! the plan has a flow count, and each end must have one partner; otherwise none is joined. They
//! stay pairs, and their leaves report them.

use std::collections::{BTreeMap, BTreeSet};

use planner::{JobId, Plan};
use topology::{Fabric, HostId, NicId};

use super::queue_pair_table::ReportedQueuePair;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePairEnd {
    /// The NIC that it is on.
    pub nic: NicId,
    /// The position of its job in the plan.
    pub job: usize,
    /// Its number, its peer's, and the port that it sends from.
    pub numbers: ReportedQueuePair,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JoinedFlow {
    /// The NIC that sends.
    pub src: NicId,
    /// The NIC that receives.
    pub dst: NicId,
    /// The sender's UDP port.
    pub udp_src_port: u16,
    /// The receiver's queue pair.
    pub dest_qp: u32,
    /// The position of its job in the plan.
    pub job: usize,
}

/// What became of ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairCounts {
    /// Ends whose NIC and job are known.
    pub reported: u64,
    /// Flows that are known by both ends, one for each direction.
    pub joined: u64,
    /// Ends whose numbers further ends of their job have, so that nobody knows their partners.
    pub ambiguous: u64,
}

/// The hosts of the jobs of a plan, and to which NICs each of their NICs has a flow.
#[derive(Clone, Debug, Default)]
pub struct JobPlaces {
    hosts: BTreeMap<usize, BTreeSet<HostId>>,
    neighbours: BTreeMap<(usize, NicId), BTreeSet<NicId>>,
}

impl JobPlaces {
    /// Those of the flows of `plan`.
    pub fn new(fabric: &Fabric, plan: &Plan) -> Self {
        let mut places = Self::default();
        for flow in &plan.flows {
            let hosts = places.hosts.entry(flow.job).or_default();
            hosts.extend([flow.src, flow.dst].map(|nic| fabric.nic(nic).host));
            let [src, dst] = fabric.first_ports([flow.src, flow.dst]);
            for (nic, other) in [(src, dst), (dst, src)] {
                places.neighbours.entry((flow.job, nic)).or_default().insert(other);
            }
        }
        places
    }

    /// The NICs with which a NIC of a job has a flow in one direction or the other.
    fn neighbours_of(&self, end: &QueuePairEnd) -> impl Iterator<Item = NicId> {
        self.neighbours.get(&(end.job, end.nic)).into_iter().flatten().copied()
    }

    fn has_all_hosts(&self, job: usize, reporting: &BTreeSet<HostId>) -> bool {
        self.hosts.get(&job).is_some_and(|own| own.is_subset(reporting))
    }
}

/// All ends with their job's name, to ask whose a connection is.
#[derive(Clone, Debug, Default)]
pub struct StatedJobs {
    /// By NIC and number.
    receivers: BTreeMap<(NicId, u32), JobId>,
    /// By NIC and the peer's number.
    senders: BTreeSet<(NicId, u32, JobId)>,
    reporting: BTreeSet<NicId>,
}

impl StatedJobs {
    /// Of these ends under `plan`.
    pub fn new(ends: &[QueuePairEnd], plan: &Plan) -> Self {
        let mut stated = Self::default();
        for end in ends {
            let job = plan.jobs[end.job].id.clone();
            stated.receivers.insert((end.nic, end.numbers.local), job.clone());
            stated.senders.insert((end.nic, end.numbers.remote, job));
            stated.reporting.insert(end.nic);
        }
        stated
    }

    /// The job of a connection by the queue pair that it leads to, which is unique on its NIC. A
    /// sender that reports queue pairs must have one of that job with this peer.
    pub fn find_job(&self, src: NicId, dst: NicId, dest_qp: u32) -> Option<&JobId> {
        let job = self.receivers.get(&(dst, dest_qp))?;
        let is_confirmed = self.senders.contains(&(src, dest_qp, job.clone()));
        Some(job).filter(|_| is_confirmed || !self.reporting.contains(&src))
    }
}

/// The connections that these ends are, both directions, and what became of the ends. Only jobs all
/// of whose hosts are `reporting` have any.
pub fn join_queue_pairs(
    ends: &[QueuePairEnd],
    places: &JobPlaces,
    reporting: &BTreeSet<HostId>,
) -> (Vec<JoinedFlow>, QueuePairCounts) {
    let mut groups: BTreeMap<(usize, u32, u32), NumberGroup> = BTreeMap::new();
    for end in ends.iter().filter(|end| places.has_all_hosts(end.job, reporting)) {
        let ReportedQueuePair { local, remote, .. } = end.numbers;
        let group = groups.entry((end.job, local.min(remote), local.max(remote))).or_default();
        group.by_nic.insert((local, end.nic), *end);
    }
    let mut counts = QueuePairCounts { reported: ends.len() as u64, ..Default::default() };
    let mut flows = Vec::new();
    for group in groups.values() {
        match group.find_partners(places) {
            Some(pairs) => flows.extend(pairs.iter().filter_map(|(a, b)| direction(a, b))),
            None => counts.ambiguous += group.by_nic.len() as u64,
        }
    }
    // What another job may send as well is nobody's, wherever that leads to.
    let senders = sending_jobs(ends);
    let is_own = |flow: &JoinedFlow| {
        senders.get(&(flow.src, flow.udp_src_port)).is_some_and(|jobs| jobs.len() == 1)
    };
    flows.retain(is_own);
    counts.joined = flows.len() as u64;
    (flows, counts)
}

/// The ends of one job with one pair of numbers, by own number and NIC.
#[derive(Clone, Debug, Default)]
struct NumberGroup {
    by_nic: BTreeMap<(u32, NicId), QueuePairEnd>,
}

impl NumberGroup {
    /// Each end with its partner, none of an end whose other end is not reported; nothing if it is
    /// ambiguous.
    fn find_partners(&self, places: &JobPlaces) -> Option<Vec<(QueuePairEnd, QueuePairEnd)>> {
        let ends: Vec<QueuePairEnd> = self.by_nic.values().copied().collect();
        match ends[..] {
            [_] => Some(Vec::new()),
            [a, b] if may_be_partners(&a, &b) => Some(vec![(a, b), (b, a)]),
            _ => ends.iter().map(|end| Some((*end, self.planned_partner(end, places)?))).collect(),
        }
    }

    /// The only end that may be the partner of `end` by the plan.
    fn planned_partner(&self, end: &QueuePairEnd, places: &JobPlaces) -> Option<QueuePairEnd> {
        let others = places.neighbours_of(end);
        let others = others.filter_map(|nic| self.by_nic.get(&(end.numbers.remote, nic)));
        let mut partners = others.filter(|other| may_be_partners(end, other));
        partners.next().copied().filter(|_| partners.next().is_none())
    }
}

/// Whether two ends of a job name each other, on two NICs. The formulas of drivers give one port to
/// both ends.
fn may_be_partners(a: &QueuePairEnd, b: &QueuePairEnd) -> bool {
    let (one, other) = (a.numbers, b.numbers);
    let ports = one.udp_src_port.zip(other.udp_src_port);
    a.nic != b.nic
        && (one.local, one.remote) == (other.remote, other.local)
        && ports.is_none_or(|(one, other)| one == other)
}

/// What `src` sends to `dst`, if its port is known.
fn direction(src: &QueuePairEnd, dst: &QueuePairEnd) -> Option<JoinedFlow> {
    Some(JoinedFlow {
        src: src.nic,
        dst: dst.nic,
        udp_src_port: src.numbers.udp_src_port?,
        dest_qp: src.numbers.remote,
        job: src.job,
    })
}

/// The jobs that send from a port of a NIC. Queue pairs may hash to one port, and a switch cannot
/// tell them apart if they lead to one NIC.
fn sending_jobs(ends: &[QueuePairEnd]) -> BTreeMap<(NicId, u16), BTreeSet<usize>> {
    let mut jobs: BTreeMap<(NicId, u16), BTreeSet<usize>> = BTreeMap::new();
    for end in ends {
        if let Some(port) = end.numbers.udp_src_port {
            jobs.entry((end.nic, port)).or_default().insert(end.job);
        }
    }
    jobs
}

#[cfg(test)]
mod tests;
