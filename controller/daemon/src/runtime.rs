//! The running controller: one event loop that feeds the state, and one session per switch.
//!
//! [`Controller`] assembles it. Inputs arrive through a bounded queue; `core` steps the
//! [`State`](crate::State) and applies the [`Effects`](crate::Effects): the planner computes plans,
//! the lowering makes tables of them, the publisher gives these to the sessions over a `watch`, the
//! observer derives from the [`StatusBoard`](crate::southbound::StatusBoard) what failed and which
//! generation is held, the cluster decides who may write. The decision: the loop computes nothing
//! that takes long and waits for nothing that does. Planning and lowering run on the blocking pool,
//! their results are inputs, so that a failure is repaired and a query answered meanwhile, and the
//! state has one owner at any time.

mod archive;
mod assemble;
mod change_meter;
mod cluster;
mod core;
mod drains;
mod event_log_task;
mod handle;
mod log;
mod lowering;
mod membership;
mod observer;
mod plan_keeper;
mod planner;
mod publisher;
mod quiet_timer;
mod state_driver;

pub use self::assemble::Controller;
pub use self::handle::ControllerHandle;
