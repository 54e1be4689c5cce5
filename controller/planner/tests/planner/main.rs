//! Tests of the planner through its public interface, one module per matter.

#![allow(clippy::unwrap_used)] // Builders of test data outside the test functions.

mod adoption;
mod compression;
mod documents;
mod incremental;
mod interconnects;
mod learned;
mod plan_memory;
mod planning;
mod scenario;
mod settled;
mod spraying;
mod stability;
mod start_shifts;
