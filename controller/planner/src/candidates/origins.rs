//! The candidates: paths from several origins, and levels for them from several origins.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use topology::{LinkId, LinkPath};

use crate::compression::balanced::balanced_levels;
use crate::decision::PlanContext;
use crate::hashed_paths::hashed_paths;
use crate::job_ranking::JobRanking;
use crate::levels::LevelScope;
use crate::path_selection;
use crate::policy::{CorrectionReference, Policy, to_level};
use crate::previous_plan::PreviousPlan;
use crate::priority::ReferenceJobs;
use crate::search::{self, SearchResult};

/// Percent of every link that levels above the lowest leave to it.
const RESERVED_PERCENT: [u8; 4] = [15, 30, 50, 70];

/// A cap of the correction factor (Crux §4.2) that limits how far one job can rise above others.
const LOW_CORRECTION_CAP: f64 = 4.0;

/// Where the paths of a candidate come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathOrigin {
    /// The plan in force.
    InForce,
    /// Crux §4.1: by intensity, the least congested path each, then local search.
    Selected,
    /// As TACCL\* chooses them: by name of the job, the least congested path each.
    LeastCongested,
    /// The search of paths and levels by the fluid model.
    Searched,
    /// Drawn by hash, as ECMP does.
    Hashed(u32),
    /// The local search, from the best paths drawn by hash.
    ImprovedHashed,
}

/// Where the levels of a candidate come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LevelOrigin {
    /// The plan in force.
    InForce,
    /// The search of paths and levels by the fluid model.
    Searched,
    /// Crux §4.2 and §4.3: by corrected intensity, compressed to so many levels.
    Ranked(u8),
    /// As `Ranked` on all levels, with a correction factor of at most 4.
    LowCorrection,
    /// As `Ranked` on all levels, corrected against all contenders of a job (Crux §7.1).
    Contenders,
    /// As `Ranked` on all levels, but the lowest for jobs that would leave the jobs below them less
    /// than so many percent of a link.
    Reserved(u8),
    /// As TACCL\* gives them: by length of the path, split evenly over all levels.
    ByDistance,
    /// Of the others, with higher levels for the jobs that miss the floor.
    Raised,
    /// The best of the others, changed job by job while the fluid model finds that better.
    Climbed,
}

impl LevelOrigin {
    /// Whether it is tried in a large region as well, where each trial takes long.
    pub(super) fn is_essential(self) -> bool {
        !matches!(self, Self::LowCorrection | Self::Contenders)
    }
}

impl fmt::Display for PathOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("in-force"),
            Self::Selected => f.write_str("selected"),
            Self::LeastCongested => f.write_str("least-congested"),
            Self::Searched => f.write_str("searched"),
            Self::Hashed(draw) => write!(f, "ecmp-{draw}"),
            Self::ImprovedHashed => f.write_str("ecmp-improved"),
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
            Self::LowCorrection => f.write_str("low-correction"),
            Self::Contenders => f.write_str("contenders"),
            Self::Reserved(percent) => write!(f, "reserved-{percent}"),
            Self::ByDistance => f.write_str("by-distance"),
            Self::Raised => f.write_str("raised"),
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

impl CandidatePaths {
    /// What a search found.
    pub(super) fn searched(found: SearchResult) -> Self {
        Self {
            origin: PathOrigin::Searched,
            paths: found.paths,
            levels: vec![(LevelOrigin::Searched, found.levels)],
        }
    }
}

/// Which candidates come of the best paths drawn by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrawUse {
    /// The paths as they were drawn.
    AsIs,
    /// Those, and what the local search makes of them.
    Improved,
}

/// Makes candidates when they are first needed.
pub(super) struct CandidateBuilder<'a> {
    context: &'a PlanContext<'a>,
    /// The jobs that are decided by comparison.
    compared: &'a [usize],
    /// What path selection and ranking decided.
    unsearched: &'a SearchResult,
    present: Vec<Rc<CandidatePaths>>,
    hashed: Vec<Rc<CandidatePaths>>,
}

impl<'a> CandidateBuilder<'a> {
    pub(super) fn new(
        context: &'a PlanContext<'a>,
        compared: &'a [usize],
        unsearched: &'a SearchResult,
    ) -> Self {
        Self { context, compared, unsearched, present: Vec::new(), hashed: Vec::new() }
    }

    /// What path selection and ranking decided.
    pub(super) fn unsearched(&self) -> &'a SearchResult {
        self.unsearched
    }

    /// The plan in force, if there is one, the paths of path selection, and those of TACCL\*.
    pub(super) fn present(&mut self) -> &[Rc<CandidatePaths>] {
        if self.present.is_empty() {
            let in_force = in_force(self.context, self.compared, self.unsearched);
            let selected = CandidatePaths {
                origin: PathOrigin::Selected,
                paths: self.unsearched.paths.clone(),
                levels: ranked_levels(self.context, self.compared, &self.unsearched.paths),
            };
            let all = in_force.into_iter().chain([selected, least_congested(self.context)]);
            self.present.extend(all.map(Rc::new));
        }
        &self.present
    }

    /// Results of the search in a region: one for `events`, and one for each half, quarter and so
    /// on that is enough, the smallest first. So a larger budget finds whatever a smaller one does.
    pub(super) fn search_region(&self, region: &[usize], events: u64) -> Vec<Rc<CandidatePaths>> {
        let PlanContext { traffic, policy, .. } = *self.context;
        let budgets = std::iter::successors(Some(events), |events| Some(events / 2));
        let mut found: Vec<SearchResult> = budgets
            .map_while(|events| {
                search::search_region(traffic, policy, region, events, self.unsearched)
            })
            .collect();
        found.dedup();
        found.into_iter().rev().map(CandidatePaths::searched).map(Rc::new).collect()
    }

    /// One level on so many paths drawn by hash.
    pub(super) fn hashed(&mut self, draws: u32) -> &[Rc<CandidatePaths>] {
        let context = self.context;
        let highest = context.policy.job_levels().last().copied().unwrap_or(0);
        let levels = context.permit_levels(vec![highest; context.traffic.jobs.len()]);
        let drawn = self.hashed.len() as u32;
        self.hashed.extend((drawn..draws).map(|draw| {
            Rc::new(CandidatePaths {
                origin: PathOrigin::Hashed(draw),
                paths: hashed_paths(context.traffic, draw),
                levels: vec![(LevelOrigin::Ranked(1), levels.clone())],
            })
        }));
        &self.hashed[..draws as usize]
    }

    /// A draw that was made before as it is, and after the local search if it is wanted.
    pub(super) fn best_draw(&self, draw: usize, usage: DrawUse) -> Vec<Rc<CandidatePaths>> {
        let context = self.context;
        let drawn = Rc::clone(&self.hashed[draw]);
        if usage == DrawUse::AsIs {
            return vec![drawn];
        }
        let paths =
            path_selection::improve_given_paths(context.traffic, &drawn.paths, context.policy);
        let levels = ranked_levels(context, self.compared, &paths);
        let improved = CandidatePaths { origin: PathOrigin::ImprovedHashed, paths, levels };
        vec![drawn, Rc::new(improved)]
    }
}

/// Paths and levels of the plan in force, with the decisions of the other phases for what is new;
/// none if nothing of it is left.
pub(super) fn decisions_in_force(
    context: &PlanContext<'_>,
    unsearched: &SearchResult,
) -> Option<(Vec<LinkPath>, Vec<u8>)> {
    let PlanContext { traffic, previous, .. } = context;
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
    compared: &[usize],
    unsearched: &SearchResult,
) -> Option<CandidatePaths> {
    let (paths, levels) = decisions_in_force(context, unsearched)?;
    let mut methods = vec![(LevelOrigin::InForce, levels)];
    if paths != unsearched.paths {
        methods.extend(ranked_levels(context, compared, &paths));
    }
    Some(CandidatePaths { origin: PathOrigin::InForce, paths, levels: methods })
}

/// Paths and levels of TACCL\* (Crux §6.1).
fn least_congested(context: &PlanContext<'_>) -> CandidatePaths {
    let PlanContext { traffic, policy, .. } = context;
    let paths = path_selection::select_paths_by_name(traffic);
    let length = |job: usize| paths[traffic.spans[job].clone()].iter().map(|path| path.len()).max();
    let mut order: Vec<usize> = (0..traffic.jobs.len()).collect();
    order.sort_by_key(|job| Reverse(length(*job)));
    let job_levels = policy.job_levels();
    let mut levels = vec![job_levels[0]; order.len()];
    for (job, level) in order.iter().zip(balanced_levels(order.len(), to_level(job_levels.len()))) {
        levels[*job] = job_levels[usize::from(level)];
    }
    let levels = vec![(LevelOrigin::ByDistance, context.permit_levels(levels))];
    CandidatePaths { origin: PathOrigin::LeastCongested, paths, levels }
}

/// Levels by rank on these paths: compressed to all levels of the policy, to fewer, and by other
/// corrections of the intensity.
fn ranked_levels(
    context: &PlanContext<'_>,
    compared: &[usize],
    paths: &[LinkPath],
) -> Vec<(LevelOrigin, Vec<u8>)> {
    let PlanContext { traffic, policy, corrections, .. } = context;
    let nothing = PreviousPlan::new(traffic, None);
    let most = policy.job_levels().len();
    let levels_of = |ranking: &JobRanking, level_count| {
        let scope = LevelScope { compared, level_count };
        ranking.assign_levels(traffic, policy, &nothing, scope)
    };
    let against = (ReferenceJobs::All, *corrections);
    let rank_jobs = |policy: &Policy| JobRanking::new(traffic, paths, policy, against);
    let default = rank_jobs(policy);
    let mut counts = vec![most];
    counts.extend([4, 2, 1].into_iter().filter(|count| *count < most));
    let mut methods: Vec<(LevelOrigin, Vec<u8>)> = counts
        .into_iter()
        .map(|count| {
            let name = LevelOrigin::Ranked(u8::try_from(count).unwrap_or(u8::MAX));
            (name, levels_of(&default, count))
        })
        .collect();
    for percent in RESERVED_PERCENT {
        let levels = reserve_share(context, paths, &default, &methods[0].1, percent);
        methods.push((LevelOrigin::Reserved(percent), levels));
    }
    let low = Policy {
        max_correction: policy.max_correction.min(LOW_CORRECTION_CAP),
        ..(*policy).clone()
    };
    let contenders = Policy { reference: CorrectionReference::Contenders, ..(*policy).clone() };
    methods.push((LevelOrigin::LowCorrection, levels_of(&rank_jobs(&low), most)));
    methods.push((LevelOrigin::Contenders, levels_of(&rank_jobs(&contenders), most)));
    methods
}

/// `levels` by job, the lowest for every job that would leave less than `percent` of a link to the
/// jobs below it, in the order of `ranking`. In an overloaded network, strict levels starve whoever
/// is last; here nobody is kept from the reserved share.
fn reserve_share(
    context: &PlanContext<'_>,
    paths: &[LinkPath],
    ranking: &JobRanking,
    levels: &[u8],
    percent: u8,
) -> Vec<u8> {
    let PlanContext { traffic, policy, .. } = context;
    let most = 1.0 - f64::from(percent) / 100.0;
    let job_levels = policy.job_levels();
    let (lowest, second) = (job_levels[0], job_levels[1.min(job_levels.len() - 1)]);
    let mut loads: BTreeMap<LinkId, f64> = BTreeMap::new();
    let mut reserved = vec![lowest; levels.len()];
    for job in &ranking.order {
        let seconds = ranking.demands[*job].iteration_seconds;
        let mut own: BTreeMap<LinkId, f64> = BTreeMap::new();
        for (flow, path) in traffic.jobs[*job].flows.iter().zip(&paths[traffic.spans[*job].clone()])
        {
            let links = flow.crossed_links(traffic.fabric, path);
            for link in links.iter().filter(|link| traffic.tables.serves_levels(**link)) {
                let busy = flow.bytes / traffic.tables.link_capacity(*link) / seconds;
                *own.entry(*link).or_default() += busy;
            }
        }
        let load = |link: &LinkId| loads.get(link).copied().unwrap_or(0.0);
        if own.iter().all(|(link, busy)| load(link) + busy <= most) {
            reserved[*job] = levels[*job].max(second);
            own.into_iter().for_each(|(link, busy)| *loads.entry(link).or_default() += busy);
        }
    }
    context.permit_levels(reserved)
}
