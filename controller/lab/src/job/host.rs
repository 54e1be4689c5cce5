//! `crux job host`: one host's part of a run, over UDP sockets.
//!
//! The transport is [`emulator::EmulatedHost`]; here are its sockets, its clock and the lead's
//! messages.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use emulator::{HostPacket, TestbedOptions, TimeScale, roce, transport_settings};
use planner::{Flow, Job};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use topology::{Fabric, HostId};

use super::RunDocumentArgs;
use super::protocol::{self, HostMessage, LeadAddress, LeadMessage, PacketCounts};
use command_io::CommandError;

/// Packets that can wait for the host; further ones are lost.
const PACKET_QUEUE: usize = 4096;
/// Longer than any datagram of ours.
const DATAGRAM: usize = 8192;

/// Run one host of a run: send its flows when the lead starts them.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  crux job host --fabric lab.toml --jobs jobs.json --host h1 --lead 10.9.0.1:7000")]
pub(crate) struct HostArgs {
    #[command(flatten)]
    documents: RunDocumentArgs,
    /// Which host of the fabric document this is; its addresses must be this machine's, with an MTU
    /// of at least 4,136 bytes
    #[arg(long)]
    host: String,
    /// Where the lead listens
    #[arg(long)]
    lead: LeadAddress,
}

pub(super) fn run_host(args: &HostArgs) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::failed)?;
    runtime.block_on(serve_host(args))
}

async fn serve_host(args: &HostArgs) -> Result<(), CommandError> {
    let scenario = args.documents.read_scenario()?;
    let (fabric, jobs) = (&scenario.fabric, &scenario.jobs);
    let host = fabric.host_named(&args.host).ok_or_else(|| {
        CommandError::input("--host", format_args!("the fabric has no host {}", args.host))
    })?;
    let scale =
        TimeScale::new(1.0).ok_or_else(|| CommandError::Failed("invalid time scale".to_owned()))?;
    let settings = transport_settings(fabric, jobs, scale, TestbedOptions::default());
    let mut member = HostRuntime {
        host: emulator::EmulatedHost::new(fabric, jobs, host, settings),
        sockets: FlowSockets::open_sockets(fabric, jobs, host).await?,
        counts: PacketCounts::default(),
        since: Instant::now(),
        datagram: Vec::new(),
    };
    let mut packets = receive_packets(fabric, host).await?;
    let (mut orders, mut reports) = protocol::connect_lead(&args.lead).await?;
    reports.send_message(&HostMessage::Ready(args.host.clone())).await?;
    loop {
        tokio::select! {
            order = orders.next() => match order? {
                Some(LeadMessage::Begin(flows)) => member.begin_flows(&flows),
                Some(LeadMessage::Stop) => break,
                None => return Err(CommandError::Failed("the lead has disconnected".to_owned())),
            },
            datagram = packets.recv() => {
                let mut next = datagram;
                while let Some(datagram) = next {
                    member.receive_datagram(&datagram);
                    next = packets.try_recv().ok();
                }
            }
            () = sleep_until(member.next_deadline()) => {}
        }
        member.advance_timers();
        while let Some(flow) = member.host.next_finished_flow() {
            reports.send_message(&HostMessage::Done(flow)).await?;
        }
    }
    member.counts.retransmitted = member.host.retransmitted_packets();
    reports.send_message(&HostMessage::Counted(member.counts)).await
}

/// The state of a running host.
struct HostRuntime {
    host: emulator::EmulatedHost,
    sockets: FlowSockets,
    counts: PacketCounts,
    since: Instant,
    /// The datagram being written.
    datagram: Vec<u8>,
}

impl HostRuntime {
    fn begin_flows(&mut self, flows: &[u32]) {
        let now = self.elapsed_ns();
        flows.iter().for_each(|flow| self.host.begin_flow(*flow, now));
        self.send_packets();
    }

    fn receive_datagram(&mut self, datagram: &[u8]) {
        let now = self.elapsed_ns();
        let understood = roce::read_datagram(datagram).is_ok_and(|(flow, body)| {
            let packet = HostPacket { flow, body };
            self.host.receive_packet(packet, now)
        });
        self.counts.unreadable += u64::from(!understood);
        self.send_packets();
    }

    /// Handles all timers that are due, in their order.
    fn advance_timers(&mut self) {
        let now = self.elapsed_ns();
        while let Some(due) = self.host.next_deadline().filter(|due| *due <= now) {
            self.host.advance_to(due);
            self.send_packets();
        }
    }

    /// A packet that a socket refuses is lost; the transport sends it again.
    fn send_packets(&mut self) {
        while let Some(packet) = self.host.next_packet() {
            roce::write_datagram(packet.flow, packet.body, &mut self.datagram);
            self.sockets.send_packet(packet, &self.datagram);
        }
    }

    fn next_deadline(&self) -> Instant {
        let due = self.host.next_deadline().map(Duration::from_nanos);
        self.since + due.unwrap_or(Duration::from_secs(1 << 30))
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A socket for each address and UDP source port that this host sends from.
struct FlowSockets {
    sockets: Vec<UdpSocket>,
    /// For each flow that begins or ends here: the socket to send from, and the destination.
    ends: BTreeMap<u32, (usize, SocketAddr)>,
}

impl FlowSockets {
    async fn open_sockets(
        fabric: &Fabric,
        jobs: &[Job],
        host: HostId,
    ) -> Result<Self, CommandError> {
        let mut places: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        let mut sockets = Vec::new();
        let mut ends = BTreeMap::new();
        for (number, flow) in (0..).zip(jobs.iter().flat_map(|job| &job.flows)) {
            let Some((from, to)) = flow_addresses(fabric, flow, host) else {
                continue;
            };
            // Acknowledgements have the source port of the flow too, by which switches classify
            // them.
            let port = flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT);
            let from = SocketAddr::from((from, port));
            let place = match places.get(&from) {
                Some(place) => *place,
                None => {
                    sockets.push(bind_socket(from).await?);
                    sockets.len() - 1
                }
            };
            places.insert(from, place);
            ends.insert(number, (place, SocketAddr::from((to, roce::UDP_PORT))));
        }
        Ok(Self { sockets, ends })
    }

    fn send_packet(&self, packet: HostPacket, datagram: &[u8]) {
        if let Some((place, to)) = self.ends.get(&packet.flow) {
            let _lost = self.sockets[*place].try_send_to(datagram, *to);
        }
    }
}

/// The addresses of this host's end of a flow and of the other.
fn flow_addresses(fabric: &Fabric, flow: &Flow, host: HostId) -> Option<(IpAddr, IpAddr)> {
    let (src, dst) = (fabric.nic(flow.src), fabric.nic(flow.dst));
    if src.host == host {
        Some((src.ip, dst.ip))
    } else {
        (dst.host == host).then_some((dst.ip, src.ip))
    }
}

async fn bind_socket(address: SocketAddr) -> Result<UdpSocket, CommandError> {
    UdpSocket::bind(address).await.map_err(|error| CommandError::input(address, error))
}

/// Listens on port 4791 of every NIC.
async fn receive_packets(
    fabric: &Fabric,
    host: HostId,
) -> Result<mpsc::Receiver<Vec<u8>>, CommandError> {
    let (to_host, packets) = mpsc::channel(PACKET_QUEUE);
    for nic in fabric.nics().iter().filter(|nic| nic.host == host) {
        let socket = Arc::new(bind_socket(SocketAddr::from((nic.ip, roce::UDP_PORT))).await?);
        let to_host = to_host.clone();
        tokio::spawn(async move {
            let mut datagram = vec![0; DATAGRAM];
            loop {
                // An error here is an ICMP response to an earlier packet, which is lost like any
                // other.
                let Ok(length) = socket.recv(&mut datagram).await else {
                    continue;
                };
                if to_host.is_closed() {
                    return;
                }
                let _lost = to_host.try_send(datagram[..length].to_vec());
            }
        });
    }
    Ok(packets)
}
