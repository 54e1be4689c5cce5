//! The documents of a planner's input, as several commands take them: a fabric, its jobs, and the
//! policy.

use planner::{PlanInput, Policy, PolicyDocument, spread_over_ports};
use topology::Finding;

use crate::command_error::CommandError;
use crate::files;

/// Files of the documents that a command reads.
#[derive(clap::Args, Clone, Debug)]
pub struct InputDocumentArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    #[arg(long)]
    pub fabric: String,
    /// Jobs document
    #[arg(long)]
    pub jobs: String,
    /// Policy document; without one, the defaults
    #[arg(long)]
    pub policy: Option<String>,
}

/// The contents of the documents.
#[derive(Clone, Debug)]
pub struct InputDocuments {
    /// The fabric after drains, and its jobs.
    pub input: PlanInput,
    /// The validated policy.
    pub policy: Policy,
    /// Findings about the jobs.
    pub findings: Vec<Finding>,
}

impl InputDocumentArgs {
    /// Reads and validates the documents.
    pub fn read_documents(&self) -> Result<InputDocuments, CommandError> {
        self.read_with(|_| {})
    }

    /// Reads the documents, with a change of the policy before it is validated.
    pub fn read_with(
        &self,
        change: impl FnOnce(&mut PolicyDocument),
    ) -> Result<InputDocuments, CommandError> {
        let fabric = files::read_fabric(&self.fabric)?;
        let levels = PolicyDocument::default_levels(&fabric);
        let policy = files::policy_with(self.policy.as_deref(), levels, change)?;
        policy.check_on(&fabric).map_err(CommandError::document)?;
        let fabric = policy.apply_drains(&fabric).map_err(CommandError::document)?;
        let (jobs, findings) = files::read_jobs(&self.jobs, &fabric)?;
        let jobs = spread_over_ports(&fabric, jobs);
        Ok(InputDocuments { input: PlanInput { fabric, jobs }, policy, findings })
    }
}
