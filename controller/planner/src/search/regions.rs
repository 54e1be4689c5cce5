//! Regions: jobs that could share links, whatever their paths, and must be searched together.

use std::collections::BTreeSet;

use topology::LinkId;
use topology::groups::DisjointSets;

use crate::least_loaded_path::LeastLoadedPath;
use crate::traffic::IndexedTraffic;

/// Groups of jobs, by ordinal and ascending, none of which can share a link with another group.
pub(crate) fn find_regions(traffic: &IndexedTraffic<'_>) -> Vec<Vec<usize>> {
    let mut groups = LinkGroups {
        jobs: DisjointSets::new(traffic.jobs.len()),
        first_on: vec![None; traffic.fabric.links().len()],
    };
    let mut seen = BTreeSet::new();
    let mut least_loaded = LeastLoadedPath::new(traffic.fabric.switches().len());
    for flow in traffic.flows.iter().filter(|flow| flow.flow.bytes > 0.0) {
        for link in [flow.up, flow.down] {
            groups.join_on_link(link, flow.job);
        }
        let pair = traffic.leaf_pair(flow);
        let may_share = flow.has_path && pair.crosses_fabric();
        if may_share && seen.insert((flow.job, flow.pair)) {
            let layers = least_loaded.link_layers(&traffic.tables, &pair.ends);
            for link in layers.iter().flatten() {
                groups.join_on_link(*link, flow.job);
            }
        }
    }
    groups.jobs.into_sets()
}

/// Jobs joined so far, and the first job on each link.
struct LinkGroups {
    jobs: DisjointSets,
    first_on: Vec<Option<usize>>,
}

impl LinkGroups {
    fn join_on_link(&mut self, link: LinkId, job: usize) {
        let first = *self.first_on[link.index()].get_or_insert(job);
        self.jobs.join(first, job);
    }
}
