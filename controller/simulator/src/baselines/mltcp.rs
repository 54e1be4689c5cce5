//! MLTCP (Rajasekaran, Narang, Zabreyko and Ghobadi, "MLTCP: A Distributed Technique to Approximate
//! Centralized Flow Scheduling For Machine Learning", HotNets 2024, arXiv 2402.09589): congestion
//! control whose aggressiveness grows with the part of an iteration's bytes that a flow has sent.
//!
//! Of jobs that begin to send at different times the first gets more and more of the link, ends
//! earlier, and begins the next iteration earlier still, until they take turns. The paper scales
//! the window's increase by `F(x) = 1.75 x + 0.25`; here flows share links in the ratio of their `F`,
//! at once ([`fluid::ServiceDiscipline::BytesSent`]). Its transports (Reno, CUBIC, DCQCN) converge to
//! that ratio, and so are not faster.
//!
//! Paths are ECMP's, and there are no levels. In a model without noise jobs that are equal would
//! stay together for ever, so each begins a hundredth of its computation later for every job before it
//! that it shares a link with.

use std::collections::{BTreeMap, BTreeSet};

use fluid::ServiceDiscipline;
use planner::PlanInput;
use topology::LinkId;

use crate::baselines::ecmp;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// By how much of its computation a job begins later for each job before it on its links.
const START_DISTANCE: f64 = 0.01;

/// ECMP's paths, and shares by the bytes sent.
pub fn schedule_jobs(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    let mut schedule = ecmp::schedule_jobs(input, routes);
    let mut jobs_on: BTreeMap<LinkId, BTreeSet<usize>> = BTreeMap::new();
    for (place, (scheduled, job)) in schedule.jobs.iter_mut().zip(&input.jobs).enumerate() {
        let links: BTreeSet<LinkId> = scheduled.paths.iter().flatten().copied().collect();
        let before: BTreeSet<usize> =
            links.iter().filter_map(|link| jobs_on.get(link)).flatten().copied().collect();
        scheduled.start_shift_seconds = before.len() as f64 * START_DISTANCE * job.compute_seconds;
        for link in links {
            jobs_on.entry(link).or_default().insert(place);
        }
    }
    Schedule { discipline: ServiceDiscipline::BytesSent, ..schedule }
}
