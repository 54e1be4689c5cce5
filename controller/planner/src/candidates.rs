//! Candidate plans, and the choice between them: never worse than doing nothing.
//!
//! Each phase before this one optimises a measure of its own (contention of paths, weight of the
//! cut, value over a short horizon), and where jobs contend each can lose to ECMP. So a plan is
//! adopted only after the fluid model has compared it with its alternatives over the horizon that
//! reports use: paths from several origins, each with levels from several origins, with the plan in
//! force among them. The best by the policy's objective is taken, and of equals the plan in force.
//! `docs/algorithms/candidates.md` is the essay.
//!
//! A region (jobs that could share links) is decided separately from others, and on given paths
//! each contention group gets the levels that suit it, so that one group's best levels do not cost
//! another.
//!
//! The value is the same wherever it is used: [`evaluate_decisions`] for reports, and the choice.

mod choice;
mod ecmp_expectation;
mod group_simulation;
mod group_values;
mod guided_choice;
mod level_climb;
mod level_race;
mod objective;
mod origins;
mod plan_value;
mod region_evaluation;

pub use self::choice::{CandidateOutcome, PlanComparison, RegionComparison};
pub(crate) use self::choice::{adopt_best, keep_in_force, keep_levels_in_force};
pub use self::origins::{LevelOrigin, PathOrigin};
pub use self::plan_value::PlanValue;
pub(crate) use self::plan_value::{evaluate_decisions, evaluate_from_other_starts};
