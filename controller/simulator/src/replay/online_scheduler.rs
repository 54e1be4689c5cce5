//! The scheduler of a replay, with jobs that arrive and depart.
//!
//! Crux plans incrementally from the plan in force ([`planner::IncrementalPlanner`]), as the
//! controller does; a job that moves departs and arrives again. The other schedulers decide anew
//! each time, for the jobs in order of arrival. They keep the routes through the fabric, which does
//! not change.

use planner::{IncrementalPlanner, Job, JobEventError, PlanInput, Policy};

use crate::crux_variants;
use crate::routes::EqualCostRoutes;
use crate::schedule::Schedule;
use crate::scheduler::Scheduler;

/// The jobs on the network and their scheduler.
#[derive(Debug)]
pub(super) struct OnlineScheduler {
    scheduler: Scheduler,
    policy: Policy,
    input: PlanInput,
    /// The numbers of its jobs.
    numbers: Vec<u32>,
    /// The ways of all jobs that ever came.
    routes: EqualCostRoutes,
    planner: Option<IncrementalPlanner>,
}

impl OnlineScheduler {
    /// A schedule of the jobs of `input`, with `previous` in force.
    pub(super) fn new(
        scheduler: Scheduler,
        policy: &Policy,
        input: PlanInput,
        previous: Option<&planner::Plan>,
    ) -> Self {
        let stands = matches!(scheduler, Scheduler::Crux | Scheduler::CruxPsPa);
        Self {
            scheduler,
            policy: policy.clone(),
            planner: stands.then(|| IncrementalPlanner::new(&input, policy, previous)),
            numbers: Vec::new(),
            routes: EqualCostRoutes::for_input(&input),
            input,
        }
    }

    /// With the numbers of its jobs.
    pub(super) fn with_job_numbers(self, numbers: Vec<u32>) -> Self {
        Self { numbers, ..self }
    }

    /// The jobs by number, in the order in which they came.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u32, &Job)> + Clone {
        self.numbers.iter().copied().zip(&self.input.jobs)
    }

    /// The jobs in the order in which they came, on their fabric.
    pub(super) fn input(&self) -> &PlanInput {
        &self.input
    }

    /// The plan in force, of a scheduler that plans on.
    pub(super) fn incremental_planner(&self) -> Option<&IncrementalPlanner> {
        self.planner.as_ref()
    }

    /// A job departs.
    pub(super) fn remove_job(&mut self, number: u32) -> Result<(), JobEventError> {
        let Some(place) = self.numbers.iter().position(|other| *other == number) else {
            return Ok(());
        };
        self.numbers.remove(place);
        let job = self.input.jobs.remove(place);
        match &mut self.planner {
            Some(planner) => planner.remove_job(&job.id),
            None => Ok(()),
        }
    }

    /// A job arrives.
    pub(super) fn add_job(&mut self, number: u32, job: Job) -> Result<(), JobEventError> {
        self.numbers.push(number);
        self.routes.add_job(&job);
        self.input.jobs.push(job.clone());
        match &mut self.planner {
            Some(planner) => planner.add_job(job),
            None => Ok(()),
        }
    }

    /// What another scheduler would decide for the jobs, with nothing in force, in their order.
    pub(super) fn schedule_instead(&self, scheduler: Scheduler, policy: &Policy) -> Schedule {
        scheduler.schedule_along_routes(&self.routes, &self.input, policy)
    }

    /// What is decided for the jobs, in their order.
    pub(super) fn current_schedule(&self) -> Schedule {
        match (&self.planner, self.scheduler) {
            (Some(planner), Scheduler::Crux) => {
                crux_variants::schedule_from_levels(&self.input, planner.plan())
            }
            (Some(planner), _) => crux_variants::schedule_from_ranks(&self.input, planner.plan()),
            (None, scheduler) => {
                scheduler.schedule_along_routes(&self.routes, &self.input, &self.policy)
            }
        }
    }
}
