//! Which GPUs of a host a job of the document has, and so which of its NICs.
//!
//! A document may name them. Of a host for which it does not, a job takes the lowest that no job
//! of the document has so far or names; if those do not suffice, also others, which are then
//! shared.

use std::collections::{BTreeMap, BTreeSet};

use topology::{Fabric, HostId, HostInterconnect};

use super::{JobDocument, JobFields};
use crate::input::Job;
use crate::name_matching::DocumentFieldError;

/// The GPUs that jobs have so far, by host.
#[derive(Debug, Default)]
pub(super) struct GpuAssignment {
    taken: BTreeMap<HostId, BTreeSet<u32>>,
}

/// The GPUs of one job on a host.
#[derive(Clone, Debug)]
pub(super) struct HostGpus {
    /// Counted from 0 in the host; never empty.
    indices: Vec<u32>,
    /// Whether the document names them or they are all that the host has.
    is_certain: bool,
}

/// The GPUs of one job, by host.
pub(super) type JobGpus = BTreeMap<HostId, HostGpus>;

impl GpuAssignment {
    /// Nothing but the GPUs that the jobs name.
    pub(super) fn new(fabric: &Fabric, jobs: &[JobDocument]) -> Self {
        let mut assignment = Self::default();
        for (name, indices) in jobs.iter().flat_map(|job| &job.gpu_indices) {
            if let Some(host) = fabric.host_named(name) {
                assignment.taken.entry(host).or_default().extend(indices);
            }
        }
        assignment
    }

    /// The lowest `count` of the `has` GPUs of a host, free ones first.
    fn take_lowest(&mut self, host: HostId, count: u32, has: u32) -> Vec<u32> {
        let taken = self.taken.entry(host).or_default();
        let lowest = lowest_gpus(count, has, taken);
        taken.extend(&lowest);
        lowest
    }
}

/// The lowest `count` of the `has` GPUs of a host that are not taken, and if those do not suffice,
/// the lowest of the others as well; ascending.
pub fn lowest_gpus(count: u32, has: u32, taken: &BTreeSet<u32>) -> Vec<u32> {
    let mut by_use: Vec<u32> = (0..has).collect();
    by_use.sort_by_key(|gpu| (taken.contains(gpu), *gpu));
    by_use.truncate(count as usize);
    by_use.sort_unstable();
    by_use
}

impl HostGpus {
    /// Counted from 0 in the host; never empty.
    pub(super) fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Whether the document names them or they are all that the host has.
    pub(super) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Some of these, which must be at least one.
    pub(super) fn subset(&self, indices: Vec<u32>) -> Self {
        Self { indices, ..*self }
    }

    /// The GPU of the job that takes a turn on a NIC: those on its PCIe switch one after the other.
    pub(super) fn gpu_of_turn(
        &self,
        interconnect: &HostInterconnect,
        nic: u32,
        turn: usize,
    ) -> u32 {
        let near = self.gpus_beside(interconnect, nic);
        let gpus = if near.is_empty() { &self.indices } else { &near };
        gpus[turn % gpus.len()]
    }

    /// The GPU that a flow of a NIC begins or ends at, if it is certain.
    pub(super) fn gpu_at_nic(&self, interconnect: &HostInterconnect, nic: u32) -> Option<u32> {
        let near = self.gpus_beside(interconnect, nic);
        let first = near.first().or(self.indices.first());
        first.copied().filter(|_| self.is_certain)
    }

    fn gpus_beside(&self, interconnect: &HostInterconnect, nic: u32) -> Vec<u32> {
        let switch = interconnect.switch_of_nic(nic);
        let mut gpus = self.indices.clone();
        gpus.retain(|gpu| interconnect.switch_of_gpu(*gpu) == switch);
        gpus
    }
}

impl JobFields<'_> {
    /// The GPUs of a job.
    pub(super) fn resolve_gpu_indices(
        &self,
        document: &JobDocument,
        job: &Job,
        assignment: &mut GpuAssignment,
    ) -> Result<JobGpus, DocumentFieldError> {
        let mut named = BTreeMap::new();
        for (name, indices) in &document.gpu_indices {
            let field = format!("gpu_indices.{name}");
            let host = self.resolve_host(&field, name)?;
            self.check_gpu_indices(&field, job, host, indices)?;
            named.insert(host, indices);
        }
        let mut gpus = JobGpus::new();
        for (host, count) in job.gpus.iter().filter(|(_, count)| **count > 0) {
            let has = self.fabric.host(*host).gpus;
            let indices = match named.get(host) {
                Some(named) => (*named).clone(),
                None => assignment.take_lowest(*host, *count, has),
            };
            let is_certain = named.contains_key(host) || *count == has;
            gpus.insert(*host, HostGpus { indices, is_certain });
        }
        Ok(gpus)
    }

    fn check_gpu_indices(
        &self,
        field: &str,
        job: &Job,
        host: HostId,
        indices: &[u32],
    ) -> Result<(), DocumentFieldError> {
        let count = job.gpus.get(&host).copied().unwrap_or(0);
        let has = self.fabric.host(host).gpus;
        let problem = if let Some(gpu) = indices.iter().find(|gpu| **gpu >= has) {
            format!("GPU {gpu} of a host with {has} GPUs, counted from 0")
        } else if indices.iter().collect::<BTreeSet<_>>().len() != count as usize
            || indices.len() != count as usize
        {
            format!("{count} different GPUs expected, as in `gpus`; found {indices:?}")
        } else {
            return Ok(());
        };
        Err(self.field_error(field, problem))
    }
}
