//! GPU intensity (Crux Eq. 2): the computation that one second of a job's tightest link unblocks.
//!
//! `t_j` depends on the paths, and the order in which paths are chosen depends on `t_j`. So it is
//! computed twice: first the least value that any choice of paths allows (`bounds`), for the order;
//! then on the chosen paths, for everything after.

use topology::{LinkId, LinkPath};

use crate::input::Job;
use crate::network_demand::{DemandFrom, NetworkDemand};
use crate::sparse_sums::SparseSums;
use crate::traffic::IndexedTraffic;

/// Demands on the chosen `paths`, one per flow, empty for a flow without a path.
pub(crate) fn demands_on_paths(
    traffic: &IndexedTraffic<'_>,
    paths: &[LinkPath],
) -> Vec<NetworkDemand> {
    let mut bytes = SparseSums::new(traffic.fabric.capacity_link_count());
    let jobs = traffic.jobs.iter().zip(&traffic.spans);
    jobs.map(|(job, span)| demand_on_paths(job, &paths[span.clone()], traffic, &mut bytes))
        .collect()
}

/// Demand of a job on its `paths`; `bytes` is room for the sum at every link, empty before and
/// after.
fn demand_on_paths(
    job: &Job,
    paths: &[LinkPath],
    traffic: &IndexedTraffic<'_>,
    bytes: &mut SparseSums,
) -> NetworkDemand {
    let demands = job.flow_starts().into_iter().map(|start_seconds| {
        for (flow, path) in job.flows.iter().zip(paths) {
            if job.flow_start_seconds(flow) == start_seconds {
                traffic.for_each_link(flow, path, |link| bytes.add_at(link.index(), flow.bytes));
            }
        }
        let seconds = bytes.iter().map(|(link, sum)| {
            let link = LinkId::from(link);
            (sum / traffic.tables.link_capacity(link), link)
        });
        let tightest = seconds.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let tightest = tightest.map_or((0.0, None), |(seconds, link)| (seconds, Some(link)));
        DemandFrom { start_seconds, tightest }
    });
    let demand = NetworkDemand::new(job, demands);
    bytes.clear();
    demand
}
