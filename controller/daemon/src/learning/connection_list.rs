//! The learned connections of jobs, each with an ordinal that it keeps, and the pairs of NICs whose
//! flows of no job are counted.
//!
//! Pure. The decision: a connection has the lowest ordinal that is free between its NICs when it is
//! first seen, and keeps it. So connections spread evenly over the paths of their pair, one that is
//! made again takes the place of the one that went, and none is moved by another. And a NIC has a
//! few counted pairs, which it keeps while they have flows: a host that invents flows to all NICs
//! takes a few rows of its own leaf.

use std::collections::{BTreeMap, BTreeSet};

use planner::{ConnectionOwner, JobId, LearnedConnection, NicOwners};
use tokio::time::Instant;
use topology::{Fabric, FabricNode, LinkEndpoint, NicId};

use super::LearnedFlow;

/// Receivers of one NIC whose flows of no job are counted, those that were seen first.
const COUNTED_RECEIVERS: usize = 8;

/// Source, destination and UDP source port.
type ConnectionKey = (NicId, NicId, u16);

/// A connection of a job.
#[derive(Clone, Debug)]
struct OwnedConnection {
    ordinal: u32,
    /// The job that its hosts state, if they do.
    stated: Option<JobId>,
}

/// The connections of jobs that live.
#[derive(Clone, Debug, Default)]
pub struct ConnectionList {
    known: BTreeMap<ConnectionKey, OwnedConnection>,
    counted: BTreeSet<(NicId, NicId)>,
}

impl ConnectionList {
    /// The list that was known in an earlier run.
    pub fn from_connections(connections: &[LearnedConnection]) -> Self {
        let mut list = Self::default();
        for seen in connections {
            let owned = OwnedConnection { ordinal: seen.ordinal, stated: seen.job.clone() };
            match seen.udp_src_port {
                Some(port) => drop(list.known.insert((seen.src, seen.dst, port), owned)),
                None => drop(list.counted.insert((seen.src, seen.dst))),
            }
        }
        list
    }

    /// Follows the flows that are known now; those of no job, or of one of several, are left out.
    pub fn follow_flows(&mut self, flows: &[LearnedFlow], fabric: &Fabric, owners: &NicOwners) {
        let seen = find_owned(flows, fabric, owners);
        self.known.retain(|key, _| seen.contains_key(key));
        for (key @ (src, dst, _), stated) in seen {
            if let Some(known) = self.known.get_mut(&key) {
                known.stated = stated;
                continue;
            }
            let of_pair = self.known.range((src, dst, 0)..=(src, dst, u16::MAX));
            let used: BTreeSet<u32> = of_pair.map(|(_, known)| known.ordinal).collect();
            let free = (0..).find(|ordinal| !used.contains(ordinal));
            let ordinal = free.unwrap_or(u32::MAX);
            self.known.insert(key, OwnedConnection { ordinal, stated });
        }
    }

    /// Follows the pairs of NICs that have flows of no job now.
    pub fn follow_unowned(&mut self, flows: &[LearnedFlow], fabric: &Fabric, owners: &NicOwners) {
        let mut unowned: Vec<_> = find_unowned(flows, fabric, owners).into_iter().collect();
        self.counted.retain(|pair| unowned.iter().any(|(seen, _)| seen == pair));
        unowned.sort_by_key(|(pair, first_seen)| (*first_seen, *pair));
        for (pair @ (src, _), _) in unowned {
            let of_nic = self.counted.range((src, NicId(0))..=(src, NicId(u32::MAX)));
            if of_nic.count() < COUNTED_RECEIVERS {
                self.counted.insert(pair);
            }
        }
    }

    /// All connections, by NICs and port, and counted pairs as connections without a port.
    pub fn connections(&self) -> Vec<LearnedConnection> {
        let owned = self.known.iter().map(|((src, dst, port), known)| LearnedConnection {
            src: *src,
            dst: *dst,
            udp_src_port: Some(*port),
            ordinal: known.ordinal,
            job: known.stated.clone(),
        });
        let counted = self.counted.iter().map(|(src, dst)| LearnedConnection {
            src: *src,
            dst: *dst,
            udp_src_port: None,
            ordinal: 0,
            job: None,
        });
        owned.chain(counted).collect()
    }
}

/// The flows that have an owner, each with the job that its hosts state. Queue pairs of two jobs
/// may share a port, and their packets cannot be told apart: these are left out.
fn find_owned(
    flows: &[LearnedFlow],
    fabric: &Fabric,
    owners: &NicOwners,
) -> BTreeMap<ConnectionKey, Option<JobId>> {
    let mut jobs: BTreeMap<ConnectionKey, (BTreeSet<usize>, Option<JobId>)> = BTreeMap::new();
    for flow in flows {
        let Some([src, dst]) = ends_of(flow, fabric) else { continue };
        let owner = owners.find_stated_owner(fabric, [src, dst], flow.stated_job.as_ref());
        if let ConnectionOwner::Job(job) = owner {
            let entry = jobs.entry((src, dst, flow.tuple.udp_src_port)).or_default();
            entry.0.insert(job);
            entry.1 = entry.1.take().or_else(|| flow.stated_job.clone());
        }
    }
    let own = jobs.into_iter().filter(|(_, (jobs, _))| jobs.len() == 1);
    own.map(|(key, (_, stated))| (key, stated)).collect()
}

/// The port that sends a flow, and the NIC that receives it. A leaf that has no port of the sender
/// has heard of it from its host; then it is the first.
fn ends_of(flow: &LearnedFlow, fabric: &Fabric) -> Option<[NicId; 2]> {
    let [src, dst] = [flow.tuple.src, flow.tuple.dst].map(|ip| fabric.nic_with_ip(ip));
    let at = LinkEndpoint { node: FabricNode::Switch(flow.at.switch), port: flow.at.port.into() };
    let src = src?;
    Some([fabric.port_at(src, at).unwrap_or(src), dst?])
}

/// The pairs of NICs with flows that belong to no job, and when one was first reported.
fn find_unowned(
    flows: &[LearnedFlow],
    fabric: &Fabric,
    owners: &NicOwners,
) -> BTreeMap<(NicId, NicId), Instant> {
    let mut first_seen: BTreeMap<(NicId, NicId), Instant> = BTreeMap::new();
    for flow in flows {
        let Some([src, dst]) = ends_of(flow, fabric) else { continue };
        let owner = owners.find_stated_owner(fabric, [src, dst], flow.stated_job.as_ref());
        if !matches!(owner, ConnectionOwner::Job(_)) {
            let seen = first_seen.entry((src, dst)).or_insert(flow.first_seen);
            *seen = flow.first_seen.min(*seen);
        }
    }
    first_seen
}

#[cfg(test)]
mod tests {
    use planner::{Plan, PlannedFlow, PlannedJob};
    use topology::clos::{ClosSpec, build_clos};
    use topology::{LinkPath, SwitchId};

    use super::*;
    use crate::discovery::SwitchPort;

    fn seen(fabric: &Fabric, [src, dst]: [u32; 2], port: u16) -> LearnedFlow {
        let [src, dst] = [src, dst].map(|nic| fabric.nic(NicId(nic)).ip);
        let tuple = p4::codec::RoceTuple { src, dst, udp_src_port: port, dest_qp: 1 };
        let at = SwitchPort { switch: SwitchId(0), port: 1 };
        let now = Instant::now();
        LearnedFlow {
            at,
            tuple,
            first_seen: now,
            last_seen: now,
            bytes: None,
            pair_bytes: None,
            stated_job: None,
        }
    }

    /// One job between the first two NICs.
    fn owners(fabric: &Fabric) -> NicOwners {
        let flow = PlannedFlow {
            job: 0,
            src: NicId(0),
            dst: NicId(1),
            udp_src_port: None,
            links: LinkPath::EMPTY,
            pinned: false,
        };
        let job = PlannedJob {
            id: "a".into(),
            number: 1,
            intensity: 1.0,
            bottleneck_seconds: 1.0,
            correction: 1.0,
            priority: 1.0,
            rank: 1,
            level: 0,
            start_shift: None,
            sprayed: false,
        };
        let plan = Plan {
            generation: 1,
            levels: 8,
            jobs: vec![job],
            flows: vec![flow],
            rules: Vec::new(),
            compared_inputs: planner::ComparedInputs::default(),
            counted_pairs: Vec::new(),
        };
        NicOwners::new(fabric, &plan)
    }

    #[test]
    fn a_connection_keeps_its_ordinal_and_a_new_one_takes_the_place_that_is_free() {
        let spec = ClosSpec { leaves: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
        let fabric = build_clos("four", &spec).unwrap();
        let owners = owners(&fabric);
        let mut list = ConnectionList::default();
        let ordinals = |list: &ConnectionList| -> Vec<(u16, u32)> {
            let all = list.connections().into_iter();
            all.map(|seen| (seen.udp_src_port.unwrap(), seen.ordinal)).collect()
        };
        // The one from the third NIC is of no job.
        let flows: Vec<_> = [7, 8, 9].map(|port| seen(&fabric, [0, 1], port)).into();
        let foreign = seen(&fabric, [2, 1], 5);
        list.follow_flows(&[flows.clone(), vec![foreign]].concat(), &fabric, &owners);
        assert_eq!(ordinals(&list), [(7, 0), (8, 1), (9, 2)]);
        // The second is made again from another port.
        let again = [flows[0].clone(), flows[2].clone(), seen(&fabric, [0, 1], 3)];
        list.follow_flows(&again, &fabric, &owners);
        assert_eq!(ordinals(&list), [(3, 1), (7, 0), (9, 2)]);
    }
    #[test]
    fn a_nic_has_a_few_counted_pairs_and_keeps_them_while_they_have_flows() {
        let spec = ClosSpec { leaves: 2, hosts_per_leaf: 8, ..ClosSpec::default() };
        let fabric = build_clos("sixteen", &spec).unwrap();
        let owners = owners(&fabric);
        let mut list = ConnectionList::default();
        let counted = |list: &ConnectionList| -> Vec<(u32, u32)> {
            list.connections().into_iter().map(|seen| (seen.src.0, seen.dst.0)).collect()
        };
        let flows = |receivers: std::ops::Range<u32>| -> Vec<LearnedFlow> {
            receivers.map(|dst| seen(&fabric, [2, dst], 7)).collect()
        };
        // Those of a job are not counted, however many connections there are of a pair.
        let other = [seen(&fabric, [0, 1], 7), seen(&fabric, [3, 9], 7), seen(&fabric, [3, 9], 8)];
        list.follow_unowned(&[flows(8..12), other.into()].concat(), &fabric, &owners);
        assert_eq!(counted(&list), [(2, 8), (2, 9), (2, 10), (2, 11), (3, 9)]);
        list.follow_unowned(&flows(3..14), &fabric, &owners);
        let first: Vec<_> = (3..7).chain(8..12).map(|dst| (2, dst)).collect();
        assert_eq!(counted(&list), first);
        list.follow_unowned(&flows(9..16), &fabric, &owners);
        assert_eq!(counted(&list), (9..16).map(|dst| (2, dst)).collect::<Vec<_>>());
        let again = ConnectionList::from_connections(&list.connections());
        assert_eq!(counted(&again), counted(&list));
    }
}
