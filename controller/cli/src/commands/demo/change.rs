//! A change of policy on a fabric under traffic: what `crux policy diff` foretells, beside what the
//! jobs then measure of themselves.
//!
//! The controller is asked and told as an operator would, through its service; the jobs do not stop
//! for it. The decision: before and after are measured in one run, so that all that differs is the
//! policy. The clock is held while switches are written, with packets on the wires.

use controller::Config;
use controller::northbound::service::{Order, Service, Text, Wish};
use controller::preview::{Change, JobChange, Preview};
use emulator::Outcome;
use serde::Serialize;

use super::rehearsal::{Stage, Telling, Training};
use super::scenario::Scenario;
use crate::failure::Failure;
use crate::output::{self, Format, FormatArg};

/// Iterations of the slowest job that pass unmeasured after the change: as long as the forecast
/// lets jobs find their phases.
const SETTLING: usize = 10;

/// What was foretold of a change, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changed {
    /// What the policy says differently.
    policy: Vec<String>,
    jobs: Vec<JobForecast>,
    gpu_utilization: Change<Figure>,
    /// Flows that took another path, or were pinned or no longer.
    flows: usize,
    /// Entries that were foretold to be written.
    entries: usize,
    /// The largest relative difference between a figure foretold and measured.
    largest_difference: f64,
    /// What the forecast itself says of its limits.
    findings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct JobForecast {
    id: String,
    level: Change<Option<u8>>,
    iteration_seconds: Change<Figure>,
}

/// A figure foretold and measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    foretold: Option<f64>,
    measured: Option<f64>,
}

impl Figure {
    /// Measured against foretold, relative.
    fn difference(self) -> Option<f64> {
        let both = self.foretold.zip(self.measured);
        both.map(|(foretold, measured)| measured / foretold - 1.0)
    }
}

/// Trains under the default policy, applies the one of `text`, and trains on.
///
/// # Errors
/// The policy is refused or taken back, or the jobs make no headway.
pub(crate) async fn run(
    scenario: &Scenario,
    text: Text,
    training: Training,
) -> Result<Changed, Failure> {
    let Training { scale, iterations } = training;
    let stage = Stage::build(scenario, scale).await?;
    let controller = stage.control().await?;
    stage.tell(&controller, Telling::Jobs).await?;
    let service = Service::new(controller.access().clone(), &Config::default());
    let wish = Wish {
        policy: Some(text),
        ..Wish::default()
    };
    let preview = service.diff(&wish).await.map_err(Failure::document)?;
    let before = stage.train(iterations).await?;
    put_in_force(&service, wish, "crux demo").await?;
    let after = stage.testbed().train_on(SETTLING, iterations).await;
    let after = after.map_err(|error| Failure::work(&error))?;
    controller.shutdown().await;
    stage.close().await;
    Ok(Changed::new(&preview, &before, &after))
}

/// Applies a policy as an operator would.
///
/// # Errors
/// It is refused or taken back.
pub(crate) async fn put_in_force(service: &Service, wish: Wish, who: &str) -> Result<(), Failure> {
    let order = Order {
        wish,
        who: who.to_owned(),
        ..Order::default()
    };
    let done = service.apply(&order).await.map_err(Failure::document)?;
    match done.applied {
        true => Ok(()),
        false => Err(Failure::Work(topology::one_line(&done.findings))),
    }
}

impl Changed {
    fn new(preview: &Preview, before: &Outcome, after: &Outcome) -> Self {
        let changes = preview.jobs.iter().chain(&preview.unchanged);
        let mut jobs: Vec<JobForecast> = changes
            .map(|change| JobForecast::new(change, before, after))
            .collect();
        jobs.sort_by(|a, b| a.id.cmp(&b.id));
        let utilization = |foretold, outcome: &Outcome| Figure {
            foretold: Some(foretold),
            measured: Some(outcome.gpu_utilization()),
        };
        let foretold = &preview.gpu_utilization;
        let gpu_utilization = Change {
            before: utilization(foretold.before, before),
            after: utilization(foretold.after, after),
        };
        let figures = jobs.iter().map(|job| &job.iteration_seconds);
        let figures = figures.chain([&gpu_utilization]);
        let differences = figures.flat_map(|change| [change.before, change.after]);
        let differences = differences.filter_map(Figure::difference);
        Self {
            policy: preview.policy.clone(),
            largest_difference: differences.map(f64::abs).fold(0.0, f64::max),
            jobs,
            gpu_utilization,
            flows: preview.flows.len(),
            entries: preview
                .switches
                .iter()
                .map(|switch| switch.entries.len())
                .sum(),
            findings: preview.findings.iter().map(ToString::to_string).collect(),
        }
    }

    /// Prints it.
    pub(crate) fn print(&self, output: FormatArg) -> Result<(), Failure> {
        if output.format == Format::Json {
            return output::print_json(self);
        }
        self.policy.iter().try_for_each(output::print)?;
        output::print(format_args!(
            "{} flows change, {} entries\n",
            self.flows, self.entries
        ))?;
        let headings = [
            "",
            "level",
            "before s: foretold",
            "measured",
            "",
            "after s: foretold",
            "measured",
            "",
        ];
        let mut table = output::table(headings);
        for job in &self.jobs {
            let [before, after] = [job.iteration_seconds.before, job.iteration_seconds.after]
                .map(|figure| figure.cells(|seconds| format!("{seconds:.4}")));
            let [first, then] = [job.level.before, job.level.after]
                .map(|level| level.map_or("-".to_owned(), |level| level.to_string()));
            let level = match first == then {
                true => first,
                false => format!("{first} -> {then}"),
            };
            table.add_row([vec![job.id.clone(), level], before, after].concat());
        }
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        let Change { before, after } = self.gpu_utilization;
        let name = vec!["GPU utilisation".to_owned(), String::new()];
        table.add_row([name, before.cells(share), after.cells(share)].concat());
        output::print(table)?;
        self.findings.iter().try_for_each(output::print)?;
        output::print(format_args!(
            "\nlargest difference between foretold and measured: {:.1} %",
            self.largest_difference * 100.0
        ))
    }
}

impl JobForecast {
    fn new(change: &JobChange, before: &Outcome, after: &Outcome) -> Self {
        let figure = |foretold, outcome: &Outcome| {
            let job = outcome.jobs.iter().find(|job| job.id.as_str() == change.id);
            Figure {
                foretold,
                measured: job.and_then(|job| job.mean_iteration_seconds),
            }
        };
        Self {
            id: change.id.clone(),
            level: change.level.clone(),
            iteration_seconds: Change {
                before: figure(change.iteration_seconds.before, before),
                after: figure(change.iteration_seconds.after, after),
            },
        }
    }
}

impl Figure {
    /// Foretold, measured, and the difference.
    fn cells(self, show: impl Fn(f64) -> String) -> Vec<String> {
        let text = |value: Option<f64>| value.map_or("-".to_owned(), &show);
        let difference = self.difference();
        let difference = difference.map(|share| format!("{:+.1} %", share * 100.0));
        let difference = difference.unwrap_or_default();
        vec![text(self.foretold), text(self.measured), difference]
    }
}
