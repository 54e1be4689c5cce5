//! `plan(input, policy, previous)`: GPU intensity, path selection, priorities and their compression
//! (Crux §3 and §4).
//!
//! Pure: no I/O, no clock, no randomness but from seeds in the arguments. The same arguments give
//! the same plan, and planning again from a plan's own result changes nothing.

mod input;
mod plan;

pub use input::{Flow, Input, Job, JobId};
pub use plan::{Plan, PlannedFlow, PlannedJob};
