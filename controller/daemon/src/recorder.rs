//! The flight recorder: the inputs of the state, the effects of each, and what was written to the
//! switches, in files whose replay gives the same plans.
//!
//! [`runtime`](crate::runtime) records every call of [`State::step`]; a thread of its own
//! serializes the records as JSON lines into a ring of files, and [`replay`] runs a file again. Two
//! decisions. The controller never waits for the recorder: a recorder that falls behind drops
//! records and begins a new file. And every file begins with the whole state, so each can be read
//! alone, and the oldest can be deleted at any time.

mod digest;
mod file_ring;
mod record;
pub mod replay;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use topology::SwitchId;
use tracing::warn;

use self::writer::RecordingWriter;
use crate::config::RecordingConfig;
use crate::policy_history::UnixMs;
use crate::southbound::{DesiredTables, StatusBoard};
use crate::state::{Effects, PlanRollout, State, StateEvent};

/// Notes that wait for the disk.
const QUEUED_NOTES: usize = 1_024;

/// A recorder, or none.
#[derive(Debug, Default)]
pub(crate) struct FlightRecorder {
    thread: Option<RecorderThread>,
}

/// The way to the thread that writes.
#[derive(Debug)]
struct RecorderThread {
    notes: Option<SyncSender<RecorderNote>>,
    /// Whether the file is full, or could not be written.
    is_full: Arc<AtomicBool>,
    /// Whether something was skipped, or nothing is recorded yet.
    needs_new_file: bool,
    /// Whether the question that is out was asked in this file.
    requested_here: bool,
    /// What each switch was last noted to hold.
    held: BTreeMap<SwitchId, HeldTables>,
    writing: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum RecorderNote {
    /// A new file, which begins with this state.
    Begin(UnixMs, Box<State>),
    /// The state took an event in.
    Step(Box<StepNote>),
    /// Switches were given tables.
    Published(UnixMs, Arc<DesiredTables>, Vec<String>),
    /// A switch was seen to hold them.
    Held(UnixMs, HeldTables),
}

/// A call of [`State::step`].
#[derive(Debug)]
pub(crate) struct StepNote {
    at_ms: UnixMs,
    event: StateEvent,
    /// Whether the plan in the event is to be recorded whole, as the question was asked before the
    /// file began.
    has_whole_plan: bool,
    effects: StepEffects,
}

/// What came of it.
#[derive(Clone, Debug)]
struct StepEffects {
    generation: u64,
    refused: Option<String>,
    requested: bool,
    protection: Option<PlanRollout>,
    rollout: Option<PlanRollout>,
}

impl StepEffects {
    fn new(effects: &Effects) -> Self {
        Self {
            generation: effects.generation,
            refused: effects.refusal.as_ref().map(|finding| finding.text.clone()),
            requested: effects.plan_request.is_some(),
            protection: effects.protection.clone(),
            rollout: effects.rollout.clone(),
        }
    }
}

/// What a switch was seen to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldTables {
    switch: String,
    generation: u64,
    entries: usize,
    /// Entries written to it since its session began.
    written: u64,
    refused: u64,
}

/// An event on its way into the state.
#[derive(Debug)]
pub(crate) struct PendingStep {
    event: StateEvent,
    has_whole_plan: bool,
}

impl FlightRecorder {
    /// Begins to record, where `recording` says so.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub(crate) fn open(recording: Option<&RecordingConfig>) -> std::io::Result<Self> {
        let Some(recording) = recording else {
            return Ok(Self::default());
        };
        let is_full = Arc::new(AtomicBool::new(false));
        let (notes, queue) = sync_channel(QUEUED_NOTES);
        let writer = RecordingWriter::open(recording, Arc::clone(&is_full))?;
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let writing = thread.spawn(move || writer.write_notes(&queue))?;
        Ok(Self {
            thread: Some(RecorderThread {
                notes: Some(notes),
                is_full,
                needs_new_file: true,
                requested_here: false,
                held: BTreeMap::new(),
                writing: Some(writing),
            }),
        })
    }

    /// Notes an event that `state` is about to take in.
    pub(crate) fn begin_step(
        &mut self,
        event: &StateEvent,
        state: &State,
        now: UnixMs,
    ) -> Option<PendingStep> {
        let thread = self.thread.as_mut()?;
        if thread.needs_new_file || thread.is_full.swap(false, Ordering::Relaxed) {
            thread.needs_new_file = !thread.try_send(RecorderNote::Begin(now, Box::new(state.clone())));
            thread.requested_here = false;
        }
        (!thread.needs_new_file)
            .then(|| PendingStep { event: event.clone(), has_whole_plan: !thread.requested_here })
    }

    /// Notes what came of it.
    pub(crate) fn finish_step(
        &mut self,
        pending: Option<PendingStep>,
        effects: &Effects,
        now: UnixMs,
    ) {
        let (Some(thread), Some(pending)) = (self.thread.as_mut(), pending) else {
            return;
        };
        thread.requested_here |= effects.plan_request.is_some();
        let came = StepEffects::new(effects);
        thread.send_note(RecorderNote::Step(Box::new(StepNote {
            at_ms: now,
            event: pending.event,
            has_whole_plan: pending.has_whole_plan,
            effects: came,
        })));
    }

    /// Notes what switches are given.
    pub(crate) fn note_published(
        &mut self,
        desired: &Arc<DesiredTables>,
        rollout: &PlanRollout,
        now: UnixMs,
    ) {
        if let Some(thread) = self.thread.as_mut() {
            let switches = rollout.fabric.switches().iter();
            let names = switches.map(|switch| switch.name.clone()).collect();
            thread.send_note(RecorderNote::Published(now, Arc::clone(desired), names));
        }
    }

    /// Notes what switches were seen to hold since this was last asked.
    pub(crate) fn note_held(&mut self, board: &StatusBoard, now: UnixMs) {
        let Some(thread) = self.thread.as_mut() else {
            return;
        };
        let mut changed = Vec::new();
        board.for_each_status(|switch, status| {
            let Some(verified) = status.verified else {
                return;
            };
            let held = HeldTables {
                switch: status.name.clone(),
                generation: verified.generation,
                entries: verified.entries,
                written: status.written.total_entries(),
                refused: status.written.refused,
            };
            if thread.held.get(&switch) != Some(&held) {
                thread.held.insert(switch, held.clone());
                changed.push(held);
            }
        });
        changed.into_iter().for_each(|held| thread.send_note(RecorderNote::Held(now, held)));
    }
}

impl RecorderThread {
    /// Whether the note was taken.
    fn try_send(&mut self, note: RecorderNote) -> bool {
        let Some(notes) = &self.notes else {
            return false;
        };
        match notes.try_send(note) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Sends a note of the present file, which ends where one is not taken.
    fn send_note(&mut self, note: RecorderNote) {
        if !self.needs_new_file && !self.try_send(note) {
            warn!("the flight recorder cannot follow; it begins a new file");
            self.needs_new_file = true;
        }
    }
}

/// What was noted is on its way to the disk when this returns.
impl Drop for RecorderThread {
    fn drop(&mut self) {
        self.notes = None;
        if let Some(writing) = self.writing.take() {
            // If it has panicked, it has ended as well.
            drop(writing.join());
        }
    }
}
