//! The value of a decision: the GPU utilisation of any paths and levels of a case in the fluid
//! model.
//!
//! A case falls into contention groups that are simulated separately. Results are cached by the
//! signature of the group and the relations of levels within it, so spines that could be exchanged
//! and equivalent levels are simulated once.
//!
//! Contention depends on the start times of jobs, which no scheduler knows. Every group is
//! therefore simulated from several drawn starts, each after a warm-up, and the mean counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use planner::PlanInput;
use planner::refine::contention_group::{
    ContentionGroup, FlowOnLinks, LinkService, RoutedJob, contention_groups,
};
use planner::refine::group_run::{GroupRun, MeasureWindow};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use topology::Fabric;

use super::segment_choices::JobPaths;

/// How long a group is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EvaluationLength {
    /// Drawn starts over which the mean is taken.
    pub(super) starts: usize,
    /// Iterations of the slowest job that pass before anything counts.
    pub(super) warm: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted: f64,
}

/// Evaluates decisions on one case.
#[derive(Debug)]
pub(super) struct DecisionEvaluator<'a> {
    input: &'a PlanInput,
    gpus: Vec<f64>,
    precision: EvaluationLength,
    /// Starts of each job, as shares of its undisturbed iteration, by draw.
    starts: Vec<Vec<f64>>,
    /// GPUs that compute, by group and relations of levels.
    cache: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
}

impl<'a> DecisionEvaluator<'a> {
    /// An evaluator for `input`; `seed` draws the starts.
    pub(super) fn new(input: &'a PlanInput, precision: EvaluationLength, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let jobs = input.jobs.iter();
        Self {
            input,
            starts: (0..precision.starts)
                .map(|_| jobs.clone().map(|_| random.random_range(0.0..1.0)).collect())
                .collect(),
            gpus: jobs.clone().map(|job| f64::from(job.gpu_count())).collect(),
            precision,
            cache: BTreeMap::new(),
        }
    }

    /// The groups that jobs have on `paths`.
    pub(super) fn contention_groups(&self, paths: &JobPaths) -> Vec<ContentionGroup> {
        let fabric = &self.input.fabric;
        let jobs = self.input.jobs.iter().zip(paths);
        let members: Vec<RoutedJob<'_>> =
            jobs.map(|(job, paths)| routed_job(fabric, job, paths)).collect();
        contention_groups(&members, |link| LinkService::of_link(fabric, link))
    }

    /// GPUs that compute, on average, as a share of all GPUs of jobs. `levels` by job.
    pub(super) fn gpu_utilization(&mut self, groups: &[ContentionGroup], levels: &[u8]) -> f64 {
        let busy = groups.iter().map(|group| self.busy_gpus(group, &member_levels(group, levels)));
        busy.sum::<f64>() / self.gpus.iter().sum::<f64>()
    }

    /// GPUs of a group that compute, on average, with these levels by member.
    pub(super) fn busy_gpus(&mut self, group: &ContentionGroup, levels: &[u8]) -> f64 {
        let key = (group.signature().to_vec(), group.level_relations(levels));
        if let Some(known) = self.cache.get(&key) {
            return *known;
        }
        let busy = self.simulate_group(group, levels);
        self.cache.insert(key, busy);
        busy
    }

    /// Share of the time that each job of `groups`, which together have all, computes.
    pub(super) fn compute_shares(&self, groups: &[ContentionGroup], levels: &[u8]) -> Vec<f64> {
        let mut shares = vec![0.0; self.gpus.len()];
        for group in groups {
            for busy in self.simulate_starts(group, &member_levels(group, levels)) {
                for (job, busy) in group.members.iter().zip(busy) {
                    shares[*job] += busy / self.starts.len() as f64;
                }
            }
        }
        shares
    }

    fn simulate_group(&self, group: &ContentionGroup, levels: &[u8]) -> f64 {
        let members = group.members.iter();
        let gpus: Vec<f64> = members.map(|job| self.gpus[*job]).collect();
        if let [job] = group.members[..] {
            let alone = group.alone_seconds();
            return gpus[0] * self.input.jobs[job].compute_seconds / alone[0];
        }
        let busy = self
            .simulate_starts(group, levels)
            .map(|busy| busy.iter().zip(&gpus).map(|(busy, gpus)| busy * gpus).sum::<f64>());
        busy.sum::<f64>() / self.starts.len() as f64
    }

    /// Shares of the time that members compute, for each of the drawn starts.
    fn simulate_starts(
        &self,
        group: &ContentionGroup,
        levels: &[u8],
    ) -> impl Iterator<Item = Vec<f64>> {
        let alone = group.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let EvaluationLength { warm, counted, .. } = self.precision;
        let window = MeasureWindow { from: warm * slowest, until: (warm + counted) * slowest };
        self.starts.iter().map(move |starts| {
            let members = group.members.iter().zip(&alone);
            let starts: Vec<f64> = members.map(|(job, t)| starts[*job] * t).collect();
            run_trial(group, levels, &starts, window)
        })
    }
}

/// The levels of the members of `group`, from levels by job.
pub(super) fn member_levels(group: &ContentionGroup, levels: &[u8]) -> Vec<u8> {
    group.members.iter().map(|job| levels[*job]).collect()
}

fn routed_job<'a>(
    fabric: &Fabric,
    job: &planner::Job,
    paths: &'a [Vec<topology::LinkId>],
) -> RoutedJob<'a> {
    let flows = job.flows.iter().zip(paths);
    RoutedJob {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        flows: flows
            .map(|(flow, path)| FlowOnLinks {
                bytes: flow.bytes,
                overlap_from: flow.overlap_from,
                links: flow.crossed_links(fabric, path),
            })
            .collect(),
    }
}

fn run_trial(
    group: &ContentionGroup,
    levels: &[u8],
    starts: &[f64],
    window: MeasureWindow,
) -> Vec<f64> {
    let busy = GroupRun::new(group, starts).and_then(|mut run| run.busy_shares(levels, window));
    busy.expect("generated jobs and windows are valid")
}
