//! Incremental planning: after each event the plan equals the one that `plan` makes of all jobs.

use planner::{
    IncrementalPlanner, Job, JobEventError, JobId, PlanDepth, Policy, check_plan, plan_to_depth,
};
use proptest::prelude::*;
use topology::{Fabric, Forwarding};

use crate::scenario::{clos, input, ring};
use crate::stability;

/// A fabric, a policy, the first jobs, and jobs that arrive or, if they are there, depart.
#[derive(Clone, Debug)]
struct Story {
    fabric: Fabric,
    policy: Policy,
    depth: PlanDepth,
    first: Vec<Job>,
    events: Vec<Job>,
}

fn story() -> impl Strategy<Value = Story> {
    // A memory has trunks for a fabric that sprays; this planner takes fabrics as they are.
    let pinning = stability::fabric().prop_map(|fabric| fabric.with_forwarding(Forwarding::Pin));
    pinning.prop_flat_map(|fabric| {
        let jobs = stability::jobs(&fabric, 6..14);
        let depth = prop::sample::select(vec![PlanDepth::Full, PlanDepth::Quick]);
        let parts = (stability::policy(), jobs, 0_usize..8, prop::bool::weighted(0.2), depth);
        parts.prop_flat_map(move |(policy, jobs, there, is_searched, depth)| {
            let fabric = fabric.clone();
            let policy = Policy {
                search_events: if is_searched { policy.search_events } else { 0 },
                ..policy
            };
            let events = prop::collection::vec(prop::sample::select(jobs.clone()), 1..8);
            events.prop_map(move |events| Story {
                fabric: fabric.clone(),
                policy: policy.clone(),
                depth,
                first: jobs[..there.min(jobs.len())].to_vec(),
                events,
            })
        })
    })
}

proptest! {
    #[test]
    fn events_give_the_plan_of_all_jobs(story in story()) {
        let mut jobs = story.first.clone();
        let first = input(&story.fabric, &jobs);
        let mut planner =
            IncrementalPlanner::with_depth(&first, &story.policy, None, story.depth);
        let (mut previous, mut earlier) = plan_to_depth(&first, &story.policy, None, story.depth);
        prop_assert_eq!(planner.plan(), &previous);
        for job in story.events {
            match jobs.iter().position(|other| other.id == job.id) {
                Some(there) => {
                    jobs.remove(there);
                    planner.remove_job(&job.id).unwrap();
                }
                None => {
                    jobs.push(job.clone());
                    planner.add_job(job).unwrap();
                }
            }
            let now = input(&story.fabric, &jobs);
            let (expected, mut report) =
                plan_to_depth(&now, &story.policy, Some(&previous), story.depth);
            report.comparison.keep_earlier(&expected, &previous, &earlier.comparison);
            prop_assert_eq!(planner.plan(), &expected);
            prop_assert_eq!(&planner.report(), &report);
            prop_assert_eq!(check_plan(&now, &story.policy, &expected), []);
            (previous, earlier) = (expected, report);
        }
    }
}

/// After quick events a comparison makes up for what they left out.
#[test]
fn a_comparison_after_quick_events_is_one_of_all_jobs() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4], 4e9)];
    let policy = Policy::default();
    let first = input(&fabric, &jobs[..1]);
    let mut planner = IncrementalPlanner::with_depth(&first, &policy, None, PlanDepth::Quick);
    planner.add_job(jobs[1].clone()).unwrap();
    let quick = planner.plan().clone();
    assert!(planner.report().comparison.is_provisional);
    planner.compare_candidates();
    assert!(!planner.report().comparison.is_provisional);
    let expected = plan_to_depth(&input(&fabric, &jobs), &policy, Some(&quick), PlanDepth::Full).0;
    assert_eq!(planner.plan(), &expected);
}

#[test]
fn impossible_events_are_refused_by_name() {
    let fabric = clos(2, 2, 3);
    let job = ring(&fabric, "a", &[0, 3], 4e9);
    let mut planner = IncrementalPlanner::new(
        &input(&fabric, std::slice::from_ref(&job)),
        &Policy::default(),
        None,
    );
    let id = job.id.clone();
    assert_eq!(planner.add_job(job), Err(JobEventError::AlreadyPresent(id.clone())));
    let absent = JobId::from("b");
    assert_eq!(planner.remove_job(&absent), Err(JobEventError::Absent(absent)));
    assert_eq!(planner.remove_job(&id), Ok(()));
    assert!(planner.plan().jobs.is_empty());
}
