//! The candidates: paths from several origins, and levels for them from several origins.

use std::fmt;
use std::rc::Rc;

use topology::LinkPath;

use crate::decision::PlanContext;
use crate::job_ranking::JobRanking;
use crate::least_loaded_path::LeastLoadedPath;
use crate::levels::LevelScope;
use crate::path_selection;
use crate::policy::{CorrectionReference, Policy};
use crate::previous_plan::PreviousPlan;
use crate::search::{self, SearchResult};
use crate::traffic::IndexedTraffic;

/// Draws of paths by hash that stand for what ECMP may do.
const ECMP_DRAWS: u32 = 10;

/// A cap of the correction factor (Crux §4.2) that limits how far one job can rise above others.
const LOW_CORRECTION_CAP: f64 = 4.0;

/// Where the paths of a candidate come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathOrigin {
    /// The plan in force.
    InForce,
    /// Crux §4.1: by intensity, the least congested path each, then local search.
    Selected,
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
    /// The best of the others, changed job by job while the fluid model finds that better.
    Climbed,
}

impl fmt::Display for PathOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("in-force"),
            Self::Selected => f.write_str("selected"),
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

    /// The plan in force, if there is one, and the paths of path selection.
    pub(super) fn present(&mut self) -> &[Rc<CandidatePaths>] {
        if self.present.is_empty() {
            let in_force = in_force(self.context, self.compared, self.unsearched);
            let selected = CandidatePaths {
                origin: PathOrigin::Selected,
                paths: self.unsearched.paths.clone(),
                levels: ranked_levels(self.context, self.compared, &self.unsearched.paths),
            };
            self.present.extend(in_force.into_iter().chain([selected]).map(Rc::new));
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
        let candidate = |found: SearchResult| CandidatePaths {
            origin: PathOrigin::Searched,
            paths: found.paths,
            levels: vec![(LevelOrigin::Searched, found.levels)],
        };
        found.into_iter().rev().map(candidate).map(Rc::new).collect()
    }

    /// One level on paths drawn by hash.
    pub(super) fn hashed(&mut self) -> &[Rc<CandidatePaths>] {
        if self.hashed.is_empty() {
            let context = self.context;
            let highest = context.policy.job_levels().last().copied().unwrap_or(0);
            let levels = context.permit_levels(vec![highest; context.traffic.jobs.len()]);
            self.hashed.extend((0..ECMP_DRAWS).map(|draw| {
                Rc::new(CandidatePaths {
                    origin: PathOrigin::Hashed(draw),
                    paths: hashed_paths(context.traffic, draw),
                    levels: vec![(LevelOrigin::Ranked(1), levels.clone())],
                })
            }));
        }
        &self.hashed
    }

    /// A draw as it is, and after the local search.
    pub(super) fn best_draw(&mut self, draw: usize) -> [Rc<CandidatePaths>; 2] {
        let context = self.context;
        let drawn = Rc::clone(&self.hashed()[draw]);
        let paths =
            path_selection::improve_given_paths(context.traffic, &drawn.paths, context.policy);
        let levels = ranked_levels(context, self.compared, &paths);
        let improved = CandidatePaths { origin: PathOrigin::ImprovedHashed, paths, levels };
        [drawn, Rc::new(improved)]
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
    let rank_jobs = |policy: &Policy| JobRanking::new(traffic, paths, policy, corrections);
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
    let low = Policy {
        max_correction: policy.max_correction.min(LOW_CORRECTION_CAP),
        ..(*policy).clone()
    };
    let contenders = Policy { reference: CorrectionReference::Contenders, ..(*policy).clone() };
    methods.push((LevelOrigin::LowCorrection, levels_of(&rank_jobs(&low), most)));
    methods.push((LevelOrigin::Contenders, levels_of(&rank_jobs(&contenders), most)));
    methods
}

/// Paths of all flows as a hash might choose them, in one of several draws.
fn hashed_paths(traffic: &IndexedTraffic<'_>, draw: u32) -> Vec<LinkPath> {
    let mut finder = LeastLoadedPath::new(traffic.fabric.switches().len());
    let flows = (0_u64..).zip(&traffic.flows);
    flows
        .map(|(number, flow)| {
            let pair = traffic.leaf_pair(flow);
            if !flow.has_path {
                return LinkPath::EMPTY;
            }
            if !pair.crosses_fabric() {
                return IndexedTraffic::full_path(flow, &[]);
            }
            // The least of drawn loads is a drawn path.
            let seed = mix_bits(number << 8 | u64::from(draw));
            let segment = finder.find_least_loaded(&traffic.tables, &pair.ends, |link| {
                mix_bits(seed ^ link.index() as u64) >> 16
            });
            IndexedTraffic::full_path(flow, &segment)
        })
        .collect()
}

/// The finalizer of SplitMix64.
fn mix_bits(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
