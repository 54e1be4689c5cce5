//! A recording, run again: the same events into the same state, and whether the same came of it.
//!
//! What the planner answered is not taken from the recording but worked out anew, and so are the
//! tables; what is compared are digests. The decision: a difference is an answer and not an error.
//! An error is a file that is no recording; a last line that is cut is neither, as that is what a
//! crash leaves.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::Arc;

use p4::Tables;
use serde::Serialize;
use topology::SwitchId;

use super::Came;
use super::digest::{OfTables, named, of_plan};
use super::line::{Entry, FORMAT, Outcome, Recorded};
use crate::ledger::UnixMs;
use crate::lower::{lower, protect};
use crate::state::{Event, Question, Realise, Snapshot, SnapshotError, State};

/// The longest line; a longer one is no line of a recording.
const LONGEST: u64 = 1 << 30;

/// A file that cannot be run again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[from] io::Error),
    /// It is no recording, or one of another version.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// What is recorded cannot be.
    #[error("line {line}: {source}")]
    Content {
        /// Which, from 1.
        line: usize,
        /// What cannot be.
        source: SnapshotError,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Happened {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The number of the event in its file; that of the latest one, for what is no event.
    pub step: u64,
    /// When, milliseconds of Unix time.
    pub at_ms: UnixMs,
    /// What, for people.
    pub what: String,
    /// The generation in force after it.
    pub generation: u64,
    /// Digest of the plan and fabric that were to be realised, if any.
    pub plan: Option<String>,
    /// What came differently this time, each with what was recorded and what came now.
    pub differences: Vec<String>,
}

/// What a recording came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Events.
    pub steps: u64,
    /// Plans that were worked out anew.
    pub plans: u64,
    /// Times that switches were given tables.
    pub given: u64,
    /// Whether the last line is cut, as a crash leaves it.
    pub is_cut: bool,
    /// Lines that differ.
    pub differing: u64,
}

/// Runs a recording again, and tells `told` of everything that happened.
///
/// # Errors
/// It is no recording.
pub fn replay(
    recording: &mut dyn BufRead,
    told: &mut dyn FnMut(&Happened),
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    let mut running: Option<Running> = None;
    for line in 1.. {
        let Some(entry) = next(recording, line, &mut replayed.is_cut)? else {
            break;
        };
        match (&mut running, entry) {
            (had, Entry::Begin { format, state, .. }) => {
                *had = Some(Running::begin(line, format, &state)?);
            }
            (None, _) => return Err(wrong(line, "a recording begins with a state")),
            (Some(running), entry) => {
                let happened = running.take(line, entry)?;
                replayed.steps += u64::from(happened.is_step);
                replayed.plans += u64::from(happened.is_plan);
                replayed.given += u64::from(happened.is_given);
                replayed.differing += u64::from(!happened.it.differences.is_empty());
                told(&happened.it);
            }
        }
    }
    match running {
        Some(_) => Ok(replayed),
        None => Err(wrong(1, "a recording begins with a state")),
    }
}

/// The next line, if it is whole.
fn next(
    recording: &mut dyn BufRead,
    line: usize,
    is_cut: &mut bool,
) -> Result<Option<Entry>, ReplayError> {
    let mut text = Vec::new();
    io::Read::take(&mut *recording, LONGEST).read_until(b'\n', &mut text)?;
    if text.last() != Some(&b'\n') {
        *is_cut = !text.is_empty();
        return Ok(None);
    }
    let entry = serde_json::from_slice(&text);
    entry.map(Some).map_err(|error| wrong(line, &error))
}

fn wrong(line: usize, why: &(impl ToString + ?Sized)) -> ReplayError {
    let why = why.to_string();
    ReplayError::Line { line, why }
}

/// A controller without switches.
struct Running {
    state: State,
    /// What is to be answered.
    question: Option<Question>,
    /// What switches shall hold.
    tables: BTreeMap<SwitchId, Arc<Tables>>,
    /// What they are to be given, in this order.
    due: Vec<Due>,
    digests: OfTables,
    step: u64,
}

/// Tables that switches are to be given.
enum Due {
    Protection(Realise),
    Plan(Realise),
}

/// What a line came to.
struct Taken {
    it: Happened,
    is_step: bool,
    is_plan: bool,
    is_given: bool,
}

impl Running {
    fn begin(line: usize, format: u32, state: &Snapshot) -> Result<Self, ReplayError> {
        if format != FORMAT {
            let why = format!("format {format} is not the one that is read here, {FORMAT}");
            return Err(wrong(line, &why));
        }
        let state = state.restore();
        let state = state.map_err(|source| ReplayError::Content { line, source })?;
        let tables = state.decided().map_or_else(BTreeMap::new, lowered);
        Ok(Self {
            state,
            question: None,
            tables,
            due: Vec::new(),
            digests: OfTables::default(),
            step: 0,
        })
    }

    fn take(&mut self, line: usize, entry: Entry) -> Result<Taken, ReplayError> {
        let (is_step, is_given) = (
            matches!(entry, Entry::Step { .. }),
            matches!(entry, Entry::Given { .. }),
        );
        let mut it = Happened {
            line,
            step: self.step,
            at_ms: 0,
            what: String::new(),
            generation: self.state.generation(),
            plan: None,
            differences: Vec::new(),
        };
        let mut is_plan = false;
        match entry {
            // Where a recording begins anew is taken by the caller.
            Entry::Begin { at_ms, .. } => it.at_ms = at_ms,
            Entry::Step {
                step,
                at_ms,
                event,
                came,
            } => {
                (self.step, it.step, it.at_ms) = (step, step, at_ms);
                it.what = event.title();
                is_plan = matches!(*event, Recorded::Planned { .. });
                self.step(line, &event, &came, &mut it)?;
                it.generation = self.state.generation();
            }
            Entry::Given {
                at_ms,
                generation,
                tables,
            } => {
                it.at_ms = at_ms;
                it.what = format!("given to {} switches", tables.len());
                it.generation = generation;
                self.give(generation, &tables, &mut it.differences);
            }
            Entry::Held {
                at_ms,
                switch,
                generation,
                entries,
                written,
                refused,
            } => {
                it.at_ms = at_ms;
                it.generation = generation;
                it.what = format!(
                    "{switch} holds {entries} entries; {written} written, {refused} refused so far"
                );
            }
        }
        Ok(Taken {
            it,
            is_step,
            is_plan,
            is_given,
        })
    }

    /// Has the state take an event in, and compares what comes of it.
    fn step(
        &mut self,
        line: usize,
        event: &Recorded,
        came: &Outcome,
        it: &mut Happened,
    ) -> Result<(), ReplayError> {
        let read = event.read(self.state.fabric());
        let read = read.map_err(|source| ReplayError::Content { line, source })?;
        let event = match (event, read) {
            (Recorded::Refused(_), _) => return Ok(()),
            (Recorded::Planned { digest, .. }, None) => {
                let Some(question) = self.question.take() else {
                    it.differences
                        .push("a plan came, and none was asked for".to_owned());
                    return Ok(());
                };
                let answer = question.answer();
                compare(
                    "the plan",
                    digest,
                    &of_plan(&answer.plan),
                    &mut it.differences,
                );
                Event::Planned(Box::new(answer))
            }
            (_, Some(event)) => event,
            (_, None) => return Ok(()),
        };
        let mut effects = self.state.step(event);
        let now = Outcome::new(&Came::new(&effects));
        if let Some(question) = effects.question.take() {
            self.question = Some(question);
        }
        it.plan.clone_from(&now.realise);
        differences(came, &now, &mut it.differences);
        self.due.extend(effects.protect.map(Due::Protection));
        self.due.extend(effects.realise.map(Due::Plan));
        Ok(())
    }

    /// Makes what switches were given then, and compares it.
    fn give(&mut self, generation: u64, then: &BTreeMap<String, String>, told: &mut Vec<String>) {
        if self.due.is_empty() {
            told.push(format!(
                "generation {generation} was given; nothing is to be given now"
            ));
            return;
        }
        let (realise, tables) = match self.due.remove(0) {
            Due::Plan(realise) => {
                let tables = lowered(&realise);
                (realise, tables)
            }
            Due::Protection(realise) => {
                let tables = protect(&realise.wiring, &realise.fabric, &self.tables);
                (realise, tables)
            }
        };
        self.tables = tables;
        let now = named(&realise.fabric, self.digests.of(&self.tables));
        for switch in then
            .keys()
            .chain(now.keys().filter(|name| !then.contains_key(*name)))
        {
            let [then, now] = [then, &now].map(|digests| digests.get(switch));
            if then != now {
                told.push(format!("tables of {switch}: {then:?} then, {now:?} now"));
            }
        }
        compare("generation", &generation, &realise.generation, told);
    }
}

fn lowered(realise: &Realise) -> BTreeMap<SwitchId, Arc<Tables>> {
    let tables = lower(&realise.wiring, &realise.fabric, &realise.plan);
    let tables = tables.into_iter();
    tables
        .map(|(switch, tables)| (switch, Arc::new(tables)))
        .collect()
}

fn differences(then: &Outcome, now: &Outcome, told: &mut Vec<String>) {
    compare("generation", &then.generation, &now.generation, told);
    compare("refusal", &then.refused, &now.refused, told);
    compare("question", &then.asked, &now.asked, told);
    compare("protection", &then.protect, &now.protect, told);
    compare("plan in force", &then.realise, &now.realise, told);
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, then: &T, now: &T, told: &mut Vec<String>) {
    if then != now {
        told.push(format!("{what}: {then:?} then, {now:?} now"));
    }
}
