//! The part of the previous plan that a new one keeps: numbers, levels and paths of present jobs.
//!
//! The previous plan is a hint and never trusted: it may come from a file, or be of other jobs.

use std::collections::{BTreeMap, BTreeSet};

use topology::{LinkPath, NicId};

use crate::input::{Flow, Job};
use crate::input_digest::ComparedInputs;
use crate::plan::{Plan, PlannedFlow, PlannedJob};
use crate::traffic::IndexedTraffic;

/// The previous plan by the ordinals of the present jobs.
#[derive(Debug)]
pub(crate) struct PreviousPlan<'a> {
    jobs: Vec<Option<&'a PlannedJob>>,
    /// Flows of each job, in the order of the plan.
    flows: Vec<Vec<&'a PlannedFlow>>,
    compared: Option<&'a ComparedInputs>,
}

impl<'a> PreviousPlan<'a> {
    /// The decisions of `plan`, if there is one, on the jobs of `traffic`.
    pub(crate) fn new(traffic: &IndexedTraffic<'_>, plan: Option<&'a Plan>) -> Self {
        let jobs = &traffic.jobs;
        let mut previous = Self {
            jobs: vec![None; jobs.len()],
            flows: vec![Vec::new(); jobs.len()],
            compared: None,
        };
        let Some(plan) = plan else {
            return previous;
        };
        previous.compared = Some(&plan.compared_inputs);
        let ordinals: Vec<Option<usize>> = plan
            .jobs
            .iter()
            .map(|planned| jobs.binary_search_by(|job| job.id.cmp(&planned.id)).ok())
            .collect();
        for (job, ordinal) in plan.jobs.iter().zip(&ordinals) {
            if let Some(ordinal) = ordinal {
                previous.jobs[*ordinal] = Some(job);
            }
        }
        for flow in &plan.flows {
            if let Some(Some(ordinal)) = ordinals.get(flow.job) {
                previous.flows[*ordinal].push(flow);
            }
        }
        previous
    }

    /// The previous path of each flow of a job, in the order of the job's flows; none for a new
    /// flow and for one without a path.
    pub(crate) fn job_paths<'p>(
        &'p self,
        ordinal: usize,
        job: &'p Job,
    ) -> impl Iterator<Item = Option<LinkPath>> + 'p {
        let previous = &self.flows[ordinal];
        let mut elsewhere = None;
        job.flows.iter().enumerate().map(move |(position, flow)| {
            let wanted = flow_key(flow);
            // Mostly the flows are unchanged and in the same order; the map is for the rest.
            let same =
                previous.get(position).filter(|flow| planned_flow_key(flow) == wanted).copied();
            let found = same.or_else(|| {
                let by_key: &mut BTreeMap<_, &PlannedFlow> = elsewhere.get_or_insert_with(|| {
                    previous.iter().map(|flow| (planned_flow_key(flow), *flow)).collect()
                });
                by_key.get(&wanted).copied()
            });
            found.map(|flow| flow.links).filter(|links| !links.is_empty())
        })
    }

    /// Whether a region with inputs of this digest was compared for the previous plan.
    pub(crate) fn was_compared(&self, digest: u64) -> bool {
        self.compared.is_some_and(|compared| compared.0.contains(&digest))
    }

    /// The previous level of a job.
    pub(crate) fn job_level(&self, job: usize) -> Option<u8> {
        self.jobs[job].map(|planned| planned.level)
    }

    /// The number of each job: its previous one, else the lowest free one above zero.
    pub(crate) fn job_numbers(&self) -> Vec<u32> {
        let mut taken = BTreeSet::new();
        // First all numbers in use, then the free ones: a new job must not take a present one.
        let kept: Vec<Option<u32>> = self
            .jobs
            .iter()
            .map(|job| job.map(|planned| planned.number))
            .map(|number| number.filter(|n| *n > 0 && taken.insert(*n)))
            .collect();
        let mut free = (1..).filter(|number| !taken.contains(number));
        kept.into_iter().filter_map(|kept| kept.or_else(|| free.next())).collect()
    }
}

/// Identifies a flow among those of its job.
type FlowKey = (NicId, NicId, Option<u16>);

fn planned_flow_key(flow: &PlannedFlow) -> FlowKey {
    (flow.src, flow.dst, flow.udp_src_port)
}

fn flow_key(flow: &Flow) -> FlowKey {
    (flow.src, flow.dst, flow.udp_src_port)
}
