//! The decisions of a scheduler, in one form for all schedulers.
//!
//! Jobs and flows are in the order of the input, so a schedule needs no names. Levels are not
//! bounded by those of the switches: the variants of Crux without compression give every job its
//! own level.

use fluid::{JobGrid, ServiceDiscipline};
use planner::Plan;
use topology::{Finding, LinkId};

/// Decisions on one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduledJob {
    /// Its level; the highest is served first.
    pub level: u32,
    /// Seconds that its first iteration waits, from its arrival.
    pub start_shift_seconds: f64,
    /// The grid that it keeps its iterations on, if it is held to one.
    pub grid: Option<JobGrid>,
    /// The path of each flow, from NIC to NIC; empty for a flow without a path.
    pub paths: Vec<Vec<LinkId>>,
}

impl ScheduledJob {
    /// A job in `level` that starts when it arrives.
    pub fn new(level: u32, paths: Vec<Vec<LinkId>>) -> Self {
        Self { level, paths, ..Self::default() }
    }

    /// Whether every flow has a path.
    pub fn is_connected(&self) -> bool {
        self.paths.iter().all(|path| !path.is_empty())
    }
}

/// Every decision of a scheduler for one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Jobs in the order of the input.
    pub jobs: Vec<ScheduledJob>,
    /// In which order their flows are served.
    pub discipline: ServiceDiscipline,
    /// The plan it was taken from, where there is one: the previous plan of the next schedule.
    pub plan: Option<Plan>,
    /// What a person should know about it.
    pub findings: Vec<Finding>,
}

impl Schedule {
    /// A schedule without start shifts, from a level for each job and a path for each of its flows.
    pub fn from_levels(levels: &[u32], paths: Vec<Vec<Vec<LinkId>>>) -> Self {
        let jobs = levels.iter().zip(paths);
        Self {
            jobs: jobs.map(|(level, paths)| ScheduledJob::new(*level, paths)).collect(),
            ..Self::default()
        }
    }
}
