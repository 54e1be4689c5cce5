//! What the threads of NCCL pass to the plugin's own thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::operation::{DataType, NcclFunction};

/// A communicator, as NCCL describes it to a profiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommunicatorInfo {
    /// Number of this communicator in the process, never used twice.
    pub number: u32,
    /// The identifier that all ranks of the communicator share (`commId`).
    pub id: u64,
    /// Its name, empty if the user gave none.
    pub name: String,
    /// Hosts that it spans.
    pub hosts: u32,
    /// All its ranks.
    pub ranks: u32,
    /// This rank.
    pub rank: u32,
}

/// An event; times are nanoseconds since the plugin was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclEvent {
    /// An operation was queued on the GPU.
    Operation {
        /// The communicator's number.
        communicator: u32,
        /// Number of the operation in the process.
        number: u32,
        /// What it does.
        function: NcclFunction,
        /// Type of the elements.
        datatype: DataType,
        /// Count of the elements.
        count: u64,
        /// The other rank of `Send` and `Recv`, otherwise the root.
        peer: i32,
        /// When it was queued.
        at_ns: u64,
    },
    /// All data of one channel of an operation were sent to one peer over the network.
    Transfer {
        /// The communicator's number; none for another process's operation (PXN).
        communicator: Option<u32>,
        /// The operation that it belongs to, if NCCL named it.
        operation: Option<u32>,
        /// The receiving rank.
        peer: u32,
        /// What was sent.
        bytes: u64,
        /// Start of the transfer.
        began_ns: u64,
        /// End of the transfer.
        ended_ns: u64,
    },
}

/// A bounded queue of events, and the number of those that did not fit.
#[derive(Debug)]
pub struct EventQueue {
    events: ArrayQueue<NcclEvent>,
    dropped: AtomicU64,
}

impl EventQueue {
    /// A queue of `capacity` events (> 0), allocated at once.
    pub fn new(capacity: usize) -> Self {
        Self { events: ArrayQueue::new(capacity), dropped: AtomicU64::new(0) }
    }

    /// Queues an event, or counts it as dropped.
    pub fn push(&self, event: NcclEvent) {
        if self.events.push(event).is_err() {
            self.count_dropped();
        }
    }

    /// The oldest event, if there is one.
    pub fn pop(&self) -> Option<NcclEvent> {
        self.events.pop()
    }

    /// Counts an event that could not be recorded.
    pub fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
