//! Devices, endpoints and wires are added before the network runs.

use tokio::sync::watch;

use super::*;

impl NetworkState {
    pub(in super::super) fn name_device(&mut self, device: DeviceIndex, name: &str) {
        self.devices[device.0 as usize].lldp_name = Some(name.to_owned());
    }

    pub(in super::super) fn add_device(&mut self, device: Device) -> DeviceIndex {
        self.devices.push(DeviceNode {
            device,
            directions: Vec::new(),
            packet_ins: None,
            traffic: None,
            port_states: watch::Sender::new(Vec::new()),
            lldp_name: None,
        });
        DeviceIndex(self.devices.len() as u32 - 1)
    }

    pub(in super::super) fn add_endpoint(
        &mut self,
        endpoint: Box<dyn NetworkEndpoint>,
    ) -> EndpointIndex {
        self.endpoints.push(EndpointNode { endpoint, directions: Vec::new() });
        EndpointIndex(self.endpoints.len() as u32 - 1)
    }

    /// Whether a port exists and has no wire yet.
    pub(in super::super) fn check_unwired(
        &self,
        port: WireEnd,
    ) -> Result<(), EmulatedNetworkError> {
        let lane = match port {
            WireEnd::Device(device, port) => {
                let node = self.devices.get(device.0 as usize);
                node.map(|node| node.directions.get(usize::from(port)).copied().flatten())
            }
            WireEnd::Nic(endpoint, nic) => {
                let node = self.endpoints.get(endpoint.0 as usize);
                node.map(|node| node.directions.get(nic as usize).copied().flatten())
            }
        };
        match lane {
            None => Err(EmulatedNetworkError::UnknownEnd(port)),
            Some(Some(_)) => Err(EmulatedNetworkError::EndTaken(port)),
            Some(None) => Ok(()),
        }
    }

    /// Joins two free ports.
    pub(in super::super) fn connect_wire(
        &mut self,
        a: WireEnd,
        b: WireEnd,
        wire: WireSpec,
    ) -> WireIndex {
        let first = self.directions.len() as u32;
        for (from, to, lane) in [(a, b, first), (b, a, first + 1)] {
            let levels = match from {
                WireEnd::Device(device, _) => {
                    self.devices[device.0 as usize].device.config().levels
                }
                WireEnd::Nic(..) => 1,
            };
            self.directions.push(WireDirection {
                scheduler: PortScheduler::new(levels, wire.bits_per_second, wire.queue),
                from,
                delay: wire.delay_ns,
                to,
                in_flight: VecDeque::new(),
                wake_scheduled: false,
                state: WireState::Up,
                lost: 0,
                delivered: CounterData::default(),
            });
            let (lanes, at) = match from {
                WireEnd::Device(device, port) => {
                    (&mut self.devices[device.0 as usize].directions, usize::from(port))
                }
                WireEnd::Nic(endpoint, nic) => {
                    (&mut self.endpoints[endpoint.0 as usize].directions, nic as usize)
                }
            };
            if lanes.len() <= at {
                lanes.resize(at + 1, None);
            }
            lanes[at] = Some(lane);
            self.apply_traffic(lane, wire);
        }
        [a, b].into_iter().for_each(|end| self.publish_port_states(end));
        WireIndex(first / 2)
    }
}
