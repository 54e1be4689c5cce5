//! Simulates a cluster's jobs under the planner or a baseline, and reports what they achieve.
//!
//! A [`Scheduler`] turns fabric, jobs and policy into a [`Schedule`]: a path for every flow, a
//! class and a start shift for every job. The fluid engine then runs what the schedule says, and
//! nothing else; so whatever differs between two outcomes, a scheduler decided. The crate decides
//! nothing itself that the planner decides: Crux and its parts are calls of [`planner::plan`].
//!
//! Pure: no I/O, no clock, no randomness.

pub mod baseline;
mod comparison;
mod crux;
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

pub use comparison::{Alone, Comparison};
pub use demand::Demand;
pub use fault::{Fault, FaultError};
pub use outcome::{JobOutcome, LevelOutcome, LinkOutcome, Outcome};
pub use routes::Routes;
pub use schedule::{Schedule, ScheduledJob};
pub use scheduler::{Scheduler, UnknownScheduler};
pub use simulation::{Experiment, Simulated, SimulationError, alone_seconds, simulate};
pub use timeline::{BANDS, LinkSeries, Timeline, View, WireSeries, WireTier};
