//! Jobs that are known from reports, beside those of documents.
//!
//! The decision: documents win. Only the operator can write a document, but anybody on a host can
//! send reports, and a report must not hide a job of the operator's.

use std::collections::BTreeSet;

use planner::{Flow, Job, JobId};
use topology::{Finding, NicId};

/// Jobs that are known from reports. Where one has the name or a flow of a documented job, the
/// document wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedJobs {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Those too new to be ranked: they have the highest level (Crux §5).
    pub profiled: BTreeSet<JobId>,
    /// Those whose reports are not believed: they have the lowest level.
    pub distrusted: BTreeSet<JobId>,
}

impl ReportedJobs {
    /// Forgets what reports say of jobs of documents: they must not change the levels of those.
    pub(super) fn yield_to_documents(&mut self, jobs: &[Job]) {
        for job in jobs {
            self.profiled.remove(&job.id);
            self.distrusted.remove(&job.id);
        }
    }
}

/// Names and flows of documented jobs.
pub(super) struct DocumentedJobs<'a> {
    names: BTreeSet<&'a JobId>,
    flow_keys: BTreeSet<(NicId, NicId, u16)>,
}

impl<'a> DocumentedJobs<'a> {
    pub(super) fn new(jobs: &'a [Job]) -> Self {
        let flows = jobs.iter().flat_map(|job| &job.flows);
        Self {
            names: jobs.iter().map(|job| &job.id).collect(),
            flow_keys: flows.filter_map(flow_key).collect(),
        }
    }

    /// Whether a documented job has the name or a flow of a reported one.
    pub(super) fn hides_job(&self, reported: &Job) -> bool {
        let mut flow_keys = reported.flows.iter().filter_map(flow_key);
        self.names.contains(&reported.id) || flow_keys.any(|key| self.flow_keys.contains(&key))
    }
}

/// What identifies a flow on the wire; nothing where its host chooses the port, so that jobs may
/// share a pair of NICs.
fn flow_key(flow: &Flow) -> Option<(NicId, NicId, u16)> {
    Some((flow.src, flow.dst, flow.udp_src_port?))
}

/// The finding about a hidden job.
pub(super) fn hidden_job_finding(job: &Job) -> Finding {
    let text =
        "tells of itself, but its name or a connection is that of a job of the jobs document";
    Finding::warning(format!("job {}", job.id), text)
}
