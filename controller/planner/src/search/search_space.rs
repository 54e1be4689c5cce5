//! The space of a search: jobs with the worth of their GPU-seconds, and the paths of their flows.
//!
//! A search does not depend on plans. Jobs, and flows with several paths (choices), are plain
//! indices here, so the phases before and after it can change without it.

use std::ops::RangeInclusive;

use topology::{Fabric, LinkId};

/// A job in a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchedJob<'a> {
    /// `comp_j` in seconds.
    pub(crate) compute_seconds: f64,
    /// `o_j`.
    pub(crate) overlap_from: f64,
    /// Its value while all its GPUs compute.
    pub(crate) worth: f64,
    /// Levels it may have.
    pub(crate) levels: RangeInclusive<u8>,
    /// Its flows.
    pub(crate) flows: Vec<SearchedFlow<'a>>,
}

/// A flow in a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchedFlow<'a> {
    /// Bytes of one iteration.
    pub(crate) bytes: f64,
    /// Its links before and after the choice, those inside hosts included.
    pub(crate) ends: (Vec<LinkId>, Vec<LinkId>),
    /// The paths between them; none where there is no path.
    pub(crate) segments: &'a [Vec<LinkId>],
}

/// The jobs of a search and all their options.
#[derive(Debug)]
pub(super) struct SearchSpace<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) jobs: Vec<SearchedJob<'a>>,
    /// Flows with more than one path, by job.
    pub(super) choices: Vec<PathChoice>,
    /// Whole paths by job, flow and segment.
    pub(super) paths: Vec<Vec<Vec<Vec<LinkId>>>>,
    /// Choice of each flow, by job; none where there is only one path.
    pub(super) choice_of: Vec<Vec<Option<usize>>>,
}

/// A flow with more than one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathChoice {
    pub(super) job: usize,
    /// Position among the job's flows.
    pub(super) flow: usize,
    /// Number of paths.
    pub(super) options: usize,
}

/// A path for every choice, a level for every job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchPosition {
    pub(super) options: Vec<usize>,
    pub(super) levels: Vec<u8>,
}

impl<'a> SearchSpace<'a> {
    pub(super) fn new(fabric: &'a Fabric, jobs: Vec<SearchedJob<'a>>) -> Self {
        let mut space = Self {
            fabric,
            jobs: Vec::new(),
            choices: Vec::new(),
            paths: Vec::new(),
            choice_of: Vec::new(),
        };
        for job in jobs {
            space.add_job(job);
        }
        space
    }

    fn add_job(&mut self, job: SearchedJob<'a>) {
        let mut choice_of = vec![None; job.flows.len()];
        for (position, flow) in job.flows.iter().enumerate() {
            if flow.segments.len() > 1 && flow.bytes > 0.0 {
                choice_of[position] = Some(self.choices.len());
                self.choices.push(PathChoice {
                    job: self.jobs.len(),
                    flow: position,
                    options: flow.segments.len(),
                });
            }
        }
        self.paths.push(
            job.flows
                .iter()
                .map(|flow| -> Vec<Vec<LinkId>> {
                    let (before, after) = &flow.ends;
                    flow.segments
                        .iter()
                        .map(|segment| [before, &segment[..], after].concat())
                        .collect()
                })
                .collect(),
        );
        self.choice_of.push(choice_of);
        self.jobs.push(job);
    }

    /// Combinations of paths; saturates.
    pub(super) fn combination_count(&self) -> u64 {
        let options = self.choices.iter().map(|choice| choice.options as u64);
        options.fold(1, u64::saturating_mul)
    }

    /// The path of a flow in `options`; none where there is none.
    pub(super) fn path_of(&self, job: usize, flow: usize, options: &[usize]) -> Option<&[LinkId]> {
        let option = self.choice_of[job][flow].map_or(0, |choice| options[choice]);
        self.paths[job][flow].get(option).map(Vec::as_slice)
    }

    /// Bytes/s of a link.
    pub(super) fn link_capacity(&self, link: LinkId) -> f64 {
        self.fabric.link_bandwidth(link).bytes_per_second()
    }
}
