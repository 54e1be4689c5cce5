//! Plans that continue from a memory are those that are made from nothing, whatever the inputs
//! before were.

use std::sync::Arc;

use planner::{Job, Plan, PlanDepth, PlanMemory, Policy, plan_to_depth};
use proptest::prelude::*;
use topology::{AvailabilityChange, Fabric};

use crate::scenario::input;
use crate::stability;

/// One input, and what becomes of its plan.
#[derive(Clone, Debug)]
struct PlanningStep {
    /// Everything is as in the step before.
    is_same: bool,
    /// Jobs of the same names differ from step to step.
    jobs: Vec<Job>,
    failures: Vec<AvailabilityChange>,
    policy: Policy,
    depth: PlanDepth,
    /// The switches have no room for this pin.
    unpinned: Option<usize>,
    refinement: RefinementOutcome,
}

/// The plan of full depth that follows for the same inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RefinementOutcome {
    None,
    Adopted,
    /// An event came: the next plan follows the one before, but the memory is of this one.
    Superseded,
}

fn refinement() -> impl Strategy<Value = RefinementOutcome> {
    use RefinementOutcome::{Adopted, None, Superseded};
    prop::sample::select(vec![None, Adopted, Superseded])
}

fn steps() -> impl Strategy<Value = (Fabric, Vec<PlanningStep>)> {
    stability::fabric().prop_flat_map(|fabric| {
        let jobs = prop::collection::vec(stability::jobs(&fabric, 0..9), 2..4);
        let is_compared = prop::bool::weighted(0.3);
        let parts = (jobs, stability::policy(), stability::policy(), is_compared);
        let of_fabric = fabric.clone();
        let steps = parts.prop_flat_map(move |(jobs, policy, other, is_compared)| {
            let search_events = if is_compared { 32_000 } else { 0 };
            let [policy, other] = [policy, other].map(|policy| Policy { search_events, ..policy });
            // Mostly only the levels of some jobs change, as when one is profiled.
            let relevelled = Policy { overrides: other.overrides.clone(), ..policy.clone() };
            let policies = vec![policy, relevelled, other];
            let choices = (
                prop::bool::weighted(0.3),
                prop::sample::subsequence((0..9_usize).collect::<Vec<_>>(), 0..=9),
                prop::sample::select(jobs),
                prop_oneof![3 => Just(Vec::new()), 1 => stability::changes(&of_fabric)],
                prop::sample::select(policies),
                prop::sample::select(vec![PlanDepth::Full, PlanDepth::Quick, PlanDepth::Quick]),
                (prop::option::weighted(0.2, 0_usize..20), refinement()),
            );
            let step =
                choices.prop_map(|(is_same, names, jobs, failures, policy, depth, after)| {
                    let jobs = names.into_iter().filter_map(|name| jobs.get(name).cloned());
                    let (jobs, (unpinned, refinement)) = (jobs.collect(), after);
                    PlanningStep { is_same, jobs, failures, policy, depth, unpinned, refinement }
                });
            prop::collection::vec(step, 2..8)
        });
        (Just(fabric), steps)
    })
}

proptest! {
    #[test]
    fn a_memory_changes_no_plan((fabric, steps) in steps()) {
        let mut memory = PlanMemory::default();
        let mut in_force: Option<Arc<Plan>> = None;
        let mut before: Option<PlanningStep> = None;
        for mut step in steps {
            let repeated = before.filter(|_| step.is_same);
            if let Some(PlanningStep { jobs, failures, policy, .. }) = repeated {
                step = PlanningStep { jobs, failures, policy, ..step };
            }
            before = Some(step.clone());
            let now = input(&fabric.with_changes(step.failures.clone()), &step.jobs);
            let mut continued = |previous: Option<&Plan>, depth| {
                let (expected, report) = plan_to_depth(&now, &step.policy, previous, depth);
                let planned = memory.plan_to_depth(now.clone(), &step.policy, previous, depth);
                prop_assert_eq!(&*planned.0, &expected);
                prop_assert_eq!(&planned.1, &report);
                prop_assert_eq!(&planned.0.compared_inputs.0, &expected.compared_inputs.0);
                let unpinned = step.unpinned.filter(|flow| *flow < expected.flows.len());
                Ok(match unpinned {
                    Some(flow) => memory.unpin_flows(planned.0, [flow].into_iter()),
                    None => planned.0,
                })
            };
            let plan = continued(in_force.as_deref(), step.depth)?;
            in_force = Some(match step.refinement {
                RefinementOutcome::None => plan,
                RefinementOutcome::Adopted => continued(Some(&plan), PlanDepth::Full)?,
                RefinementOutcome::Superseded => {
                    continued(Some(&plan), PlanDepth::Full)?;
                    plan
                }
            });
        }
    }
}
