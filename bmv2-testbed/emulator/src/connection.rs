//! One connection between two emulated hosts: addresses, both ends of the transport, and the rate
//! control of the sender.

use planner::Flow;
use switch::Nanos;
use topology::{Fabric, LinkId, MacAddress, NicId};

use crate::cluster::ArrivedSegment;
use crate::dcqcn::{DcqcnParameters, NotificationPoint, RatePacer, ReactionPoint};
use crate::host_hops::HostHops;
use crate::host_ports::HostPorts;
use crate::roce::{self, CongestionMarking, FlowAddresses, PacketBody};
use crate::scale::TimeScale;
use crate::transport::{MessageSegment, TransportReceiver, TransportSender, TransportSettings};

/// The transport and the rate control of all connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSettings {
    /// Window, acknowledgements and retries.
    pub transport: TransportSettings,
    /// The rate control of connections; without it only the window limits them.
    pub congestion: Option<CongestionControl>,
}

/// The rate control of connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CongestionControl {
    /// DCQCN as published for the rate of each NIC.
    PublishedDcqcn,
    /// DCQCN with these parameters.
    Dcqcn(DcqcnParameters),
}

impl CongestionControl {
    /// The parameters of a connection from a NIC of this rate, under a time scale.
    pub(crate) fn parameters(self, link_bps: f64, scale: TimeScale) -> DcqcnParameters {
        let parameters = match self {
            Self::PublishedDcqcn => DcqcnParameters::published(link_bps),
            Self::Dcqcn(parameters) => parameters,
        };
        parameters.shrunk(scale.factor())
    }
}

/// One flow of a job; its position in the cluster's list is the queue pair of both ends.
pub(crate) struct RoceConnection {
    pub(crate) job: usize,
    /// Number of the start of an iteration with which it begins.
    pub(crate) start: usize,
    pub(crate) bytes: u64,
    pub(crate) source: NicId,
    pub(crate) destination: NicId,
    pub(crate) forward: FlowAddresses,
    pub(crate) backward: FlowAddresses,
    pub(crate) sender: TransportSender,
    pub(crate) receiver: TransportReceiver,
    /// The links of the sending host, that of the NIC last.
    pub(crate) outward: HostHops<MessageSegment>,
    /// The links inside the receiving host.
    pub(crate) inward: HostHops<ArrivedSegment>,
    /// The timer that is set for the connection; at most one is set at a time.
    pub(crate) timer: Option<Nanos>,
    pub(crate) notification: NotificationPoint,
    /// How far notifications are apart at least.
    pub(crate) notification_interval_ns: Nanos,
    /// The rate, under congestion control.
    pub(crate) pacer: Option<RatePacer>,
    /// Whether a timer waits for the connection's turn by its rate.
    pub(crate) is_paced: bool,
    /// When each message was acknowledged.
    pub(crate) completions: Vec<Nanos>,
    /// How long the flow has waited for service.
    pub(crate) wait: ServiceWait,
}

/// How long a flow with something to send waits until a packet of it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServiceWait {
    /// Since when, while it has something to send.
    since: Option<Nanos>,
    longest: Nanos,
}

impl ServiceWait {
    /// The flow has something to send.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// A packet has arrived, the last or another.
    pub(crate) fn handle_arrival(&mut self, is_last: bool, now: Nanos) {
        self.longest = self.longest(now);
        // What comes after the last packet is sent again, and nobody waits for it.
        self.since = self.since.filter(|_| !is_last).map(|_| now);
    }

    /// The longest wait until `now`, that which is not over included.
    pub(crate) fn longest(&self, now: Nanos) -> Nanos {
        let current = self.since.map_or(0, |since| now.saturating_sub(since));
        self.longest.max(current)
    }
}

impl RoceConnection {
    /// Has its packets leave by the port that the host chooses now.
    pub(crate) fn choose_port(&mut self, ports: &HostPorts) {
        let port = ports.sending_port(self.source, &self.forward);
        self.outward.replace_last(port.index());
    }

    pub(crate) fn new(
        fabric: &Fabric,
        flow: &Flow,
        index: u32,
        transport: TransportSettings,
    ) -> Self {
        Self {
            job: 0,
            start: 0,
            bytes: 0,
            source: flow.src,
            destination: flow.dst,
            forward: flow_addresses(fabric, (flow.src, flow.dst), flow, index),
            backward: flow_addresses(fabric, (flow.dst, flow.src), flow, index),
            sender: TransportSender::new(transport),
            receiver: TransportReceiver::new(transport),
            outward: outward_hops(fabric, flow),
            inward: inward_hops(fabric, flow),
            timer: None,
            notification: NotificationPoint::default(),
            notification_interval_ns: 0,
            pacer: None,
            is_paced: false,
            completions: Vec::new(),
            wait: ServiceWait::default(),
        }
    }

    pub(crate) fn with_dcqcn(mut self, parameters: DcqcnParameters, link_bps: f64) -> Self {
        self.forward.marking = CongestionMarking::Capable;
        self.notification_interval_ns = parameters.notification_interval_ns;
        self.pacer = Some(RatePacer::new(ReactionPoint::new(parameters, link_bps)));
        self
    }

    /// Addresses and class of a reply: notifications have a class of their own, so that no pause of
    /// data holds them up; all others have that of their connection, as adapters send them.
    pub(crate) fn reply_addresses(&self, reply: PacketBody) -> FlowAddresses {
        let dscp = match reply {
            PacketBody::CongestionNotification => roce::NOTIFICATION_DSCP,
            _ => self.backward.dscp,
        };
        FlowAddresses { dscp, ..self.backward }
    }

    /// When congestion control allows the next packet, if not now.
    pub(crate) fn wait_until(&mut self, now: Nanos) -> Option<Nanos> {
        self.pacer.as_mut().and_then(|pacer| pacer.wait_until(now))
    }
}

/// The number of a link inside a host among those that hosts send on: NICs come first.
fn host_link_number(fabric: &Fabric, link: LinkId) -> usize {
    fabric.nics().len() + link.index() - fabric.links().len()
}

fn outward_hops(fabric: &Fabric, flow: &Flow) -> HostHops<MessageSegment> {
    let inside = fabric.links_to_nic(flow.gpus.src(), flow.src);
    let inside = inside.iter().map(|link| host_link_number(fabric, *link));
    HostHops::new(inside.chain([flow.src.index()]))
}

fn inward_hops(fabric: &Fabric, flow: &Flow) -> HostHops<ArrivedSegment> {
    let inside = fabric.links_from_nic(flow.dst, flow.gpus.dst());
    HostHops::new(inside.iter().map(|link| host_link_number(fabric, *link)))
}

/// Addresses of one direction of a flow. Replies carry the UDP source port of the flow, so that the
/// five-tuple identifies their flow to a switch.
fn flow_addresses(
    fabric: &Fabric,
    (from, to): (NicId, NicId),
    flow: &Flow,
    queue_pair: u32,
) -> FlowAddresses {
    let (from, to) = (fabric.nic(from), fabric.nic(to));
    FlowAddresses {
        source: (from.mac, from.ip),
        // Every switch answers for every address, so a host sends all its packets to one.
        destination: (MacAddress::GATEWAY, to.ip),
        // A host that states no port still sends from one.
        udp_src_port: flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT),
        queue_pair,
        marking: CongestionMarking::Off,
        dscp: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_from_packet_to_packet_of_a_message() {
        let mut wait = ServiceWait::default();
        assert_eq!(wait.longest(100), 0);
        wait.begin(100);
        assert_eq!(wait.longest(130), 30);
        wait.handle_arrival(false, 110);
        wait.handle_arrival(false, 160);
        wait.handle_arrival(true, 170);
        // Nothing is to be sent until the next message.
        assert_eq!(wait.longest(1_000), 50);
        wait.begin(1_000);
        assert_eq!(wait.longest(1_080), 80);
    }
}
