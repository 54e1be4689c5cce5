//! The learned connections of jobs, each with an ordinal that it keeps.
//!
//! Pure. The decision: a connection has the lowest ordinal that is free between its NICs when it is
//! first seen, and keeps it. So connections spread evenly over the paths of their pair, one that is
//! made again takes the place of the one that went, and none is moved by another.

use std::collections::{BTreeMap, BTreeSet};

use planner::{ConnectionOwner, JobId, LearnedConnection, NicOwners};
use topology::{Fabric, NicId};

use super::LearnedFlow;

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
}

impl ConnectionList {
    /// The list that was known in an earlier run.
    pub fn from_connections(connections: &[LearnedConnection]) -> Self {
        let known = connections.iter().map(|seen| {
            let owned = OwnedConnection { ordinal: seen.ordinal, stated: seen.job.clone() };
            ((seen.src, seen.dst, seen.udp_src_port), owned)
        });
        Self { known: known.collect() }
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

    /// All connections, by NICs and port.
    pub fn connections(&self) -> Vec<LearnedConnection> {
        let all = self.known.iter().map(|((src, dst, port), known)| LearnedConnection {
            src: *src,
            dst: *dst,
            udp_src_port: *port,
            ordinal: known.ordinal,
            job: known.stated.clone(),
        });
        all.collect()
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
        let [src, dst] = [flow.tuple.src, flow.tuple.dst].map(|ip| fabric.nic_with_ip(ip));
        let (Some(src), Some(dst)) = (src, dst) else { continue };
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

#[cfg(test)]
mod tests {
    use planner::{Plan, PlannedFlow, PlannedJob};
    use tokio::time::Instant;
    use topology::clos::{ClosSpec, build_clos};
    use topology::{LinkPath, SwitchId};

    use super::*;
    use crate::discovery::SwitchPort;

    fn seen(fabric: &Fabric, [src, dst]: [u32; 2], port: u16) -> LearnedFlow {
        let [src, dst] = [src, dst].map(|nic| fabric.nic(NicId(nic)).ip);
        let tuple = p4::codec::RoceTuple { src, dst, udp_src_port: port, dest_qp: 1 };
        let at = SwitchPort { switch: SwitchId(0), port: 1 };
        let now = Instant::now();
        LearnedFlow { at, tuple, first_seen: now, last_seen: now, bytes: None, stated_job: None }
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
        };
        let plan = Plan {
            generation: 1,
            levels: 8,
            jobs: vec![job],
            flows: vec![flow],
            rules: Vec::new(),
            compared_inputs: planner::ComparedInputs::default(),
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
            all.map(|seen| (seen.udp_src_port, seen.ordinal)).collect()
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
}
