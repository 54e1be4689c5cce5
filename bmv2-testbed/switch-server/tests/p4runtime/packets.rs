//! Packets from and to the primary.

use p4rt::field_match::{FieldMatchType, Ternary};
use p4rt::stream_error::Details;
use p4rt::stream_message_request::Update as Request;
use p4rt::stream_message_response::Update as Response;
use p4runtime_proto::v1 as p4rt;
use switch::ClockPace;
use switch_server::p4runtime::ServiceOptions;
use switch_server::p4runtime::election::SwitchDialect;
use tonic::Code;

use crate::bench::{Bench, CPU_PORT, Controller, soon};
use crate::samples::{Samples, id_of, insert};

/// A frame of a protocol the program does not parse, long enough for a wire.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(60, 0xaa);
    frame
}

fn metadata(values: &[(u32, &[u8])]) -> Vec<p4rt::PacketMetadata> {
    let one = |&(metadata_id, value): &(u32, &[u8])| p4rt::PacketMetadata {
        metadata_id,
        value: value.to_vec(),
    };
    values.iter().map(one).collect()
}

async fn packet_out(controller: &mut Controller, values: &[(u32, &[u8])]) {
    let packet = p4rt::PacketOut { payload: frame(), metadata: metadata(values) };
    controller.send(Request::Packet(packet)).await;
}

async fn start() -> (Bench, Controller) {
    let bench = Bench::start(ServiceOptions::default()).await;
    let controller = bench.primary().await;
    soon(bench.fabric.release_clock(ClockPace::Free)).await.unwrap();
    (bench, controller)
}

#[tokio::test]
async fn a_packet_out_to_the_cpu_port_comes_back_in() {
    let (_bench, mut controller) = start().await;
    packet_out(&mut controller, &[(1, &[u8::try_from(CPU_PORT).unwrap()]), (2, &[0])]).await;
    let packet = p4rt::PacketIn { payload: frame(), metadata: metadata(&[(1, &[255]), (2, &[0])]) };
    assert_eq!(controller.next().await, Ok(Some(Response::Packet(packet))));
}

/// ONOS sends the egress port alone.
#[tokio::test]
async fn metadata_that_a_client_of_bmv2_leaves_out_is_zero() {
    let dialect = SwitchDialect::Bmv2;
    let bench = Bench::start(ServiceOptions { dialect, ..ServiceOptions::default() }).await;
    let mut controller = bench.primary().await;
    soon(bench.fabric.release_clock(ClockPace::Free)).await.unwrap();
    packet_out(&mut controller, &[(1, &[u8::try_from(CPU_PORT).unwrap()])]).await;
    let packet = p4rt::PacketIn { payload: frame(), metadata: metadata(&[(1, &[255]), (2, &[0])]) };
    assert_eq!(controller.next().await, Ok(Some(Response::Packet(packet))));
}

#[tokio::test]
async fn a_punted_packet_reaches_the_primary_only() {
    let (bench, mut controller) = start().await;
    let mut backup = Controller::open(bench.client().await, 0).await;
    backup.claim(0).await;
    backup.notice().await;
    let samples = Samples::new();
    let table = samples.table("acl_punt");
    let punt = samples.info.actions.iter().map(|action| action.preamble.as_ref().unwrap());
    let action_id = punt.clone().find(|action| action.alias == "punt").unwrap().id;
    let action = p4rt::Action { action_id, params: Vec::new() };
    let action = p4rt::table_action::Type::Action(action);
    let ether_type = Ternary { value: vec![0x88, 0xb5], mask: vec![0xff, 0xff] };
    let field_match_type = Some(FieldMatchType::Ternary(ether_type));
    let entry = p4rt::TableEntry {
        table_id: id_of(table),
        r#match: vec![p4rt::FieldMatch { field_id: 1, field_match_type }],
        action: Some(p4rt::TableAction { r#type: Some(action) }),
        priority: 1,
        ..p4rt::TableEntry::default()
    };
    controller.write(vec![insert(&entry)]).await.unwrap();
    soon(bench.device.inject_packet(3, frame())).await.unwrap();
    let packet = p4rt::PacketIn { payload: frame(), metadata: metadata(&[(1, &[3]), (2, &[0])]) };
    assert_eq!(controller.next().await, Ok(Some(Response::Packet(packet))));

    // The backup's next message is the answer to its own claim, not the packet.
    backup.claim(0).await;
    backup.notice().await;
    assert_eq!(bench.server.packet_ins_dropped(), 0);
}

/// The code and kind of the stream error that is due next.
async fn stream_error(controller: &mut Controller) -> (Code, Details) {
    match controller.next().await {
        Ok(Some(Response::Error(error))) => {
            (Code::from(error.canonical_code), error.details.unwrap())
        }
        other => panic!("a stream error was due, not {other:?}"),
    }
}

#[tokio::test]
async fn bad_stream_messages_are_reported_and_the_stream_lives_on() {
    let (bench, mut controller) = start().await;
    packet_out(&mut controller, &[(1, &[3]), (9, &[0])]).await;
    let (code, details) = stream_error(&mut controller).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(matches!(details, Details::PacketOut(_)), "{details:?}");
    controller.send(Request::DigestAck(p4rt::DigestListAck::default())).await;
    let (code, details) = stream_error(&mut controller).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(matches!(details, Details::DigestListAck(_)), "{details:?}");

    let mut backup = Controller::open(bench.client().await, 0).await;
    backup.claim(0).await;
    backup.notice().await;
    packet_out(&mut backup, &[(1, &[3]), (2, &[0])]).await;
    assert_eq!(stream_error(&mut backup).await.0, Code::PermissionDenied);
}
