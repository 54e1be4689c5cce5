//! Packet spraying: every switch spreads the packets of a flow evenly over its equal-cost links,
//! and there is one level.
//!
//! A flow is as many flows of equal parts as it has paths, one on each. That is what spraying by
//! turns gives in the mean; it is an upper bound of it, because packets out of order cost nothing
//! here, and nothing waits for one that was lost. The parts of a flow do not adapt to what other
//! jobs send, as adaptive routing would.

use planner::{Flow, Job, PlanInput};
use topology::{Fabric, LinkId};

use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;

/// Parts of one flow at most. Paths beyond carry nothing of it, which matters little to a link that
/// many flows share.
const MOST_PARTS: usize = 64;

/// Takes the flows of jobs into parts, as many as each has paths.
pub fn spread_flows<'j>(fabric: &Fabric, jobs: impl IntoIterator<Item = &'j mut Job>) {
    let mut routes = EqualCostRoutes::new(fabric);
    for job in jobs {
        routes.add_job(job);
        job.flows = parts_of_flows(job, &routes);
    }
}

fn parts_of_flows(job: &Job, routes: &EqualCostRoutes) -> Vec<Flow> {
    let flows = job.flows.iter().flat_map(|flow| {
        let parts = routes.all_paths(flow).len().clamp(1, MOST_PARTS);
        let part = Flow { bytes: flow.bytes / parts as f64, ..*flow };
        std::iter::repeat_n(part, parts)
    });
    flows.collect()
}

/// The paths of a job's flows, which are parts: in turn.
pub fn on_all_paths(job: &Job, routes: &EqualCostRoutes) -> Vec<Vec<LinkId>> {
    routes.paths_in_turn(job, |paths| paths)
}

/// The paths of the flows of `job`, which may be the parts of those of `whole`: each has that of its flow.
pub fn on_paths_of(whole: &Job, paths: &[Vec<LinkId>], job: &Job) -> Vec<Vec<LinkId>> {
    let mut parts = job.flows.iter().peekable();
    let mut chosen = Vec::with_capacity(job.flows.len());
    for (flow, path) in whole.flows.iter().zip(paths) {
        let mut left = flow.bytes;
        // Parts of one flow are equal: half of one is more than a rounding error.
        while let Some(part) = parts.next_if(|part| left >= part.bytes / 2.0) {
            left -= part.bytes;
            chosen.push(path.clone());
            if left <= 0.0 {
                break;
            }
        }
    }
    chosen
}

/// The parts of a flow on its paths in turn, one level.
pub fn schedule_jobs(input: &PlanInput, routes: &EqualCostRoutes) -> Schedule {
    let paths = input.jobs.iter().map(|job| on_all_paths(job, routes)).collect();
    Schedule::from_levels(&vec![0; input.jobs.len()], paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::test_input::TestInput;

    #[test]
    fn a_flow_is_on_all_its_paths_in_equal_parts() {
        let input = TestInput::on_lab_fabric().with_job("a", &[("h1", "h4"), ("h1", "h2")]);
        let whole: f64 = input.jobs[0].flows.iter().map(|flow| flow.bytes).sum();
        let mut input = input.to_input();
        spread_flows(&input.fabric, &mut input.jobs);
        // Two spines to another leaf, one way to a host of the leaf itself.
        let flows = &input.jobs[0].flows;
        assert_eq!(flows.len(), 3);
        assert!((flows.iter().map(|flow| flow.bytes).sum::<f64>() - whole).abs() < 1.0);
        let schedule = schedule_jobs(&input, &EqualCostRoutes::for_input(&input));
        let paths = &schedule.jobs[0].paths;
        assert!(schedule.jobs[0].is_connected());
        assert_ne!(paths[0], paths[1]);
        assert_eq!((paths[0].len(), paths[2].len()), (4, 2));
    }
}
