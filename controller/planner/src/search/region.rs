//! Jobs that could meet, whatever their paths: what must be searched together.

use std::collections::{BTreeMap, BTreeSet};

use topology::LinkId;

use crate::traffic::Traffic;
use crate::walker::Walker;

/// Groups of jobs, by ordinal and ascending, none of which can meet a job of another group.
pub(super) fn regions(traffic: &Traffic<'_>) -> Vec<Vec<usize>> {
    let mut groups = Groups {
        leader: (0..traffic.jobs.len()).collect(),
        first_on: vec![None; traffic.fabric.links().len()],
    };
    let mut seen = BTreeSet::new();
    let mut walker = Walker::new(traffic.fabric.switches().len());
    for flow in traffic.flows.iter().filter(|flow| flow.flow.bytes > 0.0) {
        for link in [flow.up, flow.down] {
            groups.meet(link, flow.job);
        }
        let pair = traffic.pair(flow);
        let may_meet = flow.has_path && pair.crosses_fabric();
        if may_meet && seen.insert((flow.job, flow.pair)) {
            let layers = walker.layers(&traffic.ways, &pair.ends);
            for link in layers.iter().flatten() {
                groups.meet(*link, flow.job);
            }
        }
    }
    let mut regions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for job in 0..traffic.jobs.len() {
        regions.entry(groups.root(job)).or_default().push(job);
    }
    regions.into_values().collect()
}

/// Jobs joined so far.
struct Groups {
    /// Towards the first job of each group.
    leader: Vec<usize>,
    first_on: Vec<Option<usize>>,
}

impl Groups {
    fn root(&mut self, mut job: usize) -> usize {
        while self.leader[job] != job {
            self.leader[job] = self.leader[self.leader[job]];
            job = self.leader[job];
        }
        job
    }

    fn meet(&mut self, link: LinkId, job: usize) {
        let first = *self.first_on[link.index()].get_or_insert(job);
        let (a, b) = (self.root(first), self.root(job));
        self.leader[a.max(b)] = a.min(b);
    }
}
