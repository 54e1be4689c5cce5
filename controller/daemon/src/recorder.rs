//! The flight recorder: what the state took in, what came of it and what switches were given, in
//! files that run again to the same plans.
//!
//! [`runtime`](crate::runtime) notes every call of [`State::step`]; a thread of its own turns the
//! notes into lines of JSON and writes them to a ring of files, and [`replay`] runs a file
//! again. Two decisions. The recorder is never waited for: where it cannot follow, it skips, and
//! begins a new file. And every file begins with the whole state, so each can be read alone, and
//! the oldest can go at any time.

mod digest;
mod line;
pub mod replay;
mod ring;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use topology::SwitchId;
use tracing::warn;

use self::writer::Writer;
use crate::ledger::UnixMs;
use crate::southbound::{Board, Desired};
use crate::state::{Effects, Event, Realise, State};

/// Notes that wait for the disk.
const NOTES: usize = 1_024;

/// Where a controller records, and how much.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The folder of the ring; it is made if it is not there.
    pub folder: PathBuf,
    /// A file that is longer is followed by the next.
    pub file_bytes: u64,
    /// Files that are kept.
    pub files: usize,
}

/// A recorder, or none.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    line: Option<Line>,
}

/// The way to the thread that writes.
#[derive(Debug)]
struct Line {
    notes: Option<SyncSender<Note>>,
    /// Whether the file is full, or could not be written.
    is_full: Arc<AtomicBool>,
    /// Whether something was skipped, or nothing is recorded yet.
    begins: bool,
    /// Whether the question that is out was asked in this file.
    asked_here: bool,
    /// What each switch was last noted to hold.
    held: BTreeMap<SwitchId, Held>,
    writing: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Note {
    /// A new file, which begins with this state.
    Begin(UnixMs, Box<State>),
    /// The state took an event in.
    Step(Box<Step>),
    /// Switches were given tables.
    Given(UnixMs, Arc<Desired>, Vec<String>),
    /// A switch was seen to hold them.
    Held(UnixMs, Held),
}

/// A call of [`State::step`].
#[derive(Debug)]
pub(crate) struct Step {
    at_ms: UnixMs,
    event: Event,
    /// Whether the plan in the event is to be recorded whole, as the question was asked before the
    /// file began.
    whole: bool,
    came: Came,
}

/// What came of it.
#[derive(Clone, Debug)]
struct Came {
    generation: u64,
    refused: Option<String>,
    asked: bool,
    protect: Option<Realise>,
    realise: Option<Realise>,
}

impl Came {
    fn new(effects: &Effects) -> Self {
        Self {
            generation: effects.generation,
            refused: effects.refusal.as_ref().map(|finding| finding.text.clone()),
            asked: effects.question.is_some(),
            protect: effects.protect.clone(),
            realise: effects.realise.clone(),
        }
    }
}

/// What a switch was seen to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    switch: String,
    generation: u64,
    entries: usize,
    /// Entries written to it since its session began.
    written: u64,
    refused: u64,
}

/// An event on its way into the state.
#[derive(Debug)]
pub(crate) struct Noted {
    event: Event,
    whole: bool,
}

impl Recorder {
    /// Begins to record, where `recording` says so.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub(crate) fn open(recording: Option<&Recording>) -> std::io::Result<Self> {
        let Some(recording) = recording else {
            return Ok(Self::default());
        };
        let is_full = Arc::new(AtomicBool::new(false));
        let (notes, queue) = sync_channel(NOTES);
        let writer = Writer::open(recording, Arc::clone(&is_full))?;
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let writing = thread.spawn(move || writer.run(&queue))?;
        Ok(Self {
            line: Some(Line {
                notes: Some(notes),
                is_full,
                begins: true,
                asked_here: false,
                held: BTreeMap::new(),
                writing: Some(writing),
            }),
        })
    }

    /// Notes an event that `state` is about to take in.
    pub(crate) fn note(&mut self, event: &Event, state: &State, now: UnixMs) -> Option<Noted> {
        let line = self.line.as_mut()?;
        if line.begins || line.is_full.swap(false, Ordering::Relaxed) {
            line.begins = !line.send(Note::Begin(now, Box::new(state.clone())));
            line.asked_here = false;
        }
        (!line.begins).then(|| Noted {
            event: event.clone(),
            whole: !line.asked_here,
        })
    }

    /// Notes what came of it.
    pub(crate) fn came(&mut self, noted: Option<Noted>, effects: &Effects, now: UnixMs) {
        let (Some(line), Some(noted)) = (self.line.as_mut(), noted) else {
            return;
        };
        line.asked_here |= effects.question.is_some();
        let came = Came::new(effects);
        line.tell(Note::Step(Box::new(Step {
            at_ms: now,
            event: noted.event,
            whole: noted.whole,
            came,
        })));
    }

    /// Notes what switches are given.
    pub(crate) fn given(&mut self, desired: &Arc<Desired>, realise: &Realise, now: UnixMs) {
        if let Some(line) = self.line.as_mut() {
            let switches = realise.fabric.switches().iter();
            let names = switches.map(|switch| switch.name.clone()).collect();
            line.tell(Note::Given(now, Arc::clone(desired), names));
        }
    }

    /// Notes what switches were seen to hold since this was last asked.
    pub(crate) fn look(&mut self, board: &Board, now: UnixMs) {
        let Some(line) = self.line.as_mut() else {
            return;
        };
        let mut news = Vec::new();
        board.for_each(|switch, status| {
            let Some(verified) = status.verified else {
                return;
            };
            let held = Held {
                switch: status.name.clone(),
                generation: verified.generation,
                entries: verified.entries,
                written: status.written.entries(),
                refused: status.written.refused,
            };
            if line.held.get(&switch) != Some(&held) {
                line.held.insert(switch, held.clone());
                news.push(held);
            }
        });
        news.into_iter()
            .for_each(|held| line.tell(Note::Held(now, held)));
    }
}

impl Line {
    /// Whether the note was taken.
    fn send(&mut self, note: Note) -> bool {
        let Some(notes) = &self.notes else {
            return false;
        };
        match notes.try_send(note) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Sends a note of the present file, which ends where one is not taken.
    fn tell(&mut self, note: Note) {
        if !self.begins && !self.send(note) {
            warn!("the flight recorder cannot follow; it begins a new file");
            self.begins = true;
        }
    }
}

/// What was noted is on its way to the disk when this returns.
impl Drop for Line {
    fn drop(&mut self) {
        self.notes = None;
        if let Some(writing) = self.writing.take() {
            // If it has panicked, it has ended as well.
            drop(writing.join());
        }
    }
}
