//! Every step with the optimum of the other two (Crux §4.4): what it reaches of the optimum.
//!
//! * `paths`: a scheduler's paths with the best levels there are for them.
//! * `assignment`: a scheduler's order of jobs on the optimum's paths, with the best levels that do
//!   not contradict the order where jobs meet.
//! * `compression`: a scheduler's way from an order to levels, on the best paths and with the best
//!   order there is for it. The product's is the cut and then the search, which moves levels of
//!   jobs on these paths; `exact` is the cut alone.
//! * `joint`: whole plans, against the optimum of all steps together.

use std::collections::BTreeSet;

use planner::refine::contention_group::ContentionGroup;
use planner::{
    CompressionMethod, CorrectionReference, PathMethod as PathPolicy, PlanInput, Policy,
    RoutedInput, SlowdownLimit,
};

use topology::LinkPath;

use super::case::{BenchmarkCase, CASE_JOBS, CASE_LEVELS};
use super::optimum::{CandidateDecision, EvaluatedDecision, OptimumSearch};
use super::segment_choices::{JobPaths, SegmentChoices};
use crate::baselines::taccl::LoadVisibility;
use crate::baselines::{ecmp, sincronia, taccl, varys};
use crate::demand::LinkDemand;
use crate::routes::EqualCostRoutes;

/// Combinations of paths that compression may choose from.
const COMPRESSED_ON: usize = 4;

/// A step and the schedulers that are tried at it; the first is the product's default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanningStep {
    /// Name of the job.
    pub name: &'static str,
    /// Names of the variants tried.
    pub variants: &'static [&'static str],
    /// The variant that is the paper's own way, with the mean share that Crux §4.4 reports of it.
    pub paper: Option<(&'static str, f64)>,
}

/// The steps, in the order of [`CaseResult::utilizations`].
pub const PLANNING_STEPS: [PlanningStep; 4] = [
    PlanningStep {
        name: "paths",
        variants: &["crux", "greedy", "taccl", "ecmp"],
        paper: Some(("greedy", 0.9769)),
    },
    PlanningStep {
        name: "assignment",
        variants: &["crux", "contenders", "single-reference", "sincronia", "varys"],
        paper: Some(("single-reference", 0.9724)),
    },
    PlanningStep {
        name: "compression",
        variants: &["crux", "exact", "sampled", "sincronia", "balanced"],
        paper: Some(("sampled", 0.9712)),
    },
    PlanningStep { name: "joint", variants: &["crux", "paper", "ecmp"], paper: None },
];

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// Number of the job.
    pub number: u32,
    /// The best GPU utilisation found by whatever means.
    pub optimum: f64,
    /// The best that the enumeration found; less than the optimum where its bounds bit.
    pub enumerated: f64,
    /// GPU utilisation if every job were alone: no decision exceeds it.
    pub alone: f64,
    /// Combinations of paths that there are.
    pub combinations: u64,
    /// Whether not all of them were tried.
    pub is_bounded: bool,
    /// GPU utilisation by step and variant, as in [`PLANNING_STEPS`].
    pub utilizations: Vec<Vec<f64>>,
}

impl CaseResult {
    /// Whether there was nothing to decide: ECMP with one level reaches the optimum too.
    pub fn is_trivial(&self) -> bool {
        let ecmp = self.utilizations.last().and_then(|joint| joint.last());
        ecmp.is_some_and(|ecmp| *ecmp >= 0.999 * self.optimum)
    }

    /// Share of the optimum, by step and variant.
    pub fn optimum_shares(&self) -> Vec<Vec<f64>> {
        let steps = self.utilizations.iter();
        steps
            .map(|variants| variants.iter().map(|utilization| utilization / self.optimum).collect())
            .collect()
    }
}

/// Finds the optimum of a case and tries every step at it.
pub fn examine_case(case: &BenchmarkCase) -> CaseResult {
    let input = &case.input;
    let choices = SegmentChoices::new(input);
    // Starts are drawn apart from the case and from what the planner's own search assumes.
    let mut search = OptimumSearch::new(input, case.seed ^ (u64::from(case.number) << 32));
    let enumerated = search.find_optimum(&choices);
    let plans = [unlimited_policy(), paper_policy()].map(|policy| plan_candidate(input, &policy));
    let best = search.with_paths_of(&plans, enumerated.clone());
    let mut trials = StepTrials { input, search, best: &best };
    let utilizations = vec![
        trials.try_paths(&plans),
        trials.try_assignment(),
        trials.try_compression(),
        trials.try_joint(&plans),
    ];
    let reached = utilizations.iter().flatten().copied();
    CaseResult {
        number: case.number,
        optimum: reached.fold(best[0].utilization, f64::max),
        enumerated: enumerated[0].utilization,
        alone: isolated_utilization(input),
        combinations: choices.combination_count(),
        is_bounded: OptimumSearch::is_bounded(&choices),
        utilizations,
    }
}

/// The product's policy with the levels of the cases, which jobs have, and that of acknowledgements.
pub(super) fn product_policy() -> Policy {
    Policy { levels: CASE_LEVELS + 1, ..Policy::default() }
}

/// No floor for the slowest job, as the optimum has none.
fn unlimited_policy() -> Policy {
    let slowdown_limit = SlowdownLimit { ecmp: None, alone: None };
    Policy { slowdown_limit, ..product_policy() }
}

/// The paper's plain method.
fn paper_policy() -> Policy {
    Policy {
        paths: PathPolicy::Greedy,
        reference: CorrectionReference::MostTraffic,
        compression: CompressionMethod::Sampled,
        search_events: 0,
        ..product_policy()
    }
}

pub(super) fn policy_without_search() -> Policy {
    Policy { search_events: 0, ..product_policy() }
}

/// The steps of one case.
struct StepTrials<'a> {
    input: &'a PlanInput,
    search: OptimumSearch<'a>,
    best: &'a [EvaluatedDecision],
}

impl StepTrials<'_> {
    fn try_paths(&mut self, plans: &[CandidateDecision]) -> Vec<f64> {
        let baselines = [
            taccl::choose_paths(
                self.input,
                &EqualCostRoutes::for_input(self.input),
                LoadVisibility::AllFlows,
            ),
            ecmp::hash_paths(self.input, &EqualCostRoutes::for_input(self.input)),
        ];
        let planned = plans.iter().map(|(paths, _)| paths);
        planned.chain(&baselines).map(|paths| self.search.best_levels(paths, |_, _| true)).collect()
    }

    fn try_assignment(&mut self) -> Vec<f64> {
        let paths = &self.best[0].paths;
        let routed = RoutedInput::new(self.input, flatten_paths(paths));
        let contenders =
            Policy { reference: CorrectionReference::Contenders, ..policy_without_search() };
        let demands = LinkDemand::for_jobs(self.input, paths);
        let orders = [
            routed.job_order(&product_policy()),
            routed.job_order(&contenders),
            routed.job_order(&paper_policy()),
            sincronia::order_coflows(&demands),
            varys::order_coflows(&demands),
        ];
        let search = &mut self.search;
        let reached = orders.iter().map(|order| {
            search.best_levels(paths, |groups, levels| is_consistent(order, groups, levels))
        });
        reached.collect()
    }

    fn try_compression(&mut self) -> Vec<f64> {
        let methods = [
            CompressionMethod::Exact,
            CompressionMethod::Sampled,
            CompressionMethod::Sincronia,
            CompressionMethod::Balanced,
        ];
        let searched = self.search.best_utilization(self.searched_candidates());
        let compressed = methods.map(|method| {
            let candidates = self.compressed_candidates(method);
            self.search.best_utilization(candidates)
        });
        [searched].into_iter().chain(compressed).collect()
    }

    /// The levels that the product ends at on each of the best paths.
    fn searched_candidates(&self) -> Vec<CandidateDecision> {
        let policy = unlimited_policy();
        let searched = distinct_paths(self.best).into_iter().map(|paths| {
            let routed = RoutedInput::new(self.input, flatten_paths(paths));
            let levels =
                routed.searched_levels(&routed.job_order(&policy_without_search()), &policy);
            (paths.clone(), levels)
        });
        searched.collect()
    }

    /// All levels that `method` makes of some order on one of the best paths.
    fn compressed_candidates(&self, method: CompressionMethod) -> Vec<CandidateDecision> {
        let policy = Policy { compression: method, ..product_policy() };
        let orders = all_orders(CASE_JOBS);
        let mut candidates = Vec::new();
        for paths in distinct_paths(self.best) {
            let routed = RoutedInput::new(self.input, flatten_paths(paths));
            let levels: BTreeSet<Vec<u8>> =
                orders.iter().map(|order| routed.compressed_levels(order, &policy)).collect();
            candidates.extend(levels.into_iter().map(|levels| (paths.clone(), levels)));
        }
        candidates
    }

    fn try_joint(&mut self, plans: &[CandidateDecision]) -> Vec<f64> {
        let ecmp = (
            ecmp::hash_paths(self.input, &EqualCostRoutes::for_input(self.input)),
            vec![0; CASE_JOBS],
        );
        let all = plans.iter().chain([&ecmp]);
        all.map(|(paths, levels)| self.search.gpu_utilization(paths, levels)).collect()
    }
}

/// Paths and levels of the plan under `policy`.
pub(super) fn plan_candidate(input: &PlanInput, policy: &Policy) -> CandidateDecision {
    let (plan, _) = planner::plan(input, policy, None);
    let mut paths = vec![Vec::new(); plan.jobs.len()];
    for flow in plan.flows {
        paths[flow.job].push(flow.links.to_vec());
    }
    (paths, plan.jobs.iter().map(|job| job.level).collect())
}

/// Paths by flow, as the planner holds them.
fn flatten_paths(paths: &JobPaths) -> Vec<LinkPath> {
    let paths = paths.iter().flatten();
    paths.map(|path| LinkPath::new(path).unwrap_or(LinkPath::EMPTY)).collect()
}

/// Whether where jobs meet none is above one that `order` has before it.
fn is_consistent(order: &[usize], groups: &[ContentionGroup], levels: &[u8]) -> bool {
    let place = |job: usize| order.iter().position(|other| *other == job);
    groups.iter().all(|group| {
        group.shared_pairs().iter().all(|(a, b)| {
            let (a, b) = (group.members[*a], group.members[*b]);
            let (first, second) = if place(a) < place(b) { (a, b) } else { (b, a) };
            levels[first] >= levels[second]
        })
    })
}

/// The best combinations of paths, each once.
fn distinct_paths(best: &[EvaluatedDecision]) -> Vec<&JobPaths> {
    let mut distinct: Vec<&JobPaths> = Vec::new();
    for decision in best {
        if distinct.len() < COMPRESSED_ON && !distinct.contains(&&decision.paths) {
            distinct.push(&decision.paths);
        }
    }
    distinct
}

/// All orders of so many jobs.
fn all_orders(jobs: usize) -> Vec<Vec<usize>> {
    let Some(last) = jobs.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let shorter = all_orders(last).into_iter();
    shorter
        .flat_map(|order| {
            (0..jobs).map(move |place| [&order[..place], &[last], &order[place..]].concat())
        })
        .collect()
}

/// GPU utilisation if every job had the network to itself.
fn isolated_utilization(input: &PlanInput) -> f64 {
    let gpus = input.jobs.iter().map(|job| f64::from(job.gpu_count()));
    let shares = isolated_shares(input).into_iter();
    let busy = shares.zip(gpus.clone()).map(|(share, gpus)| gpus * share);
    busy.sum::<f64>() / gpus.sum::<f64>()
}

/// Share of the time that each job computes if it has the network to itself.
pub(super) fn isolated_shares(input: &PlanInput) -> Vec<f64> {
    input
        .jobs
        .iter()
        .map(|job| {
            let uplinks = job.flows.iter().map(|flow| {
                let uplink = input.fabric.nic(flow.src).uplink;
                flow.bytes / input.fabric.link(uplink).bandwidth.bytes_per_second()
            });
            job.compute_seconds / job.iteration_seconds(uplinks.fold(0.0, f64::max))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::generate_case;

    /// Where one flow after the other moves, a region of five jobs ends up to 13 % below its
    /// optimum: several flows and levels would have to change at once.
    #[test]
    fn plans_of_small_regions_are_near_the_optimum() {
        const CASES: u32 = 12;
        let shares: Vec<f64> = (0..CASES)
            .map(|number| {
                let case = generate_case(7, number);
                let mut search = OptimumSearch::new(&case.input, u64::from(number));
                let optimum = search.find_optimum(&SegmentChoices::new(&case.input));
                let (paths, levels) = plan_candidate(&case.input, &unlimited_policy());
                search.gpu_utilization(&paths, &levels) / optimum[0].utilization
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / f64::from(CASES);
        assert!(mean > 0.99, "{mean}: {shares:?}");
        assert!(shares.iter().all(|share| *share > 0.95), "{shares:?}");
    }
}
