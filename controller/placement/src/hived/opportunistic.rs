//! Jobs without a guarantee, on GPUs that nobody with one uses (OSDI'20, §3.4: low priority).
//!
//! A job that has no room in the cells of its tenant may run on any idle GPUs, those of other
//! quotas included. When a cell that it is on is bound to a job with a guarantee, it is suspended
//! and waits in its old place in the queue. The decision: guaranteed jobs take cells from the front
//! of the cluster and these take idle GPUs from its end, so that they meet late.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cells::CellLevels;
use crate::GpusByHost;

/// GPUs of opportunistic jobs, by job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct OpportunisticJobs {
    gpus: BTreeMap<u32, Vec<usize>>,
}

impl OpportunisticJobs {
    pub(super) fn contains(&self, job: u32) -> bool {
        self.gpus.contains_key(&job)
    }

    /// Forgets jobs that no longer run.
    pub(super) fn retain_running(&mut self, running: &BTreeSet<u32>) {
        self.gpus.retain(|job, _| running.contains(job));
    }

    /// Removes the jobs that have any of these GPUs, and returns them.
    pub(super) fn take_jobs_on(&mut self, gpus: &[usize]) -> Vec<u32> {
        let is_in_the_way = |held: &[usize]| held.iter().any(|gpu| gpus.contains(gpu));
        let jobs = self.gpus.iter().filter(|(_, held)| is_in_the_way(held));
        let jobs: Vec<u32> = jobs.map(|(job, _)| *job).collect();
        jobs.iter().for_each(|job| drop(self.gpus.remove(job)));
        jobs
    }

    /// Starts a job on the last GPUs that neither a guaranteed job nor one of these has; none if
    /// they are too few.
    pub(super) fn start_job(
        &mut self,
        job: u32,
        gpus: usize,
        guaranteed: &BTreeSet<usize>,
        levels: &CellLevels,
    ) -> Option<GpusByHost> {
        let taken: BTreeSet<usize> = self.gpus.values().flatten().copied().collect();
        let all = (0..levels.hosts.len()).rev();
        let idle = all.filter(|gpu| !guaranteed.contains(gpu) && !taken.contains(gpu));
        let chosen: Vec<usize> = idle.take(gpus).collect();
        if chosen.len() < gpus {
            return None;
        }
        let by_host = levels.gpus_by_host(&chosen);
        self.gpus.insert(job, chosen);
        Some(by_host)
    }
}
