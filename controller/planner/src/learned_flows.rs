//! Connections that switches have seen and no job has announced: whose they are, and the path of
//! each.
//!
//! A pure function of the plan, so that every new plan moves them along. The decision: both NICs
//! have to belong to the same one job. A connection that could be of two jobs is of nobody, because
//! a wrong owner is worse than none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::{Fabric, HostId, LinkPath, NicId, SwitchId, paths_between_nics};

use crate::input::JobId;
use crate::plan::{Plan, PlannedFlow};

/// A RoCEv2 connection that was seen where it enters the fabric, or that its hosts report; without
/// a port, all connections of no job between two NICs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LearnedConnection {
    /// NIC that sends it; of one with two ports, the port.
    pub src: NicId,
    /// NIC that receives it.
    pub dst: NicId,
    /// UDP source port; none for traffic of no job between these NICs, which is only counted.
    pub udp_src_port: Option<u16>,
    /// Its place among the connections between these NICs. It stays while the connection lives, so
    /// that a new connection moves no other.
    pub ordinal: u32,
    /// The job of its processes, where its hosts report that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionOwner {
    /// The job at this position of the plan.
    Job(usize),
    /// One of these jobs; nothing distinguishes them.
    Ambiguous(Vec<usize>),
    /// No job has both NICs.
    Unknown,
}

/// The jobs of all NICs under one plan.
#[derive(Clone, Debug, Default)]
pub struct NicOwners {
    by_nic: BTreeMap<NicId, BTreeSet<usize>>,
    by_host: BTreeMap<HostId, BTreeSet<usize>>,
    by_id: BTreeMap<JobId, usize>,
}

impl NicOwners {
    /// The owners by the flows of a plan. A NIC that no flow uses belongs to the jobs of its host:
    /// a library may use more NICs than a job announces.
    pub fn new(fabric: &Fabric, plan: &Plan) -> Self {
        let ids = plan.jobs.iter().enumerate().map(|(index, job)| (job.id.clone(), index));
        let mut owners = Self { by_id: ids.collect(), ..Self::default() };
        for flow in &plan.flows {
            for nic in fabric.first_ports([flow.src, flow.dst]) {
                owners.by_nic.entry(nic).or_default().insert(flow.job);
                owners.by_host.entry(fabric.nic(nic).host).or_default().insert(flow.job);
            }
        }
        owners
    }

    /// Whose a connection between two NICs is.
    pub fn find_owner(&self, fabric: &Fabric, src: NicId, dst: NicId) -> ConnectionOwner {
        let [of_src, of_dst] = [src, dst].map(|nic| self.jobs_of(fabric, nic));
        let (Some(of_src), Some(of_dst)) = (of_src, of_dst) else {
            return ConnectionOwner::Unknown;
        };
        let common: Vec<usize> = of_src.intersection(of_dst).copied().collect();
        match common[..] {
            [] => ConnectionOwner::Unknown,
            [job] => ConnectionOwner::Job(job),
            _ => ConnectionOwner::Ambiguous(common),
        }
    }

    /// Whose a connection between two NICs is, if their hosts may have stated the job of its
    /// processes: that job's, if it has both hosts. Otherwise it cannot be meant, and the NICs
    /// decide.
    pub fn find_stated_owner(
        &self,
        fabric: &Fabric,
        [src, dst]: [NicId; 2],
        stated: Option<&JobId>,
    ) -> ConnectionOwner {
        let stated = stated.and_then(|job| self.by_id.get(job).copied());
        match stated.filter(|job| [src, dst].iter().all(|nic| self.has_host(fabric, *nic, *job))) {
            Some(job) => ConnectionOwner::Job(job),
            None => self.find_owner(fabric, src, dst),
        }
    }

    /// The job at whose hosts a NIC is: `job` if it is one of them, or without a name the only one
    /// that uses the NIC.
    pub fn job_at(&self, fabric: &Fabric, nic: NicId, job: Option<&JobId>) -> Option<usize> {
        match job {
            Some(job) => {
                let known = self.by_id.get(job).copied();
                known.filter(|job| self.has_host(fabric, nic, *job))
            }
            None => {
                let own = self.jobs_of(fabric, nic)?;
                own.first().copied().filter(|_| own.len() == 1)
            }
        }
    }

    fn has_host(&self, fabric: &Fabric, nic: NicId, job: usize) -> bool {
        self.by_host.get(&fabric.nic(nic).host).is_some_and(|jobs| jobs.contains(&job))
    }

    fn jobs_of(&self, fabric: &Fabric, nic: NicId) -> Option<&BTreeSet<usize>> {
        self.by_nic.get(&fabric.first_port(nic)).or_else(|| self.by_host.get(&fabric.nic(nic).host))
    }
}

/// The learned connections of jobs as flows of the plan, each on a path that the plan has for its
/// NICs. Connections without an owner are left out.
///
/// Where a switch has no room for all pins, at most `pins_max`, those of the plan stay, then those
/// of jobs of higher rank, and of one job those with the lowest ordinals.
pub fn place_learned_flows(
    fabric: &Fabric,
    plan: &Plan,
    connections: &[LearnedConnection],
    pins_max: usize,
) -> Vec<PlannedFlow> {
    if connections.is_empty() {
        // Owners and paths are passes over the whole plan.
        return Vec::new();
    }
    let owners = NicOwners::new(fabric, plan);
    let paths = PairPaths::new(fabric, plan);
    let mut owned: Vec<(usize, &LearnedConnection)> = connections
        .iter()
        .filter(|seen| {
            let key = tuple_key(fabric, [seen.src, seen.dst], seen.udp_src_port);
            key.is_some_and(|key| !paths.announced.contains(&key))
        })
        .filter_map(|seen| {
            let owner = owners.find_stated_owner(fabric, [seen.src, seen.dst], seen.job.as_ref());
            match owner {
                ConnectionOwner::Job(job) => Some((job, seen)),
                ConnectionOwner::Ambiguous(_) | ConnectionOwner::Unknown => None,
            }
        })
        .collect();
    owned.sort_by_key(|(job, seen)| (plan.jobs[*job].rank, seen.ordinal, *seen));
    let mut room = PinRoom::new(fabric, plan, pins_max);
    let flows = owned.into_iter().map(|(job, seen)| {
        let links = paths.path_of(fabric, job, seen);
        PlannedFlow {
            job,
            src: seen.src,
            dst: seen.dst,
            udp_src_port: seen.udp_src_port,
            links,
            pinned: links.len() > 2 && room.take_path(fabric, &links),
        }
    });
    flows.collect()
}

/// The pairs of NICs whose flows of no job are counted, ascending: those of the connections without
/// a port that no job has.
pub fn find_counted_pairs(
    fabric: &Fabric,
    plan: &Plan,
    connections: &[LearnedConnection],
) -> Vec<(NicId, NicId)> {
    let open = connections.iter().filter(|seen| seen.udp_src_port.is_none());
    let mut pairs: BTreeSet<(NicId, NicId)> = open.map(|seen| (seen.src, seen.dst)).collect();
    if !pairs.is_empty() {
        let owners = NicOwners::new(fabric, plan);
        let is_owned = |(src, dst): &(NicId, NicId)| {
            matches!(owners.find_owner(fabric, *src, *dst), ConnectionOwner::Job(_))
        };
        pairs.retain(|pair| !is_owned(pair));
    }
    pairs.into_iter().collect()
}

/// `plan` with learned flows among its own and the pairs whose flows of no job are counted, for
/// lowering and counting.
pub fn with_learned_flows(
    plan: &Plan,
    learned: &[PlannedFlow],
    counted_pairs: &[(NicId, NicId)],
) -> Plan {
    let mut plan = plan.clone();
    plan.flows.extend_from_slice(learned);
    plan.counted_pairs = counted_pairs.to_vec();
    plan
}

/// Five-tuples by NICs, whose ports share an address.
type TupleKey = ([NicId; 2], u16);

fn tuple_key(fabric: &Fabric, ends: [NicId; 2], udp_src_port: Option<u16>) -> Option<TupleKey> {
    Some((fabric.first_ports(ends), udp_src_port?))
}

/// The paths of a plan by job, port that sends and NIC that receives, and the five-tuples that have
/// pins already.
struct PairPaths {
    paths: BTreeMap<(usize, NicId, NicId), Vec<LinkPath>>,
    announced: BTreeSet<TupleKey>,
}

impl PairPaths {
    fn new(fabric: &Fabric, plan: &Plan) -> Self {
        let mut paths: BTreeMap<_, Vec<LinkPath>> = BTreeMap::new();
        for flow in plan.flows.iter().filter(|flow| !flow.links.is_empty()) {
            let to = fabric.first_port(flow.dst);
            paths.entry((flow.job, flow.src, to)).or_default().push(flow.links);
        }
        let stated = plan.flows.iter();
        let announced =
            stated.filter_map(|flow| tuple_key(fabric, [flow.src, flow.dst], flow.udp_src_port));
        Self { paths, announced: announced.collect() }
    }

    /// The path of a connection: those of the plan for its NICs in turn, else, for a pair that the
    /// job did not announce, the equal-cost paths in turn.
    fn path_of(&self, fabric: &Fabric, job: usize, seen: &LearnedConnection) -> LinkPath {
        let turn = seen.ordinal as usize;
        if let Some(planned) = self.paths.get(&(job, seen.src, fabric.first_port(seen.dst))) {
            return planned[turn % planned.len()];
        }
        let all = paths_between_nics(fabric, seen.src, seen.dst);
        let path = all.get(turn % all.len().max(1)).and_then(|links| LinkPath::new(links));
        path.unwrap_or(LinkPath::EMPTY)
    }
}

/// Pins that each switch has room for.
struct PinRoom {
    used: BTreeMap<SwitchId, usize>,
    pins_max: usize,
}

impl PinRoom {
    fn new(fabric: &Fabric, plan: &Plan, pins_max: usize) -> Self {
        let mut used = BTreeMap::new();
        let pinned = plan.flows.iter().filter(|flow| flow.pinned && flow.udp_src_port.is_some());
        for flow in pinned {
            for switch in switches_of(fabric, &flow.links) {
                *used.entry(switch).or_default() += 1;
            }
        }
        Self { used, pins_max }
    }

    /// Whether every switch of a path had room, which is then used.
    fn take_path(&mut self, fabric: &Fabric, links: &LinkPath) -> bool {
        let used = |at: &SwitchId| self.used.get(at).copied().unwrap_or(0);
        if switches_of(fabric, links).any(|switch| used(&switch) >= self.pins_max) {
            return false;
        }
        for switch in switches_of(fabric, links) {
            *self.used.entry(switch).or_default() += 1;
        }
        true
    }
}

fn switches_of<'a>(fabric: &'a Fabric, links: &'a LinkPath) -> impl Iterator<Item = SwitchId> + 'a {
    links.without_host_links().iter().filter_map(|link| fabric.link(*link).from.node.switch())
}
