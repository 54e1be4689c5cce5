//! What fuzzing starts from: packets of flows, edits of a program, updates that are mostly right.

use std::error::Error;
use std::path::Path;

use p4runtime_proto::v1 as p4rt;
use prost::Message;

use crate::chance::{Chance, Traffic};
use crate::requests::fabric_p4info;

const SEEDS: usize = 300;

/// Fills the folders `packets`, `programs` and `requests` of a folder.
///
/// # Errors
/// A file cannot be written.
pub fn seeds(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (info, mut chance) = (fabric_p4info(), Chance::new(1));
    for target in ["packets", "programs", "requests"] {
        std::fs::create_dir_all(folder.join(target))?;
    }
    for seed in 0..SEEDS {
        let which = (seed % 4) as u8;
        let traffic = [Traffic::Flows, Traffic::Bytes][usize::from(which.min(1))];
        let (port, packet) = chance.packet(traffic);
        let packet = [&[which, port as u8], packet.as_slice()].concat();
        std::fs::write(folder.join(format!("packets/{seed}")), packet)?;
        let edits: Vec<u8> = (0..25).map(|_| chance.below(256) as u8).collect();
        std::fs::write(folder.join(format!("programs/{seed}")), edits)?;
        let request = p4rt::WriteRequest {
            updates: (0..4).filter_map(|_| chance.update(&info)).collect(),
            ..p4rt::WriteRequest::default()
        };
        let mut bytes = vec![1];
        request.encode(&mut bytes)?;
        std::fs::write(folder.join(format!("requests/{seed}")), bytes)?;
    }
    Ok(())
}
