//! The thread that turns notes into lines and writes them.
//!
//! The decision: everything that costs time (names, digests, the disk) is done here and not in the
//! event loop. A failed write ends the recording: retries would begin new files and so delete older
//! ones, which are worth more.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use topology::{Fabric, FabricParts};
use tracing::error;

use super::digest::TableDigests;
use super::file_ring::FileRing;
use super::record::{FORMAT, RecordLine};
use super::{RecorderNote, StepNote};
use crate::config::RecordingConfig;
use crate::southbound::DesiredTables;
use crate::state::{StateEvent, StateSnapshot};

/// The state of the writing thread.
#[derive(Debug)]
pub(super) struct RecordingWriter {
    ring: FileRing,
    file_bytes: u64,
    is_full: Arc<AtomicBool>,
    /// The fabric as of the latest event, without later failures and drains.
    fabric: Fabric,
    digests: TableDigests,
    steps: u64,
}

impl RecordingWriter {
    /// Opens the ring of files.
    pub(super) fn open(recording: &RecordingConfig, is_full: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self {
            ring: FileRing::open(&recording.folder, recording.files)?,
            file_bytes: recording.file_bytes,
            is_full,
            fabric: Fabric::new(FabricParts::default()),
            digests: TableDigests::default(),
            steps: 0,
        })
    }

    /// Writes notes until the recorder is dropped.
    pub(super) fn write_notes(mut self, notes: &Receiver<RecorderNote>) {
        for note in notes {
            if let Err(why) = self.write_note(note) {
                error!("the flight recorder stops: {why}");
                return;
            }
        }
    }

    fn write_note(&mut self, note: RecorderNote) -> io::Result<()> {
        if matches!(note, RecorderNote::Begin(..)) {
            self.ring.start_next_file()?;
            self.steps = 0;
        }
        let entry = self.line_for(note);
        let mut line = serde_json::to_vec(&entry).expect("lines have text for keys");
        line.push(b'\n');
        if self.ring.append_line(&line)? >= self.file_bytes {
            self.is_full.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn line_for(&mut self, note: RecorderNote) -> RecordLine {
        match note {
            RecorderNote::Begin(at_ms, state) => {
                self.fabric = state.fabric().clone();
                RecordLine::Begin {
                    format: FORMAT,
                    crux: env!("CARGO_PKG_VERSION").to_owned(),
                    at_ms,
                    state: Box::new(StateSnapshot::new(&state)),
                }
            }
            RecorderNote::Step(step) => self.step_line(&step),
            RecorderNote::Published(at_ms, desired, names) => RecordLine::Published {
                at_ms,
                generation: desired.generation,
                tables: self.table_digests(&desired, &names),
            },
            RecorderNote::Held(at_ms, held) => RecordLine::from_held(at_ms, held),
        }
    }

    fn step_line(&mut self, step: &StepNote) -> RecordLine {
        self.steps += 1;
        let is_taken = step.effects.refused.is_none();
        match &step.event {
            StateEvent::Started(start) if is_taken => self.fabric = start.fabric.clone(),
            StateEvent::FabricLearned(fabric) if is_taken => self.fabric = fabric.clone(),
            _ => {}
        }
        RecordLine::from_step(self.steps, step, &self.fabric)
    }

    fn table_digests(
        &mut self,
        desired: &DesiredTables,
        names: &[String],
    ) -> BTreeMap<String, String> {
        let digests = self.digests.digest_all(&desired.tables).into_iter();
        digests
            .filter_map(|(switch, digest)| Some((names.get(switch.index())?.clone(), digest)))
            .collect()
    }
}
