//! The phases after paths are chosen: priorities (Crux §4.2) and levels (Crux §4.3).
//!
//! `plan` runs them one after the other. A caller that evaluates a step alone, such as the
//! microbenchmark of Crux §4.4, gives [`RoutedInput`] the paths or the order of another step's
//! optimum.

use topology::LinkPath;

use crate::candidates::{self, PlanValue};
use crate::contention::LinkSharing;
use crate::input::PlanInput;
use crate::intensity::{self, NetworkDemand};
use crate::levels::{self, LevelScope, RankedJobs};
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache, JobPriority, ReferenceJobs};
use crate::search::{self, SearchResult};
use crate::traffic::IndexedTraffic;

/// Jobs in the order of priority on their paths.
#[derive(Debug)]
pub(crate) struct JobRanking {
    pub(crate) demands: Vec<NetworkDemand>,
    pub(crate) sharing: LinkSharing,
    pub(crate) priorities: Vec<JobPriority>,
    /// The job that all others are corrected against, if policy has one.
    pub(crate) reference: Option<usize>,
    /// Jobs by descending priority.
    pub(crate) order: Vec<usize>,
}

impl JobRanking {
    /// The ranking on `paths`, by flow.
    pub(crate) fn new(
        traffic: &IndexedTraffic<'_>,
        paths: &[LinkPath],
        policy: &Policy,
        (references, corrections): (ReferenceJobs<'_>, &CorrectionCache),
    ) -> Self {
        let demands = intensity::demands_on_paths(traffic, paths);
        let sharing = LinkSharing::new(traffic, paths);
        let reference = priority::reference_job(traffic, &demands, policy, references);
        let against = (reference, corrections);
        let priorities = priority::assign_priorities(traffic, &demands, &sharing, policy, against);
        let order = priority::order_by_priority(&priorities);
        Self { demands, sharing, priorities, reference, order }
    }

    /// Levels by job for this order.
    pub(crate) fn assign_levels(
        &self,
        traffic: &IndexedTraffic<'_>,
        policy: &Policy,
        previous: &PreviousPlan<'_>,
        scope: LevelScope<'_>,
    ) -> Vec<u8> {
        let intensities: Vec<f64> = self.demands.iter().map(|demand| demand.intensity).collect();
        let ranked = RankedJobs {
            order: &self.order,
            places: &priority::positions_in(&self.order),
            intensities: &intensities,
            sharing: &self.sharing,
            scope,
        };
        levels::assign_levels(traffic, &ranked, policy, previous)
    }

    /// The ranking in which jobs that were searched together follow the `levels` found, within the
    /// places that they hold together.
    pub(crate) fn with_searched(mut self, levels: &[u8], searched: &[Vec<usize>]) -> Self {
        let mut places = priority::positions_in(&self.order);
        for jobs in searched {
            let mut held: Vec<usize> = jobs.iter().map(|job| places[*job]).collect();
            held.sort_unstable();
            let mut ranked = jobs.clone();
            ranked.sort_by_key(|job| (std::cmp::Reverse(levels[*job]), places[*job]));
            for (place, job) in held.into_iter().zip(ranked) {
                self.order[place] = job;
                places[job] = place;
            }
        }
        self
    }
}

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
    /// job's flows, as in [`Plan::flows`](crate::Plan::flows); empty where there is none.
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
        ranking.with_searched(&found.levels, &found.searched).order
    }

    /// Level of every job, by position in the order of ids, after compression of this `order` and
    /// the search of levels, if policy has a budget for it.
    pub fn searched_levels(&self, order: &[usize], policy: &Policy) -> Vec<u8> {
        self.search_result(order, policy).levels
    }

    /// What `levels`, by position in the order of ids, are worth on these paths: the evaluation by
    /// which plans are compared before one is adopted.
    pub fn evaluate_levels(&self, levels: &[u8]) -> PlanValue {
        candidates::evaluate_decisions(&self.traffic, &self.paths, levels)
    }

    /// What `levels` are worth from `starts` other starts than those that plans are compared by: a
    /// search has not seen them.
    pub fn evaluate_from_other_starts(&self, levels: &[u8], starts: u32) -> PlanValue {
        candidates::evaluate_from_other_starts(&self.traffic, &self.paths, levels, starts)
    }

    fn search_result(&self, order: &[usize], policy: &Policy) -> SearchResult {
        let found = SearchResult::new(self.paths.clone(), self.compressed_levels(order, policy));
        search::search_levels(&self.traffic, policy, found)
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
