//! Nodes of an emulated network that are not switches: hosts, traffic sources, instruments.
//!
//! A [`NetworkEndpoint`] is sans I/O like a device. The network calls it with packets and timers at
//! their virtual time, and it replies through an [`EndpointOutbox`].

use std::any::Any;

use super::WireState;
use crate::scheduler::LevelPause;
use crate::time::Nanos;

/// Something at the end of one or more wires.
pub trait NetworkEndpoint: Any + Send {
    /// A packet has arrived at a NIC.
    fn receive_packet(&mut self, nic: u32, packet: &[u8], now: Nanos, out: &mut EndpointOutbox);

    /// Handles a timer that is due; `token` is the one with which [`EndpointOutbox`] set it.
    fn handle_timer(&mut self, token: u64, now: Nanos, out: &mut EndpointOutbox);

    /// The switch at a NIC pauses a priority or ends that. What was handed over already is sent. An
    /// endpoint that does nothing here sends on, and what the switch has no headroom for is lost.
    fn handle_pause(&mut self, _nic: NicPause, _now: Nanos, _out: &mut EndpointOutbox) {}

    /// The wire of a NIC is cut, or works again, as the loss of light tells a real one. An endpoint
    /// that does nothing here sends on, and what it sends is lost.
    fn handle_carrier(
        &mut self,
        _nic: u32,
        _carrier: WireState,
        _now: Nanos,
        _out: &mut EndpointOutbox,
    ) {
    }
}

/// A pause, or its end, at a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicPause {
    /// Which NIC.
    pub nic: u32,
    /// Packets of this priority (their class selector) are meant.
    pub priority: u8,
    /// Whether it begins or ends.
    pub pause: LevelPause,
}

/// Packets and timers that an endpoint requests.
#[derive(Debug, Default)]
pub struct EndpointOutbox {
    pub(super) sends: Vec<(u32, Vec<u8>)>,
    pub(super) timers: Vec<(Nanos, u64)>,
    pub(super) spare: Vec<Vec<u8>>,
}

impl EndpointOutbox {
    /// Queues a packet at a NIC; it is dropped and counted if the queue is full or there is no
    /// wire.
    pub fn send_packet(&mut self, nic: u32, packet: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(packet);
        self.sends.push((nic, buffer));
    }

    /// Asks for [`NetworkEndpoint::handle_timer`] at a time; one that has passed means now.
    pub fn set_timer(&mut self, at: Nanos, token: u64) {
        self.timers.push((at, token));
    }
}
