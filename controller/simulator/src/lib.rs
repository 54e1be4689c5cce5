//! Simulates a cluster's jobs under the planner or a baseline, and reports what they achieve.
//!
//! A [`Scheduler`] turns fabric, jobs and policy into a [`BatchSchedule`]: a path for every flow, a
//! class and a start shift for every job. The fluid engine then runs what the schedule says, and
//! nothing else; so whatever differs between two outcomes, a scheduler decided. The crate decides
//! nothing itself that the planner decides: Crux and its parts are calls of [`planner::plan`].
//!
//! Pure: no I/O, no clock, no randomness.

pub mod baselines;
mod comparison;
mod crux_variants;
pub mod decisions;
mod demand;
mod fault;
mod outcome;
pub mod placement;
pub mod replay;
mod routes;
mod schedule;
mod scheduler;
mod simulation;
mod timeline;
pub mod trace;
pub mod workload;

pub use comparison::{IsolatedJob, SchedulerComparison};
pub use demand::LinkDemand;
pub use fault::{FabricFault, FaultParseError};
pub use outcome::{JobOutcome, LevelOutcome, LinkOutcome, SimulationOutcome};
pub use routes::EqualCostRoutes;
pub use schedule::{Schedule, ScheduledJob};
pub use scheduler::{Scheduler, UnknownScheduler};
pub use simulation::{
    SimulationError, SimulationExperiment, SimulationResult, alone_seconds, simulate_experiment,
};
pub use timeline::{BANDS, LinkSeries, LinkTier, TierSeries, Timeline, TimelineView};
