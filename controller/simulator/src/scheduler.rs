//! The schedulers by the names that users write, with one interface for all of them.

use std::fmt;
use std::str::FromStr;

use planner::{Job, PlanInput, Policy};
use topology::Fabric;

use crate::baselines::taccl::LoadVisibility;
use crate::baselines::{cassini, ecmp, mltcp, sincronia, spray, taccl, varys};
use crate::crux_variants;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;
use crate::switch_hash::SwitchHash;

/// A way to schedule: ours in parts, or one that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// No scheduler: paths by hash, one level.
    Ecmp,
    /// Packet spraying: every flow in equal parts on all its paths, one level.
    Spray,
    /// Sincronia (SIGCOMM'18): coflows by bottleneck-select-scale-iterate.
    Sincronia,
    /// Varys (SIGCOMM'14): smallest effective bottleneck first.
    Varys,
    /// Varys as its paper has it: hosts give every flow a rate (MADD).
    VarysMadd,
    /// TACCL* of the Crux paper: least congested links, longer distance first.
    Taccl,
    /// TACCL, but a flow ignores the load of other flows of its job.
    TacclJob,
    /// CASSINI (NSDI'24): shifts of start, no levels.
    Cassini,
    /// MLTCP (HotNets'24): hosts whose share grows with the bytes that they have sent, no levels.
    Mltcp,
    /// Crux's priority assignment alone: paths by hash, a level for each job.
    CruxPa,
    /// Crux's paths and assignment: a level for each job.
    CruxPsPa,
    /// Crux with as many levels as policy gives.
    Crux,
}

impl Scheduler {
    /// All of them, the baselines first.
    pub const ALL: [Self; 12] = [
        Self::Ecmp,
        Self::Spray,
        Self::Sincronia,
        Self::Varys,
        Self::VarysMadd,
        Self::Taccl,
        Self::TacclJob,
        Self::Cassini,
        Self::Mltcp,
        Self::CruxPa,
        Self::CruxPsPa,
        Self::Crux,
    ];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Spray => "spray",
            Self::Sincronia => "sincronia",
            Self::Varys => "varys",
            Self::VarysMadd => "varys-madd",
            Self::Taccl => "taccl",
            Self::TacclJob => "taccl-job",
            Self::Cassini => "cassini",
            Self::Mltcp => "mltcp",
            Self::CruxPa => "crux-pa",
            Self::CruxPsPa => "crux-ps-pa",
            Self::Crux => "crux",
        }
    }

    /// Gives jobs the flows that they have under this scheduler: spraying has one for each path.
    pub fn adapt_jobs(self, fabric: &Fabric, jobs: &mut [Job]) {
        if self == Self::Spray {
            spray::spread_flows(fabric, jobs);
        }
    }

    /// What it decides for `input`, whose jobs it has adapted, under `policy`.
    ///
    /// `previous` is the schedule in force, for schedulers that keep what they can of it (Crux);
    /// the baselines decide anew.
    pub fn schedule_jobs(
        self,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Schedule {
        self.schedule_with_hash(SwitchHash::default(), input, policy, previous)
    }

    /// As [`Scheduler::schedule_jobs`], on switches that hash like that where paths follow a hash. The
    /// planner's own paths do not.
    pub fn schedule_with_hash(
        self,
        hash: SwitchHash,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Schedule {
        match self {
            Self::CruxPsPa => crux_variants::schedule_uncompressed(input, policy, previous),
            Self::Crux => crux_variants::schedule_full(input, policy, previous),
            baseline => {
                let routes = EqualCostRoutes::for_input(input).with_hash(hash);
                baseline.schedule_along_routes(&routes, input, policy)
            }
        }
    }

    /// Schedules without a previous result jobs whose routes are all in `routes`. The planner finds
    /// its paths itself.
    pub fn schedule_along_routes(
        self,
        routes: &EqualCostRoutes,
        input: &PlanInput,
        policy: &Policy,
    ) -> Schedule {
        match self {
            Self::Ecmp => ecmp::schedule_jobs(input, routes),
            Self::Spray => spray::schedule_jobs(input, routes),
            Self::Sincronia => sincronia::schedule_jobs(input, policy, routes),
            Self::Varys => varys::schedule_jobs(input, policy, routes),
            Self::VarysMadd => varys::schedule_as_coflows(input, routes),
            Self::Taccl => taccl::schedule_jobs(input, policy, routes, LoadVisibility::AllFlows),
            Self::TacclJob => {
                taccl::schedule_jobs(input, policy, routes, LoadVisibility::OtherJobs)
            }
            Self::Cassini => cassini::schedule_jobs(input, routes),
            Self::Mltcp => mltcp::schedule_jobs(input, routes),
            Self::CruxPa => crux_variants::schedule_priority_only(input, policy, routes),
            Self::CruxPsPa => crux_variants::schedule_uncompressed(input, policy, None),
            Self::Crux => crux_variants::schedule_full(input, policy, None),
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No scheduler has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scheduler `{0}`: use one of ecmp, spray, sincronia, varys, varys-madd, taccl, \
     taccl-job, cassini, mltcp, crux-pa, crux-ps-pa, crux"
)]
pub struct UnknownScheduler(pub String);

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownScheduler(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_listed_in_the_error() {
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.name().parse(), Ok(scheduler));
            let error = UnknownScheduler("x".to_owned()).to_string();
            assert!(error.contains(scheduler.name()));
        }
        assert!("Crux".parse::<Scheduler>().is_err());
    }
}
