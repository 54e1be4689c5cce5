//! Tests of the planner through its public interface, one module per matter.

mod compression;
mod documents;
mod planning;
mod scenario;
mod stability;
