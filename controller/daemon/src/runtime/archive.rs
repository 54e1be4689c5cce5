//! What the running controller puts into its store, and when.
//!
//! [`store`](crate::store) writes; here is what is worth a write. The decision: generations are
//! reserved in blocks. A failure that is to be repaired in milliseconds does not wait for a disk,
//! and after a crash the next generation is still one that nobody has seen.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use planner::Policy;
use tokio::task::spawn_blocking;
use topology::{Fabric, Finding};
use tracing::error;

use crate::state::Event;
use crate::store::{Memory, Record, Store, StoreError};

/// Generations that are reserved together.
const BLOCK: u64 = 1_000;

/// The store, if there is one, and what is in it.
#[derive(Debug, Default)]
pub(super) struct Archive {
    store: Option<Arc<Store>>,
    memory: Memory,
    /// Up to here, generations were used up before.
    begins: u64,
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
        let store = Some(Arc::new(store));
        Ok(Self {
            store,
            memory,
            begins,
        })
    }

    /// The first term to bid in, where the configuration says `first`.
    pub(super) fn term(&self, first: u64) -> u64 {
        self.memory.term.max(first)
    }

    /// The generation after which new ones begin.
    pub(super) fn generation(&self) -> u64 {
        self.begins
    }

    /// What was in force when the controller ended: the policy, or else the `first`, and the jobs.
    /// What no longer fits the fabric is left out, and a finding says so.
    pub(super) fn recall(&self, fabric: Fabric, first: Policy) -> (Event, Vec<Finding>) {
        let policy = self.memory.policy.as_ref().map(|stored| {
            let policy = stored.validate("the stored policy")?;
            policy.apply_drains(&fabric).map(|_| policy)
        });
        let jobs = self.memory.jobs.as_ref().map(|jobs| {
            let resolved = jobs.resolve(&fabric, "the stored jobs");
            resolved.map(|resolved| resolved.jobs)
        });
        let mut lost = Vec::new();
        let policy = policy.and_then(|policy| or_lost(policy, &mut lost));
        let jobs = jobs.and_then(|jobs| or_lost(jobs, &mut lost));
        let started = Event::Started(fabric, policy.unwrap_or(first), jobs.unwrap_or_default());
        (started, lost)
    }

    /// Writes a change, unless that is what is stored. A change that cannot be written is in force
    /// all the same, and a finding says that it will be forgotten.
    pub(super) async fn keep(&mut self, record: Record) -> Option<Finding> {
        let is_news = !self.memory.holds(&record);
        let store = Arc::clone(self.store.as_ref().filter(|_| is_news)?);
        let writing = record.clone();
        let written = spawn_blocking(move || store.write(&[writing])).await;
        match written {
            Ok(Ok(())) => {
                self.memory.take(record);
                None
            }
            Ok(Err(error)) => {
                error!(error = &error as &dyn std::error::Error, "cannot store");
                let text = format!("in force, but not stored: {error}");
                Some(Finding::error("store", text))
            }
            Err(_) => Some(Finding::error("store", "in force, but storing it panicked")),
        }
    }

    /// Reserves the next generations in time.
    pub(super) async fn keep_generation(&mut self, spent: u64) -> Option<Finding> {
        let reserved = self.memory.generation;
        if self.store.is_none() || spent + BLOCK / 2 < reserved {
            return None;
        }
        self.keep(Record::Generation(reserved + BLOCK)).await
    }
}

fn or_lost<T, E: Display>(recalled: Result<T, E>, lost: &mut Vec<Finding>) -> Option<T> {
    let told = |error| Finding::warning("store", format!("not taken up again: {error}"));
    recalled.map_err(|error| lost.push(told(error))).ok()
}
