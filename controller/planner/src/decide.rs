//! From paths to a plan: priorities, levels, what the fluid model changes, and pins.
//!
//! Both ways to a plan end here: `plan`, which chooses all paths, and [`Standing`], which chooses
//! those that an event concerns. That is why they agree.
//!
//! [`Standing`]: crate::Standing

use topology::Path;

use crate::plan::{Decisions, Plan};
use crate::policy::Policy;
use crate::previous::Previous;
use crate::priority::{self, Corrections};
use crate::report::{Evidence, Report};
use crate::routed::Ranking;
use crate::search::{self, Found};
use crate::traffic::Traffic;
use crate::{path_selection, pins};

/// What a plan is decided from, beside paths.
pub(crate) struct Situation<'a> {
    pub(crate) traffic: &'a Traffic<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) previous: &'a Previous<'a>,
    pub(crate) corrections: &'a Corrections,
}

/// A plan, and how its jobs are ranked.
pub(crate) struct Decided {
    pub(crate) plan: Plan,
    pub(crate) ranking: Ranking,
    /// Whether the fluid model had a say.
    pub(crate) is_searched: bool,
}

impl Situation<'_> {
    /// The plan on `paths`, by flow; its generation is for [`Plan::following`].
    pub(crate) fn decide(&self, paths: Vec<Path>) -> Decided {
        let Self {
            traffic,
            policy,
            previous,
            corrections,
        } = *self;
        // Crux §4.2 and §4.3: intensity on those paths, corrected, is priority; then few classes
        // for many priorities, told apart where it matters most.
        let mut ranking = Ranking::new(traffic, &paths, policy, corrections);
        let regions = search::regions(traffic, policy);
        let levels = ranking.levels(traffic, policy, previous, &regions.concat());

        // Beyond the paper: where few jobs meet, the fluid model judges paths and levels.
        let found = Found::new(paths, levels);
        let found = search::refine(traffic, policy, previous, regions, found);
        let is_searched = !found.searched.is_empty();
        if is_searched {
            ranking = Ranking::new(traffic, &found.paths, policy, corrections);
            ranking = ranking.with_searched(&found.levels, &found.searched);
        }
        let by_intensity = path_selection::order(ranking.demands.iter());
        let pinned = pins::assign(traffic, &found.paths, &by_intensity, policy);
        let decisions = Decisions {
            traffic,
            paths: &found.paths,
            demands: &ranking.demands,
            priorities: &ranking.priorities,
            places: &priority::places(&ranking.order),
            levels: &found.levels,
            numbers: previous.numbers(),
            rules: policy.planned_rules(traffic.fabric, &traffic.jobs),
        };
        Decided {
            plan: decisions.plan(&pinned, policy.levels),
            ranking,
            is_searched,
        }
    }

    /// Why `plan`, whose jobs rank so, is as it is.
    pub(crate) fn report(&self, plan: &Plan, ranking: &Ranking) -> Report {
        let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
        order.sort_by_key(|job| plan.jobs[*job].rank);
        let evidence = Evidence {
            traffic: self.traffic,
            demands: &ranking.demands,
            sharing: &ranking.sharing,
            order: &order,
            policy: self.policy,
            previous: self.previous,
        };
        evidence.report(plan)
    }
}
