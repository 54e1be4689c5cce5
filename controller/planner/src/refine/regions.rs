//! Regions: jobs that could share links, whatever their paths, and must be decided together.

use topology::groups::DisjointSets;

use crate::plan_context::PlanDepth;
use crate::policy::Policy;
use crate::traffic::IndexedTraffic;

/// Stands for no job: there are many areas, and a number is half as large as an option.
const NO_JOB: u32 = u32::MAX;

/// Flows of a region that is compared, at most.
const MAX_COMPARED_FLOWS: usize = 40_000;

/// Groups of jobs, by ordinal and ascending, none of which can share a link with another group.
pub(crate) fn find_regions(traffic: &IndexedTraffic<'_>) -> Vec<Vec<usize>> {
    let mut jobs = DisjointSets::new(traffic.jobs.len());
    let mut first_in = vec![NO_JOB; traffic.tables.area_count()];
    for (job, routes) in traffic.routes.iter().enumerate() {
        for area in &routes.areas {
            let first = &mut first_in[area.index()];
            if *first == NO_JOB {
                // Joined with the first job of the area only: the sets make the rest of the pairs.
                *first = job as u32;
            } else {
                jobs.join(*first as usize, job);
            }
        }
    }
    jobs.into_sets()
}

/// The regions in which candidates are compared: at least two jobs, which share links with no
/// others.
pub(crate) fn comparable_regions(traffic: &IndexedTraffic<'_>, policy: &Policy) -> Vec<Vec<usize>> {
    if budget_per_job(traffic, policy) == 0 {
        return Vec::new();
    }
    let mut regions = find_regions(traffic);
    regions.retain(|region| region.len() > 1);
    regions
}

/// Whether a region has so many flows that it is not compared after all.
pub(crate) fn is_oversized(traffic: &IndexedTraffic<'_>, region: &[usize]) -> bool {
    traffic.count_flows(region) > MAX_COMPARED_FLOWS
}

/// The depth to which a plan is made: it is settled only where the judge can say whether what runs is
/// as good as what is decided from nothing. Elsewhere every change would move flows of all jobs.
pub(crate) fn judged_depth(
    traffic: &IndexedTraffic<'_>,
    policy: &Policy,
    depth: PlanDepth,
) -> PlanDepth {
    let is_judged = || {
        budget_per_job(traffic, policy) > 0
            && find_regions(traffic).iter().all(|region| !is_oversized(traffic, region))
    };
    if depth == PlanDepth::Settled && !is_judged() { PlanDepth::Full } else { depth }
}

/// Events for each job. A power of two divides them, so that a job that comes or goes seldom
/// changes the share of the others.
pub(crate) fn budget_per_job(traffic: &IndexedTraffic<'_>, policy: &Policy) -> u64 {
    // A power of two, so that the budget, and with it the plan, does not change with every job that
    // comes or goes.
    policy.search_events / traffic.jobs.len().next_power_of_two().max(1) as u64
}
