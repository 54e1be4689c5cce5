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

use planner::Input;
use planner::search::contest::{Contest, Party, contests};
use planner::search::trial::{Trial, Window};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::choices::Paths;

/// How long a contest is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Precision {
    /// Drawn starts over which the mean is taken.
    pub(super) starts: usize,
    /// Iterations of the slowest job that pass before anything counts.
    pub(super) warm: f64,
    /// Iterations of the slowest job that count.
    pub(super) counted: f64,
}

/// Judges decisions on one case.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    input: &'a Input,
    gpus: Vec<f64>,
    precision: Precision,
    /// Starts of each job, as shares of its undisturbed iteration, by draw.
    starts: Vec<Vec<f64>>,
    /// GPUs that compute, by contest and who is above whom.
    known: BTreeMap<(Vec<u32>, Vec<Ordering>), f64>,
}

impl<'a> Judge<'a> {
    /// A judge of `input`; `seed` draws the starts.
    pub(super) fn new(input: &'a Input, precision: Precision, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let jobs = input.jobs.iter();
        let mut draw = || {
            jobs.clone()
                .map(|_| random.random_range(0.0..1.0))
                .collect()
        };
        Self {
            input,
            starts: (0..precision.starts).map(|_| draw()).collect(),
            gpus: jobs.clone().map(|job| f64::from(job.gpu_count())).collect(),
            precision,
            known: BTreeMap::new(),
        }
    }

    /// The contests that jobs have on `paths`.
    pub(super) fn contests(&self, paths: &Paths) -> Vec<Contest> {
        let fabric = &self.input.fabric;
        let jobs = self.input.jobs.iter().zip(paths);
        let parties: Vec<Party<'_>> = jobs.map(|(job, paths)| party(job, paths)).collect();
        contests(&parties, |link| {
            fabric.link(link).bandwidth.bytes_per_second()
        })
    }

    /// GPUs that compute, on average, as a share of all GPUs of jobs. `levels` by job.
    pub(super) fn utilization(&mut self, contests: &[Contest], levels: &[u8]) -> f64 {
        let busy = contests.iter().map(|contest| {
            let classes = contest.parties.iter();
            let classes: Vec<u8> = classes.map(|job| levels[*job]).collect();
            self.busy_gpus(contest, &classes)
        });
        busy.sum::<f64>() / self.gpus.iter().sum::<f64>()
    }

    /// GPUs of a contest that compute, on average, with these classes by party.
    pub(super) fn busy_gpus(&mut self, contest: &Contest, classes: &[u8]) -> f64 {
        let key = (contest.signature().to_vec(), contest.relations(classes));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let busy = self.play(contest, classes);
        self.known.insert(key, busy);
        busy
    }

    /// Share of the time that each job of `contests`, which together have all, computes.
    pub(super) fn shares(&self, contests: &[Contest], levels: &[u8]) -> Vec<f64> {
        let mut shares = vec![0.0; self.gpus.len()];
        for contest in contests {
            let classes: Vec<u8> = contest.parties.iter().map(|job| levels[*job]).collect();
            for busy in self.plays(contest, &classes) {
                for (job, busy) in contest.parties.iter().zip(busy) {
                    shares[*job] += busy / self.starts.len() as f64;
                }
            }
        }
        shares
    }

    fn play(&self, contest: &Contest, classes: &[u8]) -> f64 {
        let parties = contest.parties.iter();
        let gpus: Vec<f64> = parties.map(|job| self.gpus[*job]).collect();
        if let [job] = contest.parties[..] {
            let alone = contest.alone_seconds();
            return gpus[0] * self.input.jobs[job].compute_seconds / alone[0];
        }
        let busy = self.plays(contest, classes).map(|busy| {
            busy.iter()
                .zip(&gpus)
                .map(|(busy, gpus)| busy * gpus)
                .sum::<f64>()
        });
        busy.sum::<f64>() / self.starts.len() as f64
    }

    /// Shares of the time that parties compute, for each of the drawn starts.
    fn plays(&self, contest: &Contest, classes: &[u8]) -> impl Iterator<Item = Vec<f64>> {
        let alone = contest.alone_seconds();
        let slowest = alone.iter().copied().fold(0.0, f64::max);
        let Precision { warm, counted, .. } = self.precision;
        let window = Window {
            from: warm * slowest,
            until: (warm + counted) * slowest,
        };
        self.starts.iter().map(move |starts| {
            let parties = contest.parties.iter().zip(&alone);
            let starts: Vec<f64> = parties.map(|(job, t)| starts[*job] * t).collect();
            played(contest, classes, &starts, window)
        })
    }
}

fn party<'a>(job: &planner::Job, paths: &'a [Vec<topology::LinkId>]) -> Party<'a> {
    let flows = job.flows.iter().zip(paths);
    Party {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        flows: flows.map(|(flow, path)| (flow.bytes, &path[..])).collect(),
    }
}

fn played(contest: &Contest, classes: &[u8], starts: &[f64], window: Window) -> Vec<f64> {
    let busy =
        Trial::new(contest, starts).and_then(|mut trial| trial.busy(classes, window, u64::MAX));
    busy.expect("generated jobs and windows are valid")
        .expect("2^64 events are not reached")
}
