//! The database of the store, whose damage ends nothing but the call that meets it, and whose disk
//! may fail for a while.
//!
//! redb verifies checksums only after a crash, and panics over pages that were damaged otherwise.
//! Found by fuzzing. The decision: such a panic is an error of the store, at its end as well. And
//! once a disk was full, redb refuses everything until the database is opened again, so the next
//! call opens it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use redb::{Database, DatabaseError};
use tracing::warn;

use super::{StoreError, open_error};

/// Opens the database, for the first time or after its disk failed.
type OpenDatabase = dyn Fn() -> Result<Database, DatabaseError> + Send + Sync;

/// A database that may be damaged.
pub(super) struct GuardedDatabase {
    open: Box<OpenDatabase>,
    /// None while it cannot be opened again. Written while it is opened, read by all calls.
    database: RwLock<Option<Database>>,
}

impl GuardedDatabase {
    /// Opens it.
    pub(super) fn open(
        open: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let database = refuse_damage(|| open().map_err(open_error))?;
        Ok(Self { open: Box::new(open), database: RwLock::new(Some(database)) })
    }

    /// Runs what reads or writes; `what` is the one or the other. If the disk failed a call before,
    /// the database is opened again first.
    pub(super) fn access<T>(
        &self,
        what: &'static str,
        work: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let failed = |source| StoreError::Access { what, source: Box::new(source) };
        match self.try_access(&work)? {
            Err(redb::Error::PreviousIo) => {
                self.reopen()?;
                self.try_access(&work)?.map_err(failed)
            }
            done => done.map_err(failed),
        }
    }

    /// Runs it on the database as it is. One that could not be opened again is one whose disk
    /// failed.
    fn try_access<T>(
        &self,
        work: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<Result<T, redb::Error>, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        refuse_damage(|| Ok(database.as_ref().map_or(Err(redb::Error::PreviousIo), work)))
    }

    /// Closes the database and opens it again.
    fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        close(database.take());
        *database = Some(refuse_damage(|| (self.open)().map_err(open_error))?);
        Ok(())
    }
}

impl fmt::Debug for GuardedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedDatabase").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Drop for GuardedDatabase {
    fn drop(&mut self) {
        close(self.database.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Closes a database, damaged or not.
fn close(database: Option<Database>) {
    let closed = refuse_damage(|| {
        drop(database);
        Ok(())
    });
    if let Err(error) = closed {
        warn!(%error, "cannot close the store");
    }
}

/// Runs what reads or writes the file; a panic of the library is [`StoreError::Damaged`].
pub(super) fn refuse_damage<T>(
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Nothing of ours is changed by the work, so nothing is left half changed by a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(StoreError::Damaged))
}
