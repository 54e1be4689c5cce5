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
    /// Seconds of computation after which all its flows would have to begin, to end together when
    /// they do.
    pub(crate) start_seconds: f64,
    /// `T_j` in seconds: an iteration alone.
    pub(crate) iteration_seconds: f64,
}

/// What the flows that begin at an instant or later ask of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemandFrom {
    /// Seconds of computation before that.
    pub(crate) start_seconds: f64,
    /// Seconds of the link that they keep busy the longest, and the link where paths are chosen.
    pub(crate) tightest: (f64, Option<LinkId>),
}

impl Job {
    /// `T_j`: seconds of an iteration alone, if its communication takes `bottleneck_seconds`: of which
    /// each of its flows has the part that it has of all bytes.
    pub fn iteration_seconds(&self, bottleneck_seconds: f64) -> f64 {
        let all: f64 = self.flows.iter().map(|flow| flow.bytes).sum();
        let mut sent = 0.0;
        let demands = self.flow_starts().into_iter().map(|start_seconds| {
            let begin = self.flows.iter().filter(|it| self.flow_start_seconds(it) == start_seconds);
            sent += begin.map(|flow| flow.bytes).sum::<f64>();
            let share = if all > 0.0 { sent / all } else { 1.0 };
            DemandFrom { start_seconds, tightest: (bottleneck_seconds * share, None) }
        });
        NetworkDemand::new(self, demands).iteration_seconds
    }

    /// `I_j` in FLOP/s, if its communication takes `bottleneck_seconds`; 0 if it takes no time.
    pub fn intensity_for(&self, bottleneck_seconds: f64) -> f64 {
        if bottleneck_seconds > 0.0 { self.flop_per_iteration / bottleneck_seconds } else { 0.0 }
    }
}

impl NetworkDemand {
    /// The demand of a job, from that of its flows from each of [`Job::flow_starts`] on.
    pub(crate) fn new(job: &Job, demands: impl Iterator<Item = DemandFrom>) -> Self {
        let demands: Vec<DemandFrom> = demands.collect();
        let (bottleneck_seconds, bottleneck) =
            demands.last().map_or((0.0, None), |all| all.tightest);
        // Those that begin before leave the link busy for the rest of `bottleneck_seconds`.
        let starts = demands.iter().map(|from| {
            let earlier = bottleneck_seconds - from.tightest.0;
            from.start_seconds - earlier
        });
        let start_seconds =
            starts.reduce(f64::max).unwrap_or(job.overlap_from * job.compute_seconds);
        Self {
            bottleneck_seconds,
            bottleneck,
            intensity: job.intensity_for(bottleneck_seconds),
            start_seconds,
            iteration_seconds: job.compute_seconds.max(start_seconds + bottleneck_seconds),
        }
    }
}
