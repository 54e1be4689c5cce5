//! A learned flow as a row of names and numbers.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::Fabric;

use crate::clock::Clock;
use crate::learning::LearnedFlow;

/// The UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// A RoCEv2 flow that no job has announced, as the leaf of its sender reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedFlowRow {
    /// The leaf by which it enters the fabric.
    pub leaf: String,
    /// The port of that leaf.
    pub port: u16,
    /// The NIC that sends it, as `h1:0`; absent if the fabric has none of this address.
    pub src_nic: Option<String>,
    /// The sender's address.
    pub src: IpAddr,
    /// The NIC that receives it; absent if the fabric has none of this address.
    pub dst_nic: Option<String>,
    /// The receiver's address.
    pub dst: IpAddr,
    /// The sender's UDP port.
    pub udp_src_port: u16,
    /// The receiver's UDP port.
    pub udp_dst_port: u16,
    /// The receiver's queue pair.
    pub dest_qp: u32,
    /// When it was first reported, in milliseconds of Unix time.
    pub first_seen_ms: u64,
    /// When it was last reported, in milliseconds of Unix time. A flow that goes on is reported
    /// once in each `learning.refresh_ms`.
    pub last_seen_ms: u64,
}

impl LearnedFlowRow {
    /// The row of a flow; `None` if its switch is not in the fabric any more.
    pub(super) fn new(flow: &LearnedFlow, fabric: &Fabric, clock: &Clock) -> Option<Self> {
        let leaf = fabric.switches().get(flow.at.switch.index())?.name.clone();
        Some(Self {
            leaf,
            port: flow.at.port,
            src_nic: nic_name(fabric, flow.tuple.src),
            src: flow.tuple.src,
            dst_nic: nic_name(fabric, flow.tuple.dst),
            dst: flow.tuple.dst,
            udp_src_port: flow.tuple.udp_src_port,
            udp_dst_port: ROCE_PORT,
            dest_qp: flow.tuple.dest_qp,
            first_seen_ms: clock.unix_time(flow.first_seen),
            last_seen_ms: clock.unix_time(flow.last_seen),
        })
    }
}

fn nic_name(fabric: &Fabric, address: IpAddr) -> Option<String> {
    let nic = fabric.nic(fabric.nic_with_ip(address)?);
    Some(fabric.endpoint_name(fabric.link(nic.uplink).from))
}
