//! The database of the store, whose damage ends nothing but the call that meets it, and whose disk
//! may fail for a while.
//!
//! redb verifies checksums only after a crash, and panics over pages that were damaged otherwise.
//! Found by fuzzing. The decision: such a panic is an error of the store, at its end as well. And
//! once a disk was full, redb refuses everything until the database is opened again, so the next
//! call opens it. Opening writes, too: where the disk takes nothing, a copy in memory is read.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, StorageBackend};
use tracing::warn;

use super::{StoreError, open_error};

/// Opens the database, for the first time or after its disk failed.
type OpenDatabase = dyn Fn() -> Result<Database, DatabaseError> + Send + Sync;
/// The bytes of the database.
type ReadDatabase = dyn Fn() -> io::Result<Vec<u8>> + Send + Sync;

/// A database that may be damaged.
pub(super) struct GuardedDatabase {
    open: Box<OpenDatabase>,
    read: Box<ReadDatabase>,
    /// Written while it is opened, read by all calls.
    database: RwLock<OpenedDatabase>,
}

/// How far the database is open.
#[derive(Debug)]
enum OpenedDatabase {
    Whole(Database),
    /// A copy in memory, because the disk takes no write.
    Copy(Database),
    /// It could not be opened again.
    Closed,
}

/// What a call does with the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl GuardedDatabase {
    /// Opens it; `read` returns its bytes, where the disk takes no write.
    pub(super) fn open(
        open: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static,
        read: impl Fn() -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let database = RwLock::new(OpenedDatabase::Closed);
        let guarded = Self { open: Box::new(open), read: Box::new(read), database };
        guarded.reopen(Access::Read)?;
        Ok(guarded)
    }

    /// Runs what reads or writes. If the disk failed a call before, the database is opened again
    /// first.
    pub(super) fn access<T>(
        &self,
        access: Access,
        work: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let what = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let failed = |source| StoreError::Access { what, source: Box::new(source) };
        match self.try_access(access, &work)? {
            Err(redb::Error::PreviousIo) => {
                self.reopen(access)?;
                self.try_access(access, &work)?.map_err(failed)
            }
            done => done.map_err(failed),
        }
    }

    /// Runs it on the database as it is. One that could not be opened again, or only as a copy, is
    /// one whose disk failed.
    fn try_access<T>(
        &self,
        access: Access,
        work: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<Result<T, redb::Error>, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        refuse_damage(|| {
            Ok(match (&*database, access) {
                (OpenedDatabase::Whole(database), _)
                | (OpenedDatabase::Copy(database), Access::Read) => work(database),
                _ => Err(redb::Error::PreviousIo),
            })
        })
    }

    /// Closes the database and opens it again, to read as a copy if need be.
    fn reopen(&self, access: Access) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        close(std::mem::replace(&mut *database, OpenedDatabase::Closed));
        match refuse_damage(|| (self.open)().map_err(open_error)) {
            Ok(opened) => *database = OpenedDatabase::Whole(opened),
            Err(error) if error.is_of_disk() => {
                let Ok(bytes) = (self.read)() else {
                    return Err(error);
                };
                *database =
                    OpenedDatabase::Copy(refuse_damage(|| open_copy(&bytes).map_err(open_error))?);
                if access == Access::Write {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn open_copy(bytes: &[u8]) -> Result<Database, DatabaseError> {
    let copy = InMemoryBackend::new();
    let copied = copy.set_len(bytes.len() as u64).and_then(|()| copy.write(0, bytes));
    copied.map_err(redb::StorageError::from)?;
    Database::builder().create_with_backend(copy)
}

impl fmt::Debug for GuardedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedDatabase").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Drop for GuardedDatabase {
    fn drop(&mut self) {
        let database = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(std::mem::replace(database, OpenedDatabase::Closed));
    }
}

/// Closes a database, damaged or not.
fn close(database: OpenedDatabase) {
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
