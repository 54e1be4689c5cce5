//! How a job's connections might find their paths, and which way is best for a fabric's jobs.
//!
//! A job may have pins as the plan says, or be left to ECMP with source ports that keep the
//! connections of a NIC pair apart, or have its packets sprayed. [`advise_mode`] compares the three
//! for one job while all other jobs stay as planned, in a short run of the fluid model;
//! [`measure_modes`] does the same at length, from starts that the advice has not seen and under
//! more hashes.
//!
//! The decision: modes differ by the job's paths alone. Its level stays that of the plan, so the
//! difference between two modes is what the choice of paths is worth.

mod advice;
mod mode_run;
mod mode_traffic;
mod reason;

pub use self::advice::{AdviceSampling, ModeAdvice, ModeEstimate, TOLERATED, advise_mode};
pub use self::mode_run::{ModeOutcome, measure_modes};
pub use self::reason::BusiestLink;

use std::collections::BTreeMap;
use std::fmt;

use planner::{PlanInput, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::LinkId;
use topology::groups::DisjointSets;

use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;
use crate::scheduler::Scheduler;

/// How the connections of a job find their paths.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardingMode {
    /// A pin for each connection, on the path of the plan.
    Pin,
    /// ECMP with source ports so chosen that the connections of a NIC pair take different uplinks,
    /// as far as there are enough of either.
    QpEcmp,
    /// All packets in turn over all equal-cost paths.
    Spray,
}

impl ForwardingMode {
    /// All of them; of equally good ones the first is advised.
    pub const ALL: [Self; 3] = [Self::Pin, Self::QpEcmp, Self::Spray];

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::QpEcmp => "qp-ecmp",
            Self::Spray => "spray",
        }
    }
}

impl fmt::Display for ForwardingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Jobs under their plan, one of which may be given another mode.
#[derive(Clone, Debug)]
pub struct PlannedJobs<'a> {
    input: &'a PlanInput,
    routes: EqualCostRoutes,
    /// What the plan decides, in the order of the input.
    schedule: Schedule,
}

/// Why a job has no advice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModeError {
    /// A part of the fabric is down.
    #[error("a flow of job {0} has no path")]
    NoPath(planner::JobId),
    /// The fluid model refuses the job, or one that it contends with.
    #[error("the fluid model rejects the jobs")]
    Model(#[from] fluid::FluidError),
}

impl<'a> PlannedJobs<'a> {
    /// The jobs of `input` under the plan that `policy` gives.
    pub fn new(input: &'a PlanInput, policy: &Policy) -> Self {
        Self {
            input,
            routes: EqualCostRoutes::for_input(input),
            schedule: Scheduler::Crux.schedule_jobs(input, policy, None),
        }
    }

    /// Jobs that `job` could affect in any mode, and that could affect it: those that share a link
    /// with one of its paths, directly or through others; ascending, with `job` itself. Jobs with a
    /// flow without a path wait and affect nobody.
    fn contention_group(&self, job: usize) -> Vec<usize> {
        let mut sets = DisjointSets::new(self.input.jobs.len());
        let mut users: BTreeMap<LinkId, usize> = BTreeMap::new();
        for member in self.connected_jobs() {
            for link in self.links_of(member, member == job) {
                let first = *users.entry(link).or_insert(member);
                sets.join(first, member);
            }
        }
        let root = sets.find_root(job);
        self.connected_jobs().filter(|member| sets.find_root(*member) == root).collect()
    }

    fn connected_jobs(&self) -> impl Iterator<Item = usize> {
        let scheduled = self.schedule.jobs.iter().enumerate();
        scheduled.filter(|(_, scheduled)| scheduled.is_connected()).map(|(job, _)| job)
    }

    /// Links of a job's flows: on all equal-cost paths if it is `free`, else on the planned ones.
    fn links_of(&self, job: usize, free: bool) -> Vec<LinkId> {
        let fabric = &self.input.fabric;
        let flows = self.input.jobs[job].flows.iter().zip(&self.schedule.jobs[job].paths);
        let crossed = flows.flat_map(|(flow, planned)| {
            let paths = if free { self.routes.all_paths(flow) } else { vec![planned.clone()] };
            let links =
                paths.into_iter().map(|path| flow.crossed_links(fabric, &path).into_owned());
            links.flatten().collect::<Vec<_>>()
        });
        crossed.collect()
    }
}
