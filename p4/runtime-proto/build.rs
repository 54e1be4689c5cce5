//! Compiles the protobufs with protox: no system protoc is needed.

use std::{env, fs, path::PathBuf};

use prost::Message;

const SERVICES: [&str; 2] = ["p4/v1/p4runtime.proto", "gnmi.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(SERVICES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // The text in the .proto files is for their readers: rustdoc would take it for Markdown.
    tonic_prost_build::configure().disable_comments(["."]).compile_fds(descriptors)?;
    Ok(())
}
