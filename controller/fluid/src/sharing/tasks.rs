//! What the next sharing has to look at: changed cells and started strands, by class.
//!
//! The decision: a queue for each class and a heap of the classes in need, so that order costs
//! something for each class and not for each cell.

use std::collections::{BTreeMap, BinaryHeap};

/// Tasks of one class.
#[derive(Debug, Clone, Default)]
struct Queue {
    class: u32,
    cells: Vec<u32>,
    strands: Vec<u32>,
}

/// Tasks of all classes.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    queues: Vec<Queue>,
    by_class: BTreeMap<u32, u32>,
    /// Classes with tasks, and their queues.
    pending: BinaryHeap<(u32, u32)>,
}

impl Tasks {
    /// The queue of a class, made if need be.
    pub(super) fn queue(&mut self, class: u32) -> u32 {
        *self.by_class.entry(class).or_insert_with(|| {
            self.queues.push(Queue {
                class,
                ..Queue::default()
            });
            self.queues.len() as u32 - 1
        })
    }

    pub(super) fn add_cell(&mut self, queue: u32, cell: u32) {
        self.announce(queue);
        self.queues[queue as usize].cells.push(cell);
    }

    pub(super) fn add_strand(&mut self, queue: u32, strand: u32) {
        self.announce(queue);
        self.queues[queue as usize].strands.push(strand);
    }

    pub(super) fn take_cell(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].cells.pop()
    }

    pub(super) fn take_strand(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].strands.pop()
    }

    /// The queue of the highest class with tasks; whoever takes it does them all.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.pending.pop().map(|(_, queue)| queue)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forgets all tasks.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        for queue in &mut self.queues {
            queue.cells.clear();
            queue.strands.clear();
        }
    }

    fn announce(&mut self, id: u32) {
        let queue = &self.queues[id as usize];
        if queue.cells.is_empty() && queue.strands.is_empty() {
            self.pending.push((queue.class, id));
        }
    }
}
