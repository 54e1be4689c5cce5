//! The steps of a plan one by one, for a caller that evaluates each alone, such as the
//! microbenchmark of Crux §4.4: it gives the paths or the order of another step's optimum.

use topology::LinkPath;

use super::choice::levels_on_paths;
use super::decisions::Decisions;
use super::plan_value::{self, PlanValue};
use crate::contention::LinkSharing;
use crate::input::PlanInput;
use crate::intensity;
use crate::job_ranking::JobRanking;
use crate::levels::{self, LevelScope, RankedJobs};
use crate::plan_context::{PlanContext, PlanDepth};
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache, ReferenceJobs};
use crate::traffic::IndexedTraffic;

/// An input with chosen paths.
#[derive(Debug)]
pub struct RoutedInput<'a> {
    traffic: IndexedTraffic<'a>,
    paths: Vec<LinkPath>,
    sharing: LinkSharing,
    intensities: Vec<f64>,
}

impl<'a> RoutedInput<'a> {
    /// `input` on `paths`: one per flow, by job in the order of ids and then in the order of the
    /// job's flows, as in [`Plan::flows`](crate::Plan::flows); empty without a path.
    pub fn new(input: &'a PlanInput, paths: Vec<LinkPath>) -> Self {
        let traffic = IndexedTraffic::new(input);
        let demands = intensity::demands_on_paths(&traffic, &paths);
        Self {
            sharing: LinkSharing::new(&traffic, &paths),
            intensities: demands.iter().map(|demand| demand.intensity).collect(),
            traffic,
            paths,
        }
    }

    /// Jobs, by position in the order of ids, by descending priority, searched as policy says.
    pub fn job_order(&self, policy: &Policy) -> Vec<usize> {
        let against = (ReferenceJobs::All, &CorrectionCache::default());
        let ranking = JobRanking::new(&self.traffic, &self.paths, policy, against);
        let found = self.search_result(&ranking.order, policy);
        ranking.with_compared(&found.levels, &found.compared).order
    }

    /// Level of every job, by position in the order of ids, after compression of this `order` and
    /// the search of levels, if policy has a budget for it.
    pub fn searched_levels(&self, order: &[usize], policy: &Policy) -> Vec<u8> {
        self.search_result(order, policy).levels
    }

    /// What `levels`, by position in the order of ids, are worth on these paths: the evaluation by
    /// which plans are compared before one is adopted.
    pub fn evaluate_levels(&self, levels: &[u8]) -> PlanValue {
        plan_value::evaluate_decisions(&self.traffic, &self.paths, levels)
    }

    /// What `levels` are worth from `starts` other starts than those that plans are compared by: a
    /// search has not seen them.
    pub fn evaluate_from_other_starts(&self, levels: &[u8], starts: u32) -> PlanValue {
        plan_value::evaluate_from_other_starts(&self.traffic, &self.paths, levels, starts)
    }

    fn search_result(&self, order: &[usize], policy: &Policy) -> Decisions {
        let found = Decisions::new(self.paths.clone(), self.compressed_levels(order, policy));
        let context = PlanContext {
            traffic: &self.traffic,
            policy,
            previous: &PreviousPlan::new(&self.traffic, None),
            corrections: &CorrectionCache::default(),
            depth: PlanDepth::Full,
        };
        levels_on_paths(&context, found)
    }

    /// Level of every job, by position in the order of ids, that compression gives this `order`.
    pub fn compressed_levels(&self, order: &[usize], policy: &Policy) -> Vec<u8> {
        let ranked = RankedJobs {
            order,
            places: &priority::positions_in(order),
            intensities: &self.intensities,
            sharing: &self.sharing,
            scope: LevelScope::ALL,
        };
        levels::assign_levels(
            &self.traffic,
            &ranked,
            policy,
            &PreviousPlan::new(&self.traffic, None),
        )
    }
}
