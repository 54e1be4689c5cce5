//! The controller: from what it learns to what the switches hold.
//!
//! ```text
//! Event -> State::step -> Plan -> lower -> Desired tables -> a session per switch -> its writes
//! ```
//!
//! [`state`] decides with the planner, [`lower()`] turns the plan into tables, [`southbound`]
//! realises them, [`discovery`] and [`liveness`] see what the fabric is, jobs tell of themselves
//! through [`northbound`] to [`telemetry`], [`chronicle`] tells what happens, `traces` tells a
//! collector how long it took, [`leadership`] or [`etcd`] say whether this controller is the one
//! that writes, and [`runtime`] puts the parts together under a [`Config`]. The decision: nothing
//! flows back. What a switch holds is read when it matters and never remembered, so there is one
//! way in which anything gets repaired: the next pass.

pub mod chronicle;
pub mod config;
pub mod discovery;
pub mod etcd;
pub mod forecast;
pub mod leadership;
pub mod ledger;
pub mod liveness;
pub mod lower;
pub mod northbound;
pub mod preview;
pub mod recorder;
pub mod runtime;
pub mod southbound;
pub mod state;
pub mod store;
pub mod telemetry;
mod traces;

pub use config::{Config, ConfigError, RawConfig};
pub use lower::lower;
pub use runtime::{
    Access, Clock, Controller, ControllerError, ControllerHandle, Drainage, Receipt, Timing,
};
pub use state::{Answer, Effects, Event, Proposal, Question, Realise, State, Told};
