//! The disk of one controller, which may be full, damaged, or put back to an earlier state.
//!
//! The decision: a disk outlives the runs of its controller, and a run that was killed cannot write
//! to it any more. Losses between a write and its sync are not modelled: a property test of
//! the store fails the power at any byte.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use controller::store::StorageBackend;

use super::fake_network::lock_mutex;
use super::planted_bug::PlantedBug;

/// Bytes that a damage overwrites.
const DAMAGE: usize = 32;
/// The unit of the store's file.
const PAGE: usize = 4_096;

/// The disk as one run of a controller has it.
#[derive(Clone, Default)]
pub(super) struct FakeDisk {
    content: Arc<Mutex<DiskContent>>,
    /// The run that this handle belongs to.
    run: u64,
    planted_bug: PlantedBug,
}

#[derive(Default)]
struct DiskContent {
    bytes: Vec<u8>,
    backup: Vec<u8>,
    is_full: bool,
    /// Whether it has refused a write of this run for being full.
    has_refused: bool,
    /// The run that may write.
    run: u64,
}

impl FakeDisk {
    /// The disk for another run; earlier ones cannot write any more.
    pub(super) fn mount(&self, planted_bug: PlantedBug) -> Self {
        self.unmount();
        let run = lock_mutex(&self.content).run;
        Self { content: Arc::clone(&self.content), run, planted_bug }
    }

    /// Ends the run that has the disk, as a kill does.
    pub(super) fn unmount(&self) {
        let mut content = lock_mutex(&self.content);
        content.run += 1;
        content.has_refused = false;
    }

    pub(super) fn set_full(&self, is_full: bool) {
        lock_mutex(&self.content).is_full = is_full;
    }

    /// Has the disk usable again: with room if it was full, and otherwise empty.
    pub(super) fn repair(&self) {
        let mut content = lock_mutex(&self.content);
        if !std::mem::take(&mut content.is_full) {
            content.bytes.clear();
        }
    }

    /// Keeps a copy of everything.
    pub(super) fn back_up(&self) {
        let mut content = lock_mutex(&self.content);
        content.backup = content.bytes.clone();
    }

    /// Puts the copy back; without a copy the disk is empty.
    pub(super) fn restore(&self) {
        let mut content = lock_mutex(&self.content);
        content.bytes = content.backup.clone();
    }

    /// Overwrites the beginning of a page.
    pub(super) fn damage(&self, page: usize) {
        let mut content = lock_mutex(&self.content);
        let pages = (content.bytes.len() / PAGE).max(1);
        let from = page % pages * PAGE;
        content.bytes.iter_mut().skip(from).take(DAMAGE).for_each(|byte| *byte = 0xed);
    }

    /// Another disk with the same content.
    pub(super) fn copy(&self) -> Self {
        let copied = Self::default();
        lock_mutex(&copied.content).bytes = lock_mutex(&self.content).bytes.clone();
        copied
    }

    /// Has the content changed, unless the disk is full or the run was killed.
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), io::Error> {
        let mut content = lock_mutex(&self.content);
        if content.run != self.run {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let gives_up = self.planted_bug == PlantedBug::GivesUpOnDisk && content.has_refused;
        if content.is_full || gives_up {
            content.has_refused = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        change(&mut content.bytes);
        Ok(())
    }
}

impl StorageBackend for FakeDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(lock_mutex(&self.content).bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let content = lock_mutex(&self.content);
        let from = offset as usize;
        let bytes = content.bytes.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.change(|bytes| bytes.resize(len as usize, 0))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.change(|bytes| {
            let from = offset as usize;
            bytes.resize(bytes.len().max(from + data.len()), 0);
            bytes[from..from + data.len()].copy_from_slice(data);
        })
    }
}

impl fmt::Debug for FakeDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeDisk").field("run", &self.run).finish_non_exhaustive()
    }
}
