//! Who decides: a scheduler of this crate, or a program outside of it.

use planner::{Job, PlanInput, Policy};
use topology::Fabric;

use crate::schedule::Schedule;
use crate::scheduler::Scheduler;
use crate::switch_hash::SwitchHash;

/// Decides paths, levels and start shifts for the jobs of a simulation.
pub trait ScheduleSource {
    /// The name in outcomes.
    fn name(&self) -> &str;

    /// Gives jobs the flows that they have under this scheduler.
    fn adapt_jobs(&self, _fabric: &Fabric, _jobs: &mut [Job]) {}

    /// What it decides for `input`, whose jobs it has adapted; `previous` is in force.
    ///
    /// # Errors
    /// It gave no valid schedule. Those of this crate always give one.
    fn schedule_jobs(
        &mut self,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Result<Schedule, ScheduleFailure>;
}

/// A scheduler outside of this crate gave no valid schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scheduler}: {problem}")]
pub struct ScheduleFailure {
    /// Its name.
    pub scheduler: String,
    /// What failed, where, and what would be right.
    pub problem: String,
}

impl ScheduleSource for Scheduler {
    fn name(&self) -> &str {
        Self::name(*self)
    }

    fn adapt_jobs(&self, fabric: &Fabric, jobs: &mut [Job]) {
        Self::adapt_jobs(*self, fabric, jobs);
    }

    fn schedule_jobs(
        &mut self,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Result<Schedule, ScheduleFailure> {
        Ok(Self::schedule_jobs(*self, input, policy, previous))
    }
}

/// A scheduler on switches with these hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedScheduler {
    /// Decides.
    pub scheduler: Scheduler,
    /// What ECMP does where it does not.
    pub hash: SwitchHash,
}

impl ScheduleSource for HashedScheduler {
    fn name(&self) -> &str {
        self.scheduler.name()
    }

    fn adapt_jobs(&self, fabric: &Fabric, jobs: &mut [Job]) {
        self.scheduler.adapt_jobs(fabric, jobs);
    }

    fn schedule_jobs(
        &mut self,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Result<Schedule, ScheduleFailure> {
        Ok(self.scheduler.schedule_with_hash(self.hash, input, policy, previous))
    }
}

impl<S: ScheduleSource + ?Sized> ScheduleSource for Box<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn adapt_jobs(&self, fabric: &Fabric, jobs: &mut [Job]) {
        (**self).adapt_jobs(fabric, jobs);
    }

    fn schedule_jobs(
        &mut self,
        input: &PlanInput,
        policy: &Policy,
        previous: Option<&Schedule>,
    ) -> Result<Schedule, ScheduleFailure> {
        (**self).schedule_jobs(input, policy, previous)
    }
}
