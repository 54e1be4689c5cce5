//! What a controller has from the machine that it runs on: the time of day, and a disk.
//!
//! The fault campaign brings a machine whose clock is wrong and whose disk is full or damaged. The
//! decision: the time of day is read once, at the start, so this is all that a clock can do.

use std::path::Path;

use crate::clock::Clock;
use crate::southbound::GrpcNetwork;
use crate::store::{EmbeddedStore, StoreError};

/// The machine of a controller.
pub trait HostMachine {
    /// The clock of a run that starts now.
    fn start_clock(&self) -> Clock {
        Clock::start()
    }

    /// Opens the store that the configuration names.
    ///
    /// # Errors
    /// The file is no store, is damaged, or another process has it open.
    fn open_store(&self, path: &Path) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::open(path)
    }
}

/// The machine that the process runs on.
impl HostMachine for GrpcNetwork {}
