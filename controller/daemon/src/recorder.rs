//! The flight recorder: the inputs of the state, the effects of each, and what was written to the
//! switches, in files whose replay gives the same plans.
//!
//! [`runtime`](crate::runtime) records every call of [`State::step`]; a thread of its own
//! serializes the records as JSON lines into a ring of files, and [`replay`] repeats a file. Two
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

/// Notes that may wait for the disk.
const QUEUED_NOTES: usize = 1_024;

/// The recorder, which does nothing where none is configured.
#[derive(Debug, Default)]
pub(crate) struct FlightRecorder {
    thread: Option<RecorderThread>,
}

/// The thread that writes, and what was sent to it.
#[derive(Debug)]
struct RecorderThread {
    notes: Option<SyncSender<RecorderNote>>,
    /// Whether the file is full, or could not be written.
    is_full: Arc<AtomicBool>,
    /// Whether something was skipped, or nothing is recorded yet.
    needs_new_file: bool,
    /// Whether this file has the plan request under way.
    requested_here: bool,
    /// The generations that the state rolled out last and that was published last.
    rolled_out: u64,
    published: u64,
    /// The last note on each switch.
    held: BTreeMap<SwitchId, HeldTables>,
    writing: Option<JoinHandle<()>>,
}

/// A message to the thread.
#[derive(Debug)]
pub(crate) enum RecorderNote {
    /// A new file, which begins with this state.
    Begin(UnixMs, Box<State>),
    /// The state applied or refused an event.
    Step(Box<StepNote>),
    /// Tables were published to the sessions.
    Published(UnixMs, Arc<DesiredTables>, Vec<String>),
    /// A switch was verified to hold tables.
    Held(UnixMs, HeldTables),
}

/// A call of [`State::step`].
#[derive(Debug)]
pub(crate) struct StepNote {
    at_ms: UnixMs,
    event: StateEvent,
    /// Whether to record the whole plan of the event, as its request is in an earlier file.
    has_whole_plan: bool,
    effects: StepEffects,
}

/// The recorded effects of a step.
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

/// The tables that a switch was verified to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldTables {
    switch: String,
    generation: u64,
    entries: usize,
    /// Entries written to it since its session began.
    written: u64,
    refused: u64,
}

/// An event that the state is about to apply.
#[derive(Debug)]
pub(crate) struct PendingStep {
    event: StateEvent,
    has_whole_plan: bool,
}

impl FlightRecorder {
    /// Starts recording, if it is configured.
    ///
    /// # Errors
    /// The folder cannot be created or read.
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
                rolled_out: 0,
                published: 0,
                held: BTreeMap::new(),
                writing: Some(writing),
            }),
        })
    }

    /// Notes an event that `state` is about to apply.
    pub(crate) fn begin_step(
        &mut self,
        event: &StateEvent,
        state: &State,
        now: UnixMs,
    ) -> Option<PendingStep> {
        let thread = self.thread.as_mut()?;
        // A new file begins before the step, with the state that the step starts from, and only
        // while the sessions have the tables of that state.
        let is_settled = thread.rolled_out == thread.published;
        if is_settled && (thread.needs_new_file || thread.is_full.swap(false, Ordering::Relaxed)) {
            thread.needs_new_file =
                !thread.try_send(RecorderNote::Begin(now, Box::new(state.clone())));
            thread.requested_here = false;
        }
        (!thread.needs_new_file)
            .then(|| PendingStep { event: event.clone(), has_whole_plan: !thread.requested_here })
    }

    /// Notes the effects of the step.
    pub(crate) fn finish_step(
        &mut self,
        pending: Option<PendingStep>,
        effects: &Effects,
        now: UnixMs,
    ) {
        let Some(thread) = self.thread.as_mut() else {
            return;
        };
        if effects.protection.is_some() || effects.rollout.is_some() {
            thread.rolled_out = effects.generation;
        }
        let Some(pending) = pending else {
            return;
        };
        thread.requested_here |= effects.plan_request.is_some();
        thread.send_note(RecorderNote::Step(Box::new(StepNote {
            at_ms: now,
            event: pending.event,
            has_whole_plan: pending.has_whole_plan,
            effects: StepEffects::new(effects),
        })));
    }

    /// Notes the tables that the sessions get.
    pub(crate) fn note_published(
        &mut self,
        desired: &Arc<DesiredTables>,
        rollout: &PlanRollout,
        now: UnixMs,
    ) {
        if let Some(thread) = self.thread.as_mut() {
            thread.published = desired.generation;
            let switches = rollout.fabric.switches().iter();
            let names = switches.map(|switch| switch.name.clone()).collect();
            thread.send_note(RecorderNote::Published(now, Arc::clone(desired), names));
        }
    }

    /// Notes what switches hold, where it changed since the last call.
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
    /// Sends a note without waiting; whether it was accepted.
    fn try_send(&mut self, note: RecorderNote) -> bool {
        let Some(notes) = &self.notes else {
            return false;
        };
        match notes.try_send(note) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Sends a note for the present file, which ends if the note is not accepted.
    fn send_note(&mut self, note: RecorderNote) {
        if !self.needs_new_file && !self.try_send(note) {
            warn!("the flight recorder falls behind; it drops records and begins a new file");
            self.needs_new_file = true;
        }
    }
}

/// Waits until the thread has written all notes.
impl Drop for RecorderThread {
    fn drop(&mut self) {
        // Closing the queue ends the thread; joining it first would wait for ever.
        self.notes = None;
        if let Some(writing) = self.writing.take() {
            // A thread that has panicked has ended as well.
            drop(writing.join());
        }
    }
}
