//! The thread that writes: notes in, lines out.
//!
//! The decision: everything that costs time (names, digests, the disk) is done here and not where
//! the controller decides. What cannot be written ends the recording: another try would take the
//! place of older files, which are worth more.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use topology::{Fabric, Parts, SwitchId};
use tracing::error;

use super::digest::OfTables;
use super::line::{Entry, FORMAT};
use super::ring::Ring;
use super::{Note, Recording, Step};
use crate::southbound::Desired;
use crate::state::{Event, Snapshot};

/// What the thread has.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    file_bytes: u64,
    is_full: Arc<AtomicBool>,
    /// As of the latest event, without what has befallen it.
    fabric: Fabric,
    digests: OfTables,
    steps: u64,
}

impl Writer {
    /// Opens the ring.
    pub(super) fn open(recording: &Recording, is_full: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::open(&recording.folder, recording.files)?,
            file_bytes: recording.file_bytes,
            is_full,
            fabric: Fabric::new(Parts::default()),
            digests: OfTables::default(),
            steps: 0,
        })
    }

    /// Writes until nobody notes anything any more.
    pub(super) fn run(mut self, notes: &Receiver<Note>) {
        for note in notes {
            if let Err(why) = self.write(note) {
                error!("the flight recorder ends: {why}");
                return;
            }
        }
    }

    fn write(&mut self, note: Note) -> io::Result<()> {
        if matches!(note, Note::Begin(..)) {
            self.ring.turn()?;
            self.steps = 0;
        }
        let entry = self.entry(note);
        let mut line = serde_json::to_vec(&entry).expect("lines have text for keys");
        line.push(b'\n');
        if self.ring.append(&line)? >= self.file_bytes {
            self.is_full.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn entry(&mut self, note: Note) -> Entry {
        match note {
            Note::Begin(at_ms, state) => {
                self.fabric = state.fabric().clone();
                Entry::Begin {
                    format: FORMAT,
                    crux: env!("CARGO_PKG_VERSION").to_owned(),
                    at_ms,
                    state: Box::new(Snapshot::new(&state)),
                }
            }
            Note::Step(step) => self.step(&step),
            Note::Given(at_ms, desired, names) => Entry::Given {
                at_ms,
                generation: desired.generation,
                tables: self.tables(&desired, &names),
            },
            Note::Held(at_ms, held) => Entry::held(at_ms, held),
        }
    }

    fn step(&mut self, step: &Step) -> Entry {
        self.steps += 1;
        let is_taken = step.came.refused.is_none();
        match &step.event {
            Event::Started(beginning) if is_taken => self.fabric = beginning.fabric.clone(),
            Event::FabricLearned(fabric) if is_taken => self.fabric = fabric.clone(),
            _ => {}
        }
        Entry::step(self.steps, step, &self.fabric)
    }

    fn tables(&mut self, desired: &Desired, names: &[String]) -> BTreeMap<String, String> {
        let digests = self.digests.of(&desired.tables).into_iter();
        let named = |(switch, digest): (SwitchId, String)| {
            Some((names.get(switch.index())?.clone(), digest))
        };
        digests.filter_map(named).collect()
    }
}
