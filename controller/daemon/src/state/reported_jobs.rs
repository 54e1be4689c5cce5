//! Jobs that are known from reports, beside those of documents.
//!
//! The decision: documents win. Only the operator can write a document, but anybody on a host can
//! send reports, and a report must not hide a job of the operator's.

use std::collections::{BTreeMap, BTreeSet};

use planner::{Flow, Job, JobId};
use topology::{Fabric, Finding, HostId, NicId};

/// Jobs that are known from reports. Where one has the name or a flow of a documented job, the
/// document wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedJobs {
    /// The jobs, in the order in which they were announced.
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

/// A reported job that has GPUs of a host of which others have all that are left.
pub(super) struct ExcessJob<'a> {
    pub(super) job: &'a Job,
    host: HostId,
    /// Who has GPUs of that host.
    owners: Vec<&'a JobId>,
}

impl ExcessJob<'_> {
    /// What to do about it.
    pub(super) fn to_finding(&self, fabric: &Fabric) -> Finding {
        let host = fabric.host(self.host);
        let (claimed, has) = (self.job.gpus.get(&self.host).copied().unwrap_or(0), host.gpus);
        let owners: Vec<&str> = self.owners.iter().map(|id| id.as_str()).collect();
        let text = format!(
            "announces {claimed} of the {has} GPUs of {}, and {} has the others it needs: it has \
             the lowest level until one of them ends",
            host.name,
            owners.join(", "),
        );
        Finding::warning(format!("job {}", self.job.id), text)
    }
}

/// Of `reported` jobs, those for whose GPUs a host has no room beside the `documented` jobs and the
/// reported ones before them. Who announces the GPUs of others must not get their level.
pub(super) fn excess_jobs<'a>(
    fabric: &Fabric,
    documented: &'a [Job],
    reported: &[&'a Job],
) -> Vec<ExcessJob<'a>> {
    if reported.is_empty() {
        return Vec::new();
    }
    let mut owners: BTreeMap<HostId, (u32, Vec<&JobId>)> = BTreeMap::new();
    let mut excess = Vec::new();
    let all =
        documented.iter().map(|job| (job, true)).chain(reported.iter().map(|job| (*job, false)));
    for (job, is_documented) in all {
        let is_full = |(host, gpus): &(&HostId, &u32)| {
            let taken = owners.get(host).map_or(0, |(taken, _)| *taken);
            taken.saturating_add(**gpus) > fabric.host(**host).gpus
        };
        if !is_documented && let Some((host, _)) = job.gpus.iter().find(is_full) {
            let owners = owners.get(host).map_or_else(Vec::new, |(_, owners)| owners.clone());
            excess.push(ExcessJob { job, host: *host, owners });
            continue;
        }
        for (host, gpus) in &job.gpus {
            let (taken, owners) = owners.entry(*host).or_default();
            *taken = taken.saturating_add(*gpus);
            owners.push(&job.id);
        }
    }
    excess
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
