//! The ports of one device on a real machine: interfaces or capture files, in real time.
//!
//! [`spawn_ports`] gives a [`Device`] to a thread of its own (`ports/driver.rs`) that owns it, its
//! ports and the clock. A port (`ports/port.rs`) is a transmitter with the same strict-priority
//! [`PortScheduler`](crate::PortScheduler) as the wires of the emulated network, here on the
//! machine's clock, and behind it either a packet socket (`ports/packet_socket.rs`) or capture
//! files (`ports/capture.rs`). The kernel reports changes of interfaces (`ports/links.rs`).
//!
//! The decision: nothing ever waits for one port. Sockets do not block, queues are bounded, and
//! what has no room is dropped and counted where it happens.

mod capture;
mod driver;
mod flow_control;
mod offloads;
mod packet_socket;
mod port;
mod transmitter;

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::device::handle::{
    DeviceChannel, DeviceCommand, DeviceHandle, OwnerStopped, PendingCommand, PendingResult,
};
pub use crate::device::port_report::PortState;
use crate::device::port_report::{PortReport, PortStates};
use crate::device::{Device, DeviceCounts};
use crate::lldp::{LldpIdentity, LldpNeighbour};
use crate::run::counter::CounterData;
use crate::scheduler::{QueueCounts, QueueLimits};
use crate::traffic::{BufferCounts, TrafficSettings};
use driver::PortsDriver;
pub use packet_socket::{FrameBatch, PacketSocket, SendStatus};

/// Commands that may wait for the owner before senders wait in turn.
const COMMAND_LIMIT: usize = 1024;

/// A port and what it is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its number, below 512: P4's ports have nine bits.
    pub number: u16,
    /// What it is attached to.
    pub medium: PortMedium,
    /// How fast it sends and how much may wait.
    pub shape: PortShape,
}

/// What a port is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMedium {
    /// A network interface of this machine: one end of a veth pair, a TAP, a real one.
    Interface(String),
    /// Packets come from one capture file, in the order of their times over all ports, and go to
    /// another.
    Files {
        /// A pcap file to read.
        input: PathBuf,
        /// A pcap file to write.
        output: PathBuf,
    },
}

/// How fast a port sends and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShape {
    /// Bits per second of whole frames, shared by all levels; without one, as fast as the interface
    /// takes them.
    pub bits_per_second: Option<NonZeroU64>,
    /// How much may wait at each level.
    pub queue: QueueLimits,
}

impl Default for PortShape {
    /// No rate; 1 MiB for each level.
    fn default() -> Self {
        Self { bits_per_second: None, queue: QueueLimits::of_bytes(1 << 20) }
    }
}

/// Ports from the start, and what else happens to their packets.
#[derive(Clone, Debug, Default)]
pub struct PortsOptions {
    /// The ports.
    pub ports: Vec<PortConfig>,
    /// Where to record what passes: `IFACE_in.pcap` and `IFACE_out.pcap` of each interface.
    pub record: Option<PathBuf>,
    /// How long to wait before packets are read from files.
    pub replay_after: Duration,
    /// What queues do beyond strict priority; with a buffer, frames of priority-based flow control
    /// (IEEE 802.1Qbb) pause neighbours, and theirs are obeyed and not given to the program.
    pub traffic: Option<TrafficSettings>,
    /// What neighbours are told by LLDP (IEEE 802.1AB), if anything; what they tell is not given to
    /// the program then.
    pub lldp: Option<LldpIdentity>,
}

/// Frames of MAC control of a port whose device has a shared buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseFrameCounts {
    /// Pauses, repetitions of pauses and ends of pauses that were sent.
    pub sent: u64,
    /// Those that the neighbour sent.
    pub received: u64,
    /// Received, and not of priority-based flow control or too short.
    pub refused: u64,
}

/// A port and what has happened to its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Its number.
    pub number: u16,
    /// The interface, or the file that is read.
    pub name: String,
    /// Whether it can carry packets.
    pub state: PortState,
    /// Received and given to the device.
    pub received: CounterData,
    /// Received and refused: longer than the longest frame. Offloads of the sender are on.
    pub oversized: u64,
    /// Who is at the other end, by LLDP.
    pub neighbour: Option<LldpNeighbour>,
    /// Frames of priority-based flow control.
    pub pause_frames: PauseFrameCounts,
    /// Taken by the interface.
    pub sent: CounterData,
    /// Lost because the port was not up or the interface refused them.
    pub lost: u64,
    /// What each level has seen, from level 0.
    pub levels: Vec<QueueCounts>,
}

impl From<PortStatus> for PortReport {
    fn from(status: PortStatus) -> Self {
        Self {
            number: status.number,
            state: status.state,
            neighbour: status.neighbour,
            received: status.received,
            refused: status.oversized,
            lost: status.lost,
            queues: status.levels,
            pauses_requested: Vec::new(),
        }
    }
}

/// Ports that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// A number is beyond nine bits, the CPU port, or taken.
    #[error("port {0} cannot be had: {1}")]
    Number(u16, &'static str),
    /// The interface cannot be opened.
    #[error("interface {name}")]
    Interface {
        /// Its name.
        name: String,
        /// Why; without the right to, say `CAP_NET_RAW`.
        #[source]
        source: io::Error,
    },
    /// A capture file cannot be read or written.
    #[error("capture file {}", .file.display())]
    Capture {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not give the thread what it needs.
    #[error("starting the thread of the ports")]
    Start(#[source] io::Error),
    /// The ports have been stopped.
    #[error(transparent)]
    Gone(#[from] OwnerStopped),
}

/// Running ports; the last handle that is dropped does not stop them, [`PortsHandle::stop`] does.
#[derive(Clone, Debug)]
pub struct PortsHandle {
    commands: PortsCommandSender,
    states: watch::Receiver<Vec<(u16, PortState)>>,
    /// Closed once the thread has closed its files.
    ended: watch::Receiver<()>,
}

/// Something for the owner to do between two packets.
type PortsCommand = Box<dyn FnOnce(&mut PortsDriver) + Send>;

/// Sends commands to the owner: a bounded channel, and an event descriptor that wakes the owner,
/// because it waits on file descriptors.
#[derive(Clone, Debug)]
struct PortsCommandSender {
    sender: mpsc::Sender<PortsCommand>,
    wakeup: Arc<EventFd>,
}

/// Gives the device to a thread of its own, with these ports.
///
/// # Errors
/// A port cannot be had, or the thread does not start.
pub fn spawn_ports(device: Device, options: &PortsOptions) -> Result<PortsHandle, PortsError> {
    let (sender, received) = mpsc::channel(COMMAND_LIMIT);
    let bell = EventFd::new().map_err(|errno| PortsError::Start(errno.into()))?;
    let bell = Arc::new(bell);
    let mut driver = PortsDriver::new(device, options, Arc::clone(&bell))?;
    for port in &options.ports {
        driver.add_port(port)?;
    }
    let states = driver.watch_states();
    let (running, ended) = watch::channel(());
    std::thread::Builder::new()
        .name("ports".to_owned())
        .spawn(move || {
            driver.run_loop(received);
            // Not before the driver has been dropped, which completes capture files.
            drop(running);
        })
        .map_err(PortsError::Start)?;
    Ok(PortsHandle { commands: PortsCommandSender { sender, wakeup: bell }, states, ended })
}

impl PortsHandle {
    /// The device behind the ports.
    pub fn device(&self) -> DeviceHandle {
        DeviceHandle::new(self.commands.clone())
    }

    /// Attaches one more port.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn add_port(&self, port: PortConfig) -> Result<(), PortsError> {
        self.commands.run_command(move |driver| driver.add_port(&port)).await?
    }

    /// Detaches a port; what waits there is lost. False if the port does not exist.
    pub async fn remove_port(&self, number: u16) -> Result<bool, OwnerStopped> {
        self.commands.run_command(move |driver| driver.remove_port(number)).await
    }

    /// All ports, by number.
    pub async fn status(&self) -> Result<Vec<PortStatus>, OwnerStopped> {
        self.commands.run_command(|driver| driver.port_statuses()).await
    }

    /// What the shared buffer has seen; none without one.
    pub async fn buffer_counts(&self) -> Result<Option<BufferCounts>, OwnerStopped> {
        self.commands.run_command(|driver| driver.buffer_counts()).await
    }

    /// What has become of the device's packets, apart from its P4 counters.
    pub async fn device_counts(&self) -> Result<DeviceCounts, OwnerStopped> {
        self.device().with_device(|device| device.counts()).await
    }

    /// The states of all ports, by number, whenever one changes.
    pub fn watch_states(&self) -> watch::Receiver<Vec<(u16, PortState)>> {
        self.states.clone()
    }

    /// Ends the thread once what was received has been worked off. Capture files are complete when
    /// this returns, and not before.
    pub async fn stop(&self) {
        // An error means that the thread is about to end already.
        let _stopping = self.commands.run_command(PortsDriver::stop).await;
        // Nothing is ever sent: the wait ends when the thread drops the sender.
        let _closed = self.ended.clone().changed().await;
    }
}

impl PortsCommandSender {
    async fn run_command<R: Send + 'static>(
        &self,
        run: impl FnOnce(&mut PortsDriver) -> R + Send + 'static,
    ) -> Result<R, OwnerStopped> {
        let (reply, result) = oneshot::channel();
        self.send(Box::new(move |driver| {
            // The caller may have given up; the command takes effect all the same.
            let _unheard = reply.send(run(driver));
        }))
        .await?;
        result.await.map_err(|_| OwnerStopped)
    }

    async fn send(&self, command: PortsCommand) -> Result<(), OwnerStopped> {
        self.sender.send(command).await.map_err(|_| OwnerStopped)?;
        // Fails only when 2^64 wake-ups are pending.
        let _pending = self.wakeup.write(1);
        Ok(())
    }
}

impl DeviceChannel for PortsCommandSender {
    fn send_command(&self, command: DeviceCommand) -> PendingCommand<'_> {
        Box::pin(self.send(Box::new(move |driver| command(driver.device_mut()))))
    }

    fn set_packet_ins(&self, to: mpsc::Sender<Vec<u8>>) -> PendingCommand<'_> {
        Box::pin(self.run_command(move |driver| driver.set_packet_ins(to)))
    }

    fn inject_packet(&self, port: u16, packet: Vec<u8>) -> PendingCommand<'_> {
        Box::pin(self.run_command(move |driver| driver.inject_packet(port, &packet)))
    }

    fn watch_port_states(&self) -> PendingResult<'_, watch::Receiver<PortStates>> {
        Box::pin(self.run_command(|driver| driver.watch_states()))
    }

    fn port_reports(&self) -> PendingResult<'_, Vec<PortReport>> {
        Box::pin(self.run_command(|driver| {
            let buffer = driver.buffer_counts();
            let reports = driver.port_statuses().into_iter().map(|status| {
                let requested = buffer.as_ref().map(|counts| counts.pauses_at(status.number));
                PortReport {
                    pauses_requested: requested.unwrap_or_default(),
                    ..PortReport::from(status)
                }
            });
            reports.collect()
        }))
    }
}
