//! What a decision is worth: GPU utilisation in the fluid model, of any paths and levels of a case.
//!
//! A case falls into contests that are judged by themselves, and what is judged once is remembered
//! by what it comes to: the signature of the contest and who is above whom in it. Spines that could
//! be exchanged and levels that mean the same are thereby judged once.
//!
//! How jobs meet depends on when they started, which no scheduler knows. So every contest is played
//! from several drawn starts, each after a time of warming up, and the mean counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use planner::PlanInput;
use planner::search::contention_group::{ContentionGroup, RoutedJob, contention_groups};
use planner::search::group_run::{GroupRun, MeasureWindow};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::segment_choices::JobPaths;

/// How long a contest is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EvaluationLength {
    /// Drawn starts over which the mean is taken.
    pub(super) starts: usize,
    /// Iterations of the slowest job that pass before anything counts.
    pub(super) warm: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted: f64,
}

/// Judges decisions on one case.
#[derive(Debug)]
pub(super) struct DecisionEvaluator<'a> {
    input: &'a PlanInput,
    gpus: Vec<f64>,
    precision: EvaluationLength,
    /// Starts of each job, as shares of its undisturbed iteration, by draw.
    starts: Vec<Vec<f64>>,
    /// GPUs that compute, by contest and who is above whom.
    cache: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
}

impl<'a> DecisionEvaluator<'a> {
    /// A judge of `input`; `seed` draws the starts.
    pub(super) fn new(input: &'a PlanInput, precision: EvaluationLength, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let jobs = input.jobs.iter();
        let mut draw = || jobs.clone().map(|_| random.random_range(0.0..1.0)).collect();
        Self {
            input,
            starts: (0..precision.starts).map(|_| draw()).collect(),
            gpus: jobs.clone().map(|job| f64::from(job.gpu_count())).collect(),
            precision,
            cache: BTreeMap::new(),
        }
    }

    /// The contests that jobs have on `paths`.
    pub(super) fn contention_groups(&self, paths: &JobPaths) -> Vec<ContentionGroup> {
        let fabric = &self.input.fabric;
        let jobs = self.input.jobs.iter().zip(paths);
        let parties: Vec<RoutedJob<'_>> = jobs.map(|(job, paths)| routed_job(job, paths)).collect();
        contention_groups(&parties, |link| fabric.link(link).bandwidth.bytes_per_second())
    }

    /// GPUs that compute, on average, as a share of all GPUs of jobs. `levels` by job.
    pub(super) fn gpu_utilization(&mut self, contests: &[ContentionGroup], levels: &[u8]) -> f64 {
        let busy = contests.iter().map(|contest| {
            let classes = contest.members.iter();
            let classes: Vec<u8> = classes.map(|job| levels[*job]).collect();
            self.busy_gpus(contest, &classes)
        });
        busy.sum::<f64>() / self.gpus.iter().sum::<f64>()
    }

    /// GPUs of a contest that compute, on average, with these classes by party.
    pub(super) fn busy_gpus(&mut self, contest: &ContentionGroup, classes: &[u8]) -> f64 {
        let key = (contest.signature().to_vec(), contest.level_relations(classes));
        if let Some(known) = self.cache.get(&key) {
            return *known;
        }
        let busy = self.simulate_group(contest, classes);
        self.cache.insert(key, busy);
        busy
    }

    /// Share of the time that each job of `contests`, which together have all, computes.
    pub(super) fn compute_shares(&self, contests: &[ContentionGroup], levels: &[u8]) -> Vec<f64> {
        let mut shares = vec![0.0; self.gpus.len()];
        for contest in contests {
            let classes: Vec<u8> = contest.members.iter().map(|job| levels[*job]).collect();
            for busy in self.simulate_starts(contest, &classes) {
                for (job, busy) in contest.members.iter().zip(busy) {
                    shares[*job] += busy / self.starts.len() as f64;
                }
            }
        }
        shares
    }

    fn simulate_group(&self, contest: &ContentionGroup, classes: &[u8]) -> f64 {
        let parties = contest.members.iter();
        let gpus: Vec<f64> = parties.map(|job| self.gpus[*job]).collect();
        if let [job] = contest.members[..] {
            let alone = contest.alone_seconds();
            return gpus[0] * self.input.jobs[job].compute_seconds / alone[0];
        }
        let busy = self
            .simulate_starts(contest, classes)
            .map(|busy| busy.iter().zip(&gpus).map(|(busy, gpus)| busy * gpus).sum::<f64>());
        busy.sum::<f64>() / self.starts.len() as f64
    }

    /// Shares of the time that parties compute, for each of the drawn starts.
    fn simulate_starts(
        &self,
        contest: &ContentionGroup,
        classes: &[u8],
    ) -> impl Iterator<Item = Vec<f64>> {
        let alone = contest.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let EvaluationLength { warm, counted, .. } = self.precision;
        let window = MeasureWindow { from: warm * slowest, until: (warm + counted) * slowest };
        self.starts.iter().map(move |starts| {
            let parties = contest.members.iter().zip(&alone);
            let starts: Vec<f64> = parties.map(|(job, t)| starts[*job] * t).collect();
            run_trial(contest, classes, &starts, window)
        })
    }
}

fn routed_job<'a>(job: &planner::Job, paths: &'a [Vec<topology::LinkId>]) -> RoutedJob<'a> {
    let flows = job.flows.iter().zip(paths);
    RoutedJob {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        flows: flows.map(|(flow, path)| (flow.bytes, &path[..])).collect(),
    }
}

fn run_trial(
    contest: &ContentionGroup,
    classes: &[u8],
    starts: &[f64],
    window: MeasureWindow,
) -> Vec<f64> {
    let busy = GroupRun::new(contest, starts)
        .and_then(|mut trial| trial.busy_shares(classes, window, u64::MAX));
    busy.expect("generated jobs and windows are valid").expect("2^64 events are not reached")
}
