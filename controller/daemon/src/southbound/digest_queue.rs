//! Digests of all sessions, in one queue to [`learning`](crate::learning).
//!
//! The decision: a list that finds the queue full is dropped and not acknowledged. Its switch sends
//! it again after its timeout, so a flood of digests delays what is learned and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use p4::codec::DigestList;
use tokio::sync::mpsc;
use topology::SwitchId;

use super::connection::OutgoingMessage;

/// A list of digests, and the stream on which to acknowledge it.
#[derive(Debug)]
pub(crate) struct ReceivedDigests {
    pub(crate) switch: SwitchId,
    pub(crate) list: DigestList,
    pub(crate) stream: mpsc::Sender<OutgoingMessage>,
}

/// The session side of the queue.
#[derive(Clone, Debug)]
pub(crate) struct DigestQueue {
    received: mpsc::Sender<ReceivedDigests>,
    dropped: Arc<AtomicU64>,
}

impl DigestQueue {
    /// A queue of `length` lists and its end for the learning task.
    pub(crate) fn new(length: usize) -> (Self, mpsc::Receiver<ReceivedDigests>) {
        let (received, to_learning) = mpsc::channel(length);
        (Self { received, dropped: Arc::default() }, to_learning)
    }

    /// Queues a list, or drops it where the queue is full.
    pub(super) fn deliver_digests(&self, digests: ReceivedDigests) {
        // Never awaited: the session would stop reading its stream, mastership updates included.
        if self.received.try_send(digests).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lists that were dropped so far.
    pub(crate) fn dropped_lists(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
