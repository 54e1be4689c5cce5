//! Digests of a device until they are taken, and a signal for the task that takes them.
//!
//! The decision: the device tells that there may be something to report, so that nobody has to ask
//! a device whose packets cause no digests. Hundreds of devices in one process, each asked a
//! hundred times a second, would take a processor for themselves.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Digest;

/// Digests that may wait for the controller before more are lost.
const DIGEST_LIMIT: usize = 8192;

/// The digests of one device.
#[derive(Debug, Default)]
pub(super) struct PendingDigests {
    waiting: Vec<Digest>,
    signal: Arc<Notify>,
}

impl PendingDigests {
    /// Adds a digest, unless too many wait.
    pub(super) fn push(&mut self, digest: Digest) {
        if self.waiting.len() < DIGEST_LIMIT {
            self.waiting.push(digest);
        }
        self.signal_notices();
    }

    pub(super) fn take(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.waiting)
    }

    /// Tells that the device may have something to report from now on.
    pub(super) fn signal_notices(&self) {
        self.signal.notify_one();
    }

    pub(super) fn signal(&self) -> Arc<Notify> {
        Arc::clone(&self.signal)
    }
}
