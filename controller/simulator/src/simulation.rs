//! A simulation: one input, one scheduler, a horizon, and faults.
//!
//! The simulation calls the scheduler at the start and after each fault, on the fabric as it is
//! then; the fluid engine does the rest. Valid input that cannot be satisfied (a job without a
//! path, an iteration longer than the horizon) is a finding of the outcome. Invalid input is an
//! error before the simulation starts.

mod summary;

use std::cell::LazyCell;

use fluid::{Engine, EngineOptions, FluidError, JobIndex, MAX_SECONDS, ServiceDiscipline};
use planner::{JobId, Plan, PlanInput, Policy, move_to_working_ports};
use topology::{Fabric, Finding, Forwarding, LinkId};

use crate::baselines::spray;
use crate::crux_variants;
use crate::demand::LinkDemand;
use crate::fault::FabricFault;
use crate::outcome::SimulationOutcome;
use crate::routes::EqualCostRoutes;
use crate::schedule::{Schedule, ScheduledJob};
use crate::schedule_source::{ScheduleFailure, ScheduleSource};
use crate::scheduler::Scheduler;
use crate::timeline::{Timeline, TimelineRecorder, TimelineView};

/// What to simulate, under any scheduler.
#[derive(Clone, Debug)]
pub struct SimulationExperiment {
    /// Fabric and jobs at the start; all jobs arrive then.
    pub input: PlanInput,
    /// The policy of the operator.
    pub policy: Policy,
    /// Time to simulate, in seconds.
    pub seconds: f64,
    /// Failures and repairs, in any order.
    pub faults: Vec<FabricFault>,
    /// What to record for plots; nothing costs nothing.
    pub views: Vec<TimelineView>,
}

/// Why an experiment cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The horizon is no time, or too long.
    #[error("cannot simulate {0} s: give more than 0 and at most {MAX_SECONDS}")]
    Horizon(f64),
    /// A number of a job makes no sense.
    #[error("job {id}")]
    Job {
        /// Number of the job.
        id: JobId,
        /// What the engine says of it.
        #[source]
        source: FluidError,
    },
    /// Too many iterations to simulate.
    #[error(
        "job {id} would iterate {iterations:.1e} times in {seconds} s; simulate less time, at most \
         {MAX_ITERATIONS:.0e} iterations"
    )]
    TooMany {
        /// Number of the job.
        id: JobId,
        /// Its iterations, roughly.
        iterations: f64,
        /// Simulated time, in seconds.
        seconds: f64,
    },
    /// A scheduler outside of this program gave no valid schedule.
    #[error(transparent)]
    Scheduler(#[from] ScheduleFailure),
    /// The engine refuses what the fabric or a schedule says.
    #[error("rejected by the fluid engine")]
    Engine(#[source] FluidError),
}

/// Iterations of one job that take some minutes to simulate.
const MAX_ITERATIONS: f64 = 1e8;

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationResult {
    /// Results of jobs and links.
    pub outcome: SimulationOutcome,
    /// One for each view of the experiment.
    pub timelines: Vec<Timeline>,
}

/// Simulates the experiment under `scheduler`; `progress` gets the simulated seconds, some
/// fifty times.
///
/// # Errors
/// A horizon or a job that makes no sense, or a scheduler that gives no valid schedule.
pub fn simulate_experiment(
    experiment: &SimulationExperiment,
    mut scheduler: impl ScheduleSource,
    progress: &mut dyn FnMut(f64),
) -> Result<SimulationResult, SimulationError> {
    let seconds = experiment.seconds;
    if !(seconds > 0.0 && seconds <= MAX_SECONDS) {
        return Err(SimulationError::Horizon(seconds));
    }
    let mut run = SimulationRun::new(experiment, &mut scheduler)?;
    let mut faults: Vec<&FabricFault> = experiment.faults.iter().collect();
    faults.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
    for fault in faults.into_iter().filter(|fault| fault.at_seconds < seconds) {
        run.run_until(fault.at_seconds, progress)?;
        run.apply_fault(fault)?;
    }
    run.run_until(seconds, progress)?;
    Ok(run.into_result())
}

/// Simulates the experiment without faults under `plan`.
///
/// # Errors
/// As [`simulate_experiment`].
pub fn simulate_plan(
    experiment: &SimulationExperiment,
    plan: &Plan,
) -> Result<SimulationResult, SimulationError> {
    let schedule = crux_variants::schedule_from_levels(&experiment.input, plan);
    let schedule = Schedule { plan: Some(plan.clone()), ..schedule };
    let given = &experiment.input;
    let jobs = jobs_in_parts(given, &schedule);
    let input = PlanInput { fabric: given.fabric.clone(), jobs };
    let schedule = spread_schedule(given, schedule, &input);
    let mut crux = Scheduler::Crux;
    let mut run = SimulationRun::with_schedule(experiment, &mut crux, input, schedule)?;
    run.run_until(experiment.seconds, &mut |_| {})?;
    Ok(run.into_result())
}

/// Seconds of an iteration of `job` by itself on the fabric, on the planner's paths; none if it has
/// no path or nothing to do.
///
/// # Errors
/// A number of the job that makes no sense.
pub fn alone_seconds(
    fabric: &Fabric,
    job: &planner::Job,
    policy: &Policy,
) -> Result<Option<f64>, SimulationError> {
    let experiment = PlanInput { fabric: fabric.clone(), jobs: vec![job.clone()] };
    let mut input = experiment.clone();
    let schedule = decide(&mut Scheduler::Crux, &experiment.jobs, &mut input, policy, None)?;
    let job = &input.jobs[0];
    let Some(scheduled) = schedule.jobs.first().filter(|job| job.is_connected()) else {
        return Ok(None);
    };
    let mut engine = create_engine(fabric, schedule.discipline)?;
    let once = fluid::FluidJob { iterations: Some(1), ..fluid_job(fabric, job, scheduled) };
    let index = match engine.add_job(&once) {
        Err(FluidError::NothingToDo) => return Ok(None),
        added => added.map_err(|source| job_error(job, source))?,
    };
    engine.run_until(MAX_SECONDS).map_err(SimulationError::Engine)?;
    let tally = engine.job_tally(index).map_err(SimulationError::Engine)?;
    Ok(tally.mean_iteration_seconds())
}

/// Everything that changes while time passes.
struct SimulationRun<'a> {
    experiment: &'a SimulationExperiment,
    scheduler: &'a mut dyn ScheduleSource,
    /// The input with the fabric as it is now; its flows are parts where they are sprayed.
    input: PlanInput,
    schedule: Schedule,
    engine: Engine,
    /// Where the engine has each job; nowhere if it does not run.
    engine_jobs: Vec<Option<JobIndex>>,
    recorder: TimelineRecorder,
    findings: Vec<Finding>,
}

/// Reports of progress over a whole run.
const REPORTS: f64 = 50.0;

impl<'a> SimulationRun<'a> {
    fn new(
        experiment: &'a SimulationExperiment,
        scheduler: &'a mut dyn ScheduleSource,
    ) -> Result<Self, SimulationError> {
        let mut input = experiment.input.clone();
        let given = &experiment.input.jobs;
        let schedule = decide(scheduler, given, &mut input, &experiment.policy, None)?;
        Self::with_schedule(experiment, scheduler, input, schedule)
    }

    fn with_schedule(
        experiment: &'a SimulationExperiment,
        scheduler: &'a mut dyn ScheduleSource,
        input: PlanInput,
        schedule: Schedule,
    ) -> Result<Self, SimulationError> {
        for (job, scheduled) in input.jobs.iter().zip(&schedule.jobs) {
            check_iterations(&input.fabric, job, scheduled, experiment.seconds)?;
        }
        let mut run = Self {
            experiment,
            scheduler,
            engine: create_engine(&input.fabric, schedule.discipline)?,
            engine_jobs: vec![None; input.jobs.len()],
            recorder: TimelineRecorder::new(&experiment.views, &input, &schedule),
            findings: Vec::new(),
            input,
            schedule,
        };
        run.note_spraying();
        run.record_findings();
        run.start_jobs(0.0)?;
        Ok(run)
    }

    /// Adds the jobs that can run and do not yet.
    fn start_jobs(&mut self, now: f64) -> Result<(), SimulationError> {
        for job in 0..self.engine_jobs.len() {
            let scheduled = &self.schedule.jobs[job];
            if self.engine_jobs[job].is_some() || !scheduled.is_connected() {
                continue;
            }
            let mut given = fluid_job(&self.input.fabric, &self.input.jobs[job], scheduled);
            // Shifts count from the arrival, and a job arrives when it first has a path.
            given.start += now;
            given.grid.iter_mut().for_each(|grid| grid.origin += now);
            let place = match self.engine.add_job(&given) {
                Err(FluidError::NothingToDo) => {
                    self.add_finding(job, "neither computes nor sends and is not simulated");
                    continue;
                }
                added => added.map_err(|source| job_error(&self.input.jobs[job], source))?,
            };
            self.engine_jobs[job] = Some(place);
            self.recorder.set_engine_job(job, place);
        }
        Ok(())
    }

    fn run_until(
        &mut self,
        seconds: f64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), SimulationError> {
        let step = self.experiment.seconds / REPORTS;
        let mut now = self.engine.now_seconds();
        // The engine's clock ticks, so its time may stay below `seconds` for ever.
        while now < seconds {
            now = (now + step).min(seconds);
            self.advance_engine(now).map_err(SimulationError::Engine)?;
            progress(now);
        }
        Ok(())
    }

    fn advance_engine(&mut self, until: f64) -> Result<(), FluidError> {
        if self.recorder.is_idle() {
            return self.engine.run_until(until);
        }
        while self.engine.step_until(until)? {
            let instant = self.engine.latest_instant();
            self.recorder.record_instant(&instant);
        }
        self.engine.run_until(until)
    }

    /// A fault: links change, the scheduler decides again, flows that lose their path take the new
    /// one or wait for a repair where they are.
    fn apply_fault(&mut self, fault: &FabricFault) -> Result<(), SimulationError> {
        let before = self.input.fabric.clone();
        self.input.fabric = before.with_changes(fault.changes.iter().copied());
        let fabric = &self.input.fabric;
        for link in fabric.link_ids() {
            if before.is_up(link) != fabric.is_up(link) {
                let set = self.engine.set_capacity(link.0, link_capacity(fabric, link));
                set.map_err(SimulationError::Engine)?;
            }
        }
        let policy = &self.experiment.policy;
        let jobs = &move_to_working_ports(&self.input.fabric, &self.experiment.input.jobs);
        let in_force = Some(&self.schedule);
        self.schedule = decide(self.scheduler, jobs, &mut self.input, policy, in_force)?;
        self.recorder.update_schedule(&self.input, &self.schedule);
        self.record_findings();
        self.apply_schedule().map_err(SimulationError::Engine)?;
        self.start_jobs(fault.at_seconds)
    }

    /// Gives running jobs the levels and paths of the schedule.
    fn apply_schedule(&mut self) -> Result<(), FluidError> {
        let PlanInput { fabric, jobs } = &self.input;
        let scheduled = self.schedule.jobs.iter().zip(jobs);
        for (place, (scheduled, job)) in self.engine_jobs.iter().zip(scheduled) {
            let Some(place) = *place else { continue };
            self.engine.set_level(place, scheduled.level)?;
            let paths = scheduled.paths.iter().zip(&job.flows);
            for (number, (path, flow)) in (0..).zip(paths).filter(|(_, (path, _))| !path.is_empty())
            {
                let links = link_numbers(&flow.crossed_links(fabric, path));
                self.engine.set_path(place, number, &links)?;
            }
        }
        Ok(())
    }

    /// Says that the decisions of any scheduler are about levels alone, where that is so.
    fn note_spraying(&mut self) {
        if self.input.fabric.forwarding() == Forwarding::Spray {
            let text = "the fabric sprays: all schedulers have all paths, and differ in levels and \
                        shifts; `ecmp` is spraying on one level";
            self.findings.push(Finding::info("fabric", text));
        }
    }

    /// Collects the findings of the schedule and the jobs that it leaves without a path.
    fn record_findings(&mut self) {
        let mut found = std::mem::take(&mut self.schedule.findings);
        found.retain(|finding| !self.findings.contains(finding));
        self.findings.extend(found);
        for job in 0..self.schedule.jobs.len() {
            if !self.schedule.jobs[job].is_connected() {
                self.add_finding(job, "has a flow without a path and waits for one");
            }
        }
    }

    fn add_finding(&mut self, job: usize, text: &str) {
        let finding = Finding::error(format!("job {}", self.input.jobs[job].id), text);
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// What `scheduler` decides for `jobs` on the fabric of `input`, whose jobs become those that run: what
/// is sprayed when the first decision is made has its flows in parts from then on.
fn decide(
    scheduler: &mut dyn ScheduleSource,
    jobs: &[planner::Job],
    input: &mut PlanInput,
    policy: &Policy,
    in_force: Option<&Schedule>,
) -> Result<Schedule, ScheduleFailure> {
    let mut given = PlanInput { fabric: input.fabric.clone(), jobs: jobs.to_vec() };
    scheduler.adapt_jobs(&given.fabric, &mut given.jobs);
    if given.jobs != jobs {
        // The scheduler itself sprays, whatever the fabric does.
        if in_force.is_none() {
            input.jobs = given.jobs;
        }
        return scheduler.schedule_jobs(input, policy, in_force);
    }
    let schedule = scheduler.schedule_jobs(&given, policy, in_force)?;
    if in_force.is_none() {
        input.jobs = jobs_in_parts(&given, &schedule);
    }
    Ok(spread_schedule(&given, schedule, input))
}

/// The jobs of `input` with their flows in parts where `schedule` has them sprayed.
fn jobs_in_parts(input: &PlanInput, schedule: &Schedule) -> Vec<planner::Job> {
    let mut jobs = input.jobs.clone();
    let sprayed = jobs.iter_mut().filter(|job| is_sprayed(&input.fabric, schedule, job));
    spray::spread_flows(&input.fabric, sprayed);
    jobs
}

fn is_sprayed(fabric: &Fabric, schedule: &Schedule, job: &planner::Job) -> bool {
    let of_plan = || schedule.plan.as_ref()?.job(&job.id).map(|(_, planned)| planned.sprayed);
    match fabric.forwarding() {
        Forwarding::Pin => false,
        Forwarding::Spray => true,
        Forwarding::Auto => of_plan().unwrap_or(false),
    }
}

/// `schedule`, decided for `given`, with a path for each flow of the jobs of `input`, which may be parts
/// of theirs.
fn spread_schedule(given: &PlanInput, mut schedule: Schedule, input: &PlanInput) -> Schedule {
    let routes = LazyCell::new(|| EqualCostRoutes::for_input(input));
    for (place, (whole, job)) in given.jobs.iter().zip(&input.jobs).enumerate() {
        schedule.jobs[place].paths = if is_sprayed(&given.fabric, &schedule, job) {
            spray::on_all_paths(job, &routes)
        } else if whole.flows.len() != job.flows.len() {
            spray::on_paths_of(whole, &schedule.jobs[place].paths, job)
        } else {
            continue;
        };
    }
    schedule
}

fn job_error(job: &planner::Job, source: FluidError) -> SimulationError {
    let id = job.id.clone();
    SimulationError::Job { id, source }
}

fn check_iterations(
    fabric: &Fabric,
    job: &planner::Job,
    scheduled: &ScheduledJob,
    seconds: f64,
) -> Result<(), SimulationError> {
    let demand = LinkDemand::new(fabric, job, &scheduled.paths);
    let iteration = job.iteration_seconds(demand.bottleneck_seconds());
    let iterations = seconds / iteration;
    // The engine reports values that are not numbers.
    if iteration > 0.0 && iterations > MAX_ITERATIONS {
        let id = job.id.clone();
        return Err(SimulationError::TooMany { id, iterations, seconds });
    }
    Ok(())
}

fn create_engine(
    fabric: &Fabric,
    discipline: ServiceDiscipline,
) -> Result<Engine, SimulationError> {
    create_model_engine(fabric, discipline).map_err(SimulationError::Engine)
}

/// An engine of all links of `fabric`, without jobs.
pub(crate) fn create_model_engine(
    fabric: &Fabric,
    discipline: ServiceDiscipline,
) -> Result<Engine, FluidError> {
    let options = EngineOptions { discipline, ..EngineOptions::default() };
    Engine::new(&planner::fluid_network(fabric)?, options)
}

/// Bytes per second of a link; 0 while it is down.
fn link_capacity(fabric: &Fabric, link: LinkId) -> f64 {
    if fabric.is_up(link) { fabric.link(link).bandwidth.bytes_per_second() } else { 0.0 }
}

/// A job as its schedule has it run, until it is removed.
pub(crate) fn fluid_job(
    fabric: &Fabric,
    job: &planner::Job,
    scheduled: &ScheduledJob,
) -> fluid::FluidJob {
    let flows = job.flows.iter().zip(&scheduled.paths);
    fluid::FluidJob {
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        level: scheduled.level,
        start: scheduled.start_shift_seconds,
        grid: scheduled.grid,
        iterations: None,
        flows: flows
            .map(|(flow, path)| fluid::FluidFlow {
                path: link_numbers(&flow.crossed_links(fabric, path)),
                bytes: flow.bytes,
                overlap_from: flow.overlap_from,
            })
            .collect(),
    }
}

fn link_numbers(path: &[LinkId]) -> Vec<u32> {
    path.iter().map(|link| link.0).collect()
}

#[cfg(test)]
mod tests;
