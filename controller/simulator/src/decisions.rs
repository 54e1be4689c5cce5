//! How near to the optimum each decision is: the microbenchmark of Crux §4.4.
//!
//! Small clusters are drawn from a seed (`case`). For each the best paths and levels are found by
//! enumeration (`optimum`), evaluated in the fluid model (`evaluation`). Each step of a scheduler
//! is then tested with the optimum of the other steps (`steps`), and the shares of the optimal GPU
//! utilisation are summarised over the cases (`summary`). The decisions themselves are those of
//! [`planner`] and of the baselines. `fairness` measures the cost of fairness on the same cases.
//!
//! A case is a function of seed and number, and cases share nothing, so callers may examine many in
//! parallel.

mod case;
mod evaluation;
mod fairness;
mod optimum;
mod segment_choices;
mod steps;
mod summary;

pub use case::{BenchmarkCase, CASE_JOBS, CASE_LEVELS, generate_case};
pub use fairness::{FairPlanner, FairnessOutcome, FairnessPoint, measure_fairness};
pub use steps::{CaseResult, PLANNING_STEPS, PlanningStep, examine_case};
pub use summary::{DecisionReport, DecisionSummary, ShareDistribution};
