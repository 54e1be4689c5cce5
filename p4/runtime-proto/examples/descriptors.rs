//! Writes the serialized descriptors of all protobufs to standard output;
//! `scripts/check-protos.py` compares them with the published ones.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(p4runtime_proto::FILE_DESCRIPTOR_SET)
}
