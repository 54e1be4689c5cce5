//! The documents that say what is planned for, as several commands take them: a fabric, the jobs on
//! it, and the operator's policy.

use planner::{PlanInput, Policy, PolicyDocument};
use topology::Finding;

use crate::command_error::CommandError;
use crate::files;

/// The files.
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

/// What is in them.
#[derive(Clone, Debug)]
pub struct InputDocuments {
    /// The fabric, with what policy drains, and its jobs.
    pub input: PlanInput,
    /// The policy.
    pub policy: Policy,
    /// What is odd about the jobs.
    pub findings: Vec<Finding>,
}

impl InputDocumentArgs {
    /// Reads them.
    pub fn read_documents(&self) -> Result<InputDocuments, CommandError> {
        self.read_with(|_| {})
    }

    /// Reads them, the policy with a change before it is validated.
    pub fn read_with(
        &self,
        change: impl FnOnce(&mut PolicyDocument),
    ) -> Result<InputDocuments, CommandError> {
        let policy = files::policy_with(self.policy.as_deref(), change)?;
        let fabric = files::read_fabric(&self.fabric)?;
        policy.check_on(&fabric).map_err(CommandError::document)?;
        let fabric = policy.apply_drains(&fabric).map_err(CommandError::document)?;
        let (jobs, findings) = files::read_jobs(&self.jobs, &fabric)?;
        Ok(InputDocuments { input: PlanInput { fabric, jobs }, policy, findings })
    }
}
