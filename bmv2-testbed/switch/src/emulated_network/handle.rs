//! How other threads and tasks use an emulated network: commands to its owner through one bounded
//! channel.
//!
//! A command is a closure that the owner runs between two events, also while the clock is held; its
//! result comes back through a one-shot channel. So no part of the network is shared or locked,
//! and commands given while the clock is held have the same effect in every run.

use tokio::sync::{mpsc, oneshot};

use super::network_thread::NetworkOwner;
use super::{
    DeviceIndex, EmulatedNetworkCounts, EndpointIndex, EndpointOutbox, NetworkEndpoint, WireCounts,
    WireIndex, WireState,
};
use crate::device::{Device, Nanos};
use crate::ports::PortsCommandSender;

/// Commands that may wait for the owner before senders wait in turn.
pub(super) const COMMAND_LIMIT: usize = 1024;
/// Packets that may wait for the controller before more are lost.
const PACKET_IN_LIMIT: usize = 1024;

/// Something for the owner to do between two events.
pub(super) type NetworkCommand = Box<dyn FnOnce(&mut NetworkOwner) + Send>;

/// The thread that owns a device or an emulated network has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread that owns the device has stopped")]
pub struct OwnerStopped;

/// How fast a released clock runs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockPace {
    /// As fast as events can be worked off; it stands still while there are none.
    Free,
    /// As fast as real time, or slower where the machine cannot keep up.
    RealTime,
}

/// A running emulated network.
#[derive(Clone, Debug)]
pub struct EmulatedNetworkHandle {
    commands: mpsc::Sender<NetworkCommand>,
}

/// One device, of an emulated network or behind ports of this machine.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    owner: DeviceOwner,
}

/// The thread that owns a device.
#[derive(Clone, Debug)]
enum DeviceOwner {
    Network { network: EmulatedNetworkHandle, device: DeviceIndex },
    Ports(PortsCommandSender),
}

/// One endpoint of an emulated network.
#[derive(Clone, Debug)]
pub struct EndpointHandle {
    network: EmulatedNetworkHandle,
    endpoint: EndpointIndex,
}

impl EmulatedNetworkHandle {
    pub(super) fn new(commands: mpsc::Sender<NetworkCommand>) -> Self {
        Self { commands }
    }

    /// Runs up to and including a virtual time, then holds. Returns the time reached: earlier when
    /// another command held or redirected the clock meanwhile.
    pub async fn run_until(&self, time: Nanos) -> Result<Nanos, OwnerStopped> {
        let (reached, wait) = oneshot::channel();
        self.send_command(Box::new(move |owner| owner.run_until(time, reached))).await?;
        wait.await.map_err(|_| OwnerStopped)
    }

    /// Lets the clock run until further notice.
    pub async fn release_clock(&self, pace: ClockPace) -> Result<(), OwnerStopped> {
        self.run_command(move |owner| owner.release_clock(pace)).await
    }

    /// Stops the clock and returns its time.
    pub async fn hold_clock(&self) -> Result<Nanos, OwnerStopped> {
        self.run_command(|owner| {
            owner.hold_clock();
            owner.state.now()
        })
        .await
    }

    /// The virtual time.
    pub async fn now(&self) -> Result<Nanos, OwnerStopped> {
        self.run_command(|owner| owner.state.now()).await
    }

    /// A device of the network; calls to one that does not exist return [`OwnerStopped`].
    pub fn device(&self, device: DeviceIndex) -> DeviceHandle {
        let fabric = self.clone();
        DeviceHandle { owner: DeviceOwner::Network { network: fabric, device } }
    }

    /// An endpoint of the network; calls to one that does not exist return [`OwnerStopped`].
    pub fn endpoint(&self, endpoint: EndpointIndex) -> EndpointHandle {
        EndpointHandle { network: self.clone(), endpoint }
    }

    /// Takes a wire down or up, both directions at once.
    pub async fn set_wire_state(
        &self,
        wire: WireIndex,
        state: WireState,
    ) -> Result<(), OwnerStopped> {
        self.run_command(move |owner| owner.state.set_wire_state(wire, state)).await
    }

    /// The counts of both directions of a wire, that from its first end first; empty for a wire that
    /// does not exist.
    pub async fn wire_counts(&self, wire: WireIndex) -> Result<Vec<WireCounts>, OwnerStopped> {
        self.run_command(move |owner| owner.state.wire_counts(wire)).await
    }

    /// Packets that never got onto a wire.
    pub async fn counts(&self) -> Result<EmulatedNetworkCounts, OwnerStopped> {
        self.run_command(|owner| owner.state.counts()).await
    }

    /// Ends the network; later calls return [`OwnerStopped`].
    pub async fn stop(&self) {
        // An error means that it has ended already.
        let _ended = self.run_command(NetworkOwner::stop).await;
    }

    async fn run_command<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut NetworkOwner) -> R + Send + 'static,
    ) -> Result<R, OwnerStopped> {
        let (reply, wait) = oneshot::channel();
        self.send_command(Box::new(move |owner| {
            // Nobody may be waiting any more; what was asked for is done all the same.
            let _unheard = reply.send(run(owner));
        }))
        .await?;
        wait.await.map_err(|_| OwnerStopped)
    }

    async fn send_command(&self, command: NetworkCommand) -> Result<(), OwnerStopped> {
        self.commands.send(command).await.map_err(|_| OwnerStopped)
    }
}

impl DeviceHandle {
    pub(crate) fn behind_ports(commands: PortsCommandSender) -> Self {
        Self { owner: DeviceOwner::Ports(commands) }
    }

    /// Runs something on the device, between two events.
    pub async fn with_device<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Device) -> R + Send + 'static,
    ) -> Result<R, OwnerStopped> {
        match &self.owner {
            &DeviceOwner::Network { ref network, device } => network
                .run_command(move |owner| owner.state.device_mut(device).map(run))
                .await?
                .ok_or(OwnerStopped),
            DeviceOwner::Ports(commands) => commands.with_device(run).await,
        }
    }

    /// Packets the device sends to its CPU port from now on, with the header the program puts in
    /// front of them. At most 1024 wait, more are counted as lost. A later call takes over.
    pub async fn subscribe_packet_ins(&self) -> Result<mpsc::Receiver<Vec<u8>>, OwnerStopped> {
        let (to, packets) = mpsc::channel(PACKET_IN_LIMIT);
        match &self.owner {
            &DeviceOwner::Network { ref network, device } => {
                network.run_command(move |owner| owner.state.set_packet_ins(device, to)).await?;
            }
            DeviceOwner::Ports(commands) => commands.set_packet_ins(to).await?,
        }
        Ok(packets)
    }

    /// Gives the device a packet on its CPU port, with the header the program expects in front.
    pub async fn send_packet_out(&self, packet: Vec<u8>) -> Result<(), OwnerStopped> {
        let port = self.with_device(|device| device.config().cpu_port).await?;
        self.inject_packet(port, packet).await
    }

    /// Gives the device a packet as if it had arrived on a port.
    pub async fn inject_packet(&self, port: u16, packet: Vec<u8>) -> Result<(), OwnerStopped> {
        match &self.owner {
            &DeviceOwner::Network { ref network, device } => {
                network
                    .run_command(move |owner| owner.state.inject_packet(device, port, &packet))
                    .await
            }
            DeviceOwner::Ports(commands) => commands.inject_packet(port, packet).await,
        }
    }
}

impl EndpointHandle {
    /// Runs something on the endpoint, between two events, with the virtual time and an outbox for
    /// packets and timers. `E` is the type it was added as; another one answers [`OwnerStopped`].
    pub async fn with_endpoint<E: NetworkEndpoint, R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut E, Nanos, &mut EndpointOutbox) -> R + Send + 'static,
    ) -> Result<R, OwnerStopped> {
        let endpoint = self.endpoint;
        let result =
            self.network.run_command(move |owner| owner.state.with_endpoint(endpoint, run)).await;
        result?.ok_or(OwnerStopped)
    }
}
