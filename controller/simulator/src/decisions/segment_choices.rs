//! The path choices of a case: one per job, leaf pair and rail, with as many options as there are
//! equal-cost segments. A combination picks one of each.

use std::collections::BTreeMap;

use planner::PlanInput;
use topology::{LinkId, SwitchId, equal_cost_paths};

/// A path for every flow, by job and then in the order of the job's flows.
pub(super) type JobPaths = Vec<Vec<Vec<LinkId>>>;

/// Everything there is to choose.
#[derive(Clone, Debug)]
pub(super) struct SegmentChoices {
    /// Choices with more than one option.
    free: Vec<SegmentChoice>,
    /// A path for every flow; those of free choices are replaced.
    base: JobPaths,
}

/// The flows of a job between two leaves on one rail.
#[derive(Clone, Debug)]
struct SegmentChoice {
    job: usize,
    /// The flows, with their first and last link.
    flows: Vec<(usize, LinkId, LinkId)>,
    segments: Vec<Vec<LinkId>>,
}

impl SegmentChoices {
    /// The choices of `input`.
    pub(super) fn new(input: &PlanInput) -> Self {
        let mut choices = Self {
            free: Vec::new(),
            base: input.jobs.iter().map(|job| vec![Vec::new(); job.flows.len()]).collect(),
        };
        for job in 0..input.jobs.len() {
            for choice in segment_choices(input, job) {
                choice.apply_option(0, &mut choices.base);
                if choice.segments.len() > 1 {
                    choices.free.push(choice);
                }
            }
        }
        choices
    }

    /// Number of combinations; saturates.
    pub(super) fn combination_count(&self) -> u64 {
        let options = self.free.iter().map(|choice| choice.segments.len() as u64);
        options.fold(1, u64::saturating_mul)
    }

    /// The paths of a combination, counted with the first choice as the lowest digit.
    pub(super) fn combination_paths(&self, combination: u64) -> JobPaths {
        let mut paths = self.base.clone();
        let mut rest = combination;
        for choice in &self.free {
            let options = choice.segments.len() as u64;
            choice.apply_option((rest % options) as usize, &mut paths);
            rest /= options;
        }
        paths
    }
}

fn segment_choices(input: &PlanInput, job: usize) -> impl Iterator<Item = SegmentChoice> {
    let fabric = &input.fabric;
    let mut by_place: BTreeMap<(SwitchId, SwitchId, u32), SegmentChoice> = BTreeMap::new();
    for (position, flow) in input.jobs[job].flows.iter().enumerate() {
        let (from, to) = (fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
        let rail = fabric.nic(flow.src).index;
        let choice = by_place.entry((from, to, rail)).or_insert_with(|| SegmentChoice {
            job,
            flows: Vec::new(),
            segments: equal_cost_paths(fabric, from, to),
        });
        let down = fabric.nic(flow.dst).uplink.reverse();
        choice.flows.push((position, fabric.nic(flow.src).uplink, down));
    }
    by_place.into_values()
}

impl SegmentChoice {
    fn apply_option(&self, option: usize, paths: &mut JobPaths) {
        let Some(segment) = self.segments.get(option) else {
            return;
        };
        for (flow, up, down) in &self.flows {
            paths[self.job][*flow] = [&[*up], &segment[..], &[*down]].concat();
        }
    }
}
