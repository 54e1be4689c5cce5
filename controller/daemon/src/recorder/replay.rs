//! Replays a recording: applies the recorded events to the recorded state and compares the results.
//!
//! Plans and tables are computed again, and compared by their digests. The decision: a difference
//! is a result and not an error. An error is a file that is no recording; a last line that is cut
//! is neither, as a crash leaves it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead};
use std::sync::Arc;

use p4::SwitchTables;
use serde::Serialize;
use topology::SwitchId;

use super::StepEffects;
use super::digest::{TableDigests, digests_by_name, plan_digest};
use super::record::{FORMAT, RecordLine, RecordedEvent, StepOutcome};
use crate::pipelines::{lower_plan, protect_tables};
use crate::policy_history::UnixMs;
use crate::state::{PlanRequest, PlanRollout, SnapshotError, State, StateEvent, StateSnapshot};

/// The longest line of a recording.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// A file that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[from] io::Error),
    /// A line is no line of a recording, or of another version.
    #[error("line {line}: {why}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A line has an invalid value.
    #[error("line {line}: {source}")]
    Content {
        /// The number of the line, from 1.
        line: usize,
        /// The invalid value.
        source: SnapshotError,
    },
}

/// A replayed line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedLine {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The number of the step in its file; that of the latest step for other lines.
    pub step: u64,
    /// When it was recorded, milliseconds of Unix time.
    pub at_ms: UnixMs,
    /// What happened, for people.
    pub title: String,
    /// The generation in force after it.
    pub generation: u64,
    /// Digest of plan and fabric of the rollout, if the step made one.
    pub plan: Option<String>,
    /// The differences, each with the recorded and the replayed value.
    pub differences: Vec<String>,
}

/// The totals of a replayed recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplaySummary {
    /// Events that were applied.
    pub steps: u64,
    /// Plans that were computed again.
    pub plans: u64,
    /// Times that tables were published.
    pub published: u64,
    /// Whether the last line is cut, as a crash leaves it.
    pub is_cut: bool,
    /// Lines that differ.
    pub differing: u64,
}

/// Replays a recording and reports each line.
///
/// # Errors
/// It is no recording.
pub fn replay_recording(
    recording: &mut dyn BufRead,
    report_line: &mut dyn FnMut(&ReplayedLine),
) -> Result<ReplaySummary, ReplayError> {
    let mut replayed = ReplaySummary::default();
    let mut running: Option<ReplayRun> = None;
    for line in 1.. {
        let Some(entry) = next_line(recording, line, &mut replayed.is_cut)? else {
            break;
        };
        match (&mut running, entry) {
            (had, RecordLine::Begin { format, state, .. }) => {
                *had = Some(ReplayRun::start_run(line, format, &state)?);
            }
            (None, _) => return Err(line_error(line, "a recording begins with a state")),
            (Some(running), entry) => {
                let happened = running.replay_line(line, entry)?;
                replayed.steps += u64::from(happened.is_step);
                replayed.plans += u64::from(happened.is_plan);
                replayed.published += u64::from(happened.is_published);
                replayed.differing += u64::from(!happened.replayed.differences.is_empty());
                report_line(&happened.replayed);
            }
        }
    }
    match running {
        Some(_) => Ok(replayed),
        None => Err(line_error(1, "a recording begins with a state")),
    }
}

/// The next line; none at the end, and none if the last line is cut.
fn next_line(
    recording: &mut dyn BufRead,
    line: usize,
    is_cut: &mut bool,
) -> Result<Option<RecordLine>, ReplayError> {
    let mut text = Vec::new();
    io::Read::take(&mut *recording, LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
    if text.last() != Some(&b'\n') {
        *is_cut = !text.is_empty();
        return Ok(None);
    }
    let entry = serde_json::from_slice(&text);
    entry.map(Some).map_err(|error| match recorded_format(&text) {
        Some((format, version)) if format != FORMAT => line_error(
            line,
            &format!(
                "the recording has format {format}, and this version of crux replays format \
                 {FORMAT}: replay it with `crux replay-incident` of the version that recorded it, \
                 {version}"
            ),
        ),
        _ => line_error(line, &error),
    })
}

/// The format that the first line of a recording names, and the version that wrote it.
fn recorded_format(line: &[u8]) -> Option<(u32, String)> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let begin = line.get("begin")?;
    let version = begin.get("crux").and_then(serde_json::Value::as_str).unwrap_or("unknown");
    Some((u32::try_from(begin.get("format")?.as_u64()?).ok()?, version.to_owned()))
}

fn line_error(line: usize, why: &(impl ToString + ?Sized)) -> ReplayError {
    ReplayError::Line { line, why: why.to_string() }
}

/// A controller without switches.
struct ReplayRun {
    state: State,
    /// The plan request under way.
    plan_request: Option<PlanRequest>,
    /// The tables that switches should hold.
    tables: BTreeMap<SwitchId, Arc<SwitchTables>>,
    /// Rollouts whose tables are not published yet, in order.
    due: VecDeque<PendingTables>,
    digests: TableDigests,
    step: u64,
}

/// A rollout whose tables are to be published.
enum PendingTables {
    Protection(PlanRollout),
    Plan(PlanRollout),
}

impl PendingTables {
    fn rollout(&self) -> &PlanRollout {
        match self {
            Self::Protection(rollout) | Self::Plan(rollout) => rollout,
        }
    }
}

/// The result of a line, and what it counts as.
struct LineResult {
    replayed: ReplayedLine,
    is_step: bool,
    is_plan: bool,
    is_published: bool,
}

impl ReplayRun {
    fn start_run(line: usize, format: u32, state: &StateSnapshot) -> Result<Self, ReplayError> {
        if format != FORMAT {
            let why = format!("unsupported format {format}; this version replays format {FORMAT}");
            return Err(line_error(line, &why));
        }
        let state =
            state.restore_state().map_err(|source| ReplayError::Content { line, source })?;
        let tables = state.current_rollout().map_or_else(BTreeMap::new, lowered_tables);
        Ok(Self {
            state,
            plan_request: None,
            tables,
            due: VecDeque::new(),
            digests: TableDigests::default(),
            step: 0,
        })
    }

    fn replay_line(&mut self, line: usize, entry: RecordLine) -> Result<LineResult, ReplayError> {
        let is_step = matches!(entry, RecordLine::Step { .. });
        let is_published = matches!(entry, RecordLine::Published { .. });
        let mut replayed = ReplayedLine {
            line,
            step: self.step,
            at_ms: 0,
            title: String::new(),
            generation: self.state.generation(),
            plan: None,
            differences: Vec::new(),
        };
        let mut is_plan = false;
        match entry {
            // The caller starts a new run for this line.
            RecordLine::Begin { at_ms, .. } => replayed.at_ms = at_ms,
            RecordLine::Step { step, at_ms, event, outcome: came } => {
                (self.step, replayed.step, replayed.at_ms) = (step, step, at_ms);
                replayed.title = event.title();
                is_plan = matches!(*event, RecordedEvent::Planned { .. });
                self.replay_step(line, &event, &came, &mut replayed)?;
                replayed.generation = self.state.generation();
            }
            RecordLine::Published { at_ms, generation, tables } => {
                replayed.at_ms = at_ms;
                replayed.title = format!("published to {} switches", tables.len());
                replayed.generation = generation;
                self.compare_tables(generation, &tables, &mut replayed.differences);
            }
            RecordLine::Held { at_ms, switch, generation, entries, written, refused } => {
                replayed.at_ms = at_ms;
                replayed.generation = generation;
                replayed.title = format!(
                    "{switch} holds {entries} entries; {written} written, {refused} refused so far"
                );
            }
        }
        Ok(LineResult { replayed, is_step, is_plan, is_published })
    }

    /// Applies an event to the state and compares the outcome.
    fn replay_step(
        &mut self,
        line: usize,
        event: &RecordedEvent,
        came: &StepOutcome,
        replayed: &mut ReplayedLine,
    ) -> Result<(), ReplayError> {
        let restored = event
            .to_event(self.state.fabric())
            .map_err(|source| ReplayError::Content { line, source })?;
        let event = match (event, restored) {
            (RecordedEvent::Refused(_), _) => return Ok(()),
            (RecordedEvent::Planned { digest, .. }, None) => {
                let Some(request) = self.plan_request.take() else {
                    replayed
                        .differences
                        .push("a plan was recorded, but none was requested now".to_owned());
                    return Ok(());
                };
                let result = request.compute_plan();
                compare_values(
                    "the plan",
                    digest,
                    &plan_digest(&result.plan),
                    &mut replayed.differences,
                );
                StateEvent::Planned(Box::new(result))
            }
            (_, Some(event)) => event,
            (_, None) => return Ok(()),
        };
        let mut effects = self.state.step(event);
        let now = StepOutcome::new(&StepEffects::new(&effects));
        if let Some(request) = effects.plan_request.take() {
            self.plan_request = Some(request);
        }
        replayed.plan.clone_from(&now.rollout);
        compare_outcomes(came, &now, &mut replayed.differences);
        self.due.extend(effects.protection.map(PendingTables::Protection));
        self.due.extend(effects.rollout.map(PendingTables::Plan));
        Ok(())
    }

    /// Lowers the rollout that was published and compares the tables with the recorded ones. Those
    /// before it were superseded while they were lowered.
    fn compare_tables(
        &mut self,
        generation: u64,
        then: &BTreeMap<String, String>,
        differences: &mut Vec<String>,
    ) {
        while self.due.pop_front_if(|due| due.rollout().generation < generation).is_some() {}
        let Some(due) = self.due.pop_front() else {
            differences.push(format!("generation {generation} then, nothing to publish now"));
            return;
        };
        let (rollout, tables) = match due {
            PendingTables::Plan(rollout) => {
                let tables = lowered_tables(&rollout);
                (rollout, tables)
            }
            PendingTables::Protection(rollout) => {
                let tables = protect_tables(&rollout.wiring, &rollout.fabric, &self.tables);
                (rollout, tables)
            }
        };
        self.tables = tables;
        let now = digests_by_name(&rollout.fabric, self.digests.digest_all(&self.tables));
        for switch in then.keys().chain(now.keys().filter(|name| !then.contains_key(*name))) {
            let [then, now] = [then, &now].map(|digests| digests.get(switch));
            if then != now {
                differences.push(format!("tables of {switch}: {then:?} then, {now:?} now"));
            }
        }
        compare_values("generation", &generation, &rollout.generation, differences);
    }
}

fn lowered_tables(rollout: &PlanRollout) -> BTreeMap<SwitchId, Arc<SwitchTables>> {
    lower_plan(&rollout.wiring, &rollout.fabric, &rollout.lowered_plan())
}

fn compare_outcomes(then: &StepOutcome, now: &StepOutcome, differences: &mut Vec<String>) {
    compare_values("generation", &then.generation, &now.generation, differences);
    compare_values("refusal", &then.refused, &now.refused, differences);
    compare_values("plan request", &then.requested, &now.requested, differences);
    compare_values("protection", &then.protection, &now.protection, differences);
    compare_values("plan in force", &then.rollout, &now.rollout, differences);
}

fn compare_values<T: PartialEq + std::fmt::Debug>(
    what: &str,
    then: &T,
    now: &T,
    differences: &mut Vec<String>,
) {
    if then != now {
        differences.push(format!("{what}: {then:?} then, {now:?} now"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_of_another_format_names_the_version_that_can_replay_it() {
        let line =
            b"{\"begin\":{\"format\":1,\"crux\":\"0.8.0\",\"at_ms\":0,\"state\":{\"told\":[]}}}\n";
        let error = replay_recording(&mut &line[..], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("format 1") && error.contains("0.8.0"), "{error}");
    }
}
