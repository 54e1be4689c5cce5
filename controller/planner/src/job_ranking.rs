//! The phases after paths are chosen: priorities (Crux §4.2) and levels (Crux §4.3).
//!
//! `plan` runs them one after the other.

use topology::LinkPath;

use crate::contention::LinkSharing;
use crate::intensity;
use crate::levels::{self, LevelScope, RankedJobs};
use crate::network_demand::NetworkDemand;
use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::{self, CorrectionCache, JobPriority, ReferenceJobs};
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

    /// The ranking in which jobs that were compared together follow the `levels` found, within the
    /// places that they hold together.
    pub(crate) fn with_compared(mut self, levels: &[u8], compared: &[Vec<usize>]) -> Self {
        let mut places = priority::positions_in(&self.order);
        for jobs in compared {
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
