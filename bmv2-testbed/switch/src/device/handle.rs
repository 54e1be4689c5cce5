//! How other threads and tasks reach one device, wherever it lives.
//!
//! A device belongs to one thread: that of an emulated network or that of the machine's ports. The
//! owner implements [`DeviceChannel`], so that neither kind of owner knows the other and the
//! P4Runtime service knows neither.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::Device;
use super::port_report::{PortReport, PortStates};

/// Packets that may wait for the controller before more are lost.
const PACKET_IN_LIMIT: usize = 1024;

/// The thread that owned the device has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread that owns the device has stopped")]
pub struct OwnerStopped;

/// Something the owner does to the device between two events.
pub(crate) type DeviceCommand = Box<dyn FnOnce(&mut Device) + Send>;

/// An answer of the owner that is under way.
pub(crate) type PendingResult<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, OwnerStopped>> + Send + 'a>>;

/// A command on its way to the owner.
pub(crate) type PendingCommand<'a> = PendingResult<'a, ()>;

/// The way to the owner of one device.
pub(crate) trait DeviceChannel: fmt::Debug + Send + Sync {
    /// Queues a command; one for a device that does not exist is dropped.
    fn send_command(&self, command: DeviceCommand) -> PendingCommand<'_>;

    /// Sends packet-ins here from now on; ready once the owner has done so.
    fn set_packet_ins(&self, to: mpsc::Sender<Vec<u8>>) -> PendingCommand<'_>;

    /// Gives the device a packet as if it had arrived on a port; ready once it has been processed.
    fn inject_packet(&self, port: u16, packet: Vec<u8>) -> PendingCommand<'_>;

    /// The states of the device's ports, whenever one changes.
    fn watch_port_states(&self) -> PendingResult<'_, watch::Receiver<PortStates>>;

    /// The device's ports and what they have carried, by number.
    fn port_reports(&self) -> PendingResult<'_, Vec<PortReport>>;
}

/// One device, of a running emulated network or behind ports of this machine.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    channel: Arc<dyn DeviceChannel>,
}

impl DeviceHandle {
    pub(crate) fn new(channel: impl DeviceChannel + 'static) -> Self {
        Self { channel: Arc::new(channel) }
    }

    /// Runs something on the device, between two events.
    pub async fn with_device<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Device) -> R + Send + 'static,
    ) -> Result<R, OwnerStopped> {
        let (reply, result) = oneshot::channel();
        let command: DeviceCommand = Box::new(move |device| {
            // The caller may have given up; the command takes effect all the same.
            let _unheard = reply.send(run(device));
        });
        self.channel.send_command(command).await?;
        result.await.map_err(|_| OwnerStopped)
    }

    /// Packets the device sends to its CPU port from now on, with the header the program puts in
    /// front of them. At most 1024 wait, more are counted as lost. A later call takes over.
    pub async fn subscribe_packet_ins(&self) -> Result<mpsc::Receiver<Vec<u8>>, OwnerStopped> {
        let (to, packets) = mpsc::channel(PACKET_IN_LIMIT);
        self.channel.set_packet_ins(to).await?;
        Ok(packets)
    }

    /// Gives the device a packet on its CPU port, with the header the program expects in front.
    pub async fn send_packet_out(&self, packet: Vec<u8>) -> Result<(), OwnerStopped> {
        let port = self.with_device(|device| device.config().cpu_port).await?;
        self.inject_packet(port, packet).await
    }

    /// The states of the device's ports, by number, whenever one changes.
    pub async fn watch_port_states(&self) -> Result<watch::Receiver<PortStates>, OwnerStopped> {
        self.channel.watch_port_states().await
    }

    /// The device's ports and what they have carried, by number.
    pub async fn port_reports(&self) -> Result<Vec<PortReport>, OwnerStopped> {
        self.channel.port_reports().await
    }

    /// Gives the device a packet as if it had arrived on a port.
    pub async fn inject_packet(&self, port: u16, packet: Vec<u8>) -> Result<(), OwnerStopped> {
        self.channel.inject_packet(port, packet).await
    }
}
