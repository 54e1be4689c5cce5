//! Packets from and to the controller: metadata fields to header bits and back.
//!
//! The program sees a header before the packet on the CPU port, the protocol a list of fields
//! beside it; the P4Info's `ControllerPacketMetadata` says how one becomes the other.

use std::collections::BTreeMap;

use p4runtime_proto::v1 as p4rt;

use super::bytestring;
use super::error::RequestFailure;
use crate::p4runtime::election::SwitchDialect;
use crate::p4runtime::p4info::ControllerPacketHeader;

/// The bytes to put into the CPU port for a packet-out. Padding may be left out, and with bmv2
/// every field: there they are zero, and ONOS leaves out what it does not set.
pub(super) fn encode_packet_out(
    header: &ControllerPacketHeader,
    packet: &p4rt::PacketOut,
    dialect: SwitchDialect,
) -> Result<Vec<u8>, RequestFailure> {
    let mut given = BTreeMap::new();
    for metadata in &packet.metadata {
        let id = metadata.metadata_id;
        if header.fields.iter().all(|declared| declared.field.id != id) {
            return Err(RequestFailure::invalid_argument(format!(
                "the packet-out header has no field {id}"
            )));
        }
        if given.insert(id, &metadata.value).is_some() {
            return Err(RequestFailure::invalid_argument(format!("field {id} is given twice")));
        }
    }
    let mut bits = HeaderBits::default();
    for declared in &header.fields {
        let field = &declared.field;
        let value = match given.get(&field.id) {
            Some(value) => bytestring::decode_bytestring(value, field.bits),
            None if declared.is_padding || dialect == SwitchDialect::Bmv2 => Ok(0),
            None => Err(RequestFailure::invalid_argument("it is missing")),
        };
        let place = format!("packet-out field {}", field.name);
        bits.push_bits(value.map_err(|failure| failure.in_context(&place))?, field.bits);
    }
    bits.bytes.extend_from_slice(&packet.payload);
    Ok(bits.bytes)
}

/// The packet-in that the bytes out of the CPU port stand for; `None` if they are too short.
pub(super) fn decode_packet_in(
    header: &ControllerPacketHeader,
    packet: &[u8],
) -> Option<p4rt::PacketIn> {
    let length: u32 = header.fields.iter().map(|declared| declared.field.bits).sum();
    // The rest of the last byte is padding, as on the way out.
    let (head, payload) = packet.split_at_checked(usize::try_from(length.div_ceil(8)).ok()?)?;
    let mut at = 0;
    let mut metadata = Vec::new();
    for declared in &header.fields {
        let field = &declared.field;
        let value = bytestring::encode_bytestring(read_bits(head, at, field.bits));
        metadata.push(p4rt::PacketMetadata { metadata_id: field.id, value });
        at += field.bits;
    }
    Some(p4rt::PacketIn { payload: payload.to_vec(), metadata })
}

/// Bytes filled from the most significant bit on.
#[derive(Debug, Default)]
struct HeaderBits {
    bytes: Vec<u8>,
    /// Bits taken of the last byte.
    used: u32,
}

impl HeaderBits {
    fn push_bits(&mut self, value: u128, bits: u32) {
        for bit in (0..bits).rev() {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= u8::from(value >> bit & 1 == 1) << (7 - self.used % 8);
            }
            self.used += 1;
        }
    }
}

/// `bits` bits from position `at`, counted from the most significant bit of the first byte.
fn read_bits(bytes: &[u8], at: u32, bits: u32) -> u128 {
    (at..at + bits).fold(0, |value, at| {
        let byte = bytes.get(at as usize / 8).copied().unwrap_or_default();
        value << 1 | u128::from(byte >> (7 - at % 8) & 1)
    })
}

#[cfg(test)]
mod tests {
    use crate::p4runtime::p4info::{PacketHeaderField, ParameterSchema};

    use super::*;

    const SPECIFICATION: SwitchDialect = SwitchDialect::Specification;

    /// The packet-out header of fabric.p4: 9 bits of port, one flag, 6 bits of padding.
    fn header() -> ControllerPacketHeader {
        let field = |id, name: &str, bits| PacketHeaderField {
            field: ParameterSchema { id, name: name.into(), bits },
            is_padding: name == "_pad",
        };
        let fields = vec![field(1, "port", 9), field(2, "submit", 1), field(3, "_pad", 6)];
        ControllerPacketHeader { fields }
    }

    fn metadata(values: &[(u32, &[u8])]) -> Vec<p4rt::PacketMetadata> {
        let one = |&(metadata_id, value): &(u32, &[u8])| p4rt::PacketMetadata {
            metadata_id,
            value: value.to_vec(),
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn fields_become_bits_and_bits_fields() {
        let metadata = metadata(&[(1, b"\x01\x03"), (2, b"\x01"), (3, b"\x00")]);
        let out = p4rt::PacketOut { payload: b"hi".to_vec(), metadata: metadata.clone() };
        let bytes = encode_packet_out(&header(), &out, SPECIFICATION).unwrap();
        assert_eq!(bytes, b"\x81\xc0hi");
        let packet = p4rt::PacketIn { payload: b"hi".to_vec(), metadata };
        assert_eq!(decode_packet_in(&header(), &bytes), Some(packet));
    }

    #[test]
    fn padding_may_be_left_out_and_nothing_else_but_on_bmv2() {
        let packet = |values: &[(u32, &[u8])]| p4rt::PacketOut {
            payload: Vec::new(),
            metadata: metadata(values),
        };
        let refusal = |values: &[(u32, &[u8])]| {
            let encoded = encode_packet_out(&header(), &packet(values), SPECIFICATION);
            encoded.map_err(|failure| failure.message)
        };
        let on_bmv2 = encode_packet_out(&header(), &packet(&[(1, b"\x03")]), SwitchDialect::Bmv2);
        assert_eq!(on_bmv2, Ok(vec![0x01, 0x80]));
        assert_eq!(refusal(&[(1, b"\x03"), (2, b"\x00")]), Ok(vec![0x01, 0x80]));
        assert_eq!(refusal(&[(1, b"\x03")]), Err("packet-out field submit: it is missing".into()));
        assert_eq!(refusal(&[(9, b"\x03")]), Err("the packet-out header has no field 9".into()));
        assert_eq!(
            refusal(&[(1, b"\x03"), (2, b"\x02")]),
            Err("packet-out field submit: the value is wider than 1 bits".into())
        );
    }

    #[test]
    fn a_header_is_padded_to_whole_bytes() {
        let field = |id, name: &str| PacketHeaderField {
            field: ParameterSchema { id, name: name.into(), bits: 9 },
            is_padding: false,
        };
        let fields = vec![field(1, "ingress_port"), field(2, "target_egress_port")];
        let header = ControllerPacketHeader { fields };
        let metadata = metadata(&[(1, b"\x01\x01"), (2, b"\x01")]);
        let out = p4rt::PacketOut { payload: b"hi".to_vec(), metadata };
        let bytes = encode_packet_out(&header, &out, SPECIFICATION).unwrap();
        assert_eq!(bytes, b"\x80\x80\x40hi");
        let packet = decode_packet_in(&header, &bytes).unwrap();
        assert_eq!((packet.metadata, packet.payload), (out.metadata, out.payload));
    }

    #[test]
    fn a_packet_shorter_than_the_header_is_no_packet_in() {
        assert_eq!(decode_packet_in(&header(), b"\x81"), None);
    }
}
