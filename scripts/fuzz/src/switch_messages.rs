//! What switches send to a controller: answers to reads, packets, digests, errors of writes.

use controller::discovery::parse_sender;
use controller::discovery::probe::{LinkProbe, ProbeKey};
use controller::southbound::ReadBudget;
use p4::ForwardingPipeline;
use p4::codec;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};

/// The key that probes are signed with.
const PROBE_KEY: [u8; 32] = [7; 32];

/// A byte that chooses the message, then the message as it is encoded.
pub(crate) fn switch_messages(data: &[u8]) -> Option<()> {
    match data {
        [0, bytes @ ..] => decode_read(bytes),
        [1, bytes @ ..] => decode_stream_message(bytes),
        [2, bytes @ ..] => {
            let status = Status::with_details(Code::Unknown, "", bytes.to_vec().into());
            let _refusals = codec::decode_write_error(&status, &[]);
            let _refusal = codec::decode_digest_refusal(&status);
            Some(())
        }
        [3, bytes @ ..] => {
            decode_frame(bytes);
            Some(())
        }
        [_, bytes @ ..] => {
            let text = std::str::from_utf8(bytes).ok()?;
            let _refused = p4::P4Info::parse(text);
            P4Info::from_text(text).ok().map(drop)
        }
        [] => None,
    }
}

fn decode_read(bytes: &[u8]) -> Option<()> {
    let mut entities = Vec::new();
    let info = &ForwardingPipeline::embedded_fabric().p4info;
    let mut budget = ReadBudget::new(info, bytes.len(), &[]);
    let taken = budget.take_message(Bytes::copy_from_slice(bytes), &mut |entity| {
        entities.push(entity);
        Ok(())
    });
    taken.ok()?;
    if let Ok(whole) = p4rt::ReadResponse::decode(bytes) {
        assert_eq!(entities, whole.entities);
    }
    for entity in &entities {
        let _refused = codec::decode_row_counter(info, entity);
        let _refused = codec::decode_counter_cell(entity);
    }
    let tables = codec::decode_tables(info, &entities).ok()?;
    let updates = p4::diff_tables(info, &tables, &p4::SwitchTables::default());
    assert_eq!(updates.len(), tables.len());
    Some(())
}

fn decode_stream_message(bytes: &[u8]) -> Option<()> {
    use p4rt::stream_message_response::Update;
    match p4rt::StreamMessageResponse::decode(bytes).ok()?.update? {
        Update::Packet(packet) => {
            let info = &ForwardingPipeline::embedded_fabric().p4info;
            decode_frame(&codec::decode_packet_in(info, packet).ok()?.payload);
        }
        Update::Digest(list) => drop(codec::decode_digest_list(&list)?),
        _ => {}
    }
    Some(())
}

fn decode_frame(frame: &[u8]) {
    let _sender = parse_sender(frame);
    let _probe = LinkProbe::decode(frame, &ProbeKey::new(PROBE_KEY));
}
