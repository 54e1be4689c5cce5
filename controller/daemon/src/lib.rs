//! The controller: from what it learns to what the switches hold.
//!
//! ```text
//! Event -> State::step -> Plan -> lower -> Desired tables -> a session per switch -> its writes
//! ```
//!
//! [`state`] decides with the planner, [`lower_plan()`] turns the plan into tables, [`southbound`]
//! realises them, [`watch_discovery`] and [`liveness`] see what the fabric is, jobs tell of themselves
//! through [`northbound`] to [`report_ingest`], [`event_log`] tells what happens, `traces` tells a
//! collector how long it took, [`leadership_event`] or [`etcd`] say whether this controller is the one
//! that writes, and [`runtime`] puts the parts together under a [`Config`]. The decision: nothing
//! flows back. What a switch holds is read when it matters and never remembered, so there is one
//! way in which anything gets repaired: the next pass.

pub mod access;
pub mod clock;
pub mod config;
pub mod discovery;
pub mod etcd;
pub mod event_log;
pub mod forecast;
pub mod leadership;
pub mod liveness;
pub mod lower;
pub mod northbound;
pub mod policy_history;
pub mod preview;
pub mod recorder;
pub mod runtime;
pub mod southbound;
pub mod state;
pub mod store;
pub mod telemetry;
mod trace_export;

pub use access::{ControllerAccess, ControllerError};
pub use clock::Clock;
pub use config::{Config, ConfigError, RawConfig};
pub use lower::lower_plan;
pub use runtime::{Controller, ControllerHandle};
pub use southbound::ChangeTiming;
pub use state::{
    DrainProgress, Effects, PlanRequest, PlanResult, PlanRollout, PolicyProposal, ReportedJobs,
    State, StateEvent, SubmitReceipt,
};
