//! The candidates: paths from several origins, and levels for them from several origins.

use std::cmp::Reverse;
use std::fmt;
use std::rc::Rc;

use topology::LinkPath;

use super::bundles::RegionModel;
use super::contention_group::ContentionGroup;
use super::decisions::Decisions;
use super::judge::Judge;
use super::mean_rates::MeanRates;
use crate::compression::balanced::balanced_levels;
use crate::hashed_paths::hashed_paths;
use crate::job_ranking::JobRanking;
use crate::levels::LevelScope;
use crate::path_selection::{self, PathRule};
use crate::plan_context::{PlanContext, PlanRegion};
use crate::policy::to_level;
use crate::previous_plan::PreviousPlan;
use crate::priority::ReferenceJobs;

/// Flows of a plan whose levels a quick one rates at most.
const MAX_RATED_FLOWS: usize = 10_000;

/// Events, by estimate, for which a quick plan simulates the levels of small regions in all: some
/// milliseconds.
const RATED_EVENTS: f64 = 16_000.0;

/// Draws of paths by hash that stand for what ECMP may do.
const ECMP_DRAWS: u32 = 10;

/// Jobs that have the higher of two levels at most.
const MAX_SPLITS: usize = 12;

/// Where the paths of a candidate come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathOrigin {
    /// The plan in force.
    InForce,
    /// What runs stays where it is, and new flows take the least contended path, by intensity.
    Selected,
    /// Crux §4.1: by intensity, the least congested path each.
    Greedy,
    /// As TACCL\* chooses them: by name of the job, the least congested path each.
    LeastCongested,
    /// The local search, from the best of the others.
    Searched,
    /// All of them: switches spray.
    Sprayed,
}

/// Where the levels of a candidate come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LevelOrigin {
    /// The plan in force.
    InForce,
    /// The local search, from the best of the others.
    Searched,
    /// Crux §4.2 and §4.3: by corrected intensity, compressed to so many levels.
    Ranked(u8),
    /// The highest level for so many of the most intense jobs, the one below for all others.
    Split(u8),
    /// As TACCL\* gives them: by length of the path, split evenly over all levels.
    ByDistance,
    /// Of the others, with higher levels for the jobs that miss the floor.
    Raised,
    /// Those of the best, or one level, with a slot for the iterations of each job.
    Shifted,
    /// The best of the others, changed job by job while the fluid model finds that better.
    Climbed,
}

impl LevelOrigin {
    /// Whether all jobs have one level.
    pub(super) fn has_no_order(self) -> bool {
        self == Self::Ranked(1)
    }

    /// Whether a plan is never to be worse than with these levels; compressed ones only where
    /// simulations are cheap.
    pub(super) fn is_essential(self, simulations_are_cheap: bool) -> bool {
        match self {
            Self::InForce | Self::Ranked(1) | Self::ByDistance => true,
            Self::Ranked(_) => simulations_are_cheap,
            Self::Searched | Self::Split(_) | Self::Raised | Self::Shifted | Self::Climbed => false,
        }
    }
}

impl fmt::Display for PathOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("in-force"),
            Self::Selected => f.write_str("selected"),
            Self::Greedy => f.write_str("greedy"),
            Self::LeastCongested => f.write_str("least-congested"),
            Self::Searched => f.write_str("searched"),
            Self::Sprayed => f.write_str("sprayed"),
        }
    }
}

impl fmt::Display for LevelOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("in-force"),
            Self::Searched => f.write_str("searched"),
            Self::Ranked(1) => f.write_str("one-level"),
            Self::Ranked(levels) => write!(f, "{levels}-levels"),
            Self::Split(first) => write!(f, "first-{first}"),
            Self::ByDistance => f.write_str("by-distance"),
            Self::Raised => f.write_str("raised"),
            Self::Shifted => f.write_str("shifted"),
            Self::Climbed => f.write_str("climbed"),
        }
    }
}

/// Paths of all flows with the levels that may go with them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CandidatePaths {
    pub(super) origin: PathOrigin,
    /// By flow of the plan.
    pub(super) paths: Vec<LinkPath>,
    /// By job.
    pub(super) levels: Vec<(LevelOrigin, Vec<u8>)>,
}

/// Makes candidates when they are first needed.
pub(super) struct CandidateBuilder<'a> {
    context: &'a PlanContext<'a>,
    /// The jobs that are decided by comparison.
    regions: &'a [&'a PlanRegion],
    /// What path selection and ranking decided.
    unsearched: &'a Decisions,
    present: Vec<Rc<CandidatePaths>>,
    /// Paths drawn by hash, as ECMP does.
    hashed: Vec<Vec<LinkPath>>,
}

impl<'a> CandidateBuilder<'a> {
    pub(super) fn new(
        context: &'a PlanContext<'a>,
        regions: &'a [&'a PlanRegion],
        unsearched: &'a Decisions,
    ) -> Self {
        Self { context, regions, unsearched, present: Vec::new(), hashed: Vec::new() }
    }

    /// What path selection and ranking decided.
    pub(super) fn unsearched(&self) -> &'a Decisions {
        self.unsearched
    }

    /// The plan in force, if there is one, the paths of path selection, those of the paper, and those
    /// of TACCL\*.
    pub(super) fn present(&mut self) -> &[Rc<CandidatePaths>] {
        // Made when first asked for: a region whose plan in force is optimal needs no other.
        if self.present.is_empty() {
            let Self { context, regions, unsearched, .. } = *self;
            let in_force = in_force(context, regions, unsearched);
            let others = [
                self.ranked(PathOrigin::Selected, unsearched.paths.clone()),
                self.ranked(PathOrigin::Greedy, greedy_paths(context)),
                least_congested(context, regions),
            ];
            self.present.extend(in_force.into_iter().chain(others).map(Rc::new));
        }
        &self.present
    }

    /// These paths with levels by rank.
    fn ranked(&self, origin: PathOrigin, paths: Vec<LinkPath>) -> CandidatePaths {
        let levels = ranked_levels(self.context, self.regions, &paths);
        CandidatePaths { origin, paths, levels }
    }

    /// Draws of the paths of all flows by hash.
    pub(super) fn hashed(&mut self) -> &[Vec<LinkPath>] {
        if self.hashed.is_empty() {
            let traffic = self.context.traffic;
            self.hashed.extend((0..ECMP_DRAWS).map(|draw| hashed_paths(traffic, draw)));
        }
        &self.hashed
    }
}

/// Paths and levels of the plan in force, with the decisions of the other phases for what is new;
/// none if nothing of it is left.
pub(super) fn decisions_in_force(
    context: &PlanContext<'_>,
    unsearched: &Decisions,
) -> Option<(Vec<LinkPath>, Vec<u8>)> {
    let PlanContext { traffic, previous, .. } = context;
    // Without a running job there is nothing in force that could be kept.
    if (0..traffic.jobs.len()).all(|job| previous.job_level(job).is_none()) {
        return None;
    }
    let kept = path_selection::usable_previous_paths(traffic, previous).into_iter();
    let kept = kept.zip(&unsearched.paths);
    let paths = kept.map(|(kept, chosen)| kept.unwrap_or(*chosen)).collect();
    let jobs = unsearched.levels.iter().enumerate();
    let levels =
        context.permit_levels(jobs.map(|(job, new)| previous.job_level(job).unwrap_or(*new)));
    Some((paths, levels))
}

fn in_force(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    unsearched: &Decisions,
) -> Option<CandidatePaths> {
    let (paths, levels) = decisions_in_force(context, unsearched)?;
    let mut methods = vec![(LevelOrigin::InForce, levels)];
    // On the same paths these levels are among the selected candidate's.
    if paths != unsearched.paths {
        methods.extend(ranked_levels(context, regions, &paths));
    }
    Some(CandidatePaths { origin: PathOrigin::InForce, paths, levels: methods })
}

/// Paths of all jobs in the order of intensity, as in the paper.
fn greedy_paths(context: &PlanContext<'_>) -> Vec<LinkPath> {
    let routes = context.traffic.routes.iter();
    let order = path_selection::order_by_intensity(routes.map(|routes| &routes.demand));
    path_selection::select_paths_in_order(context.traffic, &order, PathRule::LeastCongested)
}

/// Paths of TACCL\* (Crux §6.1), with its levels and those by rank.
fn least_congested(context: &PlanContext<'_>, regions: &[&PlanRegion]) -> CandidatePaths {
    let PlanContext { traffic, policy, .. } = context;
    let by_name: Vec<usize> = (0..traffic.jobs.len()).collect();
    let paths = path_selection::select_paths_in_order(traffic, &by_name, PathRule::LeastCongested);
    let length = |job: usize| paths[traffic.spans[job].clone()].iter().map(|path| path.len()).max();
    let mut order: Vec<usize> = (0..traffic.jobs.len()).collect();
    // A stable sort: jobs with equally long paths stay in the order of their names.
    order.sort_by_key(|job| Reverse(length(*job)));
    let job_levels = policy.job_levels();
    let mut levels = vec![job_levels[0]; order.len()];
    for (job, level) in order.iter().zip(balanced_levels(order.len(), to_level(job_levels.len()))) {
        levels[*job] = job_levels[usize::from(level)];
    }
    let mut methods = vec![(LevelOrigin::ByDistance, context.permit_levels(levels))];
    methods.extend(ranked_levels(context, regions, &paths));
    CandidatePaths { origin: PathOrigin::LeastCongested, paths, levels: methods }
}

/// Levels by rank on these paths: compressed to all levels of the policy and to fewer, and split in
/// two by intensity.
fn ranked_levels(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    paths: &[LinkPath],
) -> Vec<(LevelOrigin, Vec<u8>)> {
    let PlanContext { traffic, policy, corrections, .. } = context;
    let compared: Vec<usize> = regions.iter().flat_map(|region| &region.jobs).copied().collect();
    let nothing = PreviousPlan::new(traffic, None);
    let most = policy.job_levels().len();
    let ranking = JobRanking::new(traffic, paths, policy, (ReferenceJobs::All, *corrections));
    let mut counts = vec![most];
    // Those of switches with 4, 2 and 1 levels.
    counts.extend([3, 2, 1].into_iter().filter(|count| *count < most));
    let mut methods: Vec<(LevelOrigin, Vec<u8>)> = counts
        .into_iter()
        .map(|count| {
            let name = LevelOrigin::Ranked(u8::try_from(count).unwrap_or(u8::MAX));
            let scope = LevelScope { compared: &compared, level_count: count };
            (name, ranking.assign_levels(traffic, policy, &nothing, scope))
        })
        .collect();
    methods.extend(split_levels(context, regions, &ranking));
    methods
}

/// Of the levels by rank on `paths`, by job, for each of the `regions` the best: in simulations where
/// a few milliseconds suffice, as averages know nothing of the phases in which jobs of equal periods
/// miss each other; else by mean rates. None where there are so many flows that rating takes long.
pub(super) fn best_rank(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    paths: &[LinkPath],
) -> Option<Vec<u8>> {
    let PlanContext { traffic, policy, .. } = context;
    if regions.is_empty() || traffic.flows.len() > MAX_RATED_FLOWS {
        return None;
    }
    let methods = ranked_levels(context, regions, paths);
    let mut best = methods[0].1.clone();
    let mut left = RATED_EVENTS;
    for PlanRegion { jobs, .. } in regions {
        let mut judge = Judge::new(traffic, policy, jobs);
        // Simulated while the budget lasts, and by mean rates afterwards: a quick plan has
        // milliseconds.
        let cost = judge.horizon.cost_of_mean() * methods.len() as f64;
        let scores: Vec<f64> = if cost <= left {
            left -= cost;
            let groups = judge.contention_groups(paths);
            let mut value = |group: &ContentionGroup, levels: &[u8]| {
                let levels: Vec<u8> =
                    group.members.iter().map(|member| levels[jobs[*member]]).collect();
                judge.mean_value(group, &levels).map_or(0.0, |of| of.value)
            };
            let mut score =
                |levels: &[u8]| groups.iter().map(|group| value(group, levels)).sum::<f64>();
            methods.iter().map(|(_, levels)| score(levels)).collect()
        } else {
            let model = RegionModel::new(traffic, policy, jobs);
            let first = model.level_indices(&methods[0].1);
            let longest = vec![f64::INFINITY; jobs.len()];
            let mut rates = MeanRates::new(&model, model.counts_of(paths), first, longest);
            let score = |(_, levels): &(LevelOrigin, Vec<u8>)| {
                rates.set_levels(&model.level_indices(levels));
                rates.score()
            };
            methods.iter().map(score).collect()
        };
        let mut most = scores[0];
        // Only a higher score replaces: of equals the first method, which has most levels.
        for (score, (_, levels)) in scores.iter().zip(&methods).skip(1) {
            if *score > most {
                most = *score;
                jobs.iter().for_each(|job| best[*job] = levels[*job]);
            }
        }
    }
    Some(best)
}

/// Two levels, the higher one for the first jobs of each region by intensity: what two levels by
/// corrected priority miss where the correction exchanges jobs.
fn split_levels(
    context: &PlanContext<'_>,
    regions: &[&PlanRegion],
    ranking: &JobRanking,
) -> Vec<(LevelOrigin, Vec<u8>)> {
    let job_levels = context.policy.job_levels();
    let [.., second, highest] = job_levels[..] else { return Vec::new() };
    let intensity = |job: &usize| ranking.demands[*job].intensity;
    let by_intensity = |region: &&PlanRegion| {
        let mut jobs = region.jobs.clone();
        jobs.sort_by(|a, b| intensity(b).total_cmp(&intensity(a)).then(a.cmp(b)));
        jobs
    };
    let orders: Vec<Vec<usize>> = regions.iter().map(by_intensity).collect();
    let most = orders.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(1).min(MAX_SPLITS);
    let mut levels = vec![second; ranking.order.len()];
    (0..most)
        .map(|place| {
            // One more job of each region in each step, so that the splits of all regions cost one
            // list.
            for job in orders.iter().filter_map(|order| order.get(place)) {
                levels[*job] = highest;
            }
            (LevelOrigin::Split(to_level(place + 1)), context.permit_levels(levels.clone()))
        })
        .collect()
}
