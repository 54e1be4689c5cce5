//! GPU intensity (Crux Eq. 2): the computation that one second of a job's tightest link unblocks.
//!
//! `t_j` depends on the paths, and the order in which paths are chosen depends on `t_j`. So it is
//! taken twice: first the least that any choice of paths allows (`bounds`), for the order; then on
//! the chosen paths, for everything after.

use topology::{LinkId, Path};

use crate::input::Job;
use crate::tally::Tally;
use crate::traffic::Traffic;
use crate::ways::Ways;

/// What a job asks of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    /// `t_j` in seconds.
    pub(crate) bottleneck_seconds: f64,
    /// The link that takes it, where paths are chosen.
    pub(crate) bottleneck: Option<LinkId>,
    /// `I_j` in FLOP/s; 0 for a job that sends nothing, which asks for no priority.
    pub(crate) intensity: f64,
    /// `T_j` in seconds: an iteration alone.
    pub(crate) iteration_seconds: f64,
}

impl Job {
    /// `T_j`: seconds of an iteration alone, if its communication takes `bottleneck_seconds`.
    pub fn iteration_seconds(&self, bottleneck_seconds: f64) -> f64 {
        let communicated = self.overlap_from * self.compute_seconds + bottleneck_seconds;
        self.compute_seconds.max(communicated)
    }

    /// `I_j` in FLOP/s, if its communication takes `bottleneck_seconds`; 0 if it takes no time.
    pub fn intensity(&self, bottleneck_seconds: f64) -> f64 {
        if bottleneck_seconds > 0.0 {
            self.flop_per_iteration / bottleneck_seconds
        } else {
            0.0
        }
    }
}

impl Demand {
    pub(crate) fn new(job: &Job, bottleneck_seconds: f64, bottleneck: Option<LinkId>) -> Self {
        Self {
            bottleneck_seconds,
            bottleneck,
            intensity: job.intensity(bottleneck_seconds),
            iteration_seconds: job.iteration_seconds(bottleneck_seconds),
        }
    }
}

/// Demands on the chosen `paths`, one per flow, empty where there is none.
pub(crate) fn on_paths(traffic: &Traffic<'_>, paths: &[Path]) -> Vec<Demand> {
    let mut bytes = Tally::new(traffic.fabric.links().len());
    let jobs = traffic.jobs.iter().zip(&traffic.spans);
    jobs.map(|(job, span)| demand(job, &paths[span.clone()], &traffic.ways, &mut bytes))
        .collect()
}

/// Demand of a job on its `paths`; `bytes` is room for the sum at every link, empty before and
/// after.
fn demand(job: &Job, paths: &[Path], ways: &Ways, bytes: &mut Tally) -> Demand {
    for (flow, path) in job.flows.iter().zip(paths) {
        path.iter()
            .for_each(|link| bytes.add(link.index(), flow.bytes));
    }
    let seconds = bytes.iter().map(|(link, sum)| {
        let link = LinkId::from(link);
        (sum / ways.capacity(link), link)
    });
    let tightest = seconds.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let (seconds, link) = tightest.map_or((0.0, None), |(s, link)| (s, Some(link)));
    bytes.clear();
    Demand::new(job, seconds, link)
}
