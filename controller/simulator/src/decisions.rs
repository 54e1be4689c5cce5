//! How near to the optimum each decision is: the microbenchmark of Crux §4.4.
//!
//! Small clusters are drawn from a seed (`case`), and of each the best paths and levels are found
//! by enumeration (`optimum`), judged in the fluid model (`judge`). Each step of a scheduler is
//! then put to the test with the optimum of the other steps (`steps`), and the shares of the
//! optimal GPU utilisation that it reaches are summed up over the cases (`summary`). Decisions
//! themselves are those of [`planner`] and of the baselines.
//!
//! `fairness` asks another question of the same cases: what fairness costs.
//!
//! A case is a function of seed and number, and nothing is shared between cases: whoever has many
//! processors examines many at a time.

mod case;
mod choices;
mod fairness;
mod judge;
mod optimum;
mod steps;
mod summary;

pub use case::{Case, JOBS, LEVELS, case};
pub use fairness::{FairPlanner, Fairness, FairnessPoint, fairness};
pub use steps::{Examined, STEPS, Step, examine};
pub use summary::{Distribution, Report, Summary};
