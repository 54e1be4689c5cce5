//! What a job asks of the network: the seconds of its tightest link, and what follows from them.

use topology::LinkId;

use crate::input::Job;

/// Demand of a job on the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NetworkDemand {
    /// `t_j` in seconds.
    pub(crate) bottleneck_seconds: f64,
    /// The link that takes it, where paths are chosen.
    pub(crate) bottleneck: Option<LinkId>,
    /// `I_j` in FLOP/s; 0 for a job that sends nothing, which needs no priority.
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
    pub fn intensity_for(&self, bottleneck_seconds: f64) -> f64 {
        if bottleneck_seconds > 0.0 { self.flop_per_iteration / bottleneck_seconds } else { 0.0 }
    }
}

impl NetworkDemand {
    pub(crate) fn new(job: &Job, bottleneck_seconds: f64, bottleneck: Option<LinkId>) -> Self {
        Self {
            bottleneck_seconds,
            bottleneck,
            intensity: job.intensity_for(bottleneck_seconds),
            iteration_seconds: job.iteration_seconds(bottleneck_seconds),
        }
    }
}
