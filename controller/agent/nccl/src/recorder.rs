//! Events of NCCL, recorded without allocation, locks or waiting.
//!
//! A handle that NCCL gets for an event is a number, never an address, so a handle that is used too
//! late, or that comes from another process (PXN), can do no harm. An operation that sends over the
//! network has a slot; its steps add to the slot and are no events of their own, so that one event
//! for each channel and peer passes the queue instead of one for each chunk.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;

use crate::event::{EventQueue, NcclEvent};
use crate::operation::{DataType, NcclFunction};

/// Transfers that may run at once; further ones are dropped. NCCL has at most 32 channels, so this
/// is 256 peers with every channel busy.
const TRANSFER_SLOTS: u16 = 8_192;

/// Lower bits of a handle say what it is.
const KIND_BITS: u32 = 2;
const OPERATION: u64 = 1;
const TRANSFER: u64 = 2;
const STEP: u64 = 3;
const SLOT_BITS: u32 = 16;

/// What NCCL gets for an event; 0 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHandle(pub u64);

impl EventHandle {
    /// NCCL makes no further call for an event with this handle.
    pub const NONE: Self = Self(0);

    fn of_operation(number: u32) -> Self {
        Self(u64::from(number) << KIND_BITS | OPERATION)
    }

    fn of_transfer(slot: u16, generation: u32) -> Self {
        Self((u64::from(generation) << SLOT_BITS | u64::from(slot)) << KIND_BITS | TRANSFER)
    }

    fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    fn operation(self) -> Option<u32> {
        (self.kind() == OPERATION).then_some((self.0 >> KIND_BITS) as u32)
    }

    fn slot(self) -> (u16, u32) {
        let rest = self.0 >> KIND_BITS;
        (rest as u16, (rest >> SLOT_BITS) as u32)
    }
}

/// An operation that NCCL queues.
#[derive(Clone, Copy, Debug)]
pub struct StartedOperation {
    /// Number of the communicator.
    pub communicator: u32,
    /// What it does.
    pub function: NcclFunction,
    /// Type of the elements.
    pub datatype: DataType,
    /// Count of the elements.
    pub count: u64,
    /// The other rank of `Send` and `Recv`, otherwise the root.
    pub peer: i32,
}

/// One channel of an operation that begins to send to a peer.
#[derive(Clone, Copy, Debug)]
pub struct StartedTransfer {
    /// Number of the communicator; none if the operation belongs to another process.
    pub communicator: Option<u32>,
    /// Handle of its operation.
    pub parent: EventHandle,
    /// The receiving rank.
    pub peer: u32,
    /// Bytes at most: steps by bytes of a step. What counts if NCCL reports no steps.
    pub max_bytes: u64,
}

/// Records events of all communicators of a process.
#[derive(Debug)]
pub struct EventRecorder {
    queue: EventQueue,
    slots: Vec<TransferSlot>,
    free: ArrayQueue<u16>,
    operations: AtomicU32,
    since: Instant,
}

/// A transfer that runs. One thread of NCCL at a time has its handle.
#[derive(Debug, Default)]
struct TransferSlot {
    /// Counts starts and ends: odd while a transfer runs. A handle has the number of its start, so
    /// that one of an earlier transfer is not accepted.
    generation: AtomicU32,
    /// One more than the number of the communicator, 0 for none.
    communicator: AtomicU32,
    peer: AtomicU32,
    /// Handle of the operation.
    parent: AtomicU64,
    max_bytes: AtomicU64,
    step_bytes: AtomicU64,
    began_ns: AtomicU64,
}

impl EventRecorder {
    /// A recorder whose queue has room for `capacity` events (> 0).
    pub fn new(capacity: usize) -> Self {
        let free = ArrayQueue::new(TRANSFER_SLOTS.into());
        for slot in 0..TRANSFER_SLOTS {
            let _has_room = free.push(slot);
        }
        Self {
            queue: EventQueue::new(capacity),
            slots: (0..TRANSFER_SLOTS).map(|_| TransferSlot::default()).collect(),
            free,
            operations: AtomicU32::new(0),
            since: Instant::now(),
        }
    }

    /// The events that wait to be analysed.
    pub fn queue(&self) -> &EventQueue {
        &self.queue
    }

    /// Nanoseconds since this recorder was created.
    pub fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// Records an operation that NCCL queues.
    pub fn start_operation(&self, started: &StartedOperation) -> EventHandle {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let StartedOperation { communicator, function, datatype, count, peer } = *started;
        let at_ns = self.now_ns();
        self.queue.push(NcclEvent::Operation {
            communicator,
            number,
            function,
            datatype,
            count,
            peer,
            at_ns,
        });
        EventHandle::of_operation(number)
    }

    /// Begins a transfer; without a free slot it is dropped and counted.
    pub fn start_transfer(&self, started: &StartedTransfer) -> EventHandle {
        let Some(index) = self.free.pop() else {
            self.queue.count_dropped();
            return EventHandle::NONE;
        };
        let slot = &self.slots[usize::from(index)];
        let generation = slot.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let communicator = started.communicator.map_or(0, |number| number.wrapping_add(1));
        slot.communicator.store(communicator, Ordering::Relaxed);
        slot.peer.store(started.peer, Ordering::Relaxed);
        slot.parent.store(started.parent.0, Ordering::Relaxed);
        slot.max_bytes.store(started.max_bytes, Ordering::Relaxed);
        slot.step_bytes.store(0, Ordering::Relaxed);
        slot.began_ns.store(self.now_ns(), Ordering::Relaxed);
        EventHandle::of_transfer(index, generation)
    }

    /// The handle of a step of a transfer, whatever step it is.
    pub fn start_step(&self, transfer: EventHandle) -> EventHandle {
        match transfer.kind() {
            TRANSFER => EventHandle(transfer.0 & !((1 << KIND_BITS) - 1) | STEP),
            _ => EventHandle::NONE,
        }
    }

    /// Adds what one step sends to its transfer.
    pub fn record_step_bytes(&self, step: EventHandle, bytes: u64) {
        if step.kind() == STEP
            && let Some((_, slot)) = self.live_slot(step)
        {
            slot.step_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Ends an event. Only the end of a transfer is recorded: operations end when their transfers
    /// do.
    pub fn stop_event(&self, handle: EventHandle) {
        if handle.kind() != TRANSFER {
            return;
        }
        let Some((index, slot)) = self.live_slot(handle) else { return };
        let steps = slot.step_bytes.load(Ordering::Relaxed);
        let max_bytes = slot.max_bytes.load(Ordering::Relaxed);
        let parent = EventHandle(slot.parent.load(Ordering::Relaxed));
        let event = NcclEvent::Transfer {
            communicator: slot.communicator.load(Ordering::Relaxed).checked_sub(1),
            operation: parent.operation(),
            peer: slot.peer.load(Ordering::Relaxed),
            bytes: if steps > 0 { steps } else { max_bytes },
            began_ns: slot.began_ns.load(Ordering::Relaxed),
            ended_ns: self.now_ns(),
        };
        let (_, generation) = handle.slot();
        let ended = slot.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if ended.is_ok() {
            self.queue.push(event);
            let _has_room = self.free.push(index);
        }
    }

    /// The slot of a transfer that has not ended.
    fn live_slot(&self, handle: EventHandle) -> Option<(u16, &TransferSlot)> {
        let (index, generation) = handle.slot();
        let slot = self.slots.get(usize::from(index))?;
        let is_live = generation % 2 == 1 && slot.generation.load(Ordering::Relaxed) == generation;
        is_live.then_some((index, slot))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn transfer(parent: EventHandle) -> StartedTransfer {
        StartedTransfer { communicator: Some(0), parent, peer: 3, max_bytes: 100 }
    }

    fn operation() -> StartedOperation {
        StartedOperation {
            communicator: 0,
            function: NcclFunction::AllReduce,
            datatype: DataType { bytes: 2 },
            count: 10,
            peer: 0,
        }
    }

    #[test]
    fn steps_add_up_to_one_transfer_of_their_operation() {
        let recorder = EventRecorder::new(16);
        let parent = recorder.start_operation(&operation());
        let handle = recorder.start_transfer(&transfer(parent));
        for bytes in [10, 20, 5] {
            let step = recorder.start_step(handle);
            recorder.record_step_bytes(step, bytes);
            recorder.stop_event(step);
        }
        recorder.stop_event(handle);
        recorder.stop_event(parent);
        assert!(matches!(recorder.queue().pop(), Some(NcclEvent::Operation { number: 0, .. })));
        let sent = recorder.queue().pop();
        assert!(matches!(
            sent,
            Some(NcclEvent::Transfer { operation: Some(0), peer: 3, bytes: 35, .. })
        ));
        assert_eq!(recorder.queue().pop(), None);
    }

    #[test]
    fn without_steps_the_announced_bytes_count_and_late_calls_do_not() {
        let recorder = EventRecorder::new(16);
        let handle = recorder.start_transfer(&transfer(EventHandle::NONE));
        recorder.stop_event(handle);
        recorder.stop_event(handle);
        recorder.record_step_bytes(recorder.start_step(handle), 7);
        let sent = recorder.queue().pop();
        assert!(matches!(sent, Some(NcclEvent::Transfer { operation: None, bytes: 100, .. })));
        assert_eq!(recorder.queue().pop(), None);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let recorder = EventRecorder::new(2);
        for _ in 0..5 {
            recorder.start_operation(&operation());
        }
        assert_eq!(recorder.queue().dropped(), 3);
        let handles: Vec<EventHandle> = (0..=TRANSFER_SLOTS)
            .map(|_| recorder.start_transfer(&transfer(EventHandle::NONE)))
            .collect();
        assert_eq!(handles.last(), Some(&EventHandle::NONE));
        assert_eq!(recorder.queue().dropped(), 4);
        assert_eq!(recorder.start_step(EventHandle::NONE), EventHandle::NONE);
    }

    proptest! {
        /// No handle, true or invented, breaks anything, and slots are never used twice at once.
        #[test]
        fn any_handle_is_accepted(handles in prop::collection::vec(any::<u64>(), 0..50)) {
            let recorder = EventRecorder::new(64);
            let own = recorder.start_transfer(&transfer(EventHandle::NONE));
            for handle in handles {
                let handle = EventHandle(handle);
                if handle.kind() == TRANSFER && handle.slot() == own.slot() {
                    continue;
                }
                recorder.record_step_bytes(handle, 1);
                recorder.stop_event(handle);
                let _step = recorder.start_step(handle);
            }
            recorder.stop_event(own);
            let last = std::iter::from_fn(|| recorder.queue().pop()).last();
            let is_own = matches!(last, Some(NcclEvent::Transfer { peer: 3, .. }));
            prop_assert!(is_own, "{:?}", last);
            prop_assert_eq!(recorder.free.len(), usize::from(TRANSFER_SLOTS));
        }
    }
}
