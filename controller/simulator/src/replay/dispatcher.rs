//! The scheduler, as it follows jobs that come and go.
//!
//! Crux plans on from the plan in force ([`planner::Standing`]), as the controller does; a job that
//! moves has left and comes again. The others decide anew each time, for the jobs in the order in
//! which they came; the ways through the fabric, which does not change, they keep.

use planner::{EventError, Input, Job, Policy, Standing};

use crate::crux;
use crate::routes::Routes;
use crate::schedule::Schedule;
use crate::scheduler::Scheduler;

/// Jobs on the network, and who schedules them.
#[derive(Debug)]
pub(super) struct Dispatcher {
    scheduler: Scheduler,
    policy: Policy,
    input: Input,
    /// The numbers of its jobs.
    numbers: Vec<u32>,
    /// The ways of all jobs that ever came.
    routes: Routes,
    standing: Option<Standing>,
}

impl Dispatcher {
    /// A schedule of the jobs of `input`, with `previous` in force.
    pub(super) fn new(
        scheduler: Scheduler,
        policy: &Policy,
        input: Input,
        previous: Option<&planner::Plan>,
    ) -> Self {
        let stands = matches!(scheduler, Scheduler::Crux | Scheduler::CruxPsPa);
        Self {
            scheduler,
            policy: policy.clone(),
            standing: stands.then(|| Standing::new(&input, policy, previous)),
            numbers: Vec::new(),
            routes: Routes::of(&input),
            input,
        }
    }

    /// With the numbers of its jobs.
    pub(super) fn with_numbers(self, numbers: Vec<u32>) -> Self {
        Self { numbers, ..self }
    }

    /// The jobs by number, in the order in which they came.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (u32, &Job)> {
        self.numbers.iter().copied().zip(&self.input.jobs)
    }

    /// The plan in force, of a scheduler that plans on.
    pub(super) fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// A job departs.
    pub(super) fn depart(&mut self, number: u32) -> Result<(), EventError> {
        let Some(place) = self.numbers.iter().position(|other| *other == number) else {
            return Ok(());
        };
        self.numbers.remove(place);
        let job = self.input.jobs.remove(place);
        match &mut self.standing {
            Some(standing) => standing.depart(&job.id),
            None => Ok(()),
        }
    }

    /// A job arrives.
    pub(super) fn arrive(&mut self, number: u32, job: Job) -> Result<(), EventError> {
        self.numbers.push(number);
        self.routes.learn(&job);
        self.input.jobs.push(job.clone());
        match &mut self.standing {
            Some(standing) => standing.arrive(job),
            None => Ok(()),
        }
    }

    /// What is decided for the jobs, in their order.
    pub(super) fn schedule(&self) -> Schedule {
        match (&self.standing, self.scheduler) {
            (Some(standing), Scheduler::Crux) => crux::leveled(&self.input, standing.plan()),
            (Some(standing), _) => crux::ranked(&self.input, standing.plan()),
            (None, scheduler) => scheduler.schedule_along(&self.routes, &self.input, &self.policy),
        }
    }
}
