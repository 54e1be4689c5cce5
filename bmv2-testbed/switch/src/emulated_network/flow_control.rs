//! The shared buffers of devices and their pauses, on the wires of an emulated network.
//!
//! A pause frame takes effect at an instant: when its last bit would have reached the other end,
//! behind the packet that is on the wire. It takes no room on the wire, and it lasts until it is
//! revoked, as nothing is lost here that a repetition would replace.

use super::endpoint::NicPause;
use super::state::{NetworkEventKind, NetworkState, WaitingPacket};
use super::{DeviceIndex, WireEnd, WireSpec};
use crate::device::QueuedPacket;
use crate::scheduler::LevelPause;
use crate::time::Nanos;
use crate::traffic::shared_buffer::{BufferAdmission, PriorityGroup, SharedBuffer};
use crate::traffic::{BufferCounts, TrafficSettings};

/// Bits of a pause frame on the wire: 64 bytes.
const PAUSE_FRAME_BITS: u128 = 64 * 8;

/// What the queues of a device do beyond strict priority.
#[derive(Debug)]
pub(super) struct DeviceTraffic {
    settings: TrafficSettings,
    buffer: Option<SharedBuffer>,
}

impl NetworkState {
    /// Sets what the queues of a device do; before its wires are connected.
    pub(super) fn set_traffic(&mut self, device: DeviceIndex, settings: TrafficSettings) {
        let buffer = settings.buffer.map(SharedBuffer::new);
        let traffic = Box::new(DeviceTraffic { settings, buffer });
        self.devices[device.0 as usize].traffic = Some(traffic);
    }

    /// Gives a new wire direction what its device's queues do.
    pub(super) fn apply_traffic(&mut self, direction: u32, wire: WireSpec) {
        let line = &mut self.directions[direction as usize];
        let WireEnd::Device(device, port) = line.from else {
            return;
        };
        let Some(traffic) = &mut self.devices[device.0 as usize].traffic else {
            return;
        };
        line.scheduler.set_traffic(&traffic.settings, direction.into());
        if let Some(buffer) = &mut traffic.buffer {
            buffer.add_port(port, wire.bits_per_second, wire.delay_ns);
        }
    }

    /// What the shared buffer of a device has seen.
    pub(super) fn buffer_counts(&self, device: DeviceIndex) -> Option<BufferCounts> {
        let traffic = self.devices.get(device.0 as usize)?.traffic.as_ref()?;
        traffic.buffer.as_ref().map(|buffer| buffer.counts().clone())
    }

    /// Queues a packet of a device that may have a shared buffer.
    pub(super) fn enqueue_counted(
        &mut self,
        direction: u32,
        group: PriorityGroup,
        waiting: WaitingPacket,
    ) {
        let WaitingPacket::Queued(device, mut departure) = waiting else {
            return;
        };
        let (level, bytes) = (departure.level, departure.queued_bytes());
        let scheduler = &mut self.directions[direction as usize].scheduler;
        let traffic = &mut self.devices[device as usize].traffic;
        let buffer = traffic.as_deref_mut().and_then(|traffic| traffic.buffer.as_mut());
        if let Some(buffer) = buffer {
            match buffer.admit(group, scheduler.queued_bytes(level), bytes) {
                BufferAdmission::Refused => {
                    scheduler.count_refused(level, bytes);
                    return self.discard_packet(WaitingPacket::Queued(device, departure));
                }
                BufferAdmission::AdmittedWithPause => {
                    self.send_pause(device, group, LevelPause::Begins);
                }
                BufferAdmission::Admitted => {}
            }
            departure.group = group;
        }
        let waiting = WaitingPacket::Queued(device, departure);
        self.enqueue_packet(Some(direction), level, bytes, waiting);
    }

    /// Gives back the room of a packet that leaves its queue.
    #[inline]
    pub(super) fn release_buffer(&mut self, device: u32, departure: &QueuedPacket) {
        if let Some(traffic) = &mut self.devices[device as usize].traffic
            && let Some(buffer) = &mut traffic.buffer
            && buffer.release(departure.group, departure.queued_bytes())
        {
            self.send_pause(device, departure.group, LevelPause::Ends);
        }
    }

    /// Has a pause take effect at the other end of a port's wire.
    fn send_pause(&mut self, device: u32, group: PriorityGroup, pause: LevelPause) {
        let ports = &self.devices[device as usize].directions;
        let Some(direction) = ports.get(usize::from(group.port())).copied().flatten() else {
            return;
        };
        let line = &self.directions[direction as usize];
        let rate = u128::from(line.scheduler.bits_per_second());
        let frame_ns = (PAUSE_FRAME_BITS * 1_000_000_000).div_ceil(rate) as Nanos;
        let begins = line.scheduler.free_at().max(self.now);
        let arrives = begins.saturating_add(frame_ns).saturating_add(line.delay);
        // The other direction of the same wire.
        let (direction, level) = (direction ^ 1, group.priority());
        self.schedule_event(arrives, NetworkEventKind::Pause { direction, level, pause });
    }

    /// A pause, or its end, has reached the sending end of a wire direction.
    pub(super) fn apply_pause(&mut self, direction: u32, level: u8, pause: LevelPause) {
        match self.directions[direction as usize].from {
            WireEnd::Nic(endpoint, nic) => {
                let Self { endpoints, outbox, now, .. } = self;
                let endpoint_node = &mut endpoints[endpoint.0 as usize];
                let what = NicPause { nic, priority: level, pause };
                endpoint_node.endpoint.handle_pause(what, *now, outbox);
                self.deliver_outbox(endpoint.0);
            }
            WireEnd::Device(device, _) => {
                let scheduler = &mut self.directions[direction as usize].scheduler;
                let number = scheduler.set_pause(level, pause, self.now);
                match pause {
                    LevelPause::Begins => {
                        self.limit_pause(
                            device,
                            NetworkEventKind::PauseLimit { direction, level, number },
                        );
                    }
                    LevelPause::Ends => self.transmit_queued(direction),
                }
                self.deliver_departures(device.0, PriorityGroup::NONE);
            }
        }
    }

    fn limit_pause(&mut self, device: DeviceIndex, limit: NetworkEventKind) {
        let traffic = &self.devices[device.0 as usize].traffic;
        let most = traffic.as_ref().and_then(|traffic| traffic.settings.pause_limit_ns);
        if let Some(most) = most {
            self.schedule_event(self.now.saturating_add(most), limit);
        }
    }

    /// Empties a queue that is still in the pause of this number.
    pub(super) fn break_pause(&mut self, direction: u32, level: u8, number: u64) {
        let scheduler = &mut self.directions[direction as usize].scheduler;
        for waiting in scheduler.break_pause(level, number) {
            self.discard_packet(waiting);
        }
    }
}
