//! The documents that say what is planned for, as several commands take them: a fabric, the jobs on
//! it, and the operator's policy.

use planner::{Input, Policy, PolicyDocument};
use topology::Finding;

use crate::failure::Failure;
use crate::files;

/// The files.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    #[arg(long)]
    pub(crate) fabric: String,
    /// Jobs document
    #[arg(long)]
    pub(crate) jobs: String,
    /// Policy document; without one, the defaults
    #[arg(long)]
    pub(crate) policy: Option<String>,
}

/// What is in them.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The fabric, with what policy drains, and its jobs.
    pub(crate) input: Input,
    /// The policy.
    pub(crate) policy: Policy,
    /// What is odd about the jobs.
    pub(crate) findings: Vec<Finding>,
}

impl InputArgs {
    /// Reads them.
    pub(crate) fn read(&self) -> Result<Known, Failure> {
        self.read_with(|_| {})
    }

    /// Reads them, the policy with a change before it is validated.
    pub(crate) fn read_with(
        &self,
        change: impl FnOnce(&mut PolicyDocument),
    ) -> Result<Known, Failure> {
        let policy = files::policy_with(self.policy.as_deref(), change)?;
        let fabric = files::fabric(&self.fabric)?;
        policy.check_on(&fabric).map_err(Failure::document)?;
        let fabric = policy.apply_drains(&fabric).map_err(Failure::document)?;
        let (jobs, findings) = files::jobs(&self.jobs, &fabric)?;
        Ok(Known {
            input: Input { fabric, jobs },
            policy,
            findings,
        })
    }
}
