//! Beyond the paper: candidate plans, and the choice between them.
//!
//! Each phase of the paper optimises a measure of its own (congestion of paths, weight of the cut),
//! and where jobs contend each can lose to ECMP. So a plan is adopted only after the judge, a
//! simulation in the fluid model, has compared it with its alternatives: paths from several
//! origins, each with levels from several origins, with the plan in force among them, and what a
//! local search finds from the best of them. The best by the policy's objective is taken, and of
//! equals the plan in force. `docs/algorithms/candidates.md` has the method and its results.
//!
//! A region (jobs that could share links) is decided separately from others, and on given paths
//! each contention group gets the levels that suit it, so that one group's best levels do not cost
//! another.

mod bundles;
mod candidates;
mod choice;
mod climb;
pub mod contention_group;
mod decisions;
mod drawn_optima;
mod ecmp_expectation;
mod forecast;
pub mod group_run;
mod horizon;
mod judge;
mod level_moves;
mod level_race;
mod local_search;
mod mean_rates;
mod objective;
mod plan_value;
mod proposals;
mod region_evaluation;
mod regions;
mod routed_input;
mod start_shifts;
mod symmetry;

pub use self::candidates::{LevelOrigin, PathOrigin};
pub use self::choice::{CandidateOutcome, PlanComparison, RegionComparison};
pub(crate) use self::choice::{
    adopt_best, choose_levels_quickly, keep_in_force, keep_paths, keep_shifts,
};
pub(crate) use self::decisions::Decisions;
pub use self::forecast::{
    IterationForecast, PlanForecast, forecast_ecmp, forecast_independently, forecast_plan,
};
pub use self::plan_value::PlanValue;
pub(crate) use self::regions::{comparable_regions, is_oversized, judged_depth};
pub use self::routed_input::RoutedInput;
pub(crate) use self::start_shifts::shift_starts;
