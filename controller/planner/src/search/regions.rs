//! Jobs that could meet, whatever their paths: what must be searched together.

use std::collections::{BTreeMap, BTreeSet};

use topology::LinkId;

use crate::least_loaded_path::LeastLoadedPath;
use crate::traffic::IndexedTraffic;

/// Groups of jobs, by ordinal and ascending, none of which can meet a job of another group.
pub(super) fn find_regions(traffic: &IndexedTraffic<'_>) -> Vec<Vec<usize>> {
    let mut groups = LinkGroups {
        leader: (0..traffic.jobs.len()).collect(),
        first_on: vec![None; traffic.fabric.links().len()],
    };
    let mut seen = BTreeSet::new();
    let mut walker = LeastLoadedPath::new(traffic.fabric.switches().len());
    for flow in traffic.flows.iter().filter(|flow| flow.flow.bytes > 0.0) {
        for link in [flow.up, flow.down] {
            groups.join_on_link(link, flow.job);
        }
        let pair = traffic.leaf_pair(flow);
        let may_meet = flow.has_path && pair.crosses_fabric();
        if may_meet && seen.insert((flow.job, flow.pair)) {
            let layers = walker.link_layers(&traffic.tables, &pair.ends);
            for link in layers.iter().flatten() {
                groups.join_on_link(*link, flow.job);
            }
        }
    }
    let mut regions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for job in 0..traffic.jobs.len() {
        regions.entry(groups.find_root(job)).or_default().push(job);
    }
    regions.into_values().collect()
}

/// Jobs joined so far.
struct LinkGroups {
    /// Towards the first job of each group.
    leader: Vec<usize>,
    first_on: Vec<Option<usize>>,
}

impl LinkGroups {
    fn find_root(&mut self, mut job: usize) -> usize {
        while self.leader[job] != job {
            self.leader[job] = self.leader[self.leader[job]];
            job = self.leader[job];
        }
        job
    }

    fn join_on_link(&mut self, link: LinkId, job: usize) {
        let first = *self.first_on[link.index()].get_or_insert(job);
        let (a, b) = (self.find_root(first), self.find_root(job));
        self.leader[a.max(b)] = a.min(b);
    }
}
