//! The request for a plan and its result: two values, so that planning can run on any thread and
//! take as long as it needs.

use std::sync::Arc;

use planner::{Job, Plan, PlanInput, PlanReport, Policy};
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
}

/// The plan for a request.
#[derive(Clone, Debug)]
pub struct PlanResult {
    pub(super) inputs: u64,
    pub(crate) plan: Arc<Plan>,
    pub(crate) report: Arc<PlanReport>,
}

impl PlanRequest {
    /// The policy to plan by.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Computes the plan; may take long.
    pub fn compute_plan(self) -> PlanResult {
        let Self { inputs, fabric, jobs, policy, previous } = self;
        let (input, policy) = policy.with_adopted_jobs(PlanInput { fabric, jobs });
        let (plan, report) = planner::plan(&input, &policy, previous.as_deref());
        PlanResult { inputs, plan: Arc::new(plan), report: Arc::new(report) }
    }
}
