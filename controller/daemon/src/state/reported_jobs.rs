//! Jobs that tell of themselves, beside those that documents tell of.
//!
//! The decision: documents count. Whoever may write a document is the operator; whoever reports is
//! anybody on a host, and must not be able to hide a job of the operator's.

use std::collections::BTreeSet;

use planner::{Flow, Job, JobId};
use topology::{Finding, NicId};

/// Jobs that tell of themselves. Where one has the name or a connection of a job that a document
/// tells of, the document counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedJobs {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Those of which too little is known to rank them: they have the highest class (Crux §5).
    pub profiled: BTreeSet<JobId>,
}

/// Names and connections that documents have given away.
pub(super) struct DocumentedJobs<'a> {
    names: BTreeSet<&'a JobId>,
    flow_keys: BTreeSet<(NicId, NicId, u16)>,
}

impl<'a> DocumentedJobs<'a> {
    pub(super) fn new(jobs: &'a [Job]) -> Self {
        let flows = jobs.iter().flat_map(|job| &job.flows);
        Self {
            names: jobs.iter().map(|job| &job.id).collect(),
            flow_keys: flows.map(flow_key).collect(),
        }
    }

    /// Whether the name or a connection of a job is taken.
    pub(super) fn hides_job(&self, reported: &Job) -> bool {
        let mut connections = reported.flows.iter().map(flow_key);
        self.names.contains(&reported.id) || connections.any(|flow| self.flow_keys.contains(&flow))
    }
}

/// What tells a flow from others.
fn flow_key(flow: &Flow) -> (NicId, NicId, u16) {
    (flow.src, flow.dst, flow.udp_src_port)
}

/// What an operator should know of a job that is hidden.
pub(super) fn hidden_job_finding(job: &Job) -> Finding {
    let text =
        "tells of itself, but its name or a connection is that of a job of the jobs document";
    Finding::warning(format!("job {}", job.id), text)
}
