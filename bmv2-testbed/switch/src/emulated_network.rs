//! An emulated network in one process: devices and endpoints connected by wires, on a virtual
//! clock.
//!
//! An [`EmulatedNetworkBuilder`] collects the parts; [`EmulatedNetworkBuilder::spawn`] gives them
//! to one thread that owns everything (`emulated_network/network_thread.rs`), and
//! [`EmulatedNetworkHandle`] and [`DeviceHandle`] send commands to it. The transitions are in
//! `emulated_network/state.rs`: events in the order of (time, sequence), nothing else. Virtual time
//! moves only as fast as events run, so a slow machine changes how long a run takes and never its
//! result. One device without wires is an emulated network too.

mod endpoint;
mod flow_control;
mod handle;
mod network_thread;
mod state;

pub use endpoint::{EndpointOutbox, NetworkEndpoint, NicPause};
pub use handle::{ClockPace, EmulatedNetworkHandle, EndpointHandle};
pub use state::{EmulatedNetworkCounts, WireCounts, WireDirectionIndex, WireState};

use crate::device::{Device, DeviceConfig};
use crate::scheduler::QueueLimits;
use crate::time::Nanos;
use crate::traffic::TrafficSettings;
use state::NetworkState;

/// The number of a device in its network, in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u32);
/// The number of an endpoint in its network, in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointIndex(pub u32);
/// The number of a wire in its network, in the order of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireIndex(pub u32);

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WireEnd {
    /// A port of a device.
    Device(DeviceIndex, u16),
    /// A NIC of an endpoint.
    Nic(EndpointIndex, u32),
}

/// Rate, delay and queues of a wire, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSpec {
    /// Its rate, above 0.
    pub bits_per_second: u64,
    /// From the last bit sent to the packet received.
    pub delay_ns: Nanos,
    /// How much may wait at each sending end, for each priority level.
    pub queue: QueueLimits,
}

/// Reasons why an emulated network cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum EmulatedNetworkError {
    /// A wire ends at a device or endpoint that was not added.
    #[error("{0:?} is not in the network: add its device or endpoint first")]
    UnknownEnd(WireEnd),
    /// A port has a wire already.
    #[error("{0:?} has a wire already")]
    EndTaken(WireEnd),
    /// A wire without a rate.
    #[error("the wire between {0:?} and {1:?} has rate 0")]
    ZeroRate(WireEnd, WireEnd),
    /// The owning thread did not start.
    #[error("the thread of the emulated network did not start")]
    Thread(#[source] std::io::Error),
}

/// Collects the parts of an emulated network.
#[derive(Debug, Default)]
pub struct EmulatedNetworkBuilder {
    state: NetworkState,
}

impl EmulatedNetworkBuilder {
    /// A network without switches, hosts and wires.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a switch that runs no program yet.
    pub fn add_device(&mut self, config: DeviceConfig) -> DeviceIndex {
        self.state.add_device(Device::new(config))
    }

    /// Adds a switch whose queues do more than strict priority.
    pub fn add_device_with_traffic(
        &mut self,
        config: DeviceConfig,
        traffic: TrafficSettings,
    ) -> DeviceIndex {
        let device = self.state.add_device(Device::new(config));
        self.state.set_traffic(device, traffic);
        device
    }

    /// Has the neighbours of a switch know it by this name, as LLDP would tell it.
    ///
    /// # Panics
    /// There is no such switch.
    pub fn name_device(&mut self, device: DeviceIndex, name: &str) {
        self.state.name_device(device, name);
    }

    /// Adds something that is not a switch.
    pub fn add_endpoint(&mut self, endpoint: Box<dyn NetworkEndpoint>) -> EndpointIndex {
        self.state.add_endpoint(endpoint)
    }

    /// Joins two ports; the wire is up.
    ///
    /// # Errors
    ///
    /// When a port does not exist or has a wire, or the wire has no rate.
    pub fn connect_wire(
        &mut self,
        a: WireEnd,
        b: WireEnd,
        wire: WireSpec,
    ) -> Result<WireIndex, EmulatedNetworkError> {
        if wire.bits_per_second == 0 {
            return Err(EmulatedNetworkError::ZeroRate(a, b));
        }
        self.state.check_unwired(a)?;
        self.state.check_unwired(b)?;
        if a == b {
            return Err(EmulatedNetworkError::EndTaken(b));
        }
        Ok(self.state.connect_wire(a, b, wire))
    }

    /// Starts the thread that owns everything; the clock is held at 0.
    ///
    /// # Errors
    ///
    /// When the operating system refuses the thread.
    pub fn spawn(self) -> Result<EmulatedNetworkHandle, EmulatedNetworkError> {
        network_thread::spawn_owner(self.state).map_err(EmulatedNetworkError::Thread)
    }
}
