//! From paths to a plan: priorities, levels, the search in the fluid model, and pins.
//!
//! Both planners end here: `plan`, which chooses all paths, and [`IncrementalPlanner`], which
//! chooses those that an event affects. Their plans therefore agree.
//!
//! [`IncrementalPlanner`]: crate::IncrementalPlanner

use topology::LinkPath;

use crate::job_ranking::JobRanking;
use crate::plan::{PhaseResults, Plan};
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache};
use crate::report::{PlanReport, ReportInputs};
use crate::search::{self, SearchResult};
use crate::traffic::IndexedTraffic;
use crate::{path_selection, pins};

/// Input of a plan, apart from paths.
pub(crate) struct PlanContext<'a> {
    pub(crate) traffic: &'a IndexedTraffic<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) previous: &'a PreviousPlan<'a>,
    pub(crate) corrections: &'a CorrectionCache,
}

/// A plan with the ranking of its jobs.
pub(crate) struct DecidedPlan {
    pub(crate) plan: Plan,
    pub(crate) ranking: JobRanking,
    /// Whether a search changed or confirmed anything.
    pub(crate) is_searched: bool,
}

impl PlanContext<'_> {
    /// The plan on `paths`, by flow; its generation is for [`Plan::succeeding`].
    pub(crate) fn decide_plan(&self, paths: Vec<LinkPath>) -> DecidedPlan {
        let Self { traffic, policy, previous, corrections } = *self;
        // Crux §4.2 and §4.3: the corrected intensity on those paths is the priority; then few
        // levels for many priorities, separated where it matters most.
        let mut ranking = JobRanking::new(traffic, &paths, policy, corrections);
        let regions = search::searchable_regions(traffic, policy);
        let levels = ranking.assign_levels(traffic, policy, previous, &regions.concat());

        // Beyond the paper: where few jobs share links, the fluid model evaluates paths and levels.
        let unsearched = SearchResult::new(paths, levels);
        let found = search::refine_plan(traffic, policy, previous, regions, unsearched);
        let is_searched = !found.searched.is_empty();
        // Demands depend on the paths, so a search that changed them asks for a new ranking.
        if is_searched {
            ranking = JobRanking::new(traffic, &found.paths, policy, corrections);
            ranking = ranking.with_searched(&found.levels, &found.searched);
        }
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
        DecidedPlan { plan: decisions.build_plan(&pinned, policy.levels), ranking, is_searched }
    }

    /// The report on `plan`, whose jobs have this `ranking`.
    pub(crate) fn build_report(&self, plan: &Plan, ranking: &JobRanking) -> PlanReport {
        let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
        order.sort_by_key(|job| plan.jobs[*job].rank);
        let evidence = ReportInputs {
            traffic: self.traffic,
            demands: &ranking.demands,
            sharing: &ranking.sharing,
            order: &order,
            policy: self.policy,
            previous: self.previous,
        };
        evidence.build_report(plan)
    }
}
