//! The optimum by enumeration: every combination of paths, and every assignment of levels.
//!
//! All of it at full precision would take minutes a case, so there are rounds, each on the best of
//! the round before: every combination of paths with two plausible assignments and low precision;
//! every assignment on the best combinations; the best pairs with more precision, and the best of
//! those with full precision. Assignments that say the same of all jobs that meet are one, and of
//! the two spines only one need be tried for the last choice.

use std::collections::BTreeSet;

use planner::Input;
use planner::search::contest::Contest;

use super::case::LEVELS;
use super::choices::{Choices, Paths};
use super::judge::{Judge, Precision};

/// Combinations of paths that are tried at most; of more, evenly spread ones are.
const COMBINATIONS: u64 = 4096;

/// Combinations of paths on which every assignment is tried.
const THOROUGH: usize = 20;

/// Decisions that are judged with middle, and then with full precision.
const MIDDLE: usize = 48;
const FULL: usize = 12;

/// Classes by worth of a second of link, for jobs in descending order, that are plausible.
const PLAUSIBLE: [[u8; 5]; 2] = [[2, 1, 0, 0, 0], [2, 1, 1, 0, 0]];

/// Paths with what they are worth at the best levels for them.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    pub(super) paths: Paths,
    /// GPU utilisation, at full precision.
    pub(super) utilization: f64,
}

/// Paths and levels.
pub(super) type Candidate = (Paths, Vec<u8>);

/// The judges of a case, by precision, and what they decide together.
#[derive(Debug)]
pub(super) struct Court<'a> {
    input: &'a Input,
    low: Judge<'a>,
    middle: Judge<'a>,
    full: Judge<'a>,
}

impl<'a> Court<'a> {
    /// The court on `input`; `seed` draws when jobs start.
    pub(super) fn new(input: &'a Input, seed: u64) -> Self {
        let judge = |starts, warm, counted| {
            let precision = Precision {
                starts,
                warm,
                counted,
            };
            Judge::new(input, precision, seed)
        };
        Self {
            input,
            low: judge(1, 2.0, 4.0),
            middle: judge(4, 2.0, 10.0),
            full: judge(8, 4.0, 24.0),
        }
    }

    /// The best decisions found, one for each of the best combinations of paths, the best first.
    pub(super) fn optimum(&mut self, choices: &Choices) -> Vec<Decision> {
        let mut candidates = Vec::new();
        for paths in self.best_paths(choices) {
            let all = all_levels(&self.low.contests(&paths));
            candidates.extend(all.into_iter().map(|levels| (paths.clone(), levels)));
        }
        self.best(candidates)
    }

    /// `decisions` with the best ones on the paths of `plans`, the best first: where a plan's paths
    /// are better than all that the enumeration judged finely, they are the optimum of the step.
    pub(super) fn with_paths_of(
        &mut self,
        plans: &[Candidate],
        mut decisions: Vec<Decision>,
    ) -> Vec<Decision> {
        for (paths, _) in plans {
            let is_known = decisions.iter().any(|known| known.paths == *paths);
            let all = if is_known {
                Vec::new()
            } else {
                all_levels(&self.low.contests(paths))
            };
            let candidates = all.into_iter().map(|levels| (paths.clone(), levels));
            decisions.extend(self.best(candidates.collect()));
        }
        decisions.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
        decisions
    }

    /// Whether some combinations are left out.
    pub(super) fn is_bounded(choices: &Choices) -> bool {
        choices.combinations().div_ceil(2) > COMBINATIONS
    }

    fn best_paths(&mut self, choices: &Choices) -> Vec<Paths> {
        let half = choices.combinations().div_ceil(2);
        let step = half.div_ceil(COMBINATIONS).max(1);
        let mut scored: Vec<(f64, u64)> = (0..half.div_ceil(step))
            .map(|number| {
                let contests = self.low.contests(&choices.paths(number * step));
                (self.plausible(&contests), number * step)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let best = scored.into_iter().take(THOROUGH);
        best.map(|(_, combination)| choices.paths(combination))
            .collect()
    }

    /// GPUs that compute with the better of the plausible assignments.
    fn plausible(&mut self, contests: &[Contest]) -> f64 {
        let values = contests.iter().map(|contest| {
            let ranked = self.by_worth(contest);
            let value = |shape: &[u8; 5]| {
                let mut classes = vec![0; ranked.len()];
                for (class, party) in shape.iter().zip(&ranked) {
                    classes[*party] = *class;
                }
                self.low.busy_gpus(contest, &classes)
            };
            PLAUSIBLE.iter().map(value).fold(0.0, f64::max)
        });
        values.sum()
    }

    /// Parties by descending GPU-seconds for a second of link.
    fn by_worth(&self, contest: &Contest) -> Vec<usize> {
        let alone = contest.alone_seconds();
        let worth = |party: usize| {
            let job = &self.input.jobs[contest.parties[party]];
            let link = alone[party] - job.overlap_from * job.compute_seconds;
            f64::from(job.gpu_count()) * job.compute_seconds / link.max(f64::MIN_POSITIVE)
        };
        let mut ranked: Vec<usize> = (0..alone.len()).collect();
        ranked.sort_by(|a, b| worth(*b).total_cmp(&worth(*a)));
        ranked
    }

    /// The best of all assignments on `paths` that are `allowed` where jobs meet.
    pub(super) fn best_levels(
        &mut self,
        paths: &Paths,
        allowed: impl Fn(&[Contest], &[u8]) -> bool,
    ) -> f64 {
        let contests = self.low.contests(paths);
        let all = all_levels(&contests).into_iter();
        let all = all.filter(|levels| allowed(&contests, levels));
        self.best_of(all.map(|levels| (paths.clone(), levels)).collect())
    }

    /// Utilisation of the best of `candidates`; 0 of none.
    pub(super) fn best_of(&mut self, candidates: Vec<Candidate>) -> f64 {
        let best = self.best(candidates);
        best.first().map_or(0.0, |decision| decision.utilization)
    }

    /// Utilisation of one decision, at full precision.
    pub(super) fn utilization(&mut self, paths: &Paths, levels: &[u8]) -> f64 {
        let contests = self.full.contests(paths);
        self.full.utilization(&contests, levels)
    }

    /// Share of the time that each job computes, at full precision.
    pub(super) fn shares(&self, paths: &Paths, levels: &[u8]) -> Vec<f64> {
        self.full.shares(&self.full.contests(paths), levels)
    }

    /// The best of `candidates` by what full precision says of them, the best first.
    fn best(&mut self, candidates: Vec<Candidate>) -> Vec<Decision> {
        let kept = best_few(&mut self.low, candidates, MIDDLE);
        let kept = best_few(&mut self.middle, kept, FULL);
        let judged = kept.into_iter().map(|(paths, levels)| Decision {
            utilization: self.utilization(&paths, &levels),
            paths,
        });
        let mut judged: Vec<Decision> = judged.collect();
        judged.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
        judged
    }
}

/// The best `most` of `candidates` by the judgement of `judge`.
fn best_few(judge: &mut Judge<'_>, candidates: Vec<Candidate>, most: usize) -> Vec<Candidate> {
    if candidates.len() <= most {
        return candidates;
    }
    let scored = candidates.into_iter().map(|(paths, levels)| {
        let contests = judge.contests(&paths);
        (judge.utilization(&contests, &levels), (paths, levels))
    });
    let mut scored: Vec<(f64, Candidate)> = scored.collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored
        .into_iter()
        .take(most)
        .map(|(_, candidate)| candidate)
        .collect()
}

/// All assignments of levels, by job, that differ on `contests`, which together have all jobs.
fn all_levels(contests: &[Contest]) -> Vec<Vec<u8>> {
    let jobs = contests.iter().map(|contest| contest.parties.len()).sum();
    let relations = |levels: &[u8]| {
        let of = |contest: &Contest| {
            let classes = contest.parties.iter();
            let classes: Vec<u8> = classes.map(|job| levels[*job]).collect();
            contest.relations(&classes)
        };
        contests.iter().map(of).collect::<Vec<_>>()
    };
    let mut all = vec![Vec::new()];
    for _ in 0..jobs {
        let longer =
            |levels: Vec<u8>| (0..LEVELS).map(move |level| [&levels[..], &[level]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    let mut seen = BTreeSet::new();
    all.retain(|levels| seen.insert(relations(levels)));
    all
}
