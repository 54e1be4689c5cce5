//! `plan(input, policy, previous)`: GPU intensity, path selection, priorities and their compression
//! (Crux §3 and §4).
//!
//! Pure: no I/O, no clock, no randomness but from seeds in the arguments. The same arguments give
//! the same plan, and planning again from a plan's own result changes nothing.

mod bounds;
mod check;
pub mod compression;
mod contention;
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
pub use plan::{Plan, PlannedFlow, PlannedJob};
pub use plan_document::{
    PlanDocument, PlannedBounds, PlannedCompression, PlannedFlowDocument, PlannedJobDocument,
    PlannedLink,
};
pub use policy::{
    Compression, Override, OverrideDocument, Paths, Policy, PolicyDocument, Reference,
};
pub use profiles::{Profile, profiles};
pub use report::{Bounds, CompressionReport, LinkLoad, Report, Why};
pub use routed::Routed;

use crate::plan::Decisions;
use crate::previous::Previous;
use crate::report::Evidence;
use crate::routed::Ranking;
use crate::search::Found;
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
    let paths = path_selection::select(&traffic, &had, policy).paths();

    // Crux §4.2 and §4.3: intensity on those paths, corrected, is priority; then few classes for
    // many priorities, told apart where it matters most.
    let ranking = Ranking::new(&traffic, &paths, policy);
    let levels = ranking.levels(&traffic, policy, &had);

    // Beyond the paper: where few jobs meet, the fluid model judges paths and levels.
    let found = Found::new(paths, levels);
    let Found {
        paths,
        levels,
        searched,
    } = search::refine(&traffic, policy, &had, found);
    let ranking = Ranking::new(&traffic, &paths, policy).with_searched(&levels, &searched);
    let Ranking {
        demands,
        sharing,
        priorities,
        order,
    } = &ranking;
    let places = priority::places(order);

    let by_intensity = path_selection::order(demands.iter());
    let pinned = pins::assign(&traffic, &paths, &by_intensity, policy);
    let decisions = Decisions {
        traffic: &traffic,
        paths: &paths,
        demands,
        priorities,
        places: &places,
        levels: &levels,
        numbers: had.numbers(),
    };
    let plan = decisions.plan(&pinned, policy.levels).following(previous);
    let evidence = Evidence {
        traffic: &traffic,
        demands,
        sharing,
        order,
        policy,
        previous: &had,
    };
    let report = evidence.report(&plan);
    (plan, report)
}
