//! What fuzzing starts from: packets of flows, edits of programs, requests that are mostly right.

use std::error::Error;
use std::fs;
use std::path::Path;

use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use prost::Message;

use crate::chance::{Chance, Traffic};
use crate::requests::{FABRIC, SHAPES};
use crate::{PROGRAMS, bare};

const SEEDS: usize = 300;

/// Fills the folders `packets`, `programs` and `requests` of a folder.
///
/// # Errors
/// A file cannot be written.
pub fn seeds(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut chance = Chance::new(1);
    let (packets, programs) = (packets(&mut chance), programs(&mut chance));
    let requests = requests(&mut chance)?;
    for (target, seeds) in [
        ("packets", packets),
        ("programs", programs),
        ("requests", requests),
    ] {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.into_iter().enumerate() {
            fs::write(folder.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}

fn packets(chance: &mut Chance) -> Vec<Vec<u8>> {
    let packet = |number| {
        let which = (number % 4) as u8;
        let traffic = [Traffic::Flows, Traffic::Bytes][usize::from(which.min(1))];
        let (port, packet) = chance.packet(traffic);
        [&[which, port as u8], packet.as_slice()].concat()
    };
    (0..SEEDS).map(packet).collect()
}

/// Edits, and the smallest program whole.
fn programs(chance: &mut Chance) -> Vec<Vec<u8>> {
    let edits = |_| (0..25).map(|_| chance.below(256) as u8).collect();
    let mut programs: Vec<Vec<u8>> = (0..SEEDS).map(edits).collect();
    let whole = bare(PROGRAMS[2]).to_string();
    programs.push([&[0], whole.as_bytes()].concat());
    programs
}

/// Writes, among them the groups that other writes refer to, and a P4Info.
fn requests(chance: &mut Chance) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let info = P4Info::from_text(FABRIC)?;
    let write = |updates| {
        let request = p4rt::WriteRequest {
            updates,
            ..p4rt::WriteRequest::default()
        };
        [vec![2], request.encode_to_vec()].concat()
    };
    let mut requests = vec![write(chance.groups(&info))];
    let updates = |_| write((0..4).filter_map(|_| chance.update(&info)).collect());
    requests.extend((0..SEEDS).map(updates));
    let shapes = P4Info::from_text(SHAPES)?.encode_to_vec();
    requests.push([vec![1], shapes].concat());
    Ok(requests)
}
