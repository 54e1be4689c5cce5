//! The request for a plan and its result: two values, so that planning can run on any thread and
//! take as long as it needs.

use std::sync::Arc;

use planner::{Interrupt, Job, Plan, PlanDepth, PlanInput, PlanMemory, PlanReport, Policy};
use topology::{Fabric, Finding};

use crate::pipelines::FabricWiring;

/// Everything that a plan is computed from.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// How many events it takes into account.
    pub(super) inputs: u64,
    /// The fabric, with failed and drained parts.
    pub(crate) fabric: Fabric,
    /// All jobs to plan for.
    pub(crate) jobs: Vec<Job>,
    /// The fabric, prepared for lowering.
    pub(crate) wiring: Arc<FabricWiring>,
    pub(crate) policy: Policy,
    pub(super) previous: Option<Arc<Plan>>,
    pub(super) depth: PlanDepth,
    /// The plan in force with its report, whose comparisons the new report keeps.
    pub(super) in_force: Option<(Arc<Plan>, Arc<PlanReport>)>,
    /// What is wrong with the jobs, for the report.
    pub(super) findings: Vec<Finding>,
}

/// The plan for a request.
#[derive(Clone, Debug)]
pub struct PlanResult {
    pub(super) inputs: u64,
    pub(super) depth: PlanDepth,
    pub(crate) plan: Arc<Plan>,
    pub(crate) report: Arc<PlanReport>,
}

impl PlanRequest {
    /// Whether it is to improve a plan that is in force already; it may be superseded.
    pub(crate) fn is_refinement(&self) -> bool {
        self.depth != PlanDepth::Quick
    }

    /// The request for the plan from nothing.
    pub(crate) fn settled(self) -> Self {
        Self { depth: PlanDepth::Settled, ..self }
    }

    /// The request of full depth.
    pub(crate) fn at_full_depth(self) -> Self {
        Self { depth: PlanDepth::Full, ..self }
    }

    /// The request with an interrupt, after which its plan must not be used.
    pub(crate) fn with_interrupt(mut self, interrupt: Interrupt) -> Self {
        self.policy.interrupt = interrupt;
        self
    }

    /// The policy to plan by.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Computes the plan from nothing; may take long.
    pub fn compute_plan(self) -> PlanResult {
        self.continue_plan(&mut PlanMemory::default())
    }

    /// Computes that plan at the cost of what differs from the one that `memory` is of, which is of
    /// this one afterwards. A flow for whose pin some switch has no room is left to ECMP, and a
    /// finding of the report names it.
    pub fn continue_plan(self, memory: &mut PlanMemory) -> PlanResult {
        let Self { inputs, fabric, jobs, wiring, policy, previous, depth, in_force, findings } =
            self;
        let input = PlanInput { fabric: fabric.clone(), jobs };
        let (input, policy) = policy.with_adopted_jobs(input);
        let (mut plan, mut report) =
            memory.plan_to_depth(input, &policy, previous.as_deref(), depth);
        let shortages = wiring.find_shortages(&fabric, &plan);
        if !shortages.spilled.is_empty() {
            plan = memory.unpin_flows(plan, shortages.spilled.keys().copied());
        }
        report.unpinned = shortages.spilled;
        report.findings.extend(findings.into_iter().chain(shortages.findings));
        if let Some((plan_in_force, earlier)) = in_force {
            report.keep_earlier(&plan, &policy, &plan_in_force, &earlier.comparison);
        }
        PlanResult { inputs, depth, plan, report: Arc::new(report) }
    }
}
