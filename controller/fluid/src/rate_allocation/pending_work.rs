//! Pending work of the next allocation: changed link levels and started groups, by level.
//!
//! The decision: a queue for each level and a heap of the levels with work, so that ordering costs
//! something for each level and not for each link level.

use std::collections::{BTreeMap, BinaryHeap};

/// Pending work of one level.
#[derive(Debug, Clone, Default)]
struct LevelQueue {
    level: u32,
    link_levels: Vec<u32>,
    groups: Vec<u32>,
}

/// Pending work of all levels.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingWork {
    queues: Vec<LevelQueue>,
    by_level: BTreeMap<u32, u32>,
    /// Levels with work, and their queues.
    pending: BinaryHeap<(u32, u32)>,
}

impl PendingWork {
    /// The queue of a level, created on first use.
    pub(super) fn queue_of_level(&mut self, level: u32) -> u32 {
        *self.by_level.entry(level).or_insert_with(|| {
            self.queues.push(LevelQueue { level, ..LevelQueue::default() });
            self.queues.len() as u32 - 1
        })
    }

    pub(super) fn add_link_level(&mut self, queue: u32, link_level: u32) {
        self.mark_pending(queue);
        self.queues[queue as usize].link_levels.push(link_level);
    }

    pub(super) fn add_group(&mut self, queue: u32, group: u32) {
        self.mark_pending(queue);
        self.queues[queue as usize].groups.push(group);
    }

    pub(super) fn pop_link_level(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].link_levels.pop()
    }

    pub(super) fn pop_group(&mut self, queue: u32) -> Option<u32> {
        self.queues[queue as usize].groups.pop()
    }

    /// The queue of the highest level with work; the caller empties it.
    pub(super) fn pop_highest(&mut self) -> Option<u32> {
        self.pending.pop().map(|(_, queue)| queue)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Discards all work.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        for queue in &mut self.queues {
            queue.link_levels.clear();
            queue.groups.clear();
        }
    }

    fn mark_pending(&mut self, id: u32) {
        let queue = &self.queues[id as usize];
        // A queue is in the heap exactly while it has work, so it is never there twice.
        if queue.link_levels.is_empty() && queue.groups.is_empty() {
            self.pending.push((queue.level, id));
        }
    }
}
