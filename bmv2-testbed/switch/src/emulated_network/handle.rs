//! How other threads and tasks use an emulated network: commands to its owner through one bounded
//! channel.
//!
//! A command is a closure that the owner runs between two events, also while the clock is held; its
//! result comes back through a one-shot channel. So no part of the network is shared or locked,
//! and commands given while the clock is held have the same effect in every run.

use tokio::sync::{mpsc, oneshot, watch};

use super::network_thread::NetworkOwner;
use super::{
    DeviceIndex, EmulatedNetworkCounts, EndpointIndex, EndpointOutbox, NetworkEndpoint, WireCounts,
    WireDirectionIndex, WireIndex, WireState,
};
use crate::device::handle::{
    DeviceChannel, DeviceCommand, DeviceHandle, OwnerStopped, PendingCommand, PendingResult,
};
use crate::device::port_report::{PortReport, PortStates};
use crate::time::Nanos;
use crate::traffic::BufferCounts;

/// Commands that may wait for the owner before senders wait in turn.
pub(super) const COMMAND_LIMIT: usize = 1024;
/// Something for the owner to do between two events.
pub(super) type NetworkCommand = Box<dyn FnOnce(&mut NetworkOwner) + Send>;

/// How fast a released clock runs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockPace {
    /// As fast as events can be processed; it stands still without events.
    Free,
    /// As fast as real time, or slower where the machine cannot keep up.
    RealTime,
}

/// A running emulated network.
#[derive(Clone, Debug)]
pub struct EmulatedNetworkHandle {
    commands: mpsc::Sender<NetworkCommand>,
}

/// The way to one device of a running network.
#[derive(Clone, Debug)]
struct NetworkDeviceChannel {
    network: EmulatedNetworkHandle,
    device: DeviceIndex,
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

    /// Returns the virtual time of the network.
    pub async fn now(&self) -> Result<Nanos, OwnerStopped> {
        self.run_command(|owner| owner.state.now()).await
    }

    /// A device of the network; calls to one that does not exist return [`OwnerStopped`].
    pub fn device(&self, device: DeviceIndex) -> DeviceHandle {
        DeviceHandle::new(NetworkDeviceChannel { network: self.clone(), device })
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

    /// Has one direction of a wire carry so many bits a second from its next packet on.
    pub async fn set_wire_rate(
        &self,
        wire: WireIndex,
        direction: WireDirectionIndex,
        bits_per_second: u64,
    ) -> Result<(), OwnerStopped> {
        self.run_command(move |owner| {
            owner.state.set_direction_rate(wire, direction, bits_per_second);
        })
        .await
    }

    /// The counts of both directions of a wire, that from its first end first; empty for an
    /// unknown wire.
    pub async fn wire_counts(&self, wire: WireIndex) -> Result<Vec<WireCounts>, OwnerStopped> {
        self.run_command(move |owner| owner.state.wire_counts(wire)).await
    }

    /// What the shared buffer of a device has seen; none without one.
    pub async fn buffer_counts(
        &self,
        device: DeviceIndex,
    ) -> Result<Option<BufferCounts>, OwnerStopped> {
        self.run_command(move |owner| owner.state.buffer_counts(device)).await
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
            // The caller may have stopped waiting; the command has run all the same.
            let _unheard = reply.send(run(owner));
        }))
        .await?;
        wait.await.map_err(|_| OwnerStopped)
    }

    async fn send_command(&self, command: NetworkCommand) -> Result<(), OwnerStopped> {
        self.commands.send(command).await.map_err(|_| OwnerStopped)
    }
}

impl DeviceChannel for NetworkDeviceChannel {
    fn send_command(&self, command: DeviceCommand) -> PendingCommand<'_> {
        let device = self.device;
        Box::pin(self.network.send_command(Box::new(move |owner| {
            if let Some(device) = owner.state.device_mut(device) {
                command(device);
            }
        })))
    }

    fn set_packet_ins(&self, to: mpsc::Sender<Vec<u8>>) -> PendingCommand<'_> {
        let device = self.device;
        Box::pin(self.network.run_command(move |owner| owner.state.set_packet_ins(device, to)))
    }

    fn inject_packet(&self, port: u16, packet: Vec<u8>) -> PendingCommand<'_> {
        let device = self.device;
        Box::pin(
            self.network.run_command(move |owner| owner.state.inject_packet(device, port, &packet)),
        )
    }

    fn watch_port_states(&self) -> PendingResult<'_, watch::Receiver<PortStates>> {
        let device = self.device;
        Box::pin(async move {
            let watched =
                self.network.run_command(move |owner| owner.state.watch_port_states(device)).await;
            watched?.ok_or(OwnerStopped)
        })
    }

    fn port_reports(&self) -> PendingResult<'_, Vec<PortReport>> {
        let device = self.device;
        Box::pin(self.network.run_command(move |owner| owner.state.port_reports(device)))
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
