//! The links of its host that the packets of a connection cross, in order, each with the packets
//! that wait for it.

use std::collections::VecDeque;

/// From the GPU to the wire, or from the wire to the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopDirection {
    Outward,
    Inward,
}

/// Packets of a connection that wait before a link at most, where they can be held back.
const ROOM: usize = 2;

/// The links of one direction in one host.
#[derive(Clone, Debug)]
pub(crate) struct HostHops<S> {
    hops: Vec<HostHop<S>>,
}

#[derive(Clone, Debug)]
struct HostHop<S> {
    /// Its number among the links of all hosts.
    link: usize,
    waiting: VecDeque<S>,
}

impl<S> HostHops<S> {
    /// Over these links, by number, each once.
    pub(crate) fn new(links: impl IntoIterator<Item = usize>) -> Self {
        let hops = links.into_iter().map(|link| HostHop { link, waiting: VecDeque::new() });
        Self { hops: hops.collect() }
    }

    /// The number of the link at a place; none after the last.
    pub(crate) fn link_at(&self, place: usize) -> Option<usize> {
        self.hops.get(place).map(|hop| hop.link)
    }

    /// The place of the last link.
    pub(crate) fn last_place(&self) -> Option<usize> {
        self.hops.len().checked_sub(1)
    }

    /// Has another link in place of the last; what waits there waits for it.
    pub(crate) fn replace_last(&mut self, link: usize) {
        if let Some(last) = self.hops.last_mut() {
            last.link = link;
        }
    }

    /// The place of a link.
    pub(crate) fn place_of(&self, link: usize) -> Option<usize> {
        self.hops.iter().position(|hop| hop.link == link)
    }

    /// The link at a place, if there is room for what passes it.
    pub(crate) fn passable_link(&self, place: usize) -> Option<usize> {
        self.link_at(place).filter(|_| self.has_room(place + 1))
    }

    /// Whether one more packet may wait at a place; after the last link always.
    fn has_room(&self, place: usize) -> bool {
        self.hops.get(place).is_none_or(|hop| hop.waiting.len() < ROOM)
    }

    /// Whether a packet waits at a place.
    pub(crate) fn has_waiting(&self, place: usize) -> bool {
        self.hops.get(place).is_some_and(|hop| !hop.waiting.is_empty())
    }

    /// Adds a packet at a place.
    pub(crate) fn put(&mut self, place: usize, packet: S) {
        if let Some(hop) = self.hops.get_mut(place) {
            hop.waiting.push_back(packet);
        }
    }

    /// Removes the packet that has waited longest at a place.
    pub(crate) fn take(&mut self, place: usize) -> Option<S> {
        self.hops.get_mut(place)?.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::HostHops;

    #[test]
    fn two_packets_wait_before_a_link_and_leave_in_order() {
        let mut hops = HostHops::new([7, 3]);
        assert_eq!((hops.place_of(3), hops.link_at(0), hops.link_at(2)), (Some(1), Some(7), None));
        assert!(hops.has_room(1) && hops.has_room(2) && !hops.has_waiting(1));
        hops.put(1, "a");
        hops.put(1, "b");
        assert!(!hops.has_room(1) && hops.has_waiting(1));
        assert_eq!((hops.take(1), hops.take(1), hops.take(1)), (Some("a"), Some("b"), None));
    }
}
