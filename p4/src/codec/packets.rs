//! Packets between a switch's CPU port and the controller, with the headers of `fabric.p4` and
//! `sai.p4`, which have equal ids. The decision: padding is neither sent nor expected, and a port
//! that is a string is named by its number.

use p4runtime_proto::v1 as p4rt;

use super::decode::{DecodeError, convert_in_range, decode_number};
use crate::bytes;
use crate::fabric::{OutOfRange, PortNumber};
use crate::p4info::P4Info;

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

/// A packet for a switch that runs this program.
pub fn encode_packet_out(p4info: &P4Info, packet: PacketOut) -> p4rt::PacketOut {
    let (port, submit) = match packet.target {
        PacketOutTarget::Port(port) => (port.number(), 0_u32),
        PacketOutTarget::Tables => (0, 1),
    };
    let port = match p4info.strings.ports {
        true => port.to_string().into_bytes(),
        false => bytes::encode_value(port.into()),
    };
    p4rt::PacketOut {
        payload: packet.payload,
        metadata: vec![
            p4rt::PacketMetadata { metadata_id: EGRESS_PORT, value: port },
            p4rt::PacketMetadata {
                metadata_id: SUBMIT_TO_INGRESS,
                value: bytes::encode_value(submit.into()),
            },
        ],
    }
}

/// A packet from a switch that runs this program.
pub fn decode_packet_in(p4info: &P4Info, packet: p4rt::PacketIn) -> Result<PacketIn, DecodeError> {
    let port = packet.metadata.iter().find(|field| field.metadata_id == INGRESS_PORT);
    let port = port.ok_or(DecodeError::Missing("ingress_port"))?;
    let what = "packet_in field";
    let number = match p4info.strings.ports {
        true => std::str::from_utf8(&port.value).ok().and_then(|name| name.parse().ok()),
        false => Some(decode_number(what, INGRESS_PORT, &port.value)?),
    };
    let number = number.ok_or(DecodeError::PortName)?;
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let ingress_port = PortNumber::new(convert_in_range("port", number)?)
        .map_err(|OutOfRange { what, .. }| DecodeError::Range { what, value: number })?;
    Ok(PacketIn { ingress_port, payload: packet.payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForwardingPipeline;

    #[test]
    fn the_headers_are_those_of_the_program() {
        let p4info = &ForwardingPipeline::embedded_fabric().p4info;
        let fields = |header: &str| -> Vec<_> {
            let fields = p4info.packet_header(header).iter();
            fields.map(|field| (field.id, field.name.clone())).collect()
        };
        let out =
            [(EGRESS_PORT, "egress_port".into()), (SUBMIT_TO_INGRESS, "submit_to_ingress".into())];
        assert_eq!(fields("packet_out"), out);
        assert_eq!(fields("packet_in"), [(INGRESS_PORT, "ingress_port".into())]);
    }

    #[test]
    fn ports_of_sai_are_named_by_their_numbers() {
        let p4info = &ForwardingPipeline::embedded_sai().p4info;
        let target = PacketOutTarget::Port(PortNumber::new(300).unwrap());
        let sent = encode_packet_out(p4info, PacketOut { target, payload: vec![7] });
        assert_eq!(sent.metadata[0].value, b"300");
        let read = |name: &[u8]| {
            let value = name.to_vec();
            let metadata = vec![p4rt::PacketMetadata { metadata_id: INGRESS_PORT, value }];
            let read = decode_packet_in(p4info, p4rt::PacketIn { payload: vec![7], metadata });
            read.map(|packet| packet.ingress_port.number())
        };
        assert_eq!(read(b"300"), Ok(300));
        assert_eq!(read(b"Ethernet4"), Err(DecodeError::PortName));
        assert_eq!(read(b"512"), Err(DecodeError::Range { what: "port", value: 512 }));
    }
}
