//! The program and what p4c made of it, embedded.
//!
//! [`ForwardingPipeline::embedded_fabric`](crate::ForwardingPipeline::embedded_fabric) loads them.
//! The decision: the compiled artefacts are committed, so that nobody needs p4c to build or run;
//! `fabric.lock` records of which source and by which compiler they were made, and a test compares.

use std::process::Output;

use sha2::{Digest, Sha256};

/// Source of the program, `fabric.p4`.
pub const SOURCE: &str = include_str!("../fabric.p4");

/// `fabric.json`, the program for BMv2 and for the embedded switch.
pub const JSON: &str = include_str!("../fabric.json");

/// `fabric.p4info.txtpb`, the program's interface.
pub const P4INFO: &str = include_str!("../fabric.p4info.txtpb");

/// `fabric.lock`, the record that belongs to them.
pub const RECORD: &str = include_str!("../fabric.lock");

/// The compiler's arguments, to be run in the folder of the source: no path gets into the
/// artefacts.
pub const COMPILE: [&str; 7] = [
    "--std",
    "p4-16",
    "--p4runtime-files",
    "fabric.p4info.txtpb",
    "-o",
    "fabric.json",
    "fabric.p4",
];

/// The record of a compilation: the compiler's version and the SHA-256 of source and artefacts.
pub fn compilation_record(compiler: &str, [source, json, p4info]: [&str; 3]) -> String {
    let files = [("fabric.p4", source), ("fabric.json", json), ("fabric.p4info.txtpb", p4info)];
    let hashes = files.map(|(name, text)| format!("{:x}  {name}\n", Sha256::digest(text)));
    format!("{compiler}\n{}", hashes.concat())
}

/// The compiler that a record names.
pub fn recorded_compiler(record: &str) -> &str {
    record.lines().next().unwrap_or_default()
}

/// The compiler that printed `output` when asked for its `--version`.
pub fn compiler_version(output: &Output) -> String {
    // p4c prints it to standard error.
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("Version"));
    format!("p4c-bm2-ss {}", line.unwrap_or("of unknown version").trim())
}
