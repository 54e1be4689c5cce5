//! The controller: from its inputs to the tables that the switches hold.
//!
//! ```text
//! Event -> State::step -> Plan -> Pipeline -> desired tables -> a session per switch -> its writes
//! ```
//!
//! [`state`] decides with the planner, a [`pipeline`] lowers the plan to tables,
//! [`southbound`] reconciles the switches with them, [`discovery`], [`gnmi`] and [`liveness`]
//! observe the fabric, [`learning`] the flows that no job has announced, [`telemetry`] takes the
//! reports that jobs send through [`northbound`], [`event_log`] records what happens,
//! `trace_export` exports how long it took, [`leadership`] or [`etcd`] decides which controller
//! writes, and [`runtime`] runs the parts under a [`Config`]. The decision: nothing flows back. What
//! a switch holds is read when it is needed and never cached, so one mechanism repairs everything:
//! the next reconcile.

pub mod access;
pub mod audit;
pub mod certificates;
pub mod clock;
pub mod config;
pub mod discovery;
pub mod etcd;
pub mod event_log;
pub mod fabric_history;
pub mod forecast;
pub mod gnmi;
pub mod hexadecimal;
pub mod host_machine;
pub mod leadership;
pub mod learning;
pub mod liveness;
mod low_priority;
pub mod northbound;
pub mod pipeline;
pub mod pipelines;
pub mod policy_history;
pub mod preview;
pub mod recorder;
mod retry_backoff;
pub mod revision;
pub mod runtime;
pub mod southbound;
pub mod standing_findings;
pub mod state;
pub mod store;
pub mod supervision;
pub mod telemetry;
mod trace_export;

pub use access::{ControllerAccess, ControllerError};
pub use clock::Clock;
pub use config::{Config, ConfigError, RawConfig, RawSai};
pub use pipelines::lower_plan;
pub use runtime::{Controller, ControllerHandle};
pub use southbound::ChangeTiming;
pub use state::{
    DrainProgress, Effects, FabricProposal, LeadChange, PlanRequest, PlanResult, PlanRollout,
    PolicyProposal, ReportedJobs, State, StateEvent, SubmitReceipt,
};
