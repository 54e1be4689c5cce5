//! `plan(input, policy, previous)`: GPU intensity, path selection, priorities and their compression
//! (Crux §3 and §4).
//!
//! Pure: no I/O, no clock, no randomness but from seeds in the arguments. The same arguments give
//! the same plan, and planning again from a plan's own result changes nothing.

mod bounds;
mod check;
pub mod compression;
mod contention;
mod decide;
mod document;
mod input;
mod intensity;
mod levels;
mod names;
mod occupancy;
mod path_selection;
mod pins;
mod plan;
mod plan_document;
mod policy;
mod previous;
mod priority;
mod profiles;
mod report;
mod routed;
pub mod search;
mod standing;
mod tally;
mod traffic;
mod walker;
mod ways;

pub use check::check;
pub use contention::{ContentionDag, Edge};
pub use document::{
    CollectiveDocument, CollectiveKind, FlowDocument, JobDocument, JobsDocument, ResolvedJobs,
};
pub use input::{Flow, Input, Job, JobId};
pub use names::FieldError;
pub use plan::{Plan, PlannedFlow, PlannedJob, PlannedRule};
pub use plan_document::{
    PlanDocument, PlannedBounds, PlannedCompression, PlannedFlowDocument, PlannedJobDocument,
    PlannedLink, PlannedRuleDocument,
};
pub use policy::{
    Adoption, AdoptionDocument, Compression, MAX_RULES, Override, OverrideDocument, Paths, Policy,
    PolicyDocument, Reference,
};
pub use profiles::{Profile, profiles};
pub use report::{Bounds, CompressionReport, LinkLoad, Report, Why};
pub use routed::Routed;
pub use standing::{EventError, Standing};

use crate::decide::Situation;
use crate::previous::Previous;
use crate::priority::Corrections;
use crate::traffic::Traffic;

/// The plan for `input` under `policy`, and why it is so.
///
/// `previous` is the plan in force: running flows stay on their paths and jobs in their classes
/// unless something is gained. If nothing differs from it, it is returned as it is, generation
/// included.
pub fn plan(input: &Input, policy: &Policy, previous: Option<&Plan>) -> (Plan, Report) {
    let traffic = Traffic::new(input);
    let had = Previous::new(&traffic, previous);

    // Crux §4.1: the most intense job first takes the least congested paths.
    let placement = path_selection::select(&traffic, &had, policy);
    let situation = Situation {
        traffic: &traffic,
        policy,
        previous: &had,
        corrections: &Corrections::default(),
    };
    let decided = situation.decide(placement.paths(0..traffic.jobs.len()));
    let plan = decided.plan.following(previous);
    let report = situation.report(&plan, &decided.ranking);
    (plan, report)
}
