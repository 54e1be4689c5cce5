//! What a state wants planned, and what the planner says: two values, so that planning can happen
//! anywhere and take as long as it likes.

use std::sync::Arc;

use planner::{Job, Plan, PlanInput, PlanReport, Policy};
use topology::Fabric;

/// Everything that a plan is made from.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// How many events it takes into account.
    pub(super) inputs: u64,
    /// The fabric, with what has failed and what is drained.
    pub(crate) fabric: Fabric,
    /// Everything that runs.
    pub(crate) jobs: Vec<Job>,
    pub(super) policy: Policy,
    pub(super) previous: Option<Arc<Plan>>,
}

/// The plan for a question.
#[derive(Clone, Debug)]
pub struct PlanResult {
    pub(super) inputs: u64,
    pub(crate) plan: Arc<Plan>,
    pub(crate) report: Arc<PlanReport>,
}

impl PlanRequest {
    /// What is planned by.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Plans.
    pub fn compute_plan(self) -> PlanResult {
        let Self { inputs, fabric, jobs, policy, previous } = self;
        let (input, policy) = policy.with_adopted_jobs(PlanInput { fabric, jobs });
        let (plan, report) = planner::plan(&input, &policy, previous.as_deref());
        PlanResult { inputs, plan: Arc::new(plan), report: Arc::new(report) }
    }
}
