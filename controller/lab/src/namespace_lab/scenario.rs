//! A scenario of one's own: a fabric, its jobs, events at instants, and what is expected.
//!
//! One file in TOML, YAML or JSON has all of it; fabric and jobs may be in files of their own
//! beside it. The decision: times are those of the jobs, before they are slowed down, in events as
//! in expectations.

use std::path::Path;

use command_io::CommandError;
use command_io::files;
use planner::{Job, JobDocument, JobsDocument, PolicyDocument};
use serde::{Deserialize, Serialize};
use topology::Fabric;
use topology::spec::FabricDocument;

use crate::job::{EventAction, JobRunResult, ScriptedEvent};

/// Iterations of the slowest job that are measured unless a scenario has another number.
const ITERATIONS: u16 = 5;

/// The document of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioDocument {
    title: String,
    fabric: Option<FabricDocument>,
    fabric_file: Option<String>,
    jobs: Option<Vec<JobDocument>>,
    jobs_file: Option<String>,
    /// Iterations of the slowest job that are measured, after one that is not.
    #[serde(default = "default_iterations")]
    iterations: u16,
    /// Nobody reports the jobs to the controller: all flows go by ECMP at one level.
    #[serde(default)]
    ecmp: bool,
    #[serde(default)]
    policy: PolicyDocument,
    #[serde(default)]
    event: Vec<ScriptedEvent>,
    #[serde(default)]
    expect: ExpectationDocument,
}

/// What a run must show.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectationDocument {
    /// Share of the jobs' GPU time in which they compute.
    gpu_utilization_at_least: Option<f64>,
    /// Largest relative difference of a job's iteration time from the embedded fabric.
    within_embedded: Option<f64>,
    /// Packets sent again.
    retransmitted_at_most: Option<u64>,
    #[serde(default)]
    job: Vec<JobExpectation>,
}

/// What a job must show.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobExpectation {
    id: String,
    /// Only iterations after the event of this name count.
    after_event: Option<String>,
    /// Iterations after the event that do not count.
    #[serde(default)]
    skipped_iterations: usize,
    iteration_seconds_at_most: Option<f64>,
    iteration_seconds_at_least: Option<f64>,
}

/// A scenario that has been checked.
#[derive(Clone, Debug)]
pub(super) struct LabScenario {
    pub(super) title: String,
    pub(super) fabric: Fabric,
    pub(super) jobs: Vec<Job>,
    pub(super) iterations: u16,
    pub(super) ecmp: bool,
    pub(super) policy: PolicyDocument,
    pub(super) events: Vec<(ScriptedEvent, EventAction)>,
    expectation: ExpectationDocument,
}

/// An expectation and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CheckedExpectation {
    pub(super) expected: String,
    pub(super) found: String,
    pub(super) holds: bool,
}

fn default_iterations() -> u16 {
    ITERATIONS
}

impl LabScenario {
    /// Reads a scenario and the files that it names.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub(super) fn read(file: &str) -> Result<Self, CommandError> {
        let document: ScenarioDocument = files::parse_document(file)?;
        let fabric = read_fabric(&document, file)?;
        let jobs = read_jobs(&document, &fabric, file)?;
        if !(1..=10_000).contains(&document.iterations) {
            return Err(CommandError::input(file, "iterations: from 1 to 10000"));
        }
        document.policy.to_policy(file).map_err(CommandError::document)?;
        for (index, job) in document.expect.job.iter().enumerate() {
            job.check_names(&jobs, &document.event)
                .map_err(|what| CommandError::input(file, format!("expect.job[{index}].{what}")))?;
        }
        let mut events = document.event;
        events.sort_by(|a, b| a.after_seconds.total_cmp(&b.after_seconds));
        let events = events.into_iter().map(|event| {
            let action = event.resolve_action(file, &fabric)?;
            Ok((event, action))
        });
        Ok(Self {
            title: document.title,
            events: events.collect::<Result<_, CommandError>>()?,
            iterations: document.iterations,
            ecmp: document.ecmp,
            policy: document.policy,
            expectation: document.expect,
            fabric,
            jobs,
        })
    }

    /// Whether the run is compared with the embedded fabric.
    pub(super) fn is_compared(&self) -> bool {
        self.expectation.within_embedded.is_some()
    }

    /// The expectations against a run whose times are divided by `slower`.
    pub(super) fn check_run(
        &self,
        run: &JobRunResult,
        embedded: Option<&JobRunResult>,
        slower: f64,
    ) -> Vec<CheckedExpectation> {
        let wanted = &self.expectation;
        let utilization = wanted.gpu_utilization_at_least.map(|least| {
            let found = run.gpu_utilization;
            checked(format!("GPU utilisation at least {least}"), found, found >= least)
        });
        let retransmitted = wanted.retransmitted_at_most.map(|most| {
            let found = run.retransmitted;
            checked(format!("packets sent again at most {most}"), found as f64, found <= most)
        });
        let within = wanted.within_embedded.zip(embedded).map(|(most, embedded)| {
            let found = largest_difference(run, embedded);
            let expected = format!("within {:.1} % of the embedded fabric", most * 100.0);
            CheckedExpectation {
                expected,
                found: format!("{:.1} %", found * 100.0),
                holds: found <= most,
            }
        });
        let jobs = wanted.job.iter().flat_map(|job| job.check_job(run, slower));
        utilization.into_iter().chain(retransmitted).chain(within).chain(jobs).collect()
    }
}

impl JobExpectation {
    /// Whether there are a job and an event of these names; else the field and what is wrong.
    fn check_names(&self, jobs: &[Job], events: &[ScriptedEvent]) -> Result<(), String> {
        if !jobs.iter().any(|job| job.id.as_str() == self.id) {
            return Err(format!("id: no job is called `{}`", self.id));
        }
        match &self.after_event {
            None if self.skipped_iterations > 0 => {
                Err("skipped_iterations: needs after_event, the event that they follow".to_owned())
            }
            Some(name) if !events.iter().any(|event| event.name == *name) => {
                Err(format!("after_event: no event is called `{name}`"))
            }
            _ => Ok(()),
        }
    }

    fn check_job(&self, run: &JobRunResult, slower: f64) -> Vec<CheckedExpectation> {
        // A job that has completed no iteration holds nothing.
        let seconds = self.iteration_seconds(run).map_or(f64::NAN, |seconds| seconds / slower);
        let what = self.after_event.as_ref().map_or_else(
            || "an iteration".to_owned(),
            |event| format!("an iteration from {} after `{event}` on", self.skipped_iterations),
        );
        let most = self.iteration_seconds_at_most.map(|most| {
            checked(format!("{}: at most {most} s {what}", self.id), seconds, seconds <= most)
        });
        let least = self.iteration_seconds_at_least.map(|least| {
            checked(format!("{}: at least {least} s {what}", self.id), seconds, seconds >= least)
        });
        most.into_iter().chain(least).collect()
    }

    /// The mean of the iterations that count, in the time of the run.
    fn iteration_seconds(&self, run: &JobRunResult) -> Option<f64> {
        let job = run.jobs.iter().find(|job| job.id == self.id)?;
        let Some(event) = &self.after_event else {
            return job.mean_iteration_seconds;
        };
        let event = run.events.iter().find(|applied| applied.name == *event)?;
        let after = job.begun_seconds.iter().filter(|begun| **begun >= event.at_seconds);
        let counted: Vec<f64> = after.skip(self.skipped_iterations).copied().collect();
        let (first, last) = (counted.first()?, counted.last()?);
        let iterations = counted.len() - 1;
        (iterations > 0).then(|| (last - first) / iterations as f64)
    }
}

/// The largest relative difference of an iteration time between two runs of the same jobs.
pub(super) fn largest_difference(run: &JobRunResult, embedded: &JobRunResult) -> f64 {
    let times = run.jobs.iter().zip(&embedded.jobs);
    let differences = times.filter_map(|(here, there)| {
        let (here, there) = (here.mean_iteration_seconds?, there.mean_iteration_seconds?);
        Some((here / there - 1.0).abs())
    });
    differences.fold(0.0, f64::max)
}

fn checked(expected: String, found: f64, holds: bool) -> CheckedExpectation {
    CheckedExpectation { expected, found: format!("{found:.4}"), holds }
}

fn read_fabric(document: &ScenarioDocument, file: &str) -> Result<Fabric, CommandError> {
    match (&document.fabric, &document.fabric_file) {
        (Some(fabric), None) => Fabric::try_from(fabric)
            .map_err(|error| CommandError::input(file, format_args!("fabric.{error}"))),
        (None, Some(name)) => files::read_fabric(&beside(file, name)),
        _ => Err(CommandError::input(file, "give one of fabric and fabric_file")),
    }
}

fn read_jobs(
    document: &ScenarioDocument,
    fabric: &Fabric,
    file: &str,
) -> Result<Vec<Job>, CommandError> {
    match (&document.jobs, &document.jobs_file) {
        (Some(jobs), None) => {
            let document = JobsDocument { jobs: jobs.clone() };
            let resolved = document.resolve_jobs(fabric, file);
            Ok(resolved.map_err(CommandError::document)?.jobs)
        }
        (None, Some(name)) => Ok(files::read_jobs(&beside(file, name), fabric)?.0),
        _ => Err(CommandError::input(file, "give one of jobs and jobs_file")),
    }
}

/// A file that a scenario names, seen from where the scenario is.
fn beside(file: &str, name: &str) -> String {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    folder.join(name).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::job::{AppliedEvent, MeasuredJobResult};

    const SCENARIO: &str = r#"
title = "two jobs"
iterations = 3
[fabric]
name = "two by two"
[fabric.clos]
leaves = 2
spines = 2
hosts_per_leaf = 2
gpus_per_host = 8
host_gbps = 200.0
uplink_gbps = 200.0
[[jobs]]
id = "a"
gpus = { h1 = 8, h3 = 8 }
profile = "bert-large/A100"
collective = { kind = "ring_all_reduce", bytes = 1e9 }
[[event]]
after_seconds = 2.0
name = "a cable fails"
link_down = "leaf1-spine1"
[expect]
gpu_utilization_at_least = 0.9
within_embedded = 0.05
[[expect.job]]
id = "a"
iteration_seconds_at_most = 0.2
[[expect.job]]
id = "a"
after_event = "a cable fails"
skipped_iterations = 2
iteration_seconds_at_most = 0.3
"#;

    fn read(text: &str) -> Result<LabScenario, CommandError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scenario.toml");
        fs::write(&file, text).unwrap();
        LabScenario::read(&file.display().to_string())
    }

    /// Iterations of these seconds, slower by half for two after the event at 8 s.
    fn run(seconds: f64, gpu_utilization: f64) -> JobRunResult {
        let begun = [7.5, 8.0, 8.0 + 1.5 * seconds, 8.0 + 3.0 * seconds, 8.0 + 4.0 * seconds];
        JobRunResult {
            jobs: vec![MeasuredJobResult {
                id: "a".to_owned(),
                gpus: 16,
                iterations: 3,
                mean_iteration_seconds: Some(seconds),
                gpu_busy_fraction: gpu_utilization,
                begun_seconds: begun.to_vec(),
            }],
            gpu_utilization,
            window_seconds: 1.0,
            events: vec![AppliedEvent { name: "a cable fails".to_owned(), at_seconds: 8.0 }],
            began_unix_seconds: None,
            retransmitted: 0,
            unreadable: 0,
            marked: 0,
            notifications: 0,
            timeouts: 0,
        }
    }

    #[test]
    fn expectations_hold_or_do_not() {
        let scenario = read(SCENARIO).unwrap();
        assert_eq!(scenario.events.len(), 1);
        assert!(matches!(scenario.events[0].1, EventAction::CutCables(_)));
        let holds = |run: &JobRunResult, embedded: &JobRunResult| -> Vec<bool> {
            let checked = scenario.check_run(run, Some(embedded), 4.0);
            checked.iter().map(|one| one.holds).collect()
        };
        assert_eq!(holds(&run(0.7, 0.95), &run(0.7, 0.95)), [true, true, true, true]);
        assert_eq!(holds(&run(0.9, 0.85), &run(0.7, 0.95)), [false, false, false, true]);
        assert_eq!(holds(&run(1.3, 0.85), &run(1.3, 0.95)), [false, true, false, false]);
        let mut early = run(0.7, 0.95);
        early.jobs[0].begun_seconds.truncate(4);
        assert!(!holds(&early, &early)[3], "no iteration after the skipped ones has ended");
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            (
                "link_down = \"leaf1-spine1\"",
                "link_down = \"leaf1-spine9\"",
                "no cable leaf1-spine9",
            ),
            (
                "id = \"a\"\niteration",
                "id = \"b\"\niteration",
                "expect.job[0].id: no job is called `b`",
            ),
            (
                "after_event = \"a cable fails\"",
                "after_event = \"x\"",
                "expect.job[1].after_event: no event is called `x`",
            ),
            ("after_event = \"a cable fails\"\n", "", "needs after_event"),
            ("h3 = 8", "h9 = 8", "no host `h9`"),
            ("leaves = 2", "leafs = 2", "leafs"),
            (
                "iterations = 3",
                "iterations = 3\njobs_file = \"x.toml\"",
                "one of jobs and jobs_file",
            ),
        ] {
            let error = read(&SCENARIO.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
