//! What the running controller puts into its store, and when.
//!
//! [`store`](crate::store) writes; here is what is worth a write. The decision: generations are
//! reserved in blocks. A failure that is to be repaired in milliseconds does not wait for a disk,
//! and after a crash the next generation is still one that nobody has seen.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use planner::{Job, JobsDocument, Policy};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use topology::spec::{self, FabricDocument};
use topology::{Fabric, Finding};

use crate::etcd::Desk;
use crate::ledger::{Edition, Ledger, UnixMs};
use crate::southbound::chain;
use crate::state::{Beginning, Event, State, Told};
use crate::store::{Memory, Record, Store, StoreError};

/// How long after something could not be stored what is in force is stored again.
const AGAIN: Duration = Duration::from_secs(5);
/// Generations that are reserved together.
const BLOCK: u64 = 1_000;

/// Where changes are stored.
#[derive(Clone, Debug, Default)]
enum Place {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In a file of this controller.
    File(Arc<Store>),
    /// Where all controllers look, which takes what the leader says.
    Shared(Desk),
}

/// Where changes are stored, and what is there.
#[derive(Debug, Default)]
pub(super) struct Archive {
    place: Place,
    memory: Memory,
    /// Up to here, generations were used up before.
    begins: u64,
    /// Editions of the policy that were there at the beginning.
    editions: Vec<Edition>,
    /// When to store again what is in force; all of it is stored without it.
    again: Option<Instant>,
}

impl Archive {
    /// Opens the store and takes a term and a block of generations that nobody has used.
    pub(super) fn open(path: Option<&Path>, first_term: u64) -> Result<Self, StoreError> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let store = Store::open(path)?;
        let mut memory = store.recall()?;
        let begins = memory.generation;
        memory.term = first_term.max(memory.term + 1);
        memory.generation += BLOCK;
        let term = Record::Term(memory.term);
        store.write(&[term, Record::Generation(memory.generation)])?;
        Ok(Self {
            editions: store.policies()?,
            place: Place::File(Arc::new(store)),
            memory,
            begins,
            again: None,
        })
    }

    /// From now on, stores at this desk what all controllers share; without one, another controller
    /// does. Everything that is there counts as news.
    pub(super) fn share(&mut self, desk: Option<Desk>) {
        self.place = desk.map_or(Place::Nowhere, Place::Shared);
        (self.memory, self.again) = (Memory::default(), None);
    }

    /// What another controller has stored since; from now on it counts as stored.
    pub(super) fn follow(&mut self, memory: Memory) -> Vec<Record> {
        let news = memory.documents();
        let news = news.filter(|record| !self.memory.holds(record)).collect();
        self.memory = memory;
        news
    }

    /// Which of these are stored nowhere though something else could have been.
    pub(super) fn missing(&self, records: [Record; 3]) -> impl Iterator<Item = Record> + use<> {
        let Memory {
            policy, jobs, told, ..
        } = &self.memory;
        let has = [policy.is_some(), jobs.is_some(), told.is_some()];
        let pairs = records.into_iter().zip(has);
        pairs.filter(|(_, has)| !has).map(|(record, _)| record)
    }

    /// The first term to bid in, where the configuration says `first`.
    pub(super) fn term(&self, first: u64) -> u64 {
        self.memory.term.max(first)
    }

    /// The generation after which new ones begin.
    pub(super) fn generation(&self) -> u64 {
        self.begins
    }

    /// The fabric of these switches, as far as it was found before; they are reached where
    /// `inventory` says. Nothing if no more than that was found.
    pub(super) fn found(&self, inventory: &Fabric) -> Result<Option<Fabric>, String> {
        let Some(found) = &self.memory.fabric else {
            return Ok(None);
        };
        let known = spec::document(inventory);
        let whole = completed(&known, found)?;
        let fabric = Fabric::try_from(&whole).map_err(|error| error.to_string())?;
        Ok(Some(fabric).filter(|_| whole != known))
    }

    /// What was in force when the controller ended: the policy, or else the `first`, and the jobs.
    /// What no longer fits the fabric is left out, and a finding says so.
    pub(super) fn recall(
        &self,
        fabric: Fabric,
        first: &Policy,
        now: UnixMs,
    ) -> (Event, Vec<Finding>) {
        let mut lost = Vec::new();
        let mut beginning = Beginning {
            fabric,
            ledger: Ledger::new(Edition::first(first), []),
            jobs: Vec::new(),
            told: Told::default(),
        };
        for record in self.memory.documents() {
            match or_lost(read(&record, &beginning.fabric), &mut lost) {
                Some(Event::EditionStored(stored)) => {
                    let latest = stored.number;
                    let earlier = self.editions.iter().filter(|one| one.number < latest);
                    beginning.ledger = Ledger::new(stored.at(now), earlier.cloned());
                }
                Some(Event::JobsChanged(stored)) => beginning.jobs = stored,
                Some(Event::JobsTold(stored)) => beginning.told = stored,
                _ => {}
            }
        }
        (Event::Started(Box::new(beginning)), lost)
    }

    /// What the controller goes on with on another fabric: the policy in force, and of the jobs,
    /// stored or in force, those whose hosts are there. The others are kept for when theirs are.
    pub(super) fn carry(&self, fabric: Fabric, state: &State) -> Event {
        let told = Told {
            profiled: state.told().profiled.clone(),
            ..Told::default()
        };
        let mut beginning = Beginning {
            fabric,
            ledger: state.ledger().clone(),
            jobs: Vec::new(),
            told,
        };
        let in_force = state.records().into_iter();
        for record in in_force.chain(self.memory.documents()) {
            match record {
                Record::Jobs(stored) => beginning.jobs = possible(&stored, &beginning.fabric),
                Record::Told(stored) => beginning.told.jobs = possible(&stored, &beginning.fabric),
                _ => {}
            }
        }
        Event::Started(Box::new(beginning))
    }

    /// When to store again what is in force.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// Stores what is in force once more, as far as it is not known to be stored. It has been told
    /// once that it could not be, and is not told again.
    pub(super) async fn keep_again(&mut self, records: impl Iterator<Item = Record>) {
        self.again = None;
        for record in records {
            if self.store(record).await.is_err() {
                return;
            }
        }
    }

    /// Writes a change, unless that is what is stored. A change that cannot be written is in force
    /// all the same: a finding says that it would be forgotten.
    pub(super) async fn keep(&mut self, record: Record) -> Option<Finding> {
        let why = self.store(record).await.err()?;
        let text = format!("in force, but not stored: {why}");
        Some(Finding::error("store", text))
    }

    /// Writes a change that is to count only if it is written, unless that is what is stored. If it
    /// fails, what is stored is not known, since it may be an answer that was lost; soon what is in
    /// force is stored again.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub(super) async fn store(&mut self, record: Record) -> Result<(), String> {
        if self.memory.holds(&record) {
            return Ok(());
        }
        let (place, writing) = (self.place.clone(), record.clone());
        let written = match place {
            Place::Nowhere => return Ok(()),
            Place::File(store) => {
                let written = spawn_blocking(move || store.write(&[writing])).await;
                match written {
                    Ok(written) => written.map_err(|error| chain(&error)),
                    Err(_) => Err("storing it panicked".to_owned()),
                }
            }
            Place::Shared(desk) => desk.store(writing).await.map_err(|error| chain(&error)),
        };
        match written {
            Ok(()) => self.memory.take(record),
            Err(_) => {
                self.memory.forget(&record);
                self.again = Some(Instant::now() + AGAIN);
            }
        }
        written
    }

    /// Reserves the next generations in time.
    pub(super) async fn keep_generation(&mut self, spent: u64) -> Option<Finding> {
        let reserved = self.memory.generation;
        if spent + BLOCK / 2 < reserved {
            return None;
        }
        self.keep(Record::Generation(spent + BLOCK)).await
    }
}

/// What a stored document says about `fabric`.
pub(super) fn read(record: &Record, fabric: &Fabric) -> Result<Event, String> {
    match record {
        Record::Policy(stored) => {
            let policy = stored.content.validate("the stored policy");
            let policy = policy.map_err(|error| error.to_string())?;
            let checked = policy.check_on(fabric);
            checked.map_err(|error| error.to_string())?;
            Ok(Event::EditionStored(stored.clone()))
        }
        Record::Jobs(stored) => {
            let jobs = resolved(stored, fabric, "the stored jobs")?;
            Ok(Event::JobsChanged(jobs))
        }
        // Of what ran when it was stored enough was known, or will be soon.
        Record::Told(stored) => Ok(Event::JobsTold(Told {
            jobs: resolved(stored, fabric, "the stored jobs of telemetry")?,
            ..Told::default()
        })),
        Record::Term(_) | Record::Generation(_) | Record::Fabric(_) => {
            Err("no document about a fabric".to_owned())
        }
    }
}

/// What is known of switches, with the cables and hosts that were found among them.
fn completed(known: &FabricDocument, found: &FabricDocument) -> Result<FabricDocument, String> {
    let mut switches = known.switches.clone();
    for before in &found.switches {
        let mut same = switches.iter_mut().filter(|now| now.name == before.name);
        let same = same.next();
        let same = same.ok_or_else(|| format!("switch {} is not there any more", before.name))?;
        same.tier = before.tier;
    }
    Ok(FabricDocument {
        switches,
        ..found.clone()
    })
}

/// The jobs whose hosts are all there.
fn possible(stored: &JobsDocument, fabric: &Fabric) -> Vec<Job> {
    let alone = stored.jobs.iter().map(|job| JobsDocument {
        jobs: vec![job.clone()],
    });
    let possible = alone.filter_map(|job| resolved(&job, fabric, "the jobs").ok());
    possible.flatten().collect()
}

fn resolved(stored: &JobsDocument, fabric: &Fabric, name: &str) -> Result<Vec<Job>, String> {
    let resolved = stored.resolve(fabric, name);
    resolved
        .map(|resolved| resolved.jobs)
        .map_err(|error| error.to_string())
}

/// The value, or a finding that says why there is none.
pub(super) fn or_lost<T>(read: Result<T, String>, lost: &mut Vec<Finding>) -> Option<T> {
    let told = |error| Finding::warning("store", format!("not taken up: {error}"));
    read.map_err(|error| lost.push(told(error))).ok()
}
