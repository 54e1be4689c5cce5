//! What else could be in force, judged along a replay.
//!
//! Two replays differ by more than their schedulers: a job that ends an hour later meets others. So
//! at every event the jobs present are also given the schedules of *alternatives*, and their
//! iterations are simulated in the same way. What computes under each, summed over the time of the
//! replay, tells decisions apart from what became of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use planner::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network_update::SettledNetwork;
use super::steady_state::SteadyState;
use super::{ReplaySetup, TraceReplay, TraceReplayError};
use crate::scheduler::Scheduler;

/// A schedule that is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleAlternative {
    /// That of a scheduler.
    Scheduler(Scheduler),
    /// Crux on one level.
    OneLevel,
    /// The phases of Crux alone: nothing is compared or searched.
    Unsearched,
}

impl ScheduleAlternative {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler(scheduler) => scheduler.name(),
            Self::OneLevel => "one-level",
            Self::Unsearched => "unsearched",
        }
    }

    /// The scheduler, and the policy that it decides under where `policy` is in force.
    pub(super) fn scheduler_under(self, policy: &Policy) -> (Scheduler, Policy) {
        let policy = policy.clone();
        match self {
            Self::Scheduler(scheduler) => (scheduler, policy),
            Self::OneLevel => (Scheduler::Crux, Policy { levels: 1, ..policy }),
            Self::Unsearched => (Scheduler::Crux, Policy { search_events: 0, ..policy }),
        }
    }
}

impl fmt::Display for ScheduleAlternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No alternative has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown alternative `{name}`: use one-level, unsearched, or a scheduler other than spray, \
     which divides the flows of jobs: {schedulers}",
    name = .0, schedulers = comparable_schedulers()
)]
pub struct UnknownAlternative(pub String);

fn comparable_schedulers() -> String {
    let names = Scheduler::ALL.into_iter().filter(|other| *other != Scheduler::Spray);
    names.map(Scheduler::name).collect::<Vec<_>>().join(", ")
}

impl FromStr for ScheduleAlternative {
    type Err = UnknownAlternative;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "one-level" => Ok(Self::OneLevel),
            "unsearched" => Ok(Self::Unsearched),
            _ => match name.parse() {
                Ok(Scheduler::Spray) | Err(_) => Err(UnknownAlternative(name.to_owned())),
                Ok(scheduler) => Ok(Self::Scheduler(scheduler)),
            },
        }
    }
}

/// What an alternative does to the jobs on the network since the last event.
#[derive(Clone, Debug, Default)]
pub(super) struct AlternativeState {
    network: SettledNetwork,
    /// Steady states by job.
    steady: BTreeMap<u32, SteadyState>,
}

/// Sums over the time of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ComparedUsage {
    in_force_gpu_seconds: f64,
    held_gpu_seconds: f64,
    alternatives: Vec<AlternativeUsage>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct AlternativeUsage {
    busy_gpu_seconds: f64,
    /// Of all jobs, while the alternative was ahead.
    ahead_gpu_seconds: f64,
}

/// An alternative is ahead if this share of all GPUs that jobs hold computes more.
const AHEAD: f64 = 0.002;

/// What an alternative would have been worth to the jobs of a replay, at each of its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlternativeOutcome {
    /// Its name.
    pub name: String,
    /// Share of the GPU time that jobs held in which they would compute.
    pub gpu_utilization: f64,
    /// Share in which they compute under the schedule in force, by its steady states.
    pub in_force: f64,
    /// Share of that GPU time in which the alternative is better by more than 0.2 points.
    pub ahead: f64,
}

impl TraceReplay<'_> {
    /// Has the alternatives decide for the jobs of now.
    pub(super) fn decide_alternatives(&mut self) -> Result<(), TraceReplayError> {
        let ReplaySetup { fabric, interference, alternatives, .. } = self.setup;
        self.alternatives.resize_with(alternatives.len(), Default::default);
        for (alternative, state) in alternatives.iter().zip(&mut self.alternatives) {
            let (scheduler, policy) = alternative.scheduler_under(&self.setup.policy);
            let schedule = self.dispatcher.schedule_instead(scheduler, &policy);
            let jobs = self.dispatcher.jobs();
            state.steady = state.network.settle(fabric, *interference, jobs, &schedule)?;
        }
        Ok(())
    }

    /// Lets `seconds` pass while jobs hold so many GPUs.
    pub(super) fn count_alternatives(&mut self, held_gpus: f64, seconds: f64) {
        if self.alternatives.is_empty() {
            return;
        }
        let busy_gpus = |steady_of: &dyn Fn(u32) -> Option<SteadyState>| {
            let active = self.active.iter().map(|(number, active)| {
                let steady = steady_of(*number).unwrap_or(active.steady);
                active.training.busy_gpu_seconds / steady.seconds
            });
            active.sum::<f64>()
        };
        let in_force = busy_gpus(&|_| None);
        let usage = &mut self.progress.compared;
        usage.alternatives.resize_with(self.alternatives.len(), Default::default);
        usage.in_force_gpu_seconds += in_force * seconds;
        usage.held_gpu_seconds += held_gpus * seconds;
        for (sum, state) in usage.alternatives.iter_mut().zip(&self.alternatives) {
            let instead = busy_gpus(&|number| state.steady.get(&number).copied());
            sum.busy_gpu_seconds += instead * seconds;
            if instead > in_force + AHEAD * held_gpus {
                sum.ahead_gpu_seconds += held_gpus * seconds;
            }
        }
    }

    /// What each alternative would have been worth so far.
    pub(super) fn alternative_outcomes(&self) -> Vec<AlternativeOutcome> {
        let usage = &self.progress.compared;
        let share = |gpu_seconds: f64| gpu_seconds / usage.held_gpu_seconds.max(f64::MIN_POSITIVE);
        let alternatives = self.setup.alternatives.iter().zip(&usage.alternatives);
        alternatives
            .map(|(alternative, of)| AlternativeOutcome {
                name: alternative.name().to_owned(),
                gpu_utilization: share(of.busy_gpu_seconds),
                in_force: share(usage.in_force_gpu_seconds),
                ahead: share(of.ahead_gpu_seconds),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{drawn, replayed, setup};
    use super::*;

    #[test]
    fn names_are_read_back_and_spraying_is_refused() {
        for name in ["one-level", "unsearched", "ecmp", "cassini", "crux"] {
            assert_eq!(name.parse::<ScheduleAlternative>().unwrap().name(), name);
        }
        let error = "spray".parse::<ScheduleAlternative>().unwrap_err().to_string();
        assert!(error.contains("one-level") && error.contains("taccl-job"), "{error}");
    }

    #[test]
    fn the_scheduler_in_force_is_level_with_itself_and_comparing_changes_nothing() {
        let plain = ReplaySetup { volume: 40.0, ..setup(drawn(3), Scheduler::Ecmp) };
        let names = ["ecmp", "crux"];
        let compared = ReplaySetup {
            alternatives: names.map(|name| name.parse().unwrap()).to_vec(),
            policy: Policy { search_events: 20_000, ..plain.policy.clone() },
            ..plain.clone()
        };
        let [plain, compared] = [&plain, &compared].map(replayed);
        assert_eq!(plain.jobs, compared.jobs);
        let [ecmp, crux] = &compared.alternatives[..] else { panic!("two alternatives") };
        assert!((ecmp.gpu_utilization - ecmp.in_force).abs() < 1e-9, "{ecmp:?}");
        assert_eq!(ecmp.ahead, 0.0);
        assert!(crux.gpu_utilization > crux.in_force + 0.002 && crux.ahead > 0.0, "{crux:?}");
        assert!((compared.gpu_utilization - ecmp.in_force).abs() < 1e-9, "{ecmp:?}");
    }
}
