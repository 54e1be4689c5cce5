//! What a plan is made from, apart from paths.

use crate::policy::Policy;
use crate::previous_plan::PreviousPlan;
use crate::priority::CorrectionCache;
use crate::traffic::IndexedTraffic;

/// How much a plan may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanDepth {
    /// What runs keeps its paths and levels, new jobs get theirs by rank; nothing is simulated.
    Quick,
    /// Candidates are compared, as the policy's budget allows.
    #[default]
    Full,
    /// As a plan of full depth from nothing, so that it does not depend on what was in force before;
    /// flows stay on their paths where that is worth as much.
    Settled,
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

impl PlanContext<'_> {
    /// `levels` by job, each the nearest that the policy lets its job have.
    pub(crate) fn permit_levels(&self, levels: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let job_levels = self.policy.job_levels();
        let jobs = self.traffic.jobs.iter().zip(levels);
        jobs.map(|(job, level)| self.policy.nearest_level(job, level, &job_levels)).collect()
    }
}
