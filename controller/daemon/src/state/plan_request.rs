//! The request for a plan and its result: two values, so that planning can run on any thread and
//! take as long as it needs.

use std::sync::Arc;

use planner::{Job, Plan, PlanEffort, PlanInput, PlanReport, Policy};
use topology::Fabric;

/// Everything that a plan is computed from.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// How many events it takes into account.
    pub(super) inputs: u64,
    /// The fabric, with failed and drained parts.
    pub(crate) fabric: Fabric,
    /// All jobs to plan for.
    pub(crate) jobs: Vec<Job>,
    pub(super) policy: Policy,
    pub(super) previous: Option<Arc<Plan>>,
    pub(super) effort: PlanEffort,
}

/// The plan for a request.
#[derive(Clone, Debug)]
pub struct PlanResult {
    pub(super) inputs: u64,
    pub(super) effort: PlanEffort,
    pub(crate) plan: Arc<Plan>,
    pub(crate) report: Arc<PlanReport>,
}

impl PlanRequest {
    /// Whether it is to improve a plan that is in force already; it may be superseded.
    pub(crate) fn is_refinement(&self) -> bool {
        self.effort == PlanEffort::Full
    }

    /// The request with full effort.
    pub(crate) fn with_full_effort(self) -> Self {
        Self { effort: PlanEffort::Full, ..self }
    }

    /// The policy to plan by.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Computes the plan; may take long.
    pub fn compute_plan(self) -> PlanResult {
        let Self { inputs, fabric, jobs, policy, previous, effort } = self;
        let (input, policy) = policy.with_adopted_jobs(PlanInput { fabric, jobs });
        let (plan, report) =
            planner::plan_with_effort(&input, &policy, previous.as_deref(), effort);
        PlanResult { inputs, effort, plan: Arc::new(plan), report: Arc::new(report) }
    }
}
