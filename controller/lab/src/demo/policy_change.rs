//! A policy change on a fabric under traffic: the forecast of `crux policy diff` beside what the
//! jobs then measure.
//!
//! The controller is used through its service, as an operator does; the jobs do not stop for the
//! change. The decision: before and after are measured in one run, so that only the policy differs.
//! The clock is stopped while switches are written, with packets on the wires.

use std::collections::BTreeMap;

use controller::forecast::{self, SecondsBand};
use controller::northbound::service::{
    ApplyPolicyRequest, DocumentFile, NorthboundService, PreviewPolicyRequest, parse_policy,
};
use controller::preview::{JobChange, PolicyPreview, ValueChange};
use controller::{Config, ControllerHandle};
use emulator::{EmulationOutcome, HostTransport};
use planner::{JobId, Policy, PolicyDocument, PolicyEdit, PolicyEditAction};
use serde::Serialize;

use super::emulated_run::{JobVisibility, ServedTestbed, TrainingOptions};
use super::scenario::DemoScenario;
use crate::transport_flags::dcqcn_convergence;
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};

/// Iterations of the slowest job that pass unmeasured after the change: as long as the forecast
/// lets jobs find their phases.
const SETTLING: usize = 10;

/// The forecast of a change, and its measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MeasuredChange {
    /// The differences between the policies.
    policy: Vec<String>,
    jobs: Vec<JobForecast>,
    gpu_utilization: ValueChange<ForecastFigure>,
    /// Flows that took another path, or were pinned or no longer.
    flows: usize,
    /// Entries that the forecast expects to be written.
    entries: usize,
    /// The largest relative difference between forecast and measurement.
    largest_difference: f64,
    /// The findings of the forecast about its own limits.
    findings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct JobForecast {
    id: String,
    level: ValueChange<Option<u8>>,
    iteration_seconds: ValueChange<ForecastFigure>,
    /// Between what bounds the forecast is, whatever the phases of the jobs.
    iteration_band: ValueChange<Option<SecondsBand>>,
    /// How much longer an iteration may take under DCQCN, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dcqcn_excess_seconds: Option<ValueChange<f64>>,
}

/// How much longer iterations may take under DCQCN, by job.
type ExcessSeconds = BTreeMap<JobId, f64>;

/// A figure as predicted and as measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct ForecastFigure {
    foretold: Option<f64>,
    measured: Option<f64>,
}

impl ForecastFigure {
    /// The relative difference of the measurement from the forecast.
    fn relative_error(self) -> Option<f64> {
        let both = self.foretold.zip(self.measured);
        both.map(|(foretold, measured)| measured / foretold - 1.0)
    }
}

/// The policy that is in force first, and the one that is applied while jobs train.
#[derive(Clone, Debug)]
pub(crate) struct PolicyTransition {
    before: Policy,
    after: DocumentFile,
}

impl PolicyTransition {
    /// From the default policy on switches of so many levels.
    pub(crate) fn from_default(after: DocumentFile, levels: u8) -> Self {
        Self { before: policy_of_levels(levels), after }
    }

    /// From one level to those of the switches.
    pub(crate) fn from_one_level(levels: u8) -> Self {
        let text = format!("levels = {levels}\n");
        let after = DocumentFile { file: "policy.toml".to_owned(), text };
        Self { before: policy_of_levels(1), after }
    }
}

fn policy_of_levels(levels: u8) -> Policy {
    Policy { levels, ..Policy::default() }
}

/// Trains under the first policy, applies the second, and trains on.
///
/// # Errors
/// The policy is refused or rolled back, or the jobs make no progress.
pub(crate) async fn measure_change(
    scenario: &DemoScenario,
    transition: PolicyTransition,
    training: TrainingOptions,
) -> Result<MeasuredChange, CommandError> {
    let iterations = training.iterations;
    let stage = ServedTestbed::start_servers(scenario, training).await?;
    let controller = stage.start_controller_under(transition.before).await?;
    stage.report_jobs(&controller, JobVisibility::Reported).await?;
    let service = NorthboundService::new(controller.access().clone(), &Config::default());
    let after = parse_policy(&transition.after).map_err(CommandError::document)?;
    let wish = change_to(&after, &[])?;
    let preview = service.preview_policy(&wish).await.map_err(CommandError::document)?;
    let band_before = excess_in_force(&controller, scenario, training)?;
    let before = stage.train_jobs(iterations).await?;
    put_in_force(&service, wish, "crux demo").await?;
    stage.await_compared_plan(&controller).await?;
    let band_after = excess_in_force(&controller, scenario, training)?;
    let after = stage
        .testbed()
        .continue_training(SETTLING, iterations)
        .await
        .map_err(CommandError::failed)?;
    controller.shutdown().await;
    stage.close().await;
    let band = band_before.zip(band_after);
    Ok(MeasuredChange::new(&preview, [&before, &after], band.as_ref()))
}

/// The band of the plan in force, if hosts send under DCQCN.
fn excess_in_force(
    controller: &ControllerHandle,
    scenario: &DemoScenario,
    training: TrainingOptions,
) -> Result<Option<ExcessSeconds>, CommandError> {
    let HostTransport::Dcqcn(dcqcn) = training.testbed.transport else {
        return Ok(None);
    };
    let rollout = controller.current_rollout();
    let rollout = rollout
        .ok_or_else(|| CommandError::Failed("the controller has made no plan".to_owned()))?;
    let (fabric, jobs, plan) = (&rollout.fabric, &scenario.jobs, &rollout.plan);
    let foretold = forecast::forecast_plan(fabric, jobs, plan);
    let convergence = dcqcn_convergence(&dcqcn, fabric, training.scale);
    Ok(Some(convergence.band(jobs, plan, &foretold)))
}

/// The change to a policy, which a controller takes in two parts: the file, and drains
/// other than those `drained` now.
pub(crate) fn change_to(
    policy: &PolicyDocument,
    drained: &[String],
) -> Result<PreviewPolicyRequest, CommandError> {
    let edits_for = |action: PolicyEditAction, parts: &[String], known: &[String]| {
        let new = parts.iter().filter(|part| !known.contains(part)).cloned();
        new.map(|name| PolicyEdit { action, name, value: None }).collect::<Vec<_>>()
    };
    let ended = edits_for(PolicyEditAction::Undrain, drained, &policy.drained);
    let begun = edits_for(PolicyEditAction::Drain, &policy.drained, drained);
    let file = PolicyDocument { drained: Vec::new(), ..policy.clone() };
    let text = serde_json::to_string(&file).map_err(CommandError::failed)?;
    Ok(PreviewPolicyRequest {
        policy: Some(DocumentFile { file: "policy.json".to_owned(), text }),
        edits: ended.into_iter().chain(begun).collect(),
        temporary_override: None,
    })
}

/// Applies a policy as an operator would.
///
/// # Errors
/// The policy is refused or rolled back.
pub(crate) async fn put_in_force(
    service: &NorthboundService,
    change: PreviewPolicyRequest,
    author: &str,
) -> Result<(), CommandError> {
    let order =
        ApplyPolicyRequest { change, author: author.to_owned(), ..ApplyPolicyRequest::default() };
    let done = service.apply_policy(&order).await.map_err(CommandError::document)?;
    match done.applied {
        true => Ok(()),
        false => Err(CommandError::Failed(topology::one_line(&done.findings))),
    }
}

impl MeasuredChange {
    fn new(
        preview: &PolicyPreview,
        [before, after]: [&EmulationOutcome; 2],
        band: Option<&(ExcessSeconds, ExcessSeconds)>,
    ) -> Self {
        let changes = preview.plan.jobs.iter().chain(&preview.plan.unchanged);
        let mut jobs: Vec<JobForecast> =
            changes.map(|change| JobForecast::new(change, before, after, band)).collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let forecast = &preview.plan.gpu_utilization;
        let gpu_utilization = ValueChange {
            before: ForecastFigure {
                foretold: Some(forecast.before),
                measured: Some(before.gpu_utilization()),
            },
            after: ForecastFigure {
                foretold: Some(forecast.after),
                measured: Some(after.gpu_utilization()),
            },
        };
        let figures = jobs.iter().map(|job| &job.iteration_seconds).chain([&gpu_utilization]);
        let differences = figures
            .flat_map(|change| [change.before, change.after])
            .filter_map(ForecastFigure::relative_error);
        Self {
            policy: preview.policy.clone(),
            largest_difference: differences.map(f64::abs).fold(0.0, f64::max),
            jobs,
            gpu_utilization,
            flows: preview.plan.flows.len(),
            entries: preview.plan.switches.iter().map(|switch| switch.entries.len()).sum(),
            findings: preview.plan.findings.iter().map(ToString::to_string).collect(),
        }
    }

    /// Prints the report in the requested format.
    pub(crate) fn print_report(&self, output: FormatArg) -> Result<(), CommandError> {
        if output.format == OutputFormat::Json {
            return output::print_json(self);
        }
        self.policy.iter().try_for_each(output::print_line)?;
        output::print_line(format_args!(
            "{} flows change, {} entries\n",
            self.flows, self.entries
        ))?;
        let headings = [
            "",
            "level",
            "before s: forecast",
            "measured",
            "",
            "after s: forecast",
            "measured",
            "",
        ];
        let mut table = output::new_table(headings);
        for job in &self.jobs {
            let [before, after] = [job.iteration_seconds.before, job.iteration_seconds.after]
                .map(|figure| figure.table_cells(|seconds| format!("{seconds:.4}")));
            let [first, then] = [job.level.before, job.level.after]
                .map(|level| level.map_or("-".to_owned(), |level| level.to_string()));
            let level = match first == then {
                true => first,
                false => format!("{first} -> {then}"),
            };
            table.add_row([vec![job.id.clone(), level], before, after].concat());
        }
        let [before, after] = [self.gpu_utilization.before, self.gpu_utilization.after]
            .map(|figure| figure.table_cells(|share| format!("{:.1} %", share * 100.0)));
        let name = vec!["GPU utilisation".to_owned(), String::new()];
        table.add_row([name, before, after].concat());
        output::print_line(table)?;
        self.findings.iter().try_for_each(output::print_line)?;
        output::print_line(format_args!(
            "\nlargest difference between forecast and measurement: {:.1} %",
            self.largest_difference * 100.0
        ))
    }
}

/// How far measurements are from the forecast, relative.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ForecastErrors {
    /// Of GPU utilisation.
    pub(crate) gpu_utilization: f64,
    /// Of the iteration time that differs most.
    pub(crate) worst_job: f64,
    /// Of the iteration time that is farthest outside of the band of its forecast; 0 if none is.
    pub(crate) worst_outside: f64,
    /// Jobs whose iterations take longer than the forecast and the band of DCQCN together, by more
    /// than a hundredth; none where hosts do not send under DCQCN.
    pub(crate) beyond_band: Option<usize>,
}

/// A band covers what DCQCN adds to what is exact to a hundredth.
const BESIDE_BAND: f64 = 0.01;

impl MeasuredChange {
    /// The errors before the change and after it.
    pub(crate) fn forecast_errors(&self) -> ValueChange<ForecastErrors> {
        let errors = |of: fn(&ValueChange<ForecastFigure>) -> ForecastFigure,
                      band: fn(&ValueChange<Option<SecondsBand>>) -> Option<SecondsBand>,
                      longer: fn(&ValueChange<f64>) -> f64| {
            let jobs = self.jobs.iter().map(|job| of(&job.iteration_seconds));
            let jobs = jobs.filter_map(ForecastFigure::relative_error);
            let beyond = self.jobs.iter().filter_map(|job| {
                let ForecastFigure { foretold, measured } = of(&job.iteration_seconds);
                let most =
                    foretold? * (1.0 + BESIDE_BAND) + longer(job.dcqcn_excess_seconds.as_ref()?);
                Some(measured? > most)
            });
            let beyond: Vec<bool> = beyond.collect();
            let outside = self.jobs.iter().filter_map(|job| {
                let measured = of(&job.iteration_seconds).measured?;
                Some(band(&job.iteration_band)?.excess(measured).abs())
            });
            ForecastErrors {
                gpu_utilization: of(&self.gpu_utilization).relative_error().unwrap_or(f64::NAN),
                worst_job: jobs.map(f64::abs).fold(0.0, f64::max),
                worst_outside: outside.fold(0.0, f64::max),
                beyond_band: (!beyond.is_empty())
                    .then(|| beyond.iter().filter(|beyond| **beyond).count()),
            }
        };
        ValueChange {
            before: errors(|change| change.before, |band| band.before, |longer| longer.before),
            after: errors(|change| change.after, |band| band.after, |longer| longer.after),
        }
    }
}

impl JobForecast {
    fn new(
        change: &JobChange,
        before: &EmulationOutcome,
        after: &EmulationOutcome,
        band: Option<&(ExcessSeconds, ExcessSeconds)>,
    ) -> Self {
        let longer =
            |band: &ExcessSeconds| band.get(&change.id.as_str().into()).copied().unwrap_or(0.0);
        let ValueChange { before: foretold_before, after: foretold_after } =
            change.iteration_seconds;
        let [before, after] =
            [(foretold_before, before), (foretold_after, after)].map(|(foretold, outcome)| {
                let job = outcome.jobs.iter().find(|job| job.id.as_str() == change.id);
                let measured = job.and_then(|job| job.mean_iteration_seconds);
                ForecastFigure { foretold, measured }
            });
        Self {
            id: change.id.clone(),
            level: change.level.clone(),
            iteration_seconds: ValueChange { before, after },
            iteration_band: change.iteration_band.clone(),
            dcqcn_excess_seconds: band.map(|(before, after)| ValueChange {
                before: longer(before),
                after: longer(after),
            }),
        }
    }
}

impl ForecastFigure {
    /// Forecast, measurement and difference.
    fn table_cells(self, show: impl Fn(f64) -> String) -> Vec<String> {
        let [foretold, measured] =
            [self.foretold, self.measured].map(|value| value.map_or("-".to_owned(), &show));
        let difference = self
            .relative_error()
            .map(|share| format!("{:+.1} %", share * 100.0))
            .unwrap_or_default();
        vec![foretold, measured, difference]
    }
}

#[cfg(test)]
mod tests {
    use emulator::{TestbedOptions, TimeScale};

    use super::*;
    use crate::demo::CALIBRATED;
    use crate::demo::scenario::ScenarioChoice;

    /// Few iterations at a coarse scale; `crux demo --scenario shared-uplinks` is the exact run.
    async fn measure(transition: PolicyTransition) -> MeasuredChange {
        let choice = ScenarioChoice::SharedUplinks;
        let scenario =
            DemoScenario::of_choice(choice, p4::fabric::IpVersion::V4, CALIBRATED, 1).unwrap();
        let scale = TimeScale::new(8000.0).unwrap();
        let testbed = TestbedOptions::default();
        let training = TrainingOptions { scale, iterations: 5, testbed };
        measure_change(&scenario, transition, training).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn levels_gain_what_the_forecast_says() {
        let change = measure(PolicyTransition::from_one_level(8)).await;
        let ValueChange { before, after } = &change.gpu_utilization;
        let gain = after.measured.unwrap() - before.measured.unwrap();
        assert!(gain > 0.03, "{gain}");
        let errors = change.forecast_errors().after;
        assert!(errors.gpu_utilization.abs() < 0.03 && errors.worst_job < 0.03, "{errors:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn min_throughput_is_held_from_the_eleventh_iteration() {
        let text = "[[job]]\nmatch = \"gpt-2\"\nmin_throughput = 0.8\n".to_owned();
        let file = DocumentFile { file: "policy.toml".to_owned(), text };
        let change = measure(PolicyTransition::from_default(file, 8)).await;
        let job = change.jobs.iter().find(|job| job.id == "gpt-2").unwrap();
        // Half of 1.53 s of computation, then 42.84 GB and their headers at 400 Gb/s.
        let alone = 0.765 + 42.84e9 * (1.0 + 58.0 / 4096.0) / 50e9;
        let ValueChange { before, after } = job.iteration_seconds;
        let throughput = [before, after].map(|figure| alone / figure.measured.unwrap());
        assert!(throughput[0] < 0.8 && throughput[1] >= 0.8, "{throughput:?}");
    }
}
