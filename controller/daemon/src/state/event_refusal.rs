//! Why an event is refused, and the checks that decide it.

use std::collections::BTreeSet;

use planner::{DocumentFieldError, Job, Policy};
use topology::{Fabric, Finding};

use crate::pipeline::WiringError;
use crate::policy_history::PolicyHistoryError;

/// Why an event is refused; the state is as it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventRefusal {
    #[error("the policy has {policy} levels, the switches serve {switches}")]
    TooManyLevels { policy: u8, switches: u8 },
    #[error("{0}")]
    Policy(#[from] DocumentFieldError),
    #[error("{0}")]
    History(#[from] PolicyHistoryError),
    #[error("{0}")]
    Wiring(#[from] WiringError),
    #[error("two jobs have this name")]
    DuplicateJob(String),
    #[error("a flow of the job names a NIC that the fabric does not have")]
    UnknownNic(String),
    #[error(
        "the drain of {parts} leaves {lost} without another path, and what they send would stay \
         there; undrain another part first ({}), or repeat it with --force",
        drained_now(drained)
    )]
    LastPath { parts: String, lost: String, drained: String },
    #[error("the fabric has no such part")]
    UnknownPart,
}

impl EventRefusal {
    pub(super) fn to_finding(&self) -> Finding {
        let about = match self {
            Self::TooManyLevels { .. } | Self::Policy(_) | Self::History(_) => "policy".to_owned(),
            Self::Wiring(_) | Self::UnknownPart => "fabric".to_owned(),
            Self::LastPath { .. } => "drain".to_owned(),
            Self::DuplicateJob(job) | Self::UnknownNic(job) => format!("job {job}"),
        };
        Finding::error(about, format!("refused: {self}"))
    }
}

fn drained_now(parts: &str) -> String {
    if parts.is_empty() { "none is drained".to_owned() } else { format!("drained: {parts}") }
}

/// Checks that the fabric has everything that the policy names.
pub(super) fn check_names(policy: &Policy, fabric: &Fabric) -> Result<(), EventRefusal> {
    policy.check_on(fabric)?;
    Ok(())
}

/// Checks that job names are unique and that the fabric has the NICs and hosts of the jobs.
pub(super) fn check_jobs<'a>(
    fabric: &Fabric,
    jobs: impl IntoIterator<Item = &'a Job>,
) -> Result<(), EventRefusal> {
    let mut names = BTreeSet::new();
    for job in jobs {
        if !names.insert(&job.id) {
            return Err(EventRefusal::DuplicateJob(job.id.to_string()));
        }
        let nics = job.flows.iter().flat_map(|flow| [flow.src, flow.dst]);
        let hosts_known = job.gpus.keys().all(|host| host.index() < fabric.hosts().len());
        if !hosts_known || nics.into_iter().any(|nic| nic.index() >= fabric.nics().len()) {
            return Err(EventRefusal::UnknownNic(job.id.to_string()));
        }
    }
    Ok(())
}
