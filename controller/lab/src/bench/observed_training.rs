//! Jobs that train packet by packet under the plan of a controller, of which one part becomes slow
//! while switches are read.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::gnmi::FabricCounters;
use controller::{ControllerHandle, PlanRollout, forecast};
use emulator::{EmulatedTestbed, TestbedOptions, TimeScale};
use planner::{Job, JobId};
use topology::Fabric;

use super::fabric_readings::{FabricReader, completed_iterations};
use crate::demo::{DemoScenario, JobVisibility, ServedTestbed, TrainingOptions};
use command_io::CommandError;

/// Iterations of the slowest job before something becomes slow.
const ITERATIONS_BEFORE: usize = 3;

/// Readings in an iteration of the fastest job.
const READINGS: f64 = 20.0;

/// Readings after which nobody waits for the slowest job any longer, before and after: 100 and 250
/// iterations of the fastest job. Some jobs starve under others of higher levels.
const MAX_READINGS: (usize, usize) = (2_000, 5_000);

/// Jobs under a plan, before they train.
pub(super) struct ObservedTraining<'a> {
    stage: ServedTestbed<'a>,
    controller: ControllerHandle,
    pub(super) rollout: PlanRollout,
    scenario: &'a DemoScenario,
    scale: TimeScale,
    iterations_after: usize,
}

/// What there is to inspect when the switches were read.
pub(super) struct TrainingReading<'a> {
    pub(super) counters: &'a FabricCounters,
    /// Iterations that each job has completed since something became slow; none before.
    pub(super) since_slow: Option<Vec<usize>>,
}

impl<'a> ObservedTraining<'a> {
    /// Starts switches and a controller, which plans for the jobs. They are to complete so many
    /// iterations after something becomes slow.
    pub(super) async fn start(
        scenario: &'a DemoScenario,
        scale: TimeScale,
        iterations_after: usize,
    ) -> Result<Self, CommandError> {
        let training = TrainingOptions {
            scale,
            iterations: ITERATIONS_BEFORE + iterations_after,
            testbed: TestbedOptions::default(),
        };
        let stage = ServedTestbed::start_servers(scenario, training).await?;
        let controller = stage.start_controller().await?;
        stage.report_jobs(&controller, JobVisibility::Reported).await?;
        let rollout = controller.current_rollout();
        let rollout =
            rollout.ok_or_else(|| CommandError::Failed("the controller has no plan".to_owned()))?;
        Ok(Self { stage, controller, rollout, scenario, scale, iterations_after })
    }

    /// Reads counters at even times until all jobs have completed their iterations, of which the
    /// first few come before `make_slow`.
    pub(super) async fn observe(
        &self,
        make_slow: impl AsyncFn(&EmulatedTestbed) -> Result<(), CommandError>,
        mut inspect: impl AsyncFnMut(TrainingReading<'_>) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let Self { stage, rollout, scenario, scale, iterations_after, .. } = self;
        let alone = rollout.report.rationales.iter().map(|rationale| rationale.iteration_seconds);
        let fastest = alone.fold(f64::INFINITY, f64::min);
        let step = Duration::from_secs_f64(fastest / READINGS / scale.factor());
        let mut reader = FabricReader::new(*scale);
        let mut slow_since: Option<Vec<usize>> = None;
        let mut slow_from = MAX_READINGS.0;
        let mut now = stage.begin_training().await?;
        for reading in 0.. {
            now = stage.advance_to(now + step).await?;
            let completed = completed_iterations(stage).await?;
            reader.read_counters(stage, &scenario.fabric, step).await?;
            let since_slow = slow_since.as_ref().map(|before| {
                completed.iter().zip(before).map(|(now, before)| now - before).collect()
            });
            inspect(TrainingReading { counters: &reader.counters, since_slow }).await?;
            let fewest = completed.iter().copied().min().unwrap_or(0);
            if slow_since.is_none() && (fewest >= ITERATIONS_BEFORE || reading >= slow_from) {
                slow_from = reading;
                make_slow(stage.testbed()).await?;
                slow_since = Some(completed.clone());
            }
            let is_over = |before: &Vec<usize>| {
                completed.iter().zip(before).all(|(now, before)| *now >= before + iterations_after)
            };
            if slow_since.as_ref().is_some_and(is_over) || reading >= slow_from + MAX_READINGS.1 {
                break;
            }
        }
        Ok(())
    }

    /// Ends controller and switches; the plan that was in force.
    pub(super) async fn close(self) -> PlanRollout {
        self.controller.shutdown().await;
        self.stage.close().await;
        self.rollout
    }
}

/// Seconds of an iteration of each job under a plan, by the fluid model.
pub(super) fn forecast_seconds(
    fabric: &Fabric,
    jobs: &[Job],
    rollout: &PlanRollout,
) -> Result<BTreeMap<JobId, f64>, CommandError> {
    let forecast = forecast::forecast_plan(fabric, jobs, &rollout.plan);
    forecast.map(|forecast| forecast.iteration_seconds).map_err(CommandError::failed)
}

/// Whether a job iterates longer after a change than before it, by more than a share.
pub(super) fn iterates_longer(
    job: &JobId,
    [before, after]: [&BTreeMap<JobId, f64>; 2],
    share: f64,
) -> bool {
    match (before.get(job), after.get(job)) {
        (Some(before), Some(after)) => *after > before * (1.0 + share),
        _ => false,
    }
}
