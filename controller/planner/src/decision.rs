//! From paths to a plan: priorities, levels, the search in the fluid model, and pins.
//!
//! Both planners end here: `plan`, which chooses all paths, and [`IncrementalPlanner`], which
//! chooses those that an event affects. Their plans therefore agree.
//!
//! [`IncrementalPlanner`]: crate::IncrementalPlanner

use topology::LinkPath;

use crate::candidates::{self, PlanComparison};
use crate::input_digest::{ComparedInputs, SharedInputs};
use crate::job_ranking::JobRanking;
use crate::levels::LevelScope;
use crate::path_selection::{self, PathAssignment};
use crate::plan::{PhaseResults, Plan};
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache, ReferenceJobs};
use crate::report::{PlanReport, ReportInputs};
use crate::search::{self, SearchResult};
use crate::traffic::IndexedTraffic;
use crate::{buffer_cycles, pins};

/// How much a plan may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanDepth {
    /// What runs keeps its paths and levels, new jobs get theirs by rank; nothing is simulated.
    Quick,
    /// Candidates are compared, as the policy's budget allows.
    #[default]
    Full,
}

/// Input of a plan, apart from paths.
pub(crate) struct PlanContext<'a> {
    pub(crate) traffic: &'a IndexedTraffic<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) previous: &'a PreviousPlan<'a>,
    pub(crate) corrections: &'a CorrectionCache,
    pub(crate) depth: PlanDepth,
}

/// Jobs that are decided together by comparison, ascending.
#[derive(Clone, Debug)]
pub(crate) struct PlanRegion {
    pub(crate) jobs: Vec<usize>,
    /// Digest of everything that the decisions depend on.
    pub(crate) digest: u64,
}

/// The regions of a plan.
pub(crate) struct PlanRegions {
    /// Those that are compared.
    comparable: Vec<PlanRegion>,
    /// Whether a plan of full depth may differ from a quick one.
    is_open: bool,
}

/// A plan with the ranking of its jobs.
pub(crate) struct DecidedPlan {
    pub(crate) plan: Plan,
    pub(crate) ranking: JobRanking,
    /// What was compared before it was adopted.
    pub(crate) comparison: PlanComparison,
}

impl PlanContext<'_> {
    /// The plan with all paths chosen here, and those paths; the slot of a job is its ordinal.
    pub(crate) fn select_and_decide(&self) -> (PathAssignment, DecidedPlan) {
        let regions = self.find_regions();
        // Crux §4.1: the most intense job first takes the least congested paths.
        let depth = self.path_depth(&regions);
        let assignment =
            path_selection::select_paths(self.traffic, self.previous, self.policy, depth);
        let paths = assignment.paths_of(0..self.traffic.jobs.len());
        let decided = self.decide_plan(&regions, paths);
        (assignment, decided)
    }

    /// The plan on `paths`, by flow; its generation is for [`Plan::succeeding`].
    pub(crate) fn decide_plan(&self, regions: &PlanRegions, paths: Vec<LinkPath>) -> DecidedPlan {
        let Self { traffic, policy, previous, corrections, .. } = *self;
        // Crux §4.2 and §4.3: the corrected intensity on those paths is the priority; then few
        // levels for many priorities, separated where it matters most.
        let references = match self.path_depth(regions) {
            PlanDepth::Quick => ReferenceJobs::Running(previous),
            PlanDepth::Full => ReferenceJobs::All,
        };
        let mut ranking = JobRanking::new(traffic, &paths, policy, (references, corrections));
        let compared: Vec<usize> =
            regions.comparable.iter().flat_map(|region| &region.jobs).copied().collect();
        let scope = LevelScope { compared: &compared, ..LevelScope::ALL };
        let levels = ranking.assign_levels(traffic, policy, previous, scope);

        // Beyond the paper: the fluid model evaluates paths and levels where jobs share links, and
        // nothing is adopted that it finds worse than an alternative.
        let selected = paths.clone();
        let mut found = SearchResult::new(paths, levels);
        let mut comparison = self.decide_regions(regions, &mut found);
        comparison.refused_cycles = buffer_cycles::refuse_cycles(traffic, &mut found);
        // Demands depend on the paths, so other paths ask for a new ranking.
        if found.paths != selected {
            ranking = JobRanking::new(traffic, &found.paths, policy, (references, corrections));
        }
        ranking = ranking.with_searched(&found.levels, &found.searched);
        let by_intensity = path_selection::order_by_intensity(ranking.demands.iter());
        let pinned = pins::assign_pins(traffic, &found.paths, &by_intensity, policy);
        let decisions = PhaseResults {
            traffic,
            paths: &found.paths,
            demands: &ranking.demands,
            priorities: &ranking.priorities,
            positions: &priority::positions_in(&ranking.order),
            levels: &found.levels,
            numbers: previous.job_numbers(),
            rules: policy.planned_rules(traffic.fabric, &traffic.jobs),
        };
        let mut plan = decisions.build_plan(&pinned, policy.levels);
        plan.compared_inputs = ComparedInputs(comparison.digests().collect());
        DecidedPlan { plan, ranking, comparison }
    }

    /// How deep the search of paths goes: all of it where no plan of full depth follows.
    pub(crate) fn path_depth(&self, regions: &PlanRegions) -> PlanDepth {
        if regions.is_open { self.depth } else { PlanDepth::Full }
    }

    /// The regions in which jobs are decided together.
    pub(crate) fn find_regions(&self) -> PlanRegions {
        let (comparable, has_oversized) = self.comparable_regions();
        let is_new = |region: &PlanRegion| !self.previous.was_compared(region.digest);
        PlanRegions { is_open: has_oversized || comparable.iter().any(is_new), comparable }
    }

    /// The regions in which candidates are compared, and whether there are others that are too
    /// large for that.
    fn comparable_regions(&self) -> (Vec<PlanRegion>, bool) {
        let Self { traffic, policy, .. } = *self;
        let mut regions = search::comparable_regions(traffic, policy);
        let all = regions.len();
        regions.retain(|region| !search::is_oversized(traffic, region));
        let has_oversized = regions.len() < all;
        if regions.is_empty() {
            return (Vec::new(), has_oversized);
        }
        let shared = SharedInputs::new(traffic, policy);
        let with_digest = |jobs: Vec<usize>| {
            let digest = shared.digest_region(jobs.iter().map(|job| traffic.routes[*job].digest));
            PlanRegion { jobs, digest }
        };
        (regions.into_iter().map(with_digest).collect(), has_oversized)
    }

    /// Decides all `regions` and says what was compared: those that were compared for these very
    /// inputs stay as they are.
    fn decide_regions(&self, regions: &PlanRegions, found: &mut SearchResult) -> PlanComparison {
        let comparable = &regions.comparable;
        let (compared, open): (Vec<&PlanRegion>, Vec<&PlanRegion>) =
            comparable.iter().partition(|region| self.previous.was_compared(region.digest));
        let mut comparison = match self.path_depth(regions) {
            PlanDepth::Full => {
                candidates::keep_in_force(self, &compared, found);
                candidates::adopt_best(self, &open, found)
            }
            PlanDepth::Quick => {
                candidates::keep_levels_in_force(self, comparable, found);
                PlanComparison { is_provisional: true, ..PlanComparison::default() }
            }
        };
        comparison.compared = compared.into_iter().map(|region| region.digest).collect();
        comparison
    }

    /// `levels` by job, each the nearest that the policy lets its job have.
    pub(crate) fn permit_levels(&self, levels: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let job_levels = self.policy.job_levels();
        let jobs = self.traffic.jobs.iter().zip(levels);
        jobs.map(|(job, level)| self.policy.nearest_level(job, level, &job_levels)).collect()
    }

    /// The report on `plan`, whose jobs have this `ranking`.
    pub(crate) fn build_report(
        &self,
        plan: &Plan,
        ranking: &JobRanking,
        comparison: PlanComparison,
    ) -> PlanReport {
        let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
        order.sort_by_key(|job| plan.jobs[*job].rank);
        let evidence = ReportInputs {
            traffic: self.traffic,
            demands: &ranking.demands,
            sharing: &ranking.sharing,
            reference: ranking.reference,
            order: &order,
            policy: self.policy,
            previous: self.previous,
        };
        evidence.build_report(plan, comparison)
    }
}
