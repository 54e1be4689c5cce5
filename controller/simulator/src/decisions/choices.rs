//! The path choices of a case: one per job, leaf pair and rail, with as many options as there are
//! equal-cost segments. A combination picks one of each.

use std::collections::BTreeMap;

use planner::Input;
use topology::{LinkId, SwitchId, equal_cost_paths};

/// A path for every flow, by job and then in the order of the job's flows.
pub(super) type Paths = Vec<Vec<Vec<LinkId>>>;

/// Everything there is to choose.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    /// Choices with more than one option.
    free: Vec<Choice>,
    /// A path for every flow; those of free choices are replaced.
    base: Paths,
}

/// The flows of a job between two leaves on one rail.
#[derive(Clone, Debug)]
struct Choice {
    job: usize,
    /// The flows, with their first and last link.
    flows: Vec<(usize, LinkId, LinkId)>,
    segments: Vec<Vec<LinkId>>,
}

impl Choices {
    /// The choices of `input`.
    pub(super) fn new(input: &Input) -> Self {
        let mut choices = Self {
            free: Vec::new(),
            base: input
                .jobs
                .iter()
                .map(|job| vec![Vec::new(); job.flows.len()])
                .collect(),
        };
        for job in 0..input.jobs.len() {
            for choice in choices_of(input, job) {
                choice.take(0, &mut choices.base);
                if choice.segments.len() > 1 {
                    choices.free.push(choice);
                }
            }
        }
        choices
    }

    /// Number of combinations; saturates.
    pub(super) fn combinations(&self) -> u64 {
        let options = self.free.iter().map(|choice| choice.segments.len() as u64);
        options.fold(1, u64::saturating_mul)
    }

    /// The paths of a combination, counted with the first choice as the lowest digit.
    pub(super) fn paths(&self, combination: u64) -> Paths {
        let mut paths = self.base.clone();
        let mut rest = combination;
        for choice in &self.free {
            let options = choice.segments.len() as u64;
            choice.take((rest % options) as usize, &mut paths);
            rest /= options;
        }
        paths
    }
}

fn choices_of(input: &Input, job: usize) -> impl Iterator<Item = Choice> {
    let fabric = &input.fabric;
    let mut by_place: BTreeMap<(SwitchId, SwitchId, u32), Choice> = BTreeMap::new();
    for (position, flow) in input.jobs[job].flows.iter().enumerate() {
        let (from, to) = (fabric.leaf_of(flow.src), fabric.leaf_of(flow.dst));
        let rail = fabric.nic(flow.src).index;
        let choice = by_place.entry((from, to, rail)).or_insert_with(|| Choice {
            job,
            flows: Vec::new(),
            segments: equal_cost_paths(fabric, from, to),
        });
        let down = fabric.nic(flow.dst).uplink.reverse();
        choice
            .flows
            .push((position, fabric.nic(flow.src).uplink, down));
    }
    by_place.into_values()
}

impl Choice {
    fn take(&self, option: usize, paths: &mut Paths) {
        let Some(segment) = self.segments.get(option) else {
            return;
        };
        for (flow, up, down) in &self.flows {
            paths[self.job][*flow] = [&[*up], &segment[..], &[*down]].concat();
        }
    }
}
