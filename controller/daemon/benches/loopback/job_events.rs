//! What a job that departs or arrives costs a controller of 100,000 GPUs before anything is
//! written: the step of the state, the quick plan, its lowering, and the compared plan after it.
//!
//! The decision: no switches. The same values pass through the same functions as in the event loop,
//! one after the other, so each stage has a time of its own.

use std::time::Instant;

use controller::pipelines::PlanLowering;
use controller::state::StartingState;
use controller::{Effects, PlanResult, State, StateEvent};
use planner::{Job, PlanInput, PlanMemory};

use crate::Failed;
use crate::cluster::{Placement, UpperTiers, cluster};
use crate::samples::Samples;

/// Jobs that depart and return.
const JOBS: usize = 24;

/// With more, the selectors of leaves and spines have no room for the ways to all other leaves.
const UPPER_TIERS: UpperTiers = UpperTiers { spines: 4, cores: 16 };

/// How long the stages of events took.
#[derive(Default)]
struct EventDurations {
    state: Samples,
    quick: Samples,
    adopted: Samples,
    lowered: Samples,
    /// From the event to the tables of all switches.
    known: Samples,
    compared: Samples,
}

pub(crate) fn measure() -> Result<(), Failed> {
    for (name, placement) in [("packed", Placement::Packed), ("scattered", Placement::Scattered)] {
        measure_input(name, cluster(100_000, UPPER_TIERS, placement))?;
    }
    Ok(())
}

/// Some jobs of the input depart and return.
fn measure_input(name: &str, input: PlanInput) -> Result<(), Failed> {
    let PlanInput { fabric, jobs } = input;
    let mut state = State::new(8, 0);
    let start = StartingState {
        history: state.policy_history().clone(),
        reported_jobs: Default::default(),
        decisions: None,
        jobs: jobs.clone(),
        fabric,
    };
    let mut follower = PlanFollower::default();
    let mut first = EventDurations::default();
    follower.follow(&mut state, StateEvent::Started(Box::new(start)), &mut first)?;
    first.print(&format!("{name}, start"));
    let mut stages = EventDurations::default();
    for gone in jobs.iter().step_by(1 + jobs.len() / JOBS) {
        let others: Vec<Job> = jobs.iter().filter(|job| job.id != gone.id).cloned().collect();
        follower.follow(&mut state, StateEvent::JobsChanged(others), &mut stages)?;
        follower.follow(&mut state, StateEvent::JobsChanged(jobs.clone()), &mut stages)?;
    }
    stages.print(&format!("{name}, a job departs or arrives"));
    Ok(())
}

/// What plans and lowerings continue from.
#[derive(Default)]
struct PlanFollower {
    memory: PlanMemory,
    lowering: PlanLowering,
}

impl PlanFollower {
    /// Applies an event and what follows from it, until nothing is left to plan.
    fn follow(
        &mut self,
        state: &mut State,
        event: StateEvent,
        stages: &mut EventDurations,
    ) -> Result<(), Failed> {
        let began = Instant::now();
        let mut effects = timed(&mut stages.state, || state.step(event));
        if let Some(refusal) = effects.refusal {
            return Err(refusal.to_string().into());
        }
        let request = effects.plan_request.take().ok_or("nothing to plan")?;
        let plan = timed(&mut stages.quick, || request.continue_plan(&mut self.memory));
        let mut effects = self.adopt(state, plan, stages);
        stages.known.push(began.elapsed());
        while let Some(request) = effects.plan_request.take() {
            // On a copy, as an event may supersede it.
            let plan = timed(&mut stages.compared, || {
                let mut memory = self.memory.clone();
                let plan = request.continue_plan(&mut memory);
                self.memory = memory;
                plan
            });
            effects = self.adopt(state, plan, stages);
        }
        Ok(())
    }

    fn adopt(
        &mut self,
        state: &mut State,
        plan: PlanResult,
        stages: &mut EventDurations,
    ) -> Effects {
        let planned = StateEvent::Planned(Box::new(plan));
        let effects = timed(&mut stages.adopted, || state.step(planned));
        if let Some(rollout) = &effects.rollout {
            timed(&mut stages.lowered, || {
                let plan = rollout.lowered_plan();
                self.lowering.lower_plan(&rollout.wiring, &rollout.fabric, &plan)
            });
        }
        effects
    }
}

impl EventDurations {
    fn print(&self, what: &str) {
        self.state.print(&format!("{what}: the state"));
        self.quick.print(&format!("{what}: a quick plan"));
        self.adopted.print(&format!("{what}: a plan adopted"));
        self.lowered.print(&format!("{what}: tables lowered"));
        self.known.print(&format!("{what}: all tables known"));
        self.compared.print(&format!("{what}: a compared plan"));
    }
}

fn timed<T>(samples: &mut Samples, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    samples.push(began.elapsed());
    done
}
