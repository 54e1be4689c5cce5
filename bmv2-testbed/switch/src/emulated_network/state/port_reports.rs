//! States of the ports of a device, for its reports: a port is the end of a wire.

use tokio::sync::watch;

use super::{DeviceNode, NetworkState, WireDirection};
use crate::device::port_report::{PortReport, PortState, PortStates};
use crate::emulated_network::{DeviceIndex, WireEnd, WireState};
use crate::lldp::LldpNeighbour;
use crate::port_names::PortNames;

impl NetworkState {
    /// Publishes the states of the ports of a device, if this is the end of a wire at one.
    pub(super) fn publish_port_states(&mut self, end: WireEnd) {
        let WireEnd::Device(device, _) = end else {
            return;
        };
        let node = &self.devices[device.0 as usize];
        let states: PortStates = self
            .port_directions(node)
            .map(|(port, lane)| (port, port_state(&self.directions[lane as usize])))
            .collect();
        let node = &mut self.devices[device.0 as usize];
        node.device.set_port_states(&states);
        node.port_states.send_replace(states);
    }

    /// The ports of a device that have a wire, and the direction away from each.
    fn port_directions(&self, node: &DeviceNode) -> impl Iterator<Item = (u16, u32)> {
        let numbered = (0..).zip(&node.directions);
        numbered.filter_map(|(port, lane)| Some((port, (*lane)?)))
    }

    /// The states of a device's ports, whenever one changes; `None` if there is no such device.
    pub(in crate::emulated_network) fn watch_port_states(
        &self,
        device: DeviceIndex,
    ) -> Option<watch::Receiver<PortStates>> {
        Some(self.devices.get(device.0 as usize)?.port_states.subscribe())
    }

    /// The device at the other end of a wire, if it has a name and the wire carries frames.
    fn neighbour_at(&self, away: &WireDirection) -> Option<LldpNeighbour> {
        let (WireEnd::Device(device, port), WireState::Up) = (away.to, away.state) else {
            return None;
        };
        let system = self.devices[device.0 as usize].lldp_name.clone()?;
        Some(LldpNeighbour { system, port: PortNames::default().interface_name(port) })
    }

    /// The ports of a device and what they have carried; empty if there is no such device.
    pub(in crate::emulated_network) fn port_reports(&self, device: DeviceIndex) -> Vec<PortReport> {
        let Some(node) = self.devices.get(device.0 as usize) else {
            return Vec::new();
        };
        let buffer = self.buffer_counts(device);
        let requested =
            |port| buffer.as_ref().map_or_else(Vec::new, |counts| counts.pauses_at(port));
        self.port_directions(node)
            .map(|(number, lane)| {
                let away = &self.directions[lane as usize];
                // The two directions of a wire have neighbouring numbers.
                let towards = &self.directions[(lane ^ 1) as usize];
                PortReport {
                    number,
                    state: port_state(away),
                    neighbour: self.neighbour_at(away),
                    received: towards.delivered,
                    refused: 0,
                    lost: away.lost,
                    queues: away.scheduler.queue_counts().collect(),
                    pauses_requested: requested(number),
                }
            })
            .collect()
    }
}

fn port_state(direction: &WireDirection) -> PortState {
    match direction.state {
        WireState::Up => PortState::Up,
        WireState::Down => PortState::Down,
    }
}
