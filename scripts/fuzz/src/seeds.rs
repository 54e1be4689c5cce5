//! Inputs in binary forms that are mostly right, from which their corpora were begun.

use std::error::Error;
use std::fs;
use std::path::Path;

use api::telemetry as proto;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;

use crate::chance::{Chance, Traffic};
use crate::find_target;
use crate::p4runtime_requests::{FABRIC, SHAPES};
use crate::switch_programs::{PROGRAMS, bare_program};

/// Inputs of one target.
type SeedInputs = Vec<Vec<u8>>;

/// SeedInputs of each random kind.
const SEEDS: usize = 12;

/// Writes seeds into the folders of their targets within `corpora`, beside what is there.
///
/// # Errors
/// A file cannot be written.
pub fn write_seeds(corpora: &Path) -> Result<(), Box<dyn Error>> {
    let mut chance = Chance::new(1);
    let packets = packet_seeds(&mut chance);
    let programs = program_seeds(&mut chance);
    let (requests, answers) = request_seeds(&mut chance)?;
    for (target, seeds) in [
        ("packets", packets),
        ("programs", programs),
        ("p4runtime_requests", requests),
        ("switch_messages", answers),
        ("telemetry_reports", report_seeds()),
    ] {
        let folder = corpora.join(target);
        fs::create_dir_all(&folder)?;
        let run = find_target(target).ok_or("an unknown target")?.run;
        for (number, seed) in seeds.into_iter().enumerate() {
            let fate = if run(&seed).is_some() { "seed" } else { "refused" };
            fs::write(folder.join(format!("{fate}-{number:02}")), seed)?;
        }
    }
    Ok(())
}

fn packet_seeds(chance: &mut Chance) -> SeedInputs {
    let packet = |number| {
        let which = (number % 4) as u8;
        let traffic = [Traffic::Flows, Traffic::Bytes][usize::from(which.min(1))];
        let (port, packet) = chance.packet(traffic);
        [&[which, port as u8], packet.as_slice()].concat()
    };
    (0..2 * SEEDS).map(packet).collect()
}

/// Edits, and the smallest program whole.
fn program_seeds(chance: &mut Chance) -> SeedInputs {
    let edits = |_| (0..25).map(|_| chance.below(256) as u8).collect();
    let mut programs: SeedInputs = (0..SEEDS).map(edits).collect();
    let whole = bare_program(PROGRAMS[2]).to_string();
    programs.push([&[0], whole.as_bytes()].concat());
    programs
}

/// Requests to a switch: writes, among them the groups that other writes refer to, a P4Info, a read
/// and a stream. And what a switch answers: the entities of the writes.
fn request_seeds(chance: &mut Chance) -> Result<(SeedInputs, SeedInputs), Box<dyn Error>> {
    let info = P4Info::from_text(FABRIC)?;
    let mut writes = vec![chance.groups(&info)];
    writes.extend((0..SEEDS).map(|_| (0..2).filter_map(|_| chance.update(&info)).collect()));
    let answers = writes.iter().map(|updates: &Vec<p4rt::Update>| {
        let entities = updates.iter().filter_map(|update| update.entity.clone()).collect();
        [vec![0], p4rt::ReadResponse { entities }.encode_to_vec()].concat()
    });
    let mut answers: SeedInputs = answers.collect();
    answers.push([&[4], SHAPES.get(..2_000).unwrap_or(SHAPES).as_bytes()].concat());
    let mut requests: SeedInputs = Vec::new();
    for updates in writes {
        let request = p4rt::WriteRequest { updates, ..p4rt::WriteRequest::default() };
        requests.push([vec![2], request.encode_to_vec()].concat());
    }
    let wildcard = p4rt::Entity {
        entity: Some(p4rt::entity::Entity::TableEntry(p4rt::TableEntry::default())),
    };
    let read = p4rt::ReadRequest { entities: vec![wildcard], ..p4rt::ReadRequest::default() };
    requests.push([vec![0], read.encode_to_vec()].concat());
    requests.push([vec![1], P4Info::from_text(SHAPES)?.encode_to_vec()].concat());
    requests.push([vec![3], stream_seed()].concat());
    Ok((requests, answers))
}

/// A bid, and a packet that only a primary may send.
fn stream_seed() -> Vec<u8> {
    use p4rt::stream_message_request::Update;
    let bid = p4rt::MasterArbitrationUpdate {
        device_id: 1,
        election_id: Some(p4rt::Uint128 { high: 0, low: 0 }),
        ..p4rt::MasterArbitrationUpdate::default()
    };
    let packet = p4rt::PacketOut { payload: vec![0; 60], metadata: Vec::new() };
    let updates = [Update::Arbitration(bid), Update::Packet(packet)];
    let messages = updates.map(|update| p4rt::StreamMessageRequest { update: Some(update) });
    messages.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

/// A queue pair of a job at its first host.
fn queue_pairs() -> proto::HostQueuePairs {
    proto::HostQueuePairs {
        host: "h1".to_owned(),
        groups: vec![proto::QueuePairGroup {
            addresses: vec!["10.0.1.1".to_owned(), "fd00::1".to_owned()],
            job: "gpt".to_owned(),
            queue_pairs: vec![proto::QueuePair {
                local_number: 0x11,
                remote_number: 0x12,
                udp_src_port: Some(50_000),
            }],
        }],
    }
}

/// An announcement with flows, one with a collective, windows of it, and the end.
fn report_seeds() -> SeedInputs {
    use proto::job_report::Report;
    let gpus = [("h1", 8), ("h4", 8)].map(|(host, gpus)| (host.to_owned(), gpus));
    let flow = proto::JobFlow {
        src: "h1".to_owned(),
        dst: "h4".to_owned(),
        udp_src_port: Some(50_000),
        bytes: 1e9,
        ..proto::JobFlow::default()
    };
    let announced = proto::JobAnnouncement {
        job: "gpt".to_owned(),
        gpus: gpus.into(),
        flows: vec![flow],
        flop_per_iteration: Some(1e15),
        compute_seconds: Some(1.0),
        ..proto::JobAnnouncement::default()
    };
    let collective = proto::Collective {
        kind: "ring_all_reduce".to_owned(),
        bytes: 1e9,
        ..proto::Collective::default()
    };
    let derived = proto::JobAnnouncement {
        job: "bert".to_owned(),
        collective: Some(collective),
        flows: Vec::new(),
        flop_per_iteration: None,
        ..announced.clone()
    };
    let window = proto::JobWindow {
        job: "bert".to_owned(),
        seconds: 4.0,
        iteration_starts: vec![0.0, 1.0, 2.0, 3.0],
        flop: 4e15,
        compute_seconds: 2.0,
        communication_seconds: 1.0,
        bytes: Some(4e9),
        ..proto::JobWindow::default()
    };
    let end = proto::JobEnd { job: "gpt".to_owned() };
    let sequence = |reports: &[(u8, Report)]| {
        let report = |(choice, report): &(u8, Report)| {
            let report = proto::JobReport { report: Some(report.clone()) };
            [vec![*choice], report.encode_length_delimited_to_vec()].concat()
        };
        reports.iter().flat_map(report).collect::<Vec<u8>>()
    };
    vec![
        sequence(&[(0, Report::Announcement(announced.clone())), (4, Report::End(end))]),
        sequence(&[
            (1, Report::Announcement(derived)),
            (17, Report::Window(window.clone())),
            (17, Report::Window(window)),
        ]),
        [sequence(&[(0, Report::Announcement(announced.clone()))]), vec![3, 3]].concat(),
        sequence(&[(0, Report::Announcement(announced)), (4, Report::QueuePairs(queue_pairs()))]),
    ]
}
