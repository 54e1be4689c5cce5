//! An indexed heap of (instant, id), ids dense and small.
//!
//! The decision: four children a node and a position per id, so that a changed completion moves
//! in place and leaves no stale entry behind. Ties go to the smaller id.

use crate::clock::Ticks;

const CHILDREN: usize = 4;
const ABSENT: u32 = u32::MAX;

/// At most one instant per id.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventQueue {
    heap: Vec<(Ticks, u32)>,
    position: Vec<u32>,
}

impl EventQueue {
    /// Makes room for ids below `ids`; those already there stay.
    pub(crate) fn reserve(&mut self, ids: usize) {
        if self.position.len() < ids {
            self.position.resize(ids, ABSENT);
            self.heap.reserve(ids - self.heap.len());
        }
    }

    /// The next instant.
    pub(crate) fn next_time(&self) -> Option<Ticks> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// The next instant and its id.
    pub(crate) fn peek(&self) -> Option<(Ticks, u32)> {
        self.heap.first().copied()
    }

    /// Schedules or reschedules `id` at `at`; [`Ticks::NEVER`] removes it.
    pub(crate) fn set_time(&mut self, id: u32, at: Ticks) {
        // A group without a rate has no end; it would only lengthen every path in the heap.
        if at == Ticks::NEVER {
            return self.remove(id);
        }
        let index = match self.position[id as usize] {
            ABSENT => {
                self.heap.push((at, id));
                self.heap.len() - 1
            }
            index => index as usize,
        };
        self.sift_entry(index, (at, id));
    }

    /// Removes `id` if it is there.
    pub(crate) fn remove(&mut self, id: u32) {
        let index = self.position[id as usize];
        if index == ABSENT {
            return;
        }
        self.position[id as usize] = ABSENT;
        if let Some(last) = self.heap.pop()
            && last.1 != id
        {
            self.sift_entry(index as usize, last);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.position.fill(ABSENT);
    }

    /// Stores `entry` where it belongs, given that only the place `index` is wrong.
    fn sift_entry(&mut self, mut index: usize, entry: (Ticks, u32)) {
        while index > 0 && entry < self.heap[(index - 1) / CHILDREN] {
            let parent = (index - 1) / CHILDREN;
            self.store_entry(index, self.heap[parent]);
            index = parent;
        }
        // At most one of the two loops moves the entry, since it replaces one whose neighbours were
        // in order.
        while let Some(child) = self.least_child(index)
            && self.heap[child] < entry
        {
            self.store_entry(index, self.heap[child]);
            index = child;
        }
        self.store_entry(index, entry);
    }

    fn least_child(&self, index: usize) -> Option<usize> {
        let first = index * CHILDREN + 1;
        let end = (first + CHILDREN).min(self.heap.len());
        (first..end).min_by_key(|&child| self.heap[child])
    }

    fn store_entry(&mut self, index: usize, entry: (Ticks, u32)) {
        self.heap[index] = entry;
        self.position[entry.1 as usize] = index as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_instant_then_id_through_changes_and_removals() {
        let mut queue = EventQueue::default();
        queue.reserve(100);
        // A fixed scramble: 37 and 101 are coprime, so instants 0..=9 repeat in mixed order.
        for id in 0..100 {
            queue.set_time(id, Ticks(u64::from(id * 37 % 101 % 10)));
        }
        for id in (0..100).step_by(3) {
            queue.set_time(id, Ticks(u64::from(id % 7)));
        }
        for id in (0..100).step_by(5) {
            queue.remove(id);
        }
        queue.set_time(1, Ticks::NEVER);
        let mut taken = Vec::new();
        while let Some(at) = queue.next_time() {
            let (_, id) = queue.peek().unwrap();
            queue.remove(id);
            taken.push((at, id));
        }
        let mut expected: Vec<(Ticks, u32)> = (0..100)
            .filter(|id| id % 5 != 0 && *id != 1)
            .map(|id| (if id % 3 == 0 { id % 7 } else { id * 37 % 101 % 10 }, id))
            .map(|(at, id)| (Ticks(u64::from(at)), id))
            .collect();
        expected.sort();
        assert_eq!(taken, expected);
    }
}
