//! Simulates a cluster's jobs under the planner or a baseline, and reports what they achieve.
//!
//! A [`Scheduler`] turns fabric, jobs and policy into a [`Schedule`]: a path for every flow, a
//! level and a start shift for every job. The fluid engine executes the schedule and decides
//! nothing, so two outcomes differ only by the decisions of their schedulers. Crux and its variants
//! are calls of [`planner::plan`]; the crate has no second copy of the planner's decisions.
//!
//! Pure: no I/O, no clock, no randomness.

pub mod baselines;
mod comparison;
pub mod contention;
mod crux_variants;
pub mod decisions;
mod demand;
mod fault;
mod job_moves;
mod outcome;
pub mod replay;
pub mod rounds;
mod routes;
mod schedule;
mod schedule_source;
mod scheduler;
mod scheduler_exchange;
mod simulation;
mod switch_hash;
mod timeline;
pub mod trace;

pub use comparison::{IsolatedJob, SchedulerComparison, SchedulerDraws, ValueSpread, draw_ports};
pub use demand::LinkDemand;
pub use fault::{FabricFault, FaultParseError};
pub use job_moves::{JobMove, suggest_moves};
pub use outcome::{JobOutcome, LevelOutcome, LinkOutcome, SimulationOutcome};
pub use routes::EqualCostRoutes;
pub use schedule::{Schedule, ScheduledJob};
pub use schedule_source::{HashedScheduler, ScheduleFailure, ScheduleSource};
pub use scheduler::{Scheduler, UnknownScheduler};
pub use scheduler_exchange::{ReplyError, SchedulerCall, SchedulerReply, SchedulerRequest};
pub use simulation::{
    SimulationError, SimulationExperiment, SimulationResult, alone_seconds, simulate_experiment,
    simulate_plan,
};
pub use switch_hash::{SwitchHash, UnknownSwitchHash};
pub use timeline::{BANDS, LinkSeries, LinkTier, TierSeries, Timeline, TimelineView};
