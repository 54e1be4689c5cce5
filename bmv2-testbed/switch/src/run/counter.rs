//! Packet and byte counts, for counter arrays and for entries with a direct counter.
//!
//! As in BMv2 every counter counts both, and bytes are those of the packet as it arrived.

use std::ops::AddAssign;

/// What one counter cell holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterData {
    /// Packets counted.
    pub packets: u64,
    /// Bytes of those packets as they arrived at the device, without preamble and FCS.
    pub bytes: u64,
}

impl CounterData {
    /// Counts one more packet of `bytes` bytes.
    #[inline]
    pub fn add_packet(&mut self, bytes: u64) {
        // A counter that is full goes on from 0, as in hardware.
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
    }
}

impl AddAssign for CounterData {
    fn add_assign(&mut self, more: Self) {
        self.packets = self.packets.wrapping_add(more.packets);
        self.bytes = self.bytes.wrapping_add(more.bytes);
    }
}
