//! The planner's input as documents, so that other programs can plan for the running fabric.
//!
//! The decision: the documents that users write, as in the [`store`](crate::store), with names
//! instead of ids; failed links are a list beside the fabric, since no fabric document states them.

use std::collections::BTreeMap;

use planner::{
    DocumentFieldError, JobsDocument, PlanInput, Policy, PolicyDocument, SwitchCapabilities,
    join_ports, spread_over_ports,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::spec::{self, FabricDocument};
use topology::{AvailabilityChange, Fabric};

use crate::pipelines::pipeline_of;
use crate::policy_history::PolicyContent;
use crate::state::State;
use crate::store::jobs_document;

/// Fabric, jobs, policy and switch capabilities at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannerInput {
    /// The fabric.
    pub fabric: FabricDocument,
    /// Links that are down, as `leaf1:4>spine1:1`.
    pub down_links: Vec<String>,
    /// The running jobs.
    pub jobs: JobsDocument,
    /// The policy in force; what it drains is drained.
    pub policy: PolicyContent,
    /// What each switch can hold and count, by its name.
    pub capabilities: BTreeMap<String, SwitchCapabilities>,
}

impl PlannerInput {
    pub(super) fn from_state(state: &State) -> Self {
        let request = state.current_request();
        let fabric = &request.fabric;
        let links = fabric.link_ids();
        let down = links.filter(|link| !fabric.is_up(*link));
        let mut policy = state.policy_history().latest().content.clone();
        // A client that plans again does not know the controller's configuration of switches.
        if request.policy.levels != PolicyDocument::default_levels(fabric) {
            policy.policy.levels = Some(request.policy.levels);
        }
        Self {
            down_links: down.map(|link| fabric.link_name(link)).collect(),
            jobs: jobs_document(fabric, &join_ports(fabric, request.jobs.clone())),
            policy,
            capabilities: (fabric.switches().iter())
                .map(|switch| (switch.name.clone(), pipeline_of(switch.pipeline).capabilities()))
                .collect(),
            fabric: spec::explicit_document(fabric),
        }
    }

    /// Resolves the documents to what the planner takes.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn resolve_input(&self) -> Result<(PlanInput, Policy), DocumentFieldError> {
        let fabric = Fabric::try_from(&self.fabric).map_err(|error| DocumentFieldError {
            file: "fabric".to_owned(),
            field: error.field,
            problem: error.problem,
        })?;
        let policy = self.policy.validate("policy", PolicyDocument::default_levels(&fabric))?;
        let drained = policy.apply_drains(&fabric)?;
        let jobs = self.jobs.resolve_jobs(&drained, "jobs")?.jobs;
        let down = self.down_links.iter().filter_map(|name| drained.link_named(name));
        let changes = down.map(AvailabilityChange::LinkDown);
        let fabric = drained.with_changes(changes);
        let jobs = spread_over_ports(&fabric, jobs);
        Ok((PlanInput { fabric, jobs }, policy))
    }
}
