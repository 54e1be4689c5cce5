//! `crux job host`: one host's part of a run, over UDP sockets.
//!
//! The core is [`emulator::Host`]; here are its sockets, its clock and the lead's orders.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use emulator::{Packet, Scale, Wires, roce, settings};
use planner::{Flow, Job};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use topology::{Fabric, HostId};

use super::Documents;
use super::wire::{self, Address, Counts, Order, Report};
use crate::failure::Failure;

/// Packets that may wait for the host; those beyond it are lost like any other.
const PACKET_QUEUE: usize = 4096;
/// Longer than any datagram of ours.
const DATAGRAM: usize = 8192;

/// Be one host of a run: send its flows when the lead says so.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  crux job host --fabric lab.toml --jobs jobs.json --host h1 --lead 10.9.0.1:7000")]
pub(crate) struct Args {
    #[command(flatten)]
    documents: Documents,
    /// Which host of the fabric document this is; its addresses must be this machine's, with an MTU
    /// of at least 4,136 bytes
    #[arg(long)]
    host: String,
    /// Where the lead listens
    #[arg(long)]
    lead: Address,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::work(&error))?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> Result<(), Failure> {
    let scenario = args.documents.read()?;
    let (fabric, jobs) = (&scenario.fabric, &scenario.jobs);
    let unknown = || Failure::input("--host", format_args!("no host {} here", args.host));
    let host = fabric.host_named(&args.host).ok_or_else(unknown)?;
    let scale = Scale::new(1.0).ok_or_else(|| Failure::Work("no scale".to_owned()))?;
    let settings = settings(fabric, jobs, scale, Wires::default());
    let mut member = Member {
        host: emulator::Host::new(fabric, jobs, host, settings),
        sockets: Sockets::open(fabric, jobs, host).await?,
        counts: Counts::default(),
        since: Instant::now(),
        datagram: Vec::new(),
    };
    let mut packets = listen(fabric, host).await?;
    let (mut orders, mut reports) = wire::connect(&args.lead).await?;
    reports.send(&Report::Ready(args.host.clone())).await?;
    loop {
        tokio::select! {
            order = orders.next() => match order? {
                Some(Order::Begin(flows)) => member.begin(&flows),
                Some(Order::Stop) => break,
                None => return Err(Failure::Work("the lead has gone".to_owned())),
            },
            datagram = packets.recv() => {
                let mut next = datagram;
                while let Some(datagram) = next {
                    member.receive(&datagram);
                    next = packets.try_recv().ok();
                }
            }
            () = sleep_until(member.due()) => {}
        }
        member.advance();
        while let Some(flow) = member.host.finished() {
            reports.send(&Report::Done(flow)).await?;
        }
    }
    member.counts.retransmitted = member.host.retransmitted();
    reports.send(&Report::Counted(member.counts)).await
}

/// This host at work.
struct Member {
    host: emulator::Host,
    sockets: Sockets,
    counts: Counts,
    since: Instant,
    /// The datagram being written.
    datagram: Vec<u8>,
}

impl Member {
    fn begin(&mut self, flows: &[u32]) {
        let now = self.now();
        flows.iter().for_each(|flow| self.host.begin(*flow, now));
        self.send();
    }

    fn receive(&mut self, datagram: &[u8]) {
        let now = self.now();
        let understood = roce::read_datagram(datagram).is_ok_and(|(flow, body)| {
            let packet = Packet { flow, body };
            self.host.receive(packet, now)
        });
        self.counts.unreadable += u64::from(!understood);
        self.send();
    }

    /// Works off what is due, in the order in which it is.
    fn advance(&mut self) {
        let now = self.now();
        while let Some(due) = self.host.due().filter(|due| *due <= now) {
            self.host.advance(due);
            self.send();
        }
    }

    /// A packet that a socket does not take is lost, which the transport makes good.
    fn send(&mut self) {
        while let Some(packet) = self.host.packet() {
            roce::write_datagram(packet.flow, packet.body, &mut self.datagram);
            self.sockets.send(packet, &self.datagram);
        }
    }

    fn due(&self) -> Instant {
        let due = self.host.due().map(Duration::from_nanos);
        self.since + due.unwrap_or(Duration::from_secs(1 << 30))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A socket for each address and UDP source port that this host sends from.
struct Sockets {
    sockets: Vec<UdpSocket>,
    /// Of each flow that begins or ends here: the socket to send from, and where to.
    ends: BTreeMap<u32, (usize, SocketAddr)>,
}

impl Sockets {
    async fn open(fabric: &Fabric, jobs: &[Job], host: HostId) -> Result<Self, Failure> {
        let mut places: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        let mut sockets = Vec::new();
        let mut ends = BTreeMap::new();
        for (number, flow) in (0..).zip(jobs.iter().flat_map(|job| &job.flows)) {
            let Some((from, to)) = end(fabric, flow, host) else {
                continue;
            };
            // Answers too have the source port of the flow, by which switches tell whose they are.
            let from = SocketAddr::from((from, flow.udp_src_port));
            let place = match places.get(&from) {
                Some(place) => *place,
                None => {
                    sockets.push(bind(from).await?);
                    sockets.len() - 1
                }
            };
            places.insert(from, place);
            ends.insert(number, (place, SocketAddr::from((to, roce::UDP_PORT))));
        }
        Ok(Self { sockets, ends })
    }

    fn send(&self, packet: Packet, datagram: &[u8]) {
        if let Some((place, to)) = self.ends.get(&packet.flow) {
            let _lost = self.sockets[*place].try_send_to(datagram, *to);
        }
    }
}

/// Addresses of this host's end of a flow and of the other.
fn end(fabric: &Fabric, flow: &Flow, host: HostId) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (src, dst) = (fabric.nic(flow.src), fabric.nic(flow.dst));
    if src.host == host {
        Some((src.ip, dst.ip))
    } else {
        (dst.host == host).then_some((dst.ip, src.ip))
    }
}

async fn bind(address: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind(address).await;
    socket.map_err(|error| Failure::input(address, error))
}

/// Listens on port 4791 of every NIC.
async fn listen(fabric: &Fabric, host: HostId) -> Result<mpsc::Receiver<Vec<u8>>, Failure> {
    let (to_host, packets) = mpsc::channel(PACKET_QUEUE);
    for nic in fabric.nics().iter().filter(|nic| nic.host == host) {
        let socket = Arc::new(bind(SocketAddr::from((nic.ip, roce::UDP_PORT))).await?);
        let to_host = to_host.clone();
        tokio::spawn(async move {
            let mut datagram = vec![0; DATAGRAM];
            loop {
                // An error here is the answer to a packet that found nobody; so is a lost one.
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
