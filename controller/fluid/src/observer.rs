//! Observation of a run: after each instant at which something happened, a [`RunObserver`] receives
//! the changes. Time series and plots are made of this; the engine keeps no history.

use crate::engine::Engine;
use crate::job::JobIndex;

/// Receives the instants of a run. Closures over [`RunInstant`] are observers.
pub trait RunObserver {
    /// Called once for each instant at which a job changed its phase or a rate changed, in order
    /// of time, after the rates were computed. Two calls may show the same time: a flow may end at
    /// the very instant at which its rate changed.
    fn on_instant(&mut self, instant: &RunInstant<'_>);
}

impl<F: FnMut(&RunInstant<'_>)> RunObserver for F {
    fn on_instant(&mut self, instant: &RunInstant<'_>) {
        self(instant);
    }
}

/// Phase of a job's iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// Its first iteration has not begun, or its next was postponed.
    Waiting,
    /// It computes and its flows have not started.
    Computing,
    /// Its flows send, or some have sent and others start later; with overlap it may compute as well.
    Communicating,
    /// Its flows have sent everything; the rest of the computation or the latency of the last
    /// bytes is left.
    Draining,
    /// It has run all its iterations.
    Finished,
}

/// The rate of one level on one link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkRate {
    /// Index of the link.
    pub link: u32,
    /// The level of the flows.
    pub level: u32,
    /// All its flows together, bytes/s.
    pub bytes_per_second: f64,
}

/// The rate of a group of equal flows: same job, path, bytes, start and progress.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowRate {
    /// The job of the flows.
    pub job: JobIndex,
    /// Links of the path, in order.
    pub path: Vec<u32>,
    /// How many flows there are in the group.
    pub flows: u32,
    /// All of them together, bytes/s.
    pub bytes_per_second: f64,
}

/// An instant of a run: the engine as it is now, and what has just changed.
#[derive(Debug)]
pub struct RunInstant<'a> {
    pub(crate) engine: &'a Engine,
}

impl RunInstant<'_> {
    /// Time of the instant, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.engine.now_seconds()
    }

    /// The engine, with the rates of this instant.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Jobs that entered a phase, in the order in which they did; a job may appear twice.
    pub fn phase_changes(&self) -> impl Iterator<Item = (JobIndex, JobPhase)> + '_ {
        self.engine.phase_changes.iter().copied()
    }

    /// Levels on links whose rate may have changed.
    pub fn link_rates(&self) -> impl Iterator<Item = LinkRate> + '_ {
        let sharing = &self.engine.rate_allocator;
        self.engine.changes.link_levels.iter().map(|&link_level| {
            let (link, level, bytes_per_second) = sharing.link_level_usage(link_level);
            LinkRate { link, level, bytes_per_second }
        })
    }

    /// Flows whose rate changed, those that ended included; a group may appear twice.
    pub fn flow_rates(&self) -> impl Iterator<Item = FlowRate> + '_ {
        let Engine { rate_allocator: sharing, changes, group_progress: groups, .. } = self.engine;
        changes.groups.iter().map(|&group| FlowRate {
            job: groups[group as usize].job,
            path: sharing.group_path(group).collect(),
            flows: sharing.group_weight(group) as u32,
            bytes_per_second: sharing.group_weight(group) * sharing.group_rate(group),
        })
    }
}
