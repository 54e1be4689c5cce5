//! `crux job host`: one host's part of a run, over UDP sockets.
//!
//! The transport is [`emulator::EmulatedHost`]; here are its clock and the lead's messages, and in
//! [`flow_sockets`] its sockets.

mod flow_sockets;

use std::time::Duration;

use emulator::{HostPacket, TimeScale, host_settings, roce};
use tokio::time::{Instant, sleep_until};

use self::flow_sockets::{FlowSockets, ReceivedDatagram};
use super::RunDocumentArgs;
use super::protocol::{self, HostMessage, LeadAddress, LeadMessage, PacketCounts};
use crate::transport_flags::HostTransportFlags;
use command_io::CommandError;

/// Run one host of a run: send its flows when the lead starts them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux job host --fabric lab.toml --jobs jobs.json --host h1 --lead 10.9.0.1:7000
  crux job host --fabric lab.toml --jobs jobs.json --host h1 --lead /run/lead --transport dcqcn")]
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
    #[command(flatten)]
    transport: HostTransportFlags,
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
    let settings = host_settings(fabric, jobs, TimeScale::REAL, args.transport.testbed_options()?);
    let mut member = HostRuntime {
        host: emulator::EmulatedHost::new(fabric, jobs, host, settings),
        sockets: FlowSockets::open_sockets(fabric, jobs, host).await?,
        unreadable: 0,
        since: Instant::now(),
        datagram: Vec::new(),
    };
    let mut packets = flow_sockets::receive_packets(fabric, host).await?;
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
        if let Some(flow) = member.host.lost_flow() {
            return Err(CommandError::Failed(format!(
                "flow {flow} was not acknowledged through all its retries; raise NCCL_IB_TIMEOUT \
                 (--ib-timeout), or the share of its level"
            )));
        }
        while let Some(flow) = member.host.next_finished_flow() {
            reports.send_message(&HostMessage::Done(flow)).await?;
        }
    }
    reports.send_message(&HostMessage::Counted(member.packet_counts())).await
}

/// The state of a running host.
struct HostRuntime {
    host: emulator::EmulatedHost,
    sockets: FlowSockets,
    /// Datagrams that no connection understood.
    unreadable: u64,
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

    fn receive_datagram(&mut self, datagram: &ReceivedDatagram) {
        let now = self.elapsed_ns();
        let understood = roce::read_datagram(&datagram.bytes).is_ok_and(|(flow, body)| {
            let packet = HostPacket { flow, body };
            self.host.receive_packet(packet, datagram.is_marked, now)
        });
        self.unreadable += u64::from(!understood);
        self.send_packets();
    }

    fn packet_counts(&self) -> PacketCounts {
        let congestion = self.host.congestion_counts();
        PacketCounts {
            retransmitted: self.host.retransmitted_packets(),
            unreadable: self.unreadable,
            marked: congestion.marked,
            notifications: congestion.notifications,
            timeouts: congestion.timeouts,
        }
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
