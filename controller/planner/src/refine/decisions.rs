//! Paths and levels of all jobs as one value, which the comparison of candidates changes region by
//! region.

use topology::LinkPath;

use crate::plan::StartShift;
use crate::policy::Policy;
use crate::traffic::IndexedTraffic;

/// Paths by flow and levels by job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decisions {
    /// One per flow, empty for a flow without a path.
    pub(crate) paths: Vec<LinkPath>,
    /// One per job.
    pub(crate) levels: Vec<u8>,
    /// One per job.
    pub(crate) shifts: Vec<Option<StartShift>>,
    /// Jobs whose levels were compared together and are the planner's to change.
    pub(crate) compared: Vec<Vec<usize>>,
}

impl Decisions {
    /// The decisions of the paper's phases, nothing compared.
    pub(crate) fn new(paths: Vec<LinkPath>, levels: Vec<u8>) -> Self {
        let shifts = vec![None; levels.len()];
        Self { paths, levels, shifts, compared: Vec::new() }
    }

    /// Takes the decisions on some jobs: their levels, in the order of `jobs`, and of `paths`, by
    /// flow of the plan, theirs.
    pub(crate) fn adopt(
        &mut self,
        traffic: &IndexedTraffic<'_>,
        jobs: &[usize],
        levels: impl IntoIterator<Item = u8>,
        paths: &[LinkPath],
    ) {
        for (job, level) in jobs.iter().zip(levels) {
            self.levels[*job] = level;
            let span = traffic.spans[*job].clone();
            self.paths[span.clone()].copy_from_slice(&paths[span]);
        }
    }

    /// Records that the levels of `jobs` were compared together.
    pub(crate) fn mark_compared(
        &mut self,
        traffic: &IndexedTraffic<'_>,
        policy: &Policy,
        jobs: &[usize],
    ) {
        // A job whose level an operator bounds says nothing about the order that was found best.
        let free = jobs.iter().copied().filter(|job| !policy.bounds_level(traffic.jobs[*job]));
        self.compared.push(free.collect());
    }
}
