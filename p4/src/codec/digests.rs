//! Digests of `fabric.p4`: RoCEv2 connections that the rows of a switch do not know.
//!
//! The decision: a digest that does not decode is counted and left out, so that one value that a
//! host has made up does not hide the rest of the list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use p4rt::entity::Entity as Kind;
use p4rt::p4_data::Data;
use p4rt::update::Type;
use p4runtime_proto::v1 as p4rt;
use tonic::{Code, Status};

use super::write_error;
use crate::UpdateKind;
use crate::bytes;
use crate::fabric::{PortNumber, ROCE_FLOW_DIGEST};

/// A RoCEv2 connection in one direction. Its protocol is UDP, its destination port 4791.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoceTuple {
    /// The sender.
    pub src: IpAddr,
    /// The receiver, of the same IP version.
    pub dst: IpAddr,
    /// The sender's UDP port.
    pub udp_src_port: u16,
    /// The receiver's queue pair.
    pub dest_qp: u32,
}

/// A connection and the host port by which it enters the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoceFlowDigest {
    /// The port.
    pub ingress_port: PortNumber,
    /// The connection.
    pub tuple: RoceTuple,
}

/// A list of digests from one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestList {
    /// The number by which it is acknowledged.
    pub list_id: u64,
    /// Its digests.
    pub flows: Vec<RoceFlowDigest>,
    /// Digests that do not decode.
    pub malformed: u64,
}

/// When a switch sends the digests that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestTiming {
    /// How long a digest may wait for others.
    pub max_delay: Duration,
    /// Digests in one list.
    pub max_list_size: u16,
    /// How long a list may stay without an acknowledgement. Until then, and until it is
    /// acknowledged, the switch sends none of its digests again.
    pub ack_timeout: Duration,
}

/// The update by which a switch begins to send digests, or sends them at other times.
pub fn encode_digest_update(kind: UpdateKind, timing: &DigestTiming) -> p4rt::Update {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let config = p4rt::digest_entry::Config {
        max_timeout_ns: nanos(timing.max_delay),
        max_list_size: timing.max_list_size.into(),
        ack_timeout_ns: nanos(timing.ack_timeout),
    };
    let kind = match kind {
        UpdateKind::Insert => Type::Insert,
        UpdateKind::Modify => Type::Modify,
        UpdateKind::Delete => Type::Delete,
    };
    let entry = p4rt::DigestEntry { digest_id: ROCE_FLOW_DIGEST, config: Some(config) };
    let entity = p4rt::Entity { entity: Some(Kind::DigestEntry(entry)) };
    p4rt::Update { r#type: kind.into(), entity: Some(entity) }
}

/// The acknowledgement of a list.
pub fn encode_digest_ack(list_id: u64) -> p4rt::DigestListAck {
    p4rt::DigestListAck { digest_id: ROCE_FLOW_DIGEST, list_id }
}

/// Decodes a list; `None` if it is of another digest.
pub fn decode_digest_list(list: &p4rt::DigestList) -> Option<DigestList> {
    if list.digest_id != ROCE_FLOW_DIGEST {
        return None;
    }
    let flows: Vec<RoceFlowDigest> = list.data.iter().filter_map(decode_flow).collect();
    let malformed = (list.data.len() - flows.len()) as u64;
    Some(DigestList { list_id: list.list_id, flows, malformed })
}

/// Why a switch refused [`encode_digest_update`], its only update.
pub fn decode_digest_refusal(status: &Status) -> (Code, String) {
    let errors = write_error::decode_update_errors(status).unwrap_or_default();
    match errors.into_iter().next() {
        Some(error) => (Code::from(error.canonical_code), error.message),
        None => (status.code(), status.message().to_owned()),
    }
}

fn decode_flow(data: &p4rt::P4Data) -> Option<RoceFlowDigest> {
    let Some(Data::Struct(flow)) = &data.data else {
        return None;
    };
    let values = flow.members.iter().map(|member| match &member.data {
        Some(Data::Bitstring(value)) => bytes::decode_value(value),
        _ => None,
    });
    let values: Vec<u128> = values.collect::<Option<_>>()?;
    let &[port, src, dst, udp_src_port, dest_qp] = values.as_slice() else {
        return None;
    };
    let (src, dst) = decode_addresses(src, dst)?;
    let udp_src_port = u16::try_from(udp_src_port).ok()?;
    let dest_qp = u32::try_from(dest_qp).ok().filter(|qp| *qp < 1 << 24)?;
    Some(RoceFlowDigest {
        ingress_port: PortNumber::new(u32::try_from(port).ok()?).ok()?,
        tuple: RoceTuple { src, dst, udp_src_port, dest_qp },
    })
}

/// The program puts IPv4 addresses into the low 32 bits. The version is that of the sender, whose
/// address the switch has checked: no host has an IPv6 address below 2^32.
fn decode_addresses(src: u128, dst: u128) -> Option<(IpAddr, IpAddr)> {
    let Ok(src4) = u32::try_from(src) else {
        return Some((Ipv6Addr::from_bits(src).into(), Ipv6Addr::from_bits(dst).into()));
    };
    let dst4 = u32::try_from(dst).ok()?;
    Some((Ipv4Addr::from_bits(src4).into(), Ipv4Addr::from_bits(dst4).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForwardingPipeline;

    fn digest(values: &[u128]) -> p4rt::P4Data {
        let member = |value: &u128| p4rt::P4Data {
            data: Some(Data::Bitstring(bytes::encode_value(*value))),
        };
        let members = values.iter().map(member).collect();
        p4rt::P4Data { data: Some(Data::Struct(p4rt::P4StructLike { members })) }
    }

    #[test]
    fn the_digest_is_that_of_the_program() {
        let message = ForwardingPipeline::embedded_fabric().p4info.message.clone();
        let [digest] = &message.digests[..] else { panic!("one digest") };
        let preamble = digest.preamble.as_ref().unwrap();
        assert_eq!((preamble.id, &*preamble.name), (ROCE_FLOW_DIGEST, "roce_flow_t"));
        let members = &message.type_info.unwrap().structs["roce_flow_t"].members;
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        assert_eq!(names, ["ingress_port", "src", "dst", "sport", "dest_qp"]);
    }

    #[test]
    fn what_does_not_decode_is_counted() {
        let v6 = "fd00::1".parse::<Ipv6Addr>().unwrap();
        let data = vec![
            digest(&[3, 0x0a00_0001, 0x0a00_0102, 49_152, 17]),
            digest(&[4, v6.to_bits(), 9, 50_000, 0x00ff_ffff]),
            digest(&[3, 1, 2, 49_152, 1 << 24]),
            digest(&[3, 1, 2, 65_536, 1]),
            digest(&[512, 1, 2, 3, 4]),
            digest(&[3, 1, 1 << 32, 3, 4]),
            digest(&[3, 1, 2, 3]),
            p4rt::P4Data { data: None },
        ];
        let list = p4rt::DigestList { digest_id: ROCE_FLOW_DIGEST, list_id: 5, data, timestamp: 0 };
        let decoded = decode_digest_list(&list).unwrap();
        assert_eq!((decoded.list_id, decoded.malformed), (5, 6));
        let texts = decoded.flows.iter().map(|flow| {
            let RoceTuple { src, dst, udp_src_port, dest_qp } = flow.tuple;
            format!("{} {src} {dst} {udp_src_port} {dest_qp}", flow.ingress_port.number())
        });
        let expected = ["3 10.0.0.1 10.0.1.2 49152 17", "4 fd00::1 ::9 50000 16777215"];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        assert_eq!(decode_digest_list(&p4rt::DigestList { digest_id: 1, ..list }), None);
    }
}
