//! The database of the store, whose damage ends nothing but the call that meets it.
//!
//! redb verifies checksums only after a crash, and panics over pages that were damaged otherwise.
//! Found by fuzzing. The decision: such a panic is an error of the store, at its end as well.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::Database;
use tracing::warn;

use super::StoreError;

/// A database that may be damaged.
#[derive(Debug)]
pub(super) struct GuardedDatabase(Option<Database>);

impl GuardedDatabase {
    pub(super) fn new(database: Database) -> Self {
        Self(Some(database))
    }
}

impl Deref for GuardedDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for GuardedDatabase {
    fn drop(&mut self) {
        let database = self.0.take();
        let closed = refuse_damage(|| {
            drop(database);
            Ok(())
        });
        if let Err(error) = closed {
            warn!(%error, "cannot close the store");
        }
    }
}

/// Runs what reads or writes the file; a panic of the library is [`StoreError::Damaged`].
pub(super) fn refuse_damage<T>(
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Nothing of ours is changed by the work, so nothing is left half changed by a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(StoreError::Damaged))
}
