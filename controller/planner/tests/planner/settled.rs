//! A settled plan does not depend on what was in force before.

use planner::{Job, JobOverride, Plan, PlanDepth, PlanReport, Policy, check_plan, plan_to_depth};
use proptest::prelude::*;
use topology::{AvailabilityChange, Fabric};

use crate::scenario::input;
use crate::stability;

/// Ties of the evaluation: a share of what the GPUs compute.
const TIE: f64 = 1e-3;

/// Something that is reversed later.
#[derive(Clone, Debug)]
enum Disturbance {
    /// A job has this level, and no other.
    Override(usize, u8),
    /// A job leaves.
    Leave(usize),
    /// Another job comes.
    Come(Job),
    /// A cable fails.
    Fail(usize),
}

/// A request, and what happens before the next one.
#[derive(Clone, Debug)]
struct Road {
    fabric: Fabric,
    policy: Policy,
    jobs: Vec<Job>,
    disturbances: Vec<Vec<Disturbance>>,
}

fn road() -> impl Strategy<Value = Road> {
    stability::fabric().prop_flat_map(|fabric| {
        let jobs = stability::jobs(&fabric, 3..9);
        (stability::policy(), jobs).prop_flat_map(move |(policy, jobs)| {
            let fabric = fabric.clone();
            // Where nothing is compared, nothing is settled.
            let search_events = policy.search_events.max(20_000);
            let policy = Policy { search_events, ..policy };
            let (asked, others) = jobs.split_at(jobs.len() - 1);
            let (asked, other) = (asked.to_vec(), others[0].clone());
            let one = prop_oneof![
                (0..asked.len(), 0_u8..8)
                    .prop_map(|(job, level)| Disturbance::Override(job, level)),
                (0..asked.len()).prop_map(Disturbance::Leave),
                Just(Disturbance::Come(other)),
                (0..fabric.links().len() / 2).prop_map(Disturbance::Fail),
            ];
            let steps = prop::collection::vec(prop::collection::vec(one, 1..3), 1..5);
            steps.prop_map(move |disturbances| Road {
                fabric: fabric.clone(),
                policy: policy.clone(),
                jobs: asked.clone(),
                disturbances,
            })
        })
    })
}

impl Road {
    /// The plan of full depth under these disturbances, after `before`.
    fn plan_disturbed(&self, disturbances: &[Disturbance], before: &Plan) -> Plan {
        let (mut fabric, mut policy) = (self.fabric.clone(), self.policy.clone());
        let mut jobs = self.jobs.clone();
        for disturbance in disturbances {
            match disturbance {
                Disturbance::Override(job, level) => {
                    let pattern = format!("job:{}", self.jobs[*job].id);
                    let rule = JobOverride::fixing_level(&pattern, Some(*level));
                    policy.overrides.insert(0, rule);
                }
                Disturbance::Leave(job) => jobs.retain(|other| other.id != self.jobs[*job].id),
                Disturbance::Come(job) if jobs.iter().all(|other| other.id != job.id) => {
                    jobs.push(job.clone());
                }
                Disturbance::Come(_) => {}
                Disturbance::Fail(cable) => {
                    let link = fabric.cables().nth(*cable).unwrap();
                    fabric = fabric.with_changes([AvailabilityChange::LinkDown(link)]);
                }
            }
        }
        plan_to_depth(&input(&fabric, &jobs), &policy, Some(before), PlanDepth::Full).0
    }

    fn plan(&self, before: Option<&Plan>, depth: PlanDepth) -> (Plan, PlanReport) {
        plan_to_depth(&input(&self.fabric, &self.jobs), &self.policy, before, depth)
    }
}

/// What the jobs of compared regions compute, by region.
fn utilizations(report: &PlanReport) -> Vec<(u64, f64)> {
    let regions = report.comparison.regions.iter();
    regions.map(|region| (region.digest, region.candidates[0].gpu_utilization)).collect()
}

proptest! {
    // One in two of the cases: each plans dozens of times.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(2)))]

    #[test]
    fn a_settled_plan_does_not_depend_on_the_road(road in road()) {
        let (cold, explained) = road.plan(None, PlanDepth::Full);
        let mut had = cold.clone();
        for disturbances in &road.disturbances {
            had = road.plan_disturbed(disturbances, &had);
        }
        let (returned, _) = road.plan(Some(&had), PlanDepth::Full);
        let (settled, report) = road.plan(Some(&returned), PlanDepth::Settled);
        prop_assert_eq!(check_plan(&input(&road.fabric, &road.jobs), &road.policy, &settled), []);
        for (now, from_nothing) in settled.jobs.iter().zip(&cold.jobs) {
            prop_assert_eq!(&now.id, &from_nothing.id);
            prop_assert!(now.level >= from_nothing.level, "{now:?} {from_nothing:?}");
        }
        for ((region, now), (same, from_nothing)) in
            utilizations(&report).iter().zip(&utilizations(&explained))
        {
            prop_assert_eq!(region, same);
            prop_assert!(*now >= from_nothing * (1.0 - TIE), "{now} {from_nothing}");
        }
        let (again, _) = road.plan(Some(&settled), PlanDepth::Settled);
        prop_assert_eq!(&again, &settled);
        let (kept, _) = road.plan(Some(&settled), PlanDepth::Full);
        prop_assert_eq!(&kept, &settled);
    }
}
