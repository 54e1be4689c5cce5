//! `plan(input, policy, previous)`: GPU intensity, path selection, priorities and their compression
//! (Crux §3 and §4).
//!
//! Pure: no I/O, no clock, no randomness but from seeds in the arguments. The same arguments give
//! the same plan, and planning again from a plan's own result changes nothing.

mod bounds;
mod buffer_cycles;
mod capabilities;
pub mod compression;
mod contention;
mod decision;
mod fluid_network;
mod forwarding_choice;
mod hashed_paths;
mod incremental;
mod input;
mod input_digest;
mod intensity;
mod interrupt;
mod job_ranking;
mod jobs_document;
mod learned_flows;
mod levels;
mod link_occupancy;
mod link_slopes;
mod model_profiles;
mod name_matching;
mod network_demand;
mod parallel;
mod path_selection;
mod path_tables;
mod pins;
mod plan;
mod plan_check;
mod plan_context;
mod plan_document;
mod plan_memory;
mod policy;
mod port_flows;
mod previous_plan;
mod priority;
pub mod refine;
mod report;
mod routes;
mod segment_search;
mod segment_survey;
mod shared_tuples;
mod source_ports;
mod sparse_sums;
mod sprayed_plan;
mod traffic;
mod trunks;

pub use capabilities::{PinGranularity, SwitchCapabilities};
pub use contention::{ContentionDag, ContentionEdge};
pub use fluid_network::fluid_network;
pub use hashed_paths::ecmp_paths;
pub use incremental::{IncrementalPlanner, JobEventError};
pub use input::{Flow, FlowGpus, FlowIdentity, Job, JobId, MeasuredSlowdown, PlanInput};
pub use input_digest::ComparedInputs;
pub use interrupt::Interrupt;
pub use jobs_document::{
    CollectiveDocument, CollectiveKind, FlowDocument, JobDocument, JobsDocument, MAX_CHANNELS,
    RankGroups, RankTraffic, ResolvedJobs, lowest_gpus, tree_edges,
};
pub use learned_flows::{
    ConnectionOwner, LearnedConnection, NicOwners, find_counted_pairs, place_learned_flows,
    with_learned_flows,
};
pub use model_profiles::{ModelProfile, builtin_profiles};
pub use name_matching::DocumentFieldError;
pub use plan::{Plan, PlannedFlow, PlannedJob, PlannedRule, StartShift};
pub use plan_check::check_plan;
pub use plan_context::PlanDepth;
pub use plan_document::{
    CandidateDocument, ComparisonDocument, PlanDocument, PlannedBounds, PlannedCompression,
    PlannedFlowDocument, PlannedJobDocument, PlannedLink, PlannedRuleDocument, StartShiftDocument,
};
pub use plan_memory::PlanMemory;
pub use policy::{
    AdoptionDocument, AdoptionRule, CompressionMethod, ConnectionTimeout, CorrectionReference,
    JobOverride, MAX_RULES, OverrideDocument, PathMethod, Policy, PolicyDocument, PolicyEdit,
    PolicyEditAction, SlowdownLimit, TransportModel,
};
pub use port_flows::{join_ports, move_to_working_ports, spread_over_ports};
pub use refine::{
    CandidateOutcome, IterationForecast, LevelOrigin, PathOrigin, PlanComparison, PlanForecast,
    PlanValue, RegionComparison, RoutedInput, forecast_ecmp, forecast_independently, forecast_plan,
};
pub use report::{CompressionReport, JobRationale, LinkLoad, LoadBounds, PlanReport};
pub use source_ports::choose_source_ports;

use topology::{Fabric, Forwarding};

use crate::decision::DecidedPlan;
use crate::plan_context::PlanContext;
use crate::previous_plan::PreviousPlan;
use crate::priority::CorrectionCache;
use crate::traffic::IndexedTraffic;
use crate::trunks::TrunkedFabric;

/// The plan for `input` under `policy`, and the report that explains it.
///
/// `previous` is the plan in force: running flows stay on their paths and jobs in their levels
/// unless something is gained. If nothing differs from it, it is returned as it is, generation
/// included.
pub fn plan(input: &PlanInput, policy: &Policy, previous: Option<&Plan>) -> (Plan, PlanReport) {
    plan_to_depth(input, policy, previous, PlanDepth::Full)
}

/// As [`plan`], or quickly; the report of a quick plan says whether a full one may be better.
pub fn plan_to_depth(
    input: &PlanInput,
    policy: &Policy,
    previous: Option<&Plan>,
    depth: PlanDepth,
) -> (Plan, PlanReport) {
    let (fabric, jobs) = (&input.fabric, &input.jobs[..]);
    let planned_on = |fabric: &Fabric| plan_on(fabric, jobs, policy, previous, depth);
    let sprayed_on = |trunks: &TrunkedFabric| {
        let (plan, report) = planned_on(&trunks.fabric);
        trunks.restore(plan, report)
    };
    let (plan, report) = match fabric.forwarding() {
        Forwarding::Pin => planned_on(fabric),
        Forwarding::Spray => sprayed_on(&TrunkedFabric::new(fabric)),
        Forwarding::Auto => {
            let trunks = TrunkedFabric::new(fabric);
            let both = [planned_on(fabric), sprayed_on(&trunks)];
            let fabrics = [fabric, &trunks.fabric];
            forwarding_choice::choose_forwarding(fabrics, jobs, policy, both, previous)
        }
    };
    (plan.succeeding(previous), report)
}

/// The plan on `fabric` as it is, with pins; its generation is for [`Plan::succeeding`].
fn plan_on(
    fabric: &Fabric,
    jobs: &[Job],
    policy: &Policy,
    previous: Option<&Plan>,
    depth: PlanDepth,
) -> (Plan, PlanReport) {
    let traffic = IndexedTraffic::of_jobs(fabric, jobs);
    let depth = refine::judged_depth(&traffic, policy, depth);
    let in_force = PreviousPlan::new(&traffic, previous).with_start(depth != PlanDepth::Settled);

    let context = PlanContext {
        traffic: &traffic,
        policy,
        previous: &in_force,
        corrections: &CorrectionCache::default(),
        depth,
    };
    let (_, DecidedPlan { plan, ranking, comparison }) = context.select_and_decide();
    // What has moved is relative to the plan in force, whether or not the decisions started there.
    let context = PlanContext { previous: &PreviousPlan::new(&traffic, previous), ..context };
    let report = context.build_report(&plan, &ranking, comparison);
    (plan, report)
}
