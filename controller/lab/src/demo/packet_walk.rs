//! A packet of every planned flow, sent through the switches one by one.
//!
//! Pins that are routes have no counters, so where switches have such pins the audit asks the
//! switches themselves. The decision: a packet passes the very devices that have carried the
//! training, from the first leaf to the host, and each must give it the planned port and the level
//! of its job.

use emulator::EmulatedTestbed;
use emulator::roce::{self, CongestionMarking, FlowAddresses, PacketBody};
use planner::{Plan, PlannedFlow};
use switch::{DeviceOutputs, OutputPacket};
use topology::{Fabric, LinkEndpoint, MacAddress};

use super::emulated_run::host_dscp;
use command_io::CommandError;

/// Pinned flows that some switch would send elsewhere, or on another level, and where.
pub(super) async fn find_strays(
    testbed: &EmulatedTestbed,
    fabric: &Fabric,
    plan: &Plan,
) -> Result<Vec<String>, CommandError> {
    let mut strays = Vec::new();
    for flow in plan.flows.iter().filter(|flow| flow.pinned) {
        let walk = PacketWalk { testbed, fabric, plan, flow };
        if let Some(deviation) = walk.find_deviation().await? {
            strays.push(format!("{}: {deviation}", flow.name_in(fabric)));
        }
    }
    Ok(strays)
}

struct PacketWalk<'a> {
    testbed: &'a EmulatedTestbed,
    fabric: &'a Fabric,
    plan: &'a Plan,
    flow: &'a PlannedFlow,
}

impl PacketWalk<'_> {
    /// The first switch that does something else than the plan.
    async fn find_deviation(&self) -> Result<Option<String>, CommandError> {
        let level = self.level();
        let mut packet = self.first_packet();
        for (arrival, departure) in self.flow.links.iter().zip(self.flow.links.iter().skip(1)) {
            let (at, from) = (self.fabric.link(*arrival).to, self.fabric.link(*departure).from);
            let sent = self.forward(at, packet).await?;
            let [one] = &sent[..] else {
                let place = self.fabric.endpoint_name(at);
                return Ok(Some(format!("{} packets for one at {place}", sent.len())));
            };
            if (u32::from(one.port), one.level) != (from.port, level) {
                let (place, port) = (self.fabric.endpoint_name(from), one.port);
                let text = format!("port {port} on level {} at {place}, level {level}", one.level);
                return Ok(Some(text));
            }
            packet = one.packet.clone();
        }
        Ok(None)
    }

    fn level(&self) -> u8 {
        self.plan.jobs.get(self.flow.job).map_or(0, |job| job.level)
    }

    /// The packets that a switch sends for one that comes in.
    async fn forward(
        &self,
        at: LinkEndpoint,
        packet: Vec<u8>,
    ) -> Result<Vec<OutputPacket>, CommandError> {
        let (Some(switch), Ok(port)) = (at.node.switch(), u16::try_from(at.port)) else {
            return Ok(Vec::new());
        };
        let device = self.testbed.device(switch);
        let sent = device.with_device(move |device| {
            let (now, mut out) = (device.now(), DeviceOutputs::default());
            device.process_packet(port, &packet, now, &mut out);
            out.packets
        });
        sent.await.map_err(CommandError::failed)
    }

    /// A packet as the host of the flow sends it.
    fn first_packet(&self) -> Vec<u8> {
        let [src, dst] = [self.flow.src, self.flow.dst].map(|nic| self.fabric.nic(nic));
        let addresses = FlowAddresses {
            source: (src.mac, src.ip),
            destination: (MacAddress::GATEWAY, dst.ip),
            udp_src_port: self.flow.udp_src_port.unwrap_or(roce::FIRST_SOURCE_PORT),
            queue_pair: 1,
            marking: CongestionMarking::Off,
            dscp: host_dscp(self.fabric, self.level()),
        };
        let body = PacketBody::Data { psn: 0, payload: 64, first: true, last: true };
        let mut packet = Vec::new();
        roce::write_packet(&addresses, body, &mut packet);
        packet
    }
}
