//! Packets between a switch's CPU port and the controller, with the headers of `fabric.p4`.
//! The decision: padding is neither sent nor expected.

use p4runtime_proto::v1 as p4rt;

use super::decode::{DecodeError, convert_in_range, decode_number};
use crate::bytes;
use crate::fabric::{OutOfRange, PortNumber};

/// `packet_in.ingress_port`.
const INGRESS_PORT: u32 = 1;
/// `packet_out.egress_port`.
const EGRESS_PORT: u32 = 1;
/// `packet_out.submit_to_ingress`.
const SUBMIT_TO_INGRESS: u32 = 2;

/// A packet for a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// Where it goes.
    pub target: PacketOutTarget,
    /// The frame, from its Ethernet header on.
    pub payload: Vec<u8>,
}

/// Where a packet from the controller goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOutTarget {
    /// Out of this port.
    Port(PortNumber),
    /// Where the switch's tables send it, as if it had come in.
    Tables,
}

/// A packet from a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The port that it came in by.
    pub ingress_port: PortNumber,
    /// The frame, from its Ethernet header on.
    pub payload: Vec<u8>,
}

/// A packet for a switch.
pub fn encode_packet_out(packet: PacketOut) -> p4rt::PacketOut {
    let (port, submit) = match packet.target {
        PacketOutTarget::Port(port) => (port.into(), 0),
        PacketOutTarget::Tables => (0, 1),
    };
    p4rt::PacketOut {
        payload: packet.payload,
        metadata: vec![
            encode_metadata(EGRESS_PORT, port),
            encode_metadata(SUBMIT_TO_INGRESS, submit),
        ],
    }
}

/// A packet from a switch.
pub fn decode_packet_in(packet: p4rt::PacketIn) -> Result<PacketIn, DecodeError> {
    let port = packet.metadata.iter().find(|field| field.metadata_id == INGRESS_PORT);
    let port = port.ok_or(DecodeError::Missing("ingress_port"))?;
    let number = decode_number("packet_in field", INGRESS_PORT, &port.value)?;
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let ingress_port = PortNumber::new(convert_in_range("port", number)?)
        .map_err(|OutOfRange { what, .. }| DecodeError::Range { what, value: number })?;
    Ok(PacketIn { ingress_port, payload: packet.payload })
}

fn encode_metadata(metadata_id: u32, value: u128) -> p4rt::PacketMetadata {
    p4rt::PacketMetadata { metadata_id, value: bytes::encode_value(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForwardingPipeline;

    #[test]
    fn the_headers_are_those_of_the_program() {
        let p4info = ForwardingPipeline::embedded_fabric().p4info;
        let fields = |header: &str| -> Vec<_> {
            let fields = p4info.packet_header(header).iter();
            fields.map(|field| (field.id, field.name.clone())).collect()
        };
        let out =
            [(EGRESS_PORT, "egress_port".into()), (SUBMIT_TO_INGRESS, "submit_to_ingress".into())];
        assert_eq!(fields("packet_out"), out);
        assert_eq!(fields("packet_in"), [(INGRESS_PORT, "ingress_port".into())]);
    }
}
