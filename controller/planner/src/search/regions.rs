//! Regions: jobs that could share links, whatever their paths, and must be searched together.

use topology::groups::DisjointSets;

use crate::traffic::IndexedTraffic;

/// Stands for no job: there are many areas, and a number is half as large as an option.
const NO_JOB: u32 = u32::MAX;

/// Groups of jobs, by ordinal and ascending, none of which can share a link with another group.
pub(crate) fn find_regions(traffic: &IndexedTraffic<'_>) -> Vec<Vec<usize>> {
    let mut jobs = DisjointSets::new(traffic.jobs.len());
    let mut first_in = vec![NO_JOB; traffic.tables.area_count()];
    for (job, routes) in traffic.routes.iter().enumerate() {
        for area in &routes.areas {
            let first = &mut first_in[area.index()];
            if *first == NO_JOB {
                *first = job as u32;
            } else {
                jobs.join(*first as usize, job);
            }
        }
    }
    jobs.into_sets()
}
