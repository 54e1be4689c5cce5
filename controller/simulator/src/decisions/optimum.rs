//! The optimum by enumeration: every combination of paths, and every assignment of levels.
//!
//! Full precision for all of them would take minutes per case. The enumeration therefore has
//! rounds, each on the best candidates of the previous one: every combination of paths with two
//! plausible assignments and low precision; every assignment on the best combinations; the best
//! pairs with middle precision; and the best of those with full precision. Assignments with the
//! same relations within all contention groups are equivalent, and for the last choice only one of
//! the two spines has to be tried.

use std::collections::BTreeSet;

use planner::PlanInput;
use planner::refine::contention_group::ContentionGroup;

use super::case::CASE_LEVELS;
use super::evaluation::{DecisionEvaluator, EvaluationLength, member_levels};
use super::segment_choices::{JobPaths, SegmentChoices};

/// Combinations of paths that are tried at most; of more, evenly spread ones are.
const COMBINATIONS: u64 = 4096;

/// Combinations of paths on which every assignment is tried.
const THOROUGH: usize = 20;

/// Decisions that are evaluated with middle, and then with full precision.
const MIDDLE: usize = 48;
const FULL: usize = 12;

/// Classes by worth of a second of link, for jobs in descending order, that are plausible.
const PLAUSIBLE: [[u8; 5]; 2] = [[2, 1, 0, 0, 0], [2, 1, 1, 0, 0]];

/// Paths with what they are worth at the best levels for them.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedDecision {
    pub(super) paths: JobPaths,
    /// GPU utilisation, at full precision.
    pub(super) utilization: f64,
}

/// Paths and levels.
pub(super) type CandidateDecision = (JobPaths, Vec<u8>);

/// The evaluators of a case, by precision.
#[derive(Debug)]
pub(super) struct OptimumSearch<'a> {
    input: &'a PlanInput,
    low: DecisionEvaluator<'a>,
    middle: DecisionEvaluator<'a>,
    full: DecisionEvaluator<'a>,
}

impl<'a> OptimumSearch<'a> {
    /// The court on `input`; `seed` draws when jobs start.
    pub(super) fn new(input: &'a PlanInput, seed: u64) -> Self {
        let evaluator = |starts, warm, counted| {
            let precision = EvaluationLength { starts, warm, counted };
            DecisionEvaluator::new(input, precision, seed)
        };
        Self {
            input,
            low: evaluator(1, 2.0, 4.0),
            middle: evaluator(4, 2.0, 10.0),
            full: evaluator(8, 4.0, 24.0),
        }
    }

    /// The best decisions found, one for each of the best combinations of paths, the best first.
    pub(super) fn find_optimum(&mut self, choices: &SegmentChoices) -> Vec<EvaluatedDecision> {
        let mut candidates = Vec::new();
        for paths in self.best_paths(choices) {
            let all = all_levels(&self.low.contention_groups(&paths));
            candidates.extend(all.into_iter().map(|levels| (paths.clone(), levels)));
        }
        self.best_decisions(candidates)
    }

    /// `decisions` with the best ones on the paths of `plans`, the best first: where a plan's paths
    /// are better than all that the enumeration evaluated finely, they are the optimum of the step.
    pub(super) fn with_paths_of(
        &mut self,
        plans: &[CandidateDecision],
        mut decisions: Vec<EvaluatedDecision>,
    ) -> Vec<EvaluatedDecision> {
        for (paths, _) in plans {
            let is_known = decisions.iter().any(|known| known.paths == *paths);
            let all =
                if is_known { Vec::new() } else { all_levels(&self.low.contention_groups(paths)) };
            let candidates = all.into_iter().map(|levels| (paths.clone(), levels));
            decisions.extend(self.best_decisions(candidates.collect()));
        }
        decisions.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
        decisions
    }

    /// Whether some combinations are left out.
    pub(super) fn is_bounded(choices: &SegmentChoices) -> bool {
        choices.combination_count().div_ceil(2) > COMBINATIONS
    }

    fn best_paths(&mut self, choices: &SegmentChoices) -> Vec<JobPaths> {
        let half = choices.combination_count().div_ceil(2);
        let step = half.div_ceil(COMBINATIONS).max(1);
        let mut scored: Vec<(f64, u64)> = (0..half.div_ceil(step))
            .map(|number| {
                let groups = self.low.contention_groups(&choices.combination_paths(number * step));
                (self.plausible_busy_gpus(&groups), number * step)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let best = scored.into_iter().take(THOROUGH);
        best.map(|(_, combination)| choices.combination_paths(combination)).collect()
    }

    /// GPUs that compute with the better of the plausible assignments.
    fn plausible_busy_gpus(&mut self, groups: &[ContentionGroup]) -> f64 {
        let values = groups.iter().map(|group| {
            let ranked = self.rank_by_worth(group);
            PLAUSIBLE
                .iter()
                .map(|shape| {
                    let mut levels = vec![0; ranked.len()];
                    for (level, member) in shape.iter().zip(&ranked) {
                        levels[*member] = *level;
                    }
                    self.low.busy_gpus(group, &levels)
                })
                .fold(0.0, f64::max)
        });
        values.sum()
    }

    /// Parties by descending GPU-seconds for a second of link.
    fn rank_by_worth(&self, group: &ContentionGroup) -> Vec<usize> {
        let alone = group.alone_seconds();
        let worth = |member: usize| {
            let job = &self.input.jobs[group.members[member]];
            let link = alone[member] - job.overlap_from * job.compute_seconds;
            f64::from(job.gpu_count()) * job.compute_seconds / link.max(f64::MIN_POSITIVE)
        };
        let mut ranked: Vec<usize> = (0..alone.len()).collect();
        ranked.sort_by(|a, b| worth(*b).total_cmp(&worth(*a)));
        ranked
    }

    /// The best of all assignments on `paths` that are `allowed` where jobs meet.
    pub(super) fn best_levels(
        &mut self,
        paths: &JobPaths,
        allowed: impl Fn(&[ContentionGroup], &[u8]) -> bool,
    ) -> f64 {
        let groups = self.low.contention_groups(paths);
        let all = all_levels(&groups).into_iter().filter(|levels| allowed(&groups, levels));
        self.best_utilization(all.map(|levels| (paths.clone(), levels)).collect())
    }

    /// Utilisation of the best of `candidates`; 0 of none.
    pub(super) fn best_utilization(&mut self, candidates: Vec<CandidateDecision>) -> f64 {
        let best = self.best_decisions(candidates);
        best.first().map_or(0.0, |decision| decision.utilization)
    }

    /// Utilisation of one decision, at full precision.
    pub(super) fn gpu_utilization(&mut self, paths: &JobPaths, levels: &[u8]) -> f64 {
        let groups = self.full.contention_groups(paths);
        self.full.gpu_utilization(&groups, levels)
    }

    /// Share of the time that each job computes, at full precision.
    pub(super) fn compute_shares(&self, paths: &JobPaths, levels: &[u8]) -> Vec<f64> {
        self.full.compute_shares(&self.full.contention_groups(paths), levels)
    }

    /// The best of `candidates`, evaluated with full precision, the best first.
    fn best_decisions(&mut self, candidates: Vec<CandidateDecision>) -> Vec<EvaluatedDecision> {
        let kept = best_few(&mut self.low, candidates, MIDDLE);
        let kept = best_few(&mut self.middle, kept, FULL);
        let mut judged: Vec<EvaluatedDecision> = kept
            .into_iter()
            .map(|(paths, levels)| EvaluatedDecision {
                utilization: self.gpu_utilization(&paths, &levels),
                paths,
            })
            .collect();
        judged.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
        judged
    }
}

/// The best `most` of `candidates` by the evaluation of `evaluator`.
fn best_few(
    evaluator: &mut DecisionEvaluator<'_>,
    candidates: Vec<CandidateDecision>,
    most: usize,
) -> Vec<CandidateDecision> {
    if candidates.len() <= most {
        return candidates;
    }
    let mut scored: Vec<(f64, CandidateDecision)> = candidates
        .into_iter()
        .map(|(paths, levels)| {
            let groups = evaluator.contention_groups(&paths);
            (evaluator.gpu_utilization(&groups, &levels), (paths, levels))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(most).map(|(_, candidate)| candidate).collect()
}

/// All assignments of levels, by job, that differ on `groups`, which together have all jobs.
fn all_levels(groups: &[ContentionGroup]) -> Vec<Vec<u8>> {
    let jobs = groups.iter().map(|group| group.members.len()).sum();
    let mut all = vec![Vec::new()];
    for _ in 0..jobs {
        all = all
            .into_iter()
            .flat_map(|levels| (0..CASE_LEVELS).map(move |level| [&levels[..], &[level]].concat()))
            .collect();
    }
    let mut seen = BTreeSet::new();
    all.retain(|levels| {
        let relations =
            groups.iter().map(|group| group.level_relations(&member_levels(group, levels)));
        seen.insert(relations.collect::<Vec<_>>())
    });
    all
}
