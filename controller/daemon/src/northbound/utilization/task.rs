//! The task that samples the controller's view and forecasts each plan once.
//!
//! The decision: a forecast is made on a thread of its own, one at a time, and for the plan that is
//! in force when the thread is free. While plans change faster than that, samples have measured
//! values alone.

use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{SAMPLE_MS, UtilizationForecast, UtilizationLog, UtilizationSample};
use crate::forecast::{forecast_ecmp, forecast_plan};
use crate::low_priority::at_low_priority;
use crate::northbound::controller_view::ControllerView;
use crate::northbound::service::NorthboundService;
use crate::supervision::TaskSupervisor;

/// Samples the utilisation of all jobs.
pub(in crate::northbound) struct UtilizationTask {
    service: NorthboundService,
    log: watch::Sender<UtilizationLog>,
    forecast: Option<UtilizationForecast>,
    /// A forecast that is being made.
    running: Option<JoinHandle<UtilizationForecast>>,
}

impl UtilizationTask {
    /// A task that reads views of `service`, and where to see its samples.
    pub(in crate::northbound) fn new(
        service: NorthboundService,
    ) -> (Self, watch::Receiver<UtilizationLog>) {
        let (log, samples) = watch::channel(UtilizationLog::default());
        (Self { service, log, forecast: None, running: None }, samples)
    }

    /// Samples until `stop`.
    pub(in crate::northbound) async fn run(
        mut self,
        supervisor: TaskSupervisor,
        stop: CancellationToken,
    ) {
        let running =
            supervisor.run_restarting("utilisation", &mut self, |task| task.take_samples().boxed());
        stop.run_until_cancelled(running).await;
    }

    async fn take_samples(&mut self) {
        let mut ticks = interval(Duration::from_millis(SAMPLE_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let running = &mut self.running;
            tokio::select! {
                _ = ticks.tick() => {}
                forecast = forecast_done(running), if running.is_some() => {
                    self.running = None;
                    self.forecast = forecast;
                }
            }
            // Before the first plan, and on a member that does not lead, there is nothing to see.
            let Ok(view) = self.service.current_view().await else {
                continue;
            };
            self.begin_forecast(&view);
            let at_ms = self.service.access.clock().unix_now();
            let sample = UtilizationSample::from_view(&view, at_ms, self.forecast.as_ref());
            self.log.send_modify(|log| log.add_sample(sample));
        }
    }

    /// Begins a forecast if the plan in force has none, and no other is being made.
    fn begin_forecast(&mut self, view: &ControllerView) {
        let known = self.forecast.as_ref().map(|known| known.generation);
        if self.running.is_none() && known != Some(view.rollout.generation) {
            let view = view.clone();
            self.running = Some(spawn_blocking(move || at_low_priority(|| forecast_view(&view))));
        }
    }
}

/// Waits for the forecast that is being made.
async fn forecast_done(
    running: &mut Option<JoinHandle<UtilizationForecast>>,
) -> Option<UtilizationForecast> {
    running.as_mut().expect("asked only if there is one").await.ok()
}

/// What the model says of a view.
fn forecast_view(view: &ControllerView) -> UtilizationForecast {
    let (fabric, plan) = (&view.rollout.fabric, &view.rollout.plan);
    UtilizationForecast {
        generation: view.rollout.generation,
        planned: forecast_plan(fabric, &view.request.jobs, plan),
        ecmp: forecast_ecmp(fabric, &view.request.jobs),
    }
}
