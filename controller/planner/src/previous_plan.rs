//! The part of the previous plan that a new one keeps: numbers, levels and paths of present jobs.
//!
//! The previous plan is a hint and never trusted: it may come from a file, or be of other jobs.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use topology::{LinkPath, NicId};

use crate::input::{Flow, Job};
use crate::plan::{Plan, PlannedFlow, PlannedJob, StartShift};
use crate::traffic::IndexedTraffic;

/// The previous plan by the ordinals of the present jobs.
#[derive(Debug)]
pub(crate) struct PreviousPlan<'a> {
    plan: Option<&'a Plan>,
    jobs: Vec<Option<&'a PlannedJob>>,
    /// Ordinal of each job of the plan; none for a job that is not there any more.
    ordinals: Vec<Option<usize>>,
    /// Made on first use: a quick plan after an event uses none.
    flows: OnceCell<FlowsByJob>,
    /// Whether decisions start from it.
    is_start: bool,
}

/// Flows of each job, in the order of the plan.
#[derive(Debug)]
struct FlowsByJob {
    /// Positions in [`Plan::flows`].
    flows: Vec<usize>,
    spans: Vec<Range<usize>>,
}

impl FlowsByJob {
    /// Those of `plan`, whose jobs have these `ordinals` among so many.
    fn new(plan: &Plan, ordinals: &[Option<usize>], jobs: usize) -> Self {
        let all = plan.flows.iter().enumerate();
        let present = all.filter_map(|(position, flow)| {
            let ordinal = ordinals.get(flow.job).copied().flatten()?;
            Some((ordinal, position))
        });
        let mut sorted: Vec<(usize, usize)> = present.collect();
        // Mostly they are sorted already.
        sorted.sort();
        let mut end = 0;
        let spans = (0..jobs).map(|job| {
            let start = end;
            end += sorted[start..].partition_point(|(ordinal, _)| *ordinal <= job);
            start..end
        });
        let spans = spans.collect();
        Self { flows: sorted.into_iter().map(|(_, position)| position).collect(), spans }
    }
}

impl<'a> PreviousPlan<'a> {
    /// The decisions of `plan`, if there is one, on the jobs of `traffic`.
    pub(crate) fn new(traffic: &IndexedTraffic<'_>, plan: Option<&'a Plan>) -> Self {
        let jobs = &traffic.jobs;
        let mut previous = Self {
            plan,
            jobs: vec![None; jobs.len()],
            ordinals: Vec::new(),
            flows: OnceCell::new(),
            is_start: true,
        };
        for planned in plan.iter().flat_map(|plan| &plan.jobs) {
            let ordinal = jobs.binary_search_by(|job| job.id.cmp(&planned.id)).ok();
            previous.ordinals.push(ordinal);
            if let Some(ordinal) = ordinal {
                previous.jobs[ordinal] = Some(planned);
            }
        }
        previous
    }

    /// The plan for decisions that start from it, or from nothing.
    pub(crate) fn with_start(self, is_start: bool) -> Self {
        Self { is_start, ..self }
    }

    /// The flows that the plan has of a job.
    fn flows_of(&self, ordinal: usize) -> Vec<&'a PlannedFlow> {
        let Some(plan) = self.plan else {
            return Vec::new();
        };
        let all = || FlowsByJob::new(plan, &self.ordinals, self.jobs.len());
        let FlowsByJob { flows, spans } = self.flows.get_or_init(all);
        flows[spans[ordinal].clone()].iter().map(|position| &plan.flows[*position]).collect()
    }

    /// The previous path of each flow of a job from which decisions start, in the order of the job's
    /// flows; none for a new flow and for one without a path.
    pub(crate) fn job_paths<'p>(
        &'p self,
        ordinal: usize,
        job: &'p Job,
    ) -> impl Iterator<Item = Option<LinkPath>> + 'p {
        self.running_paths(ordinal, job).map(|path| path.filter(|_| self.is_start))
    }

    /// The path of each flow of a job that it has now, whether or not decisions start from it.
    pub(crate) fn running_paths<'p>(
        &'p self,
        ordinal: usize,
        job: &'p Job,
    ) -> impl Iterator<Item = Option<LinkPath>> + 'p {
        let previous = self.flows_of(ordinal);
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
        let plan = self.plan.filter(|_| self.is_start);
        plan.is_some_and(|plan| plan.compared_inputs.0.contains(&digest))
    }

    /// The previous level of a job from which decisions start.
    pub(crate) fn job_level(&self, job: usize) -> Option<u8> {
        self.jobs[job].filter(|_| self.is_start).map(|planned| planned.level)
    }

    /// The start shift of a job from which decisions start.
    pub(crate) fn start_shift(&self, job: usize) -> Option<StartShift> {
        self.jobs[job].filter(|_| self.is_start).and_then(|planned| planned.start_shift)
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
