//! A case of a family under the planner and under what it must not be worse than, each simulated as
//! `crux simulate` does: all jobs begin at once, and every flow is followed event by event.

use planner::{PathMethod, Plan, PlanDepth, PlanInput, Policy};

use topology::Forwarding;

use super::with_other_ports;
use crate::crux_variants::all_waiting;
use crate::outcome::SimulationOutcome;
use crate::scheduler::Scheduler;
use crate::simulation::{
    SimulationError, SimulationExperiment, alone_seconds, simulate_experiment, simulate_plan,
};

/// Hashes whose mean stands for ECMP.
const ECMP_HASHES: u16 = 10;

/// What the planner must not be worse than, unless it slows a job down beyond the limit.
pub const FAMILY_ALTERNATIVES: [&str; 9] = [
    "ecmp",
    "sincronia",
    "taccl",
    "cassini",
    "varys-madd",
    "greedy",
    "one-level",
    "spray",
    "mltcp",
];

/// Those of them that need other switches, or another congestion control in hosts.
const OTHER_EQUIPMENT: [&str; 2] = ["spray", "mltcp"];

/// What decisions are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulatedValue {
    /// Share of the jobs' GPUs that computes.
    pub gpu_utilization: f64,
    /// How many times longer than alone an iteration of the worst job takes; infinite for one that
    /// ends none.
    pub worst_slowdown: f64,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyResult {
    /// Number of the case.
    pub number: u32,
    /// Flows in it.
    pub flows: usize,
    /// Under the plan of full depth.
    pub planned: SimulatedValue,
    /// Under the quick one.
    pub quick: SimulatedValue,
    /// Under the plan for the fabric if it sprays.
    pub sprayed: SimulatedValue,
    /// By alternative, as in [`FAMILY_ALTERNATIVES`]; ECMP is the mean over hashes.
    pub alternatives: Vec<SimulatedValue>,
    /// The largest slowdown that the planner allows.
    pub slowdown_limit: f64,
    /// The forecast of each job, against runs that are longer and from other starts.
    pub forecasts: Vec<CheckedForecast>,
}

/// A simulated iteration counts as inside of a band that it misses by so much.
const BAND_TOLERANCE: f64 = 0.01;

/// The forecast of an iteration, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckedForecast {
    /// By how much it is off the mean over eight other starts and ten times the time, as a share of
    /// that.
    pub error: f64,
    /// Whether its band has the mean that the simulation from the first start gives.
    pub is_in_band: bool,
}

impl FamilyResult {
    /// How much the plan with levels over spraying gives more than spraying on one level.
    pub fn gain_of_levels(&self) -> f64 {
        let spray = FAMILY_ALTERNATIVES.iter().position(|name| *name == "spray");
        let one_level = spray.map_or(0.0, |place| self.alternatives[place].gpu_utilization);
        self.sprayed.gpu_utilization - one_level
    }

    /// How much the best alternative that slows no job beyond the limit is above the plan; below 0
    /// where it is not. What needs other equipment does not count.
    pub fn shortfall(&self) -> f64 {
        let others = self.alternatives.iter().zip(FAMILY_ALTERNATIVES);
        let eligible = others.filter(|(value, name)| {
            !OTHER_EQUIPMENT.contains(name) && value.worst_slowdown <= self.slowdown_limit
        });
        let best = eligible.map(|(value, _)| value.gpu_utilization).fold(0.0, f64::max);
        best - self.planned.gpu_utilization
    }
}

/// Simulates a case for so many `seconds` in all ways.
///
/// # Errors
/// A job that makes no sense.
pub fn examine_family_case(
    number: u32,
    input: &PlanInput,
    policy: &Policy,
    seconds: f64,
) -> Result<FamilyResult, SimulationError> {
    let case = FamilyCase::new(input, seconds)?;
    let (plan, report) = planner::plan(&all_waiting(input), policy, None);
    let (quick, _) = planner::plan_to_depth(input, policy, None, PlanDepth::Quick);
    let plain = Policy { search_events: 0, ..policy.clone() };
    let greedy = Policy { paths: PathMethod::Greedy, ..plain.clone() };
    let one_level = Policy { levels: 1, ..plain.clone() };
    let (planned, outcome) = case.value_of_plan(&plan)?;
    let mut alternatives = vec![case.mean_over_hashes(policy)?];
    for scheduler in
        [Scheduler::Sincronia, Scheduler::Taccl, Scheduler::Cassini, Scheduler::VarysMadd]
    {
        alternatives.push(case.value_of(scheduler, input, policy)?);
    }
    alternatives.push(case.value_of(Scheduler::Crux, input, &greedy)?);
    alternatives.push(case.value_of(Scheduler::Crux, input, &one_level)?);
    alternatives.push(case.value_of(Scheduler::Spray, input, policy)?);
    alternatives.push(case.value_of(Scheduler::Mltcp, input, policy)?);
    let spraying = PlanInput {
        fabric: input.fabric.with_forwarding(Forwarding::Spray),
        jobs: input.jobs.clone(),
    };
    let regions = &report.comparison.regions;
    let limits = regions.iter().map(|region| region.slowdown_limit.unwrap_or(f64::INFINITY));
    let independent = planner::forecast_independently(&input.fabric, &input.jobs, &plan);
    let positions = (0..plan.jobs.len()).filter_map(|position| {
        let forecast = report.comparison.forecast(position)?;
        let id = &plan.jobs[position].id;
        let job = input.jobs.iter().position(|job| job.id == *id)?;
        let simulated = outcome.jobs[job].mean_iteration_seconds?;
        Some(CheckedForecast {
            error: (forecast.seconds / independent.seconds(id)? - 1.0).abs(),
            is_in_band: (forecast.least * (1.0 - BAND_TOLERANCE)
                ..=forecast.most * (1.0 + BAND_TOLERANCE))
                .contains(&simulated),
        })
    });
    Ok(FamilyResult {
        number,
        flows: input.jobs.iter().map(|job| job.flows.len()).sum(),
        planned,
        quick: case.value_of_plan(&quick)?.0,
        sprayed: case.value_of(Scheduler::Crux, &spraying, policy)?,
        alternatives,
        slowdown_limit: limits.reduce(f64::max).unwrap_or(f64::INFINITY),
        forecasts: positions.collect(),
    })
}

/// A case with what its jobs take alone.
struct FamilyCase {
    experiment: SimulationExperiment,
    /// Seconds of an iteration alone, by job.
    alone: Vec<Option<f64>>,
}

impl FamilyCase {
    fn new(input: &PlanInput, seconds: f64) -> Result<Self, SimulationError> {
        let policy = Policy::default();
        let alone = input.jobs.iter().map(|job| alone_seconds(&input.fabric, job, &policy));
        Ok(Self {
            alone: alone.collect::<Result<_, _>>()?,
            experiment: SimulationExperiment {
                input: input.clone(),
                policy,
                seconds,
                faults: Vec::new(),
                views: Vec::new(),
            },
        })
    }

    fn value_of_plan(
        &self,
        plan: &Plan,
    ) -> Result<(SimulatedValue, SimulationOutcome), SimulationError> {
        let outcome = simulate_plan(&self.experiment, plan)?.outcome;
        Ok((self.value_of_outcome(&outcome), outcome))
    }

    fn value_of(
        &self,
        scheduler: Scheduler,
        input: &PlanInput,
        policy: &Policy,
    ) -> Result<SimulatedValue, SimulationError> {
        let experiment = SimulationExperiment {
            input: input.clone(),
            policy: policy.clone(),
            ..self.experiment.clone()
        };
        let outcome = simulate_experiment(&experiment, scheduler, &mut |_| {})?.outcome;
        Ok(self.value_of_outcome(&outcome))
    }

    fn value_of_outcome(&self, outcome: &SimulationOutcome) -> SimulatedValue {
        let jobs = outcome.jobs.iter().zip(&self.alone);
        let slowdowns = jobs.map(|(job, alone)| match (job.mean_iteration_seconds, alone) {
            (Some(seconds), Some(alone)) => seconds / alone,
            (None, Some(_)) => f64::INFINITY,
            (_, None) => 1.0,
        });
        SimulatedValue {
            gpu_utilization: outcome.gpu_utilization,
            worst_slowdown: slowdowns.fold(1.0, f64::max),
        }
    }

    /// ECMP if all flows have other ports, the mean.
    fn mean_over_hashes(&self, policy: &Policy) -> Result<SimulatedValue, SimulationError> {
        let mut mean = SimulatedValue::default();
        for hash in 0..ECMP_HASHES {
            let other = with_other_ports(&self.experiment.input, hash);
            let value = self.value_of(Scheduler::Ecmp, &other, policy)?;
            mean.gpu_utilization += value.gpu_utilization / f64::from(ECMP_HASHES);
            mean.worst_slowdown += value.worst_slowdown / f64::from(ECMP_HASHES);
        }
        Ok(mean)
    }
}
