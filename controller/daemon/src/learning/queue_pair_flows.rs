//! The flows that the queue pairs of hosts are under the plan in force.
//!
//! Keeps what [`queue_pair_join`](super::queue_pair_join) makes of the
//! [`QueuePairTable`], and makes it again when a host reports other queue pairs or the plan is
//! another one.

use std::collections::BTreeSet;
use std::sync::Arc;

use p4::codec::RoceTuple;
use planner::{JobId, NicOwners, Plan};
use tokio::time::Instant;
use topology::Fabric;

use super::queue_pair_join::{
    JobPlaces, JoinedFlow, QueuePairCounts, StatedJobs, join_queue_pairs,
};
use super::{HostQueuePairs, QueuePairTable};
use crate::config::LearningConfig;
use crate::discovery::SwitchPort;
use crate::state::PlanRollout;

/// Reported queue pairs, and the flows that they are.
#[derive(Debug)]
pub(super) struct QueuePairFlows {
    table: QueuePairTable,
    plan: Option<Arc<Plan>>,
    stated: StatedJobs,
    joined: Vec<JoinedFlow>,
    counts: QueuePairCounts,
}

impl QueuePairFlows {
    pub(super) fn new(limits: &LearningConfig) -> Self {
        Self {
            table: QueuePairTable::new(*limits),
            plan: None,
            stated: StatedJobs::default(),
            joined: Vec::new(),
            counts: QueuePairCounts::default(),
        }
    }

    /// Takes in all queue pairs of a host.
    pub(super) fn replace_host(&mut self, report: HostQueuePairs, now: Instant) {
        self.table.replace_host(report, now);
    }

    /// Joins the ends anew if they or the plan have changed; whether that was so.
    pub(super) fn follow_rollout(&mut self, rollout: &PlanRollout, now: Instant) -> bool {
        self.table.expire_hosts(now);
        let is_planned = self.plan.as_ref().is_some_and(|had| Arc::ptr_eq(had, &rollout.plan));
        if !self.table.take_change() && is_planned {
            return false;
        }
        let PlanRollout { fabric, plan, .. } = rollout;
        let ends = self.table.resolve_ends(fabric, &NicOwners::new(fabric, plan));
        let hosts = self.table.reporting_hosts().filter_map(|host| fabric.host_named(host));
        let reporting: BTreeSet<_> = hosts.collect();
        let places = JobPlaces::new(fabric, plan);
        (self.joined, self.counts) = join_queue_pairs(&ends, &places, &reporting);
        self.stated = StatedJobs::new(&ends, plan);
        self.plan = Some(Arc::clone(plan));
        true
    }

    /// The joined flows that cross more than one leaf: others need no path. A host does not say which
    /// port of a NIC it sends from, so a flow is at each.
    pub(super) fn joined_tuples(
        &self,
        fabric: &Fabric,
    ) -> impl Iterator<Item = (SwitchPort, RoceTuple)> {
        let of_ports = self.joined.iter().flat_map(|flow| {
            let ports = fabric.ports_of(flow.src);
            ports.map(move |port| (port, flow))
        });
        let distant = of_ports
            .filter(|(port, flow)| !fabric.leaves_of(flow.dst).contains(fabric.leaf_of(*port)));
        distant.filter_map(|(port, flow)| {
            let [src, dst] = [port, flow.dst].map(|nic| fabric.nic(nic));
            let at = SwitchPort::at_endpoint(fabric.link(src.uplink).to)?;
            let (udp_src_port, dest_qp) = (flow.udp_src_port, flow.dest_qp);
            Some((at, RoceTuple { src: src.ip, dst: dst.ip, udp_src_port, dest_qp }))
        })
    }

    /// The job of a connection, where its hosts state it.
    pub(super) fn stated_job(&self, fabric: &Fabric, tuple: &RoceTuple) -> Option<&JobId> {
        let [src, dst] = [tuple.src, tuple.dst].map(|ip| fabric.nic_with_ip(ip));
        self.stated.find_job(src?, dst?, tuple.dest_qp)
    }

    pub(super) fn counts(&self) -> QueuePairCounts {
        self.counts
    }

    /// Reports for which there was no room, since the start.
    pub(super) fn refused_hosts(&self) -> u64 {
        self.table.refused()
    }
}
