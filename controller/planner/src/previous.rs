//! What a new plan keeps of the one before it: numbers, classes and paths of jobs that still live.
//!
//! The previous plan is a hint and never trusted: it may come from a file, or from other jobs.

use std::collections::{BTreeMap, BTreeSet};

use topology::{LinkId, NicId};

use crate::input::JobId;
use crate::plan::{Plan, PlannedJob};
use crate::traffic::{RoutableFlow, Traffic};

/// The previous plan by the ordinals of the present jobs.
#[derive(Debug)]
pub(crate) struct Previous<'a> {
    jobs: Vec<Option<&'a PlannedJob>>,
    paths: BTreeMap<(usize, NicId, NicId, u16), &'a [LinkId]>,
}

impl<'a> Previous<'a> {
    /// What `plan`, if there is one, says of the jobs of `traffic`.
    pub(crate) fn new(traffic: &Traffic<'_>, plan: Option<&'a Plan>) -> Self {
        let Some(plan) = plan else {
            return Self {
                jobs: vec![None; traffic.jobs.len()],
                paths: BTreeMap::new(),
            };
        };
        let ordinals = traffic.jobs.iter().enumerate();
        let ordinals: BTreeMap<&JobId, usize> = ordinals.map(|(o, job)| (&job.id, o)).collect();
        let mut jobs = vec![None; traffic.jobs.len()];
        for job in &plan.jobs {
            if let Some(ordinal) = ordinals.get(&job.id) {
                jobs[*ordinal] = Some(job);
            }
        }
        let key = |flow: &'a crate::plan::PlannedFlow| {
            let job = ordinals.get(&plan.jobs.get(flow.job)?.id)?;
            Some((
                (*job, flow.src, flow.dst, flow.udp_src_port),
                &flow.links[..],
            ))
        };
        Self {
            jobs,
            paths: plan.flows.iter().filter_map(key).collect(),
        }
    }

    /// The path that the flow had; none for a new flow and for one that had no path.
    pub(crate) fn path(&self, flow: &RoutableFlow<'_>) -> Option<&'a [LinkId]> {
        let key = (
            flow.job,
            flow.flow.src,
            flow.flow.dst,
            flow.flow.udp_src_port,
        );
        self.paths
            .get(&key)
            .copied()
            .filter(|links| !links.is_empty())
    }

    /// The class that the job had.
    pub(crate) fn level(&self, job: usize) -> Option<u8> {
        self.jobs[job].map(|planned| planned.level)
    }

    /// The number of each job: the one it had, else the lowest free one above zero.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut taken = BTreeSet::new();
        let had = self
            .jobs
            .iter()
            .map(|job| job.map(|planned| planned.number));
        let kept: Vec<Option<u32>> = had
            .map(|number| number.filter(|n| *n > 0 && taken.insert(*n)))
            .collect();
        let mut free = (1..).filter(|number| !taken.contains(number));
        let number = |kept: Option<u32>| kept.or_else(|| free.next());
        kept.into_iter().filter_map(number).collect()
    }
}
