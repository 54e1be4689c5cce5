//! The packet buffer of a switch: shared by its ports, with thresholds that follow what is free,
//! and pauses for who fills it (IEEE 802.1Qbb).
//!
//! A packet counts for the port and priority at which it arrived, its *priority group*, until it
//! leaves its queue. Each group has a reserve of its own. Beyond it, a group may have `alpha` times
//! what is free of the shared part (Choudhury and Hahne, *Dynamic queue length thresholds*, 1998).
//! A lossless group beyond its threshold pauses its sender (XOFF) and puts what is still under way
//! into its headroom; it resumes (XON) once the headroom is empty and it is an offset below the
//! threshold. A lossy packet is refused when the queue that it would join has `alpha` times what is
//! free. The decision: the accounts are those of the Broadcom switch in the RoCE model of HPCC's
//! authors (alibaba-edu/High-Precision-Congestion-Control, `switch-mmu.cc`), so that figures can
//! stand beside theirs; its lossy queues are ours, as that model has none.

use std::collections::BTreeMap;

/// Priorities of 802.1Q.
const GROUPS: usize = 8;

/// A buffer and its thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferSettings {
    /// Bytes of the whole buffer.
    pub bytes: u64,
    /// Bytes that each priority group has for itself.
    pub reserve_bytes: u64,
    /// `alpha`: a group's part of what is free of the shared buffer, above 0.
    pub alpha: f64,
    /// Priorities that lose nothing: bit `p` is priority `p`.
    pub lossless: u8,
    /// How far below the threshold a group resumes, in bytes.
    pub xon_offset_bytes: u64,
    /// The largest packet, for the headroom; by default RoCEv2 over IPv6 with 4096 bytes.
    pub mtu_bytes: u64,
}

impl BufferSettings {
    /// A buffer of 32 MB that loses nothing at levels `0..levels`. `BUFFER_SIZE 32`, a reserve of
    /// 4 KiB, an offset of 3 KiB and `alpha` of 1/8 are those of HPCC's RoCE model
    /// (`mix/config_doc.txt`, `switch-mmu.cc`, `third.cc`).
    pub fn lossless_levels(levels: u8) -> Self {
        Self {
            bytes: 32 << 20,
            reserve_bytes: 4 << 10,
            alpha: 0.125,
            lossless: ((1_u16 << levels.min(8)) - 1) as u8,
            xon_offset_bytes: 3 << 10,
            mtu_bytes: 4_174,
        }
    }
}

/// What a lossless priority group needs beyond its threshold, so that nothing is lost of what its
/// sender still sends before the pause takes effect: both directions of the cable full, a packet
/// that began at either end, and the pause frame (802.1Qbb annex O, without the time that an
/// interface takes to react). And the packet that crosses the threshold, which is whole in the
/// headroom here.
pub fn headroom_bytes(bits_per_second: u64, delay_ns: u64, mtu_bytes: u64) -> u64 {
    let in_flight = u128::from(bits_per_second) * u128::from(delay_ns) / 8_000_000_000;
    2 * u64::try_from(in_flight).unwrap_or(u64::MAX / 4) + 3 * mtu_bytes + 64
}

/// A priority group: the port and the priority at which packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PriorityGroup {
    port: u16,
    priority: u8,
}

impl PriorityGroup {
    /// Of packets that no port received: they are not counted.
    pub(crate) const NONE: Self = Self { port: u16::MAX, priority: 0 };

    pub(crate) fn new(port: u16, priority: u8) -> Self {
        Self { port, priority: priority & 7 }
    }

    /// That of a frame as it arrives: its DSCP's class selector, and 0 without IP.
    pub(crate) fn of_frame(port: u16, frame: &[u8]) -> Self {
        let priority = match frame.get(12..16) {
            Some([0x08, 0x00, _, traffic_class]) => traffic_class >> 5,
            Some([0x86, 0xdd, version_and_class, _]) => version_and_class >> 1 & 7,
            _ => 0,
        };
        Self::new(port, priority)
    }

    pub(crate) fn port(self) -> u16 {
        self.port
    }

    pub(crate) fn priority(self) -> u8 {
        self.priority
    }
}

/// Whether a packet has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferAdmission {
    /// It has.
    Admitted,
    /// It has, and its group's sender is to pause.
    AdmittedWithPause,
    /// It has not.
    Refused,
}

/// What the buffer of a device has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferCounts {
    /// Pauses requested, by port and priority.
    pub pauses: BTreeMap<(u16, u8), u64>,
    /// Packets refused, by port and priority of their arrival.
    pub refused: BTreeMap<(u16, u8), u64>,
    /// The most bytes that the shared part has held.
    pub most_shared: u64,
    /// The most bytes that one group's headroom has held.
    pub most_headroom: u64,
}

impl BufferCounts {
    /// Pauses requested at a port, by priority, from priority 0.
    pub fn pauses_at(&self, port: u16) -> Vec<u64> {
        let priorities = 0..GROUPS as u8;
        priorities
            .map(|priority| self.pauses.get(&(port, priority)).copied().unwrap_or(0))
            .collect()
    }
}

/// The accounts of one priority group.
#[derive(Clone, Copy, Debug, Default)]
struct GroupUse {
    /// Bytes in its reserve and in the shared part.
    bytes: u64,
    /// Bytes in its headroom.
    headroom: u64,
    paused: bool,
}

/// A port and what its groups hold.
#[derive(Clone, Copy, Debug, Default)]
struct PortUse {
    headroom_bytes: u64,
    groups: [GroupUse; GROUPS],
}

/// The buffer of one device.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuffer {
    settings: BufferSettings,
    /// By number.
    ports: Vec<PortUse>,
    /// What no port and no group has for itself.
    shared_bytes: u64,
    shared_used: u64,
    counts: BufferCounts,
}

impl SharedBuffer {
    pub(crate) fn new(settings: BufferSettings) -> Self {
        Self {
            settings,
            ports: Vec::new(),
            shared_bytes: settings.bytes,
            shared_used: 0,
            counts: BufferCounts::default(),
        }
    }

    /// Sets reserve and headroom of a port's groups aside.
    pub(crate) fn add_port(&mut self, port: u16, bits_per_second: u64, delay_ns: u64) {
        if self.ports.len() <= usize::from(port) {
            self.ports.resize(usize::from(port) + 1, PortUse::default());
        }
        let headroom = headroom_bytes(bits_per_second, delay_ns, self.settings.mtu_bytes);
        self.ports[usize::from(port)].headroom_bytes = headroom;
        let lossless = u64::from(self.settings.lossless.count_ones());
        let set_aside = lossless * (headroom + self.settings.reserve_bytes);
        self.shared_bytes = self.shared_bytes.saturating_sub(set_aside);
    }

    pub(crate) fn counts(&self) -> &BufferCounts {
        &self.counts
    }

    /// Takes a packet of a group that is to join a queue with `queued` bytes.
    pub(crate) fn admit(
        &mut self,
        group: PriorityGroup,
        queued: u64,
        bytes: u64,
    ) -> BufferAdmission {
        let threshold = self.threshold();
        let is_lossless = self.is_lossless(group);
        let reserve = self.settings.reserve_bytes;
        let Some(port) = self.ports.get_mut(usize::from(group.port)) else {
            return BufferAdmission::Admitted;
        };
        let held = &mut port.groups[usize::from(group.priority)];
        let shared = (held.bytes + bytes).saturating_sub(reserve);
        let fits = match is_lossless {
            true => shared <= threshold || held.headroom + bytes <= port.headroom_bytes,
            false => shared == 0 || queued + bytes <= threshold,
        };
        if !fits {
            *self.counts.refused.entry((group.port, group.priority)).or_default() += 1;
            return BufferAdmission::Refused;
        }
        if is_lossless && shared > threshold {
            held.headroom += bytes;
            self.counts.most_headroom = self.counts.most_headroom.max(held.headroom);
        } else {
            held.bytes += bytes;
            self.shared_used += bytes.min(shared);
            self.counts.most_shared = self.counts.most_shared.max(self.shared_used);
        }
        self.check_pause(group)
    }

    fn check_pause(&mut self, group: PriorityGroup) -> BufferAdmission {
        let (threshold, reserve) = (self.threshold(), self.settings.reserve_bytes);
        let is_lossless = self.is_lossless(group);
        let held = &mut self.ports[usize::from(group.port)].groups[usize::from(group.priority)];
        let beyond = held.headroom > 0 || held.bytes.saturating_sub(reserve) >= threshold;
        if !is_lossless || held.paused || !beyond {
            return BufferAdmission::Admitted;
        }
        held.paused = true;
        *self.counts.pauses.entry((group.port, group.priority)).or_default() += 1;
        BufferAdmission::AdmittedWithPause
    }

    /// Gives back the room of a packet; whether its group's sender is to resume.
    pub(crate) fn release(&mut self, group: PriorityGroup, bytes: u64) -> bool {
        let reserve = self.settings.reserve_bytes;
        let Some(port) = self.ports.get_mut(usize::from(group.port)) else {
            return false;
        };
        let held = &mut port.groups[usize::from(group.priority)];
        let from_headroom = held.headroom.min(bytes);
        let from_bytes = bytes - from_headroom;
        let from_shared = from_bytes.min(held.bytes.saturating_sub(reserve));
        held.headroom -= from_headroom;
        held.bytes -= from_bytes.min(held.bytes);
        self.shared_used -= from_shared;
        let held = *held;
        held.paused && self.may_resume(group, held)
    }

    fn may_resume(&mut self, group: PriorityGroup, held: GroupUse) -> bool {
        let shared = held.bytes.saturating_sub(self.settings.reserve_bytes);
        let below = shared == 0 || shared + self.settings.xon_offset_bytes <= self.threshold();
        let resumes = held.headroom == 0 && below;
        if resumes {
            let groups = &mut self.ports[usize::from(group.port)].groups;
            groups[usize::from(group.priority)].paused = false;
        }
        resumes
    }

    /// Groups whose senders are paused.
    pub(crate) fn paused_groups(&self) -> impl Iterator<Item = PriorityGroup> {
        self.ports.iter().enumerate().flat_map(|(port, held)| {
            let groups = held.groups.iter().enumerate().filter(|(_, group)| group.paused);
            groups.map(move |(priority, _)| PriorityGroup::new(port as u16, priority as u8))
        })
    }

    /// What a group, or a lossy queue, may have of the shared part now.
    fn threshold(&self) -> u64 {
        let free = self.shared_bytes.saturating_sub(self.shared_used);
        (free as f64 * self.settings.alpha) as u64
    }

    fn is_lossless(&self, group: PriorityGroup) -> bool {
        self.settings.lossless >> group.priority & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared part of 80,000 bytes at alpha 1: two ports of 10,000 bytes of headroom.
    fn buffer(lossless: u8) -> SharedBuffer {
        let settings = BufferSettings {
            bytes: 100_000,
            reserve_bytes: 0,
            alpha: 1.0,
            lossless,
            xon_offset_bytes: 1_000,
            mtu_bytes: 1_000,
        };
        let mut buffer = SharedBuffer::new(settings);
        for port in [1, 2] {
            // 2 * 3,468 + 3 * 1,000 + 64 bytes.
            buffer.add_port(port, 8_000_000_000, 3_468);
        }
        buffer
    }

    #[test]
    fn headroom_covers_the_cable_twice() {
        // 100 Gb/s over 1 us are 12,500 bytes each way.
        assert_eq!(headroom_bytes(100_000_000_000, 1_000, 4_174), 2 * 12_500 + 3 * 4_174 + 64);
    }

    #[test]
    fn a_group_pauses_at_half_of_the_free_buffer_and_resumes_an_offset_below() {
        let (mut buffer, group) = (buffer(1), PriorityGroup::new(1, 0));
        let admissions: Vec<_> = (0..50).map(|_| buffer.admit(group, 0, 1_000)).collect();
        // 40 packets held and 40 free: alpha 1 shares evenly between one group and what is free.
        let paused = admissions.iter().position(|a| *a == BufferAdmission::AdmittedWithPause);
        assert_eq!(paused, Some(39));
        // Then ten packets find headroom, and none beyond it.
        assert_eq!(buffer.counts().most_headroom, 10_000);
        assert_eq!(buffer.admit(group, 0, 1_000), BufferAdmission::Refused);
        assert_eq!(buffer.counts().refused[&(1, 0)], 1);
        let resumed = (0..50).position(|_| buffer.release(group, 1_000));
        // Ten of the headroom; then 39 held and 41 free are an offset apart.
        assert_eq!(resumed, Some(10));
        assert_eq!(buffer.paused_groups().count(), 0);
    }

    #[test]
    fn groups_share_what_is_free() {
        let mut buffer = buffer(1);
        let [first, second] = [1, 2].map(|port| PriorityGroup::new(port, 0));
        let fill = |buffer: &mut SharedBuffer, group| {
            (0..80)
                .take_while(|_| buffer.admit(group, 0, 1_000) == BufferAdmission::Admitted)
                .count()
        };
        assert_eq!(fill(&mut buffer, first), 39);
        // 40 are left: 20 held and 20 free.
        assert_eq!(fill(&mut buffer, second), 19);
    }

    #[test]
    fn lossy_packets_are_refused_by_the_length_of_their_queue() {
        let (mut buffer, group) = (buffer(0), PriorityGroup::new(1, 3));
        assert_eq!(buffer.admit(group, 99_000, 1_000), BufferAdmission::Admitted);
        assert_eq!(buffer.admit(group, 99_000, 1_000), BufferAdmission::Refused);
        assert_eq!(buffer.counts().pauses.len(), 0);
    }

    #[test]
    fn everything_is_given_back() {
        let mut buffer = buffer(1);
        let group = PriorityGroup::new(2, 0);
        let admissions = (0..60).map(|_| buffer.admit(group, 0, 777));
        let taken = admissions.filter(|got| *got != BufferAdmission::Refused).count();
        for _ in 0..taken {
            buffer.release(group, 777);
        }
        assert_eq!((buffer.shared_used, buffer.ports[2].groups[0].bytes), (0, 0));
        assert!(!buffer.release(PriorityGroup::NONE, 777));
    }

    #[test]
    fn the_priority_is_the_class_selector() {
        let mut frame = [0; 34];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 5 << 5 | 3]);
        assert_eq!(PriorityGroup::of_frame(4, &frame), PriorityGroup::new(4, 5));
        frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x66, 0]);
        assert_eq!(PriorityGroup::of_frame(4, &frame).priority(), 3);
        assert_eq!(PriorityGroup::of_frame(4, &frame[..13]).priority(), 0);
    }
}
