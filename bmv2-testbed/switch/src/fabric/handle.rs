//! How other threads and tasks talk to a fabric: commands to its owner, one bounded channel.
//!
//! A command is a closure that the owner runs between two events, also while the clock is held; its
//! result comes back through a one-shot channel. So nothing of the fabric is ever shared or locked,
//! and commands given while the clock is held have the same effect in every run.

use tokio::sync::{mpsc, oneshot};

use super::owner::Owner;
use super::{
    DeviceIndex, Endpoint, EndpointIndex, FabricCounts, Outbox, WireCounts, WireIndex, WireState,
};
use crate::device::{Device, Nanos};
use crate::ports::Commands;

/// Commands that may wait for the owner before senders wait in turn.
pub(super) const COMMAND_LIMIT: usize = 1024;
/// Packets that may wait for the controller before more are lost.
const PACKET_IN_LIMIT: usize = 1024;

/// Something for the owner to do between two events.
pub(super) type Command = Box<dyn FnOnce(&mut Owner) + Send>;

/// The fabric has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fabric has been stopped")]
pub struct Gone;

/// How fast a released clock runs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as events can be worked off; it stands still while there are none.
    Free,
    /// As fast as real time, or slower where the machine cannot keep up.
    RealTime,
}

/// A running fabric.
#[derive(Clone, Debug)]
pub struct FabricHandle {
    commands: mpsc::Sender<Command>,
}

/// One device, of a running fabric or behind ports of this machine.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    home: Home,
}

/// Where a device lives.
#[derive(Clone, Debug)]
enum Home {
    Fabric {
        fabric: FabricHandle,
        device: DeviceIndex,
    },
    Ports(Commands),
}

/// One endpoint of a running fabric.
#[derive(Clone, Debug)]
pub struct EndpointHandle {
    fabric: FabricHandle,
    endpoint: EndpointIndex,
}

impl FabricHandle {
    pub(super) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
    }

    /// Runs up to and including a virtual time, then holds. Returns the time reached: earlier when
    /// another command held or redirected the clock meanwhile.
    pub async fn run_until(&self, time: Nanos) -> Result<Nanos, Gone> {
        let (reached, wait) = oneshot::channel();
        self.send(Box::new(move |owner| owner.run_until(time, reached)))
            .await?;
        wait.await.map_err(|_| Gone)
    }

    /// Lets the clock run until further notice.
    pub async fn release(&self, pace: Pace) -> Result<(), Gone> {
        self.call(move |owner| owner.release(pace)).await
    }

    /// Stops the clock and returns its time.
    pub async fn hold(&self) -> Result<Nanos, Gone> {
        self.call(|owner| {
            owner.hold();
            owner.world.now()
        })
        .await
    }

    /// The virtual time.
    pub async fn now(&self) -> Result<Nanos, Gone> {
        self.call(|owner| owner.world.now()).await
    }

    /// A device of the fabric; one that does not exist answers as if the fabric were gone.
    pub fn device(&self, device: DeviceIndex) -> DeviceHandle {
        let fabric = self.clone();
        DeviceHandle {
            home: Home::Fabric { fabric, device },
        }
    }

    /// An endpoint of the fabric; one that does not exist answers as if the fabric were gone.
    pub fn endpoint(&self, endpoint: EndpointIndex) -> EndpointHandle {
        EndpointHandle {
            fabric: self.clone(),
            endpoint,
        }
    }

    /// Takes a wire down or up, both directions at once.
    pub async fn set_wire(&self, wire: WireIndex, state: WireState) -> Result<(), Gone> {
        self.call(move |owner| owner.world.set_wire(wire, state))
            .await
    }

    /// What both directions of a wire have seen, that from its first port first; empty for a wire
    /// that does not exist.
    pub async fn wire_counts(&self, wire: WireIndex) -> Result<Vec<WireCounts>, Gone> {
        self.call(move |owner| owner.world.wire_counts(wire)).await
    }

    /// Packets that never got onto a wire.
    pub async fn counts(&self) -> Result<FabricCounts, Gone> {
        self.call(|owner| owner.world.counts()).await
    }

    /// Ends the fabric; everything that still asks for it hears that it is gone.
    pub async fn stop(&self) {
        // An error means that it has ended already.
        let _ended = self.call(Owner::stop).await;
    }

    async fn call<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Owner) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let (reply, wait) = oneshot::channel();
        self.send(Box::new(move |owner| {
            // Nobody may be waiting any more; what was asked for is done all the same.
            let _unheard = reply.send(run(owner));
        }))
        .await?;
        wait.await.map_err(|_| Gone)
    }

    async fn send(&self, command: Command) -> Result<(), Gone> {
        self.commands.send(command).await.map_err(|_| Gone)
    }
}

impl DeviceHandle {
    pub(crate) fn behind_ports(commands: Commands) -> Self {
        Self {
            home: Home::Ports(commands),
        }
    }

    /// Runs something on the device, between two events.
    pub async fn with<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Device) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        match &self.home {
            Home::Fabric { fabric, device } => {
                let device = *device;
                let result = fabric.call(move |owner| owner.world.device(device).map(run));
                result.await?.ok_or(Gone)
            }
            Home::Ports(commands) => commands.with_device(run).await,
        }
    }

    /// Packets the device sends to its CPU port from now on, with the header the program puts in
    /// front of them. At most 1024 wait, more are counted as lost. A later call takes over.
    pub async fn packet_ins(&self) -> Result<mpsc::Receiver<Vec<u8>>, Gone> {
        let (to, packets) = mpsc::channel(PACKET_IN_LIMIT);
        match &self.home {
            Home::Fabric { fabric, device } => {
                let device = *device;
                let set = fabric.call(move |owner| owner.world.set_packet_ins(device, to));
                set.await?;
            }
            Home::Ports(commands) => commands.set_packet_ins(to).await?,
        }
        Ok(packets)
    }

    /// Gives the device a packet on its CPU port, with the header the program expects in front.
    pub async fn packet_out(&self, packet: Vec<u8>) -> Result<(), Gone> {
        let port = self.with(|device| device.config().cpu_port).await?;
        self.inject(port, packet).await
    }

    /// Gives the device a packet as if it had arrived on a port.
    pub async fn inject(&self, port: u16, packet: Vec<u8>) -> Result<(), Gone> {
        match &self.home {
            Home::Fabric { fabric, device } => {
                let device = *device;
                let inject = fabric.call(move |owner| owner.world.inject(device, port, &packet));
                inject.await
            }
            Home::Ports(commands) => commands.inject(port, packet).await,
        }
    }
}

impl EndpointHandle {
    /// Runs something on the endpoint, between two events, with the virtual time and an outbox for
    /// packets and timers. `E` is the type it was added as; another one answers [`Gone`].
    pub async fn with<E: Endpoint, R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut E, Nanos, &mut Outbox) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let endpoint = self.endpoint;
        let result = self
            .fabric
            .call(move |owner| owner.world.with_endpoint(endpoint, run))
            .await;
        result?.ok_or(Gone)
    }
}
