//! The learned connections of jobs, each with an ordinal that it keeps.
//!
//! Pure. The decision: a connection has the lowest ordinal that is free between its NICs when it is
//! first seen, and keeps it. So connections spread evenly over the paths of their pair, one that is
//! made again takes the place of the one that went, and none is moved by another.

use std::collections::{BTreeMap, BTreeSet};

use planner::{ConnectionOwner, LearnedConnection, NicOwners};
use topology::{Fabric, NicId};

use super::LearnedFlow;

/// Source, destination and UDP source port.
type ConnectionKey = (NicId, NicId, u16);

/// The connections of jobs that live.
#[derive(Clone, Debug, Default)]
pub struct ConnectionList {
    ordinals: BTreeMap<ConnectionKey, u32>,
}

impl ConnectionList {
    /// Follows the flows that are known now; those of no job, or of one of several, are left out.
    pub fn follow_flows(&mut self, flows: &[LearnedFlow], fabric: &Fabric, owners: &NicOwners) {
        let seen: BTreeSet<ConnectionKey> =
            flows.iter().filter_map(|flow| owned_connection(flow, fabric, owners)).collect();
        self.ordinals.retain(|key, _| seen.contains(key));
        for key @ (src, dst, _) in seen {
            if !self.ordinals.contains_key(&key) {
                let of_pair = self.ordinals.range((src, dst, 0)..=(src, dst, u16::MAX));
                let used: BTreeSet<u32> = of_pair.map(|(_, ordinal)| *ordinal).collect();
                let free = (0..).find(|ordinal| !used.contains(ordinal));
                self.ordinals.insert(key, free.unwrap_or(u32::MAX));
            }
        }
    }

    /// All connections, by NICs and port.
    pub fn connections(&self) -> Vec<LearnedConnection> {
        let all = self.ordinals.iter().map(|((src, dst, port), ordinal)| LearnedConnection {
            src: *src,
            dst: *dst,
            udp_src_port: *port,
            ordinal: *ordinal,
        });
        all.collect()
    }
}

fn owned_connection(
    flow: &LearnedFlow,
    fabric: &Fabric,
    owners: &NicOwners,
) -> Option<ConnectionKey> {
    let src = fabric.nic_with_ip(flow.tuple.src)?;
    let dst = fabric.nic_with_ip(flow.tuple.dst)?;
    let owner = owners.find_owner(fabric, src, dst);
    matches!(owner, ConnectionOwner::Job(_)).then_some((src, dst, flow.tuple.udp_src_port))
}
