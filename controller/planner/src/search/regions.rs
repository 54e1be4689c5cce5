//! Regions: jobs that could share links, whatever their paths, and must be searched together.

use topology::groups::DisjointSets;

use crate::traffic::IndexedTraffic;

/// Groups of jobs, by ordinal and ascending, none of which can share a link with another group.
pub(crate) fn find_regions(traffic: &IndexedTraffic<'_>) -> Vec<Vec<usize>> {
    let mut jobs = DisjointSets::new(traffic.jobs.len());
    let mut first_in = vec![None; traffic.tables.area_count()];
    for (job, routes) in traffic.routes.iter().enumerate() {
        for area in &routes.areas {
            let first = *first_in[area.index()].get_or_insert(job);
            jobs.join(first, job);
        }
    }
    jobs.into_sets()
}
