//! What is planned for, as documents: so that others can ask the planner's questions of the fabric
//! as it is, elsewhere and at their leisure.
//!
//! The decision: names and the documents that users write, as in the [`store`](crate::store); what
//! has failed is a list beside the fabric, since no document says that of itself.

use planner::{DocumentFieldError, JobsDocument, PlanInput, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::spec::{self, FabricDocument};
use topology::{AvailabilityChange, Fabric};

use crate::policy_history::PolicyContent;
use crate::state::State;
use crate::store::jobs_document;

/// Fabric, jobs and policy at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannerInput {
    /// The fabric, with all that belongs to it.
    pub fabric: FabricDocument,
    /// Its links that do not work, as `leaf1:4>spine1:1`.
    pub down: Vec<String>,
    /// The jobs that run.
    pub jobs: JobsDocument,
    /// The policy in force; what it drains is drained.
    pub policy: PolicyContent,
}

impl PlannerInput {
    /// That of a controller.
    pub(super) fn from_state(state: &State) -> Self {
        let question = state.current_request();
        let fabric = &question.fabric;
        let links = fabric.link_ids();
        let down = links.filter(|link| !fabric.is_up(*link));
        Self {
            down: down.map(|link| fabric.link_name(link)).collect(),
            jobs: jobs_document(fabric, &question.jobs),
            policy: state.policy_history().latest().content.clone(),
            fabric: spec::explicit_document(fabric),
        }
    }

    /// What the planner takes.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn resolve_input(&self) -> Result<(PlanInput, Policy), DocumentFieldError> {
        let fabric = Fabric::try_from(&self.fabric).map_err(|error| DocumentFieldError {
            file: "fabric".to_owned(),
            field: error.field,
            problem: error.problem,
        })?;
        let policy = self.policy.validate("policy")?;
        let fabric = policy.apply_drains(&fabric)?;
        let jobs = self.jobs.resolve_jobs(&fabric, "jobs")?.jobs;
        let down = self.down.iter().filter_map(|name| fabric.link_named(name));
        let fabric = fabric.with_changes(down.map(AvailabilityChange::LinkDown));
        Ok((PlanInput { fabric, jobs }, policy))
    }
}
