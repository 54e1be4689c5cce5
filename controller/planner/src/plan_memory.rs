//! Planning the whole input again and again, at the cost of what differs.
//!
//! A controller hands the planner everything each time, so that nothing can miss an update. The
//! decision: what the last plan was made from is kept, and the new input is compared with it. Where
//! fabric and plan in force are the same, as after most events, an [`IncrementalPlanner`] goes on;
//! elsewhere it begins anew. The plan is the same in both cases.

use std::sync::Arc;

use topology::{Fabric, Forwarding};

use crate::incremental::IncrementalPlanner;
use crate::input::PlanInput;
use crate::plan::Plan;
use crate::plan_context::PlanDepth;
use crate::policy::Policy;
use crate::report::PlanReport;
use crate::trunks::TrunkedFabric;

/// What one plan leaves for the next; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct PlanMemory(Option<Remembered>);

/// The plan that was made last.
#[derive(Clone, Debug)]
enum Remembered {
    /// With what it was made from: the next one goes on from that.
    Planner(Box<PlannerMemory>),
    /// Of pins and spraying: the next one begins anew.
    Plan(Arc<Plan>),
}

/// A planner, with what it plans for where that is a fabric that sprays.
#[derive(Clone, Debug)]
struct PlannerMemory {
    planner: IncrementalPlanner,
    spraying: Option<SprayedPlan>,
}

/// A plan for a fabric that sprays; the planner has it on trunks.
#[derive(Clone, Debug)]
struct SprayedPlan {
    fabric: Fabric,
    trunks: TrunkedFabric,
    plan: Arc<Plan>,
}

impl PlannerMemory {
    fn new(input: PlanInput, policy: &Policy, previous: Option<&Plan>, depth: PlanDepth) -> Self {
        let PlanInput { fabric, jobs } = input;
        let begin = |fabric: Fabric| {
            IncrementalPlanner::with_depth(&PlanInput { fabric, jobs }, policy, previous, depth)
        };
        if fabric.forwarding() != Forwarding::Spray {
            return Self { planner: begin(fabric), spraying: None };
        }
        let trunks = TrunkedFabric::new(&fabric);
        let planner = begin(trunks.fabric.clone());
        let plan = planner.shared_plan();
        Self { planner, spraying: Some(SprayedPlan { fabric, trunks, plan }) }
    }

    /// Whether the plan that follows `previous` on this fabric under this policy follows from it.
    fn can_continue(&self, fabric: &Fabric, policy: &Policy, previous: &Plan) -> bool {
        let Self { planner, spraying } = self;
        match spraying {
            None => planner.can_continue(fabric, policy, previous),
            Some(SprayedPlan { fabric: had, trunks, plan }) => {
                let is_in_force = std::ptr::eq(previous, &**plan) || *previous == **plan;
                let inner = planner.plan();
                is_in_force && had == fabric && planner.can_continue(&trunks.fabric, policy, inner)
            }
        }
    }

    /// The latest plan and its report, in terms of the fabric as it is.
    fn latest(&mut self, previous: Option<&Plan>) -> (Arc<Plan>, PlanReport) {
        let report = self.planner.report();
        let Some(SprayedPlan { trunks, plan, .. }) = &mut self.spraying else {
            return (self.planner.shared_plan(), report);
        };
        let (restored, report) = trunks.restore(self.planner.plan().clone(), report);
        *plan = Arc::new(restored.succeeding(previous));
        (Arc::clone(plan), report)
    }
}

impl PlanMemory {
    /// The plan of [`plan_to_depth`](crate::plan_to_depth) and its report, at the cost of what
    /// differs from the input of the last plan.
    pub fn plan_to_depth(
        &mut self,
        input: PlanInput,
        policy: &Policy,
        previous: Option<&Plan>,
        depth: PlanDepth,
    ) -> (Arc<Plan>, PlanReport) {
        if input.fabric.forwarding() == Forwarding::Auto {
            let (plan, report) = crate::plan_to_depth(&input, policy, previous, depth);
            let plan = Arc::new(plan);
            self.0 = Some(Remembered::Plan(Arc::clone(&plan)));
            return (plan, report);
        }
        if depth != PlanDepth::Settled
            && let (Some(Remembered::Planner(had)), Some(in_force)) = (&mut self.0, previous)
            && had.can_continue(&input.fabric, policy, in_force)
        {
            had.planner.plan_for_jobs(input.jobs, policy, &in_force.compared_inputs, depth);
            return had.latest(previous);
        }
        let mut begun = PlannerMemory::new(input, policy, previous, depth);
        let planned = begun.latest(previous);
        self.0 = Some(Remembered::Planner(Box::new(begun)));
        planned
    }

    /// The plan that was made last.
    pub fn latest_plan(&self) -> Option<Arc<Plan>> {
        Some(match self.0.as_ref()? {
            Remembered::Plan(plan) => Arc::clone(plan),
            Remembered::Planner(had) => match &had.spraying {
                Some(SprayedPlan { plan, .. }) => Arc::clone(plan),
                None => had.planner.shared_plan(),
            },
        })
    }

    /// `plan`, which was made last here, with some of its flows, by position, left to ECMP: their
    /// switches have no room for pins. The next plan follows that one.
    pub fn unpin_flows(
        &mut self,
        plan: Arc<Plan>,
        flows: impl Iterator<Item = usize>,
    ) -> Arc<Plan> {
        let mut unpinned = Arc::unwrap_or_clone(plan);
        flows.for_each(|flow| unpinned.flows[flow].pinned = false);
        let unpinned = Arc::new(unpinned);
        match &mut self.0 {
            Some(Remembered::Plan(plan)) => *plan = Arc::clone(&unpinned),
            Some(Remembered::Planner(had)) => match &mut had.spraying {
                Some(SprayedPlan { plan, .. }) => *plan = Arc::clone(&unpinned),
                None => had.planner.replace_pins(&unpinned),
            },
            None => {}
        }
        unpinned
    }
}

#[cfg(test)]
mod tests {
    use topology::AvailabilityChange;
    use topology::clos::{ClosSpec, build_clos};

    use super::*;
    use crate::policy::JobOverride;

    /// A memory that never continued would change no plan, either.
    #[test]
    fn other_levels_are_planned_from_the_memory_and_other_links_are_not() {
        let spec = ClosSpec { leaves: 2, spines: 2, hosts_per_leaf: 1, ..ClosSpec::default() };
        let fabric = build_clos("small", &spec).unwrap();
        let input = PlanInput { fabric: fabric.clone(), jobs: Vec::new() };
        let mut memory = PlanMemory::default();
        let policy = Policy::default();
        let (plan, _) = memory.plan_to_depth(input, &policy, None, PlanDepth::Quick);

        let continues = |fabric: &_, policy: &_, in_force: &_| matches!(&memory.0, Some(Remembered::Planner(had)) if had.can_continue(fabric, policy, in_force));
        let level = JobOverride::fixing_level("job:a", Some(7));
        let profiled = Policy { overrides: vec![level], ..policy.clone() };
        assert!(continues(&fabric, &profiled, &plan));
        assert!(continues(&fabric, &policy, &Plan::clone(&plan)));
        let moved = Plan { generation: plan.generation + 1, ..Plan::clone(&plan) };
        assert!(!continues(&fabric, &policy, &moved));
        let sticky = Policy { move_gain_min: 0.5, ..policy.clone() };
        assert!(!continues(&fabric, &sticky, &plan));
        let cable = fabric.cables().next().unwrap();
        let cut = fabric.with_changes([AvailabilityChange::LinkDown(cable)]);
        assert!(!continues(&cut, &policy, &plan));
    }
}
