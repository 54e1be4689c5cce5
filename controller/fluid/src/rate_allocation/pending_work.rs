//! What the next sharing has to look at: changed cells and started strands, by class.
//!
//! The decision: a queue for each class and a heap of the classes in need, so that order costs
//! something for each class and not for each cell.

use std::collections::{BTreeMap, BinaryHeap};

/// Tasks of one class.
#[derive(Debug, Clone, Default)]
struct LevelQueue {
    level: u32,
    link_levels: Vec<u32>,
    groups: Vec<u32>,
}

/// Tasks of all classes.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingWork {
    queues: Vec<LevelQueue>,
    by_level: BTreeMap<u32, u32>,
    /// Classes with tasks, and their queues.
    pending: BinaryHeap<(u32, u32)>,
}

impl PendingWork {
    /// The queue of a class, made if need be.
    pub(super) fn queue_of_level(&mut self, class: u32) -> u32 {
        *self.by_level.entry(class).or_insert_with(|| {
            self.queues.push(LevelQueue { level: class, ..LevelQueue::default() });
            self.queues.len() as u32 - 1
        })
    }

    pub(super) fn add_link_level(&mut self, queue: u32, cell: u32) {
        self.mark_pending(queue);
        self.queues[queue as usize].link_levels.push(cell);
    }

    pub(super) fn add_group(&mut self, queue: u32, strand: u32) {
        self.mark_pending(queue);
        self.queues[queue as usize].groups.push(strand);
    }

    pub(super) fn pop_link_level(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].link_levels.pop()
    }

    pub(super) fn pop_group(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].groups.pop()
    }

    /// The queue of the highest class with tasks; whoever takes it does them all.
    pub(super) fn pop_highest(&mut self) -> Option<u32> {
        self.pending.pop().map(|(_, queue)| queue)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forgets all tasks.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        for queue in &mut self.queues {
            queue.link_levels.clear();
            queue.groups.clear();
        }
    }

    fn mark_pending(&mut self, id: u32) {
        let queue = &self.queues[id as usize];
        if queue.link_levels.is_empty() && queue.groups.is_empty() {
            self.pending.push((queue.level, id));
        }
    }
}
