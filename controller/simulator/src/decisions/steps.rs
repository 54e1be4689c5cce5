//! Every step with the optimum of the other two (Crux §4.4): what it reaches of the optimum.
//!
//! * `paths`: a scheduler's paths with the best levels there are for them.
//! * `assignment`: a scheduler's order of jobs on the optimum's paths, with the best levels that do
//!   not contradict the order where jobs meet.
//! * `compression`: a scheduler's way from an order to levels, on the best paths and with the best
//!   order there is for it. The product's is the cut and then the search, which moves classes of
//!   jobs on these paths; `exact` is the cut alone.
//! * `joint`: whole plans, against the optimum of all steps together.

use std::collections::BTreeSet;

use planner::search::contest::Contest;
use planner::{Compression, Input, Job, Paths as PathPolicy, Policy, Reference, Routed};

use topology::Path;

use super::case::{Case, JOBS, LEVELS};
use super::choices::{Choices, Paths};
use super::optimum::{Candidate, Court, Decision};
use crate::baseline::taccl::Sight;
use crate::baseline::{ecmp, sincronia, taccl, varys};
use crate::demand::Demand;
use crate::routes::Routes;

/// Combinations of paths that compression may choose from.
const COMPRESSED_ON: usize = 4;

/// A step and the schedulers that are tried at it; the first is the product's default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// What is tried.
    pub variants: &'static [&'static str],
    /// The variant that is the paper's own way, with the mean share that Crux §4.4 reports of it.
    pub paper: Option<(&'static str, f64)>,
}

/// The steps, in the order of [`Examined::utilizations`].
pub const STEPS: [Step; 4] = [
    Step {
        name: "paths",
        variants: &["crux", "improved", "greedy", "taccl", "ecmp"],
        paper: Some(("greedy", 0.9769)),
    },
    Step {
        name: "assignment",
        variants: &[
            "crux",
            "contenders",
            "single-reference",
            "sincronia",
            "varys",
        ],
        paper: Some(("single-reference", 0.9724)),
    },
    Step {
        name: "compression",
        variants: &["crux", "exact", "sampled", "sincronia", "balanced"],
        paper: Some(("sampled", 0.9712)),
    },
    Step {
        name: "joint",
        variants: &["crux", "without-search", "paper", "ecmp"],
        paper: None,
    },
];

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Examined {
    /// Its number.
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
    /// GPU utilisation by step and variant, as in [`STEPS`].
    pub utilizations: Vec<Vec<f64>>,
}

impl Examined {
    /// Whether there was nothing to decide: ECMP with one level reaches the optimum too.
    pub fn is_trivial(&self) -> bool {
        let ecmp = self.utilizations.last().and_then(|joint| joint.last());
        ecmp.is_some_and(|ecmp| *ecmp >= 0.999 * self.optimum)
    }

    /// Share of the optimum, by step and variant.
    pub fn shares(&self) -> Vec<Vec<f64>> {
        let steps = self.utilizations.iter();
        let share = |utilization: &f64| utilization / self.optimum;
        steps
            .map(|variants| variants.iter().map(share).collect())
            .collect()
    }
}

/// Finds the optimum of a case and tries every step at it.
pub fn examine(case: &Case) -> Examined {
    let input = &case.input;
    let choices = Choices::new(input);
    // Starts are drawn apart from the case and from what the planner's own search assumes.
    let mut court = Court::new(input, case.seed ^ (u64::from(case.number) << 32));
    let enumerated = court.optimum(&choices);
    let plans = [product(), without_search(), paper()].map(|policy| planned(input, &policy));
    let best = court.with_paths_of(&plans, enumerated.clone());
    let mut trials = Trials {
        input,
        court,
        best: &best,
    };
    let utilizations = vec![
        trials.paths(&plans),
        trials.assignment(),
        trials.compression(),
        trials.joint(&plans),
    ];
    let reached = utilizations.iter().flatten().copied();
    Examined {
        number: case.number,
        optimum: reached.fold(best[0].utilization, f64::max),
        enumerated: enumerated[0].utilization,
        alone: alone(input),
        combinations: choices.combinations(),
        is_bounded: Court::is_bounded(&choices),
        utilizations,
    }
}

/// The product's policy with the levels of the cases.
pub(super) fn product() -> Policy {
    Policy {
        levels: LEVELS,
        ..Policy::default()
    }
}

/// The paper's plain method.
fn paper() -> Policy {
    Policy {
        paths: PathPolicy::Greedy,
        reference: Reference::MostTraffic,
        compression: Compression::Sampled,
        search_events: 0,
        ..product()
    }
}

pub(super) fn without_search() -> Policy {
    Policy {
        search_events: 0,
        ..product()
    }
}

/// The steps of one case.
struct Trials<'a> {
    input: &'a Input,
    court: Court<'a>,
    best: &'a [Decision],
}

impl Trials<'_> {
    fn paths(&mut self, plans: &[Candidate]) -> Vec<f64> {
        let baselines = [
            taccl::paths(self.input, &Routes::of(self.input), Sight::Flows),
            ecmp::paths(self.input, &Routes::of(self.input)),
        ];
        let planned = plans.iter().map(|(paths, _)| paths);
        planned
            .chain(&baselines)
            .map(|paths| self.court.best_levels(paths, |_, _| true))
            .collect()
    }

    fn assignment(&mut self) -> Vec<f64> {
        let paths = &self.best[0].paths;
        let routed = Routed::new(self.input, in_place(paths));
        let contenders = Policy {
            reference: Reference::Contenders,
            ..without_search()
        };
        let demands = Demand::of_all(self.input, paths);
        let orders = [
            routed.order(&product()),
            routed.order(&contenders),
            routed.order(&paper()),
            sincronia::order(&demands),
            varys::order(&demands),
        ];
        let court = &mut self.court;
        let reached = orders.iter().map(|order| {
            court.best_levels(paths, |contests, levels| {
                is_consistent(order, contests, levels)
            })
        });
        reached.collect()
    }

    fn compression(&mut self) -> Vec<f64> {
        let methods = [
            Compression::Exact,
            Compression::Sampled,
            Compression::Sincronia,
            Compression::Balanced,
        ];
        let searched = self.court.best_of(self.searched());
        let compressed = methods.map(|method| {
            let candidates = self.compressed(method);
            self.court.best_of(candidates)
        });
        [searched].into_iter().chain(compressed).collect()
    }

    /// The levels that the product ends at on each of the best paths.
    fn searched(&self) -> Vec<Candidate> {
        let policy = product();
        let searched = distinct_paths(self.best).into_iter().map(|paths| {
            let routed = Routed::new(self.input, in_place(paths));
            let levels = routed.searched_levels(&routed.order(&without_search()), &policy);
            (paths.clone(), levels)
        });
        searched.collect()
    }

    /// All levels that `method` makes of some order on one of the best paths.
    fn compressed(&self, method: Compression) -> Vec<Candidate> {
        let policy = Policy {
            compression: method,
            ..product()
        };
        let orders = orders(JOBS);
        let mut candidates = Vec::new();
        for paths in distinct_paths(self.best) {
            let routed = Routed::new(self.input, in_place(paths));
            let levels = orders.iter().map(|order| routed.levels(order, &policy));
            let levels: BTreeSet<Vec<u8>> = levels.collect();
            candidates.extend(levels.into_iter().map(|levels| (paths.clone(), levels)));
        }
        candidates
    }

    fn joint(&mut self, plans: &[Candidate]) -> Vec<f64> {
        let ecmp = (
            ecmp::paths(self.input, &Routes::of(self.input)),
            vec![0; JOBS],
        );
        let all = plans.iter().chain([&ecmp]);
        all.map(|(paths, levels)| self.court.utilization(paths, levels))
            .collect()
    }
}

/// Paths and levels of the plan under `policy`.
pub(super) fn planned(input: &Input, policy: &Policy) -> Candidate {
    let (plan, _) = planner::plan(input, policy, None);
    let mut paths = vec![Vec::new(); plan.jobs.len()];
    for flow in plan.flows {
        paths[flow.job].push(flow.links.to_vec());
    }
    (paths, plan.jobs.iter().map(|job| job.level).collect())
}

/// Paths by flow, as the planner holds them.
fn in_place(paths: &Paths) -> Vec<Path> {
    let paths = paths.iter().flatten();
    paths
        .map(|path| Path::new(path).unwrap_or(Path::EMPTY))
        .collect()
}

/// Whether where jobs meet none is above one that `order` has before it.
fn is_consistent(order: &[usize], contests: &[Contest], levels: &[u8]) -> bool {
    let place = |job: usize| order.iter().position(|other| *other == job);
    contests.iter().all(|contest| {
        contest.meets().iter().all(|(a, b)| {
            let (a, b) = (contest.parties[*a], contest.parties[*b]);
            let (first, second) = if place(a) < place(b) { (a, b) } else { (b, a) };
            levels[first] >= levels[second]
        })
    })
}

/// The best combinations of paths, each once.
fn distinct_paths(best: &[Decision]) -> Vec<&Paths> {
    let mut distinct: Vec<&Paths> = Vec::new();
    for decision in best {
        if distinct.len() < COMPRESSED_ON && !distinct.contains(&&decision.paths) {
            distinct.push(&decision.paths);
        }
    }
    distinct
}

/// All orders of so many jobs.
fn orders(jobs: usize) -> Vec<Vec<usize>> {
    let Some(last) = jobs.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let shorter = orders(last).into_iter();
    let with_last = |order: Vec<usize>| {
        (0..jobs).map(move |place| [&order[..place], &[last], &order[place..]].concat())
    };
    shorter.flat_map(with_last).collect()
}

/// GPU utilisation if every job had the network to itself.
fn alone(input: &Input) -> f64 {
    let gpus = input.jobs.iter().map(|job| f64::from(job.gpu_count()));
    let shares = shares_alone(input).into_iter();
    let busy = shares.zip(gpus.clone()).map(|(share, gpus)| gpus * share);
    busy.sum::<f64>() / gpus.sum::<f64>()
}

/// Share of the time that each job computes if it has the network to itself.
pub(super) fn shares_alone(input: &Input) -> Vec<f64> {
    let share = |job: &Job| {
        let capacity = |nic| {
            let uplink = input.fabric.nic(nic).uplink;
            input.fabric.link(uplink).bandwidth.bytes_per_second()
        };
        let flows = job.flows.iter();
        let link = flows.map(|flow| flow.bytes / capacity(flow.src));
        job.compute_seconds / job.iteration_seconds(link.fold(0.0, f64::max))
    };
    input.jobs.iter().map(share).collect()
}
