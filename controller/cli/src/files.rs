//! Files that users name: bounded reading, `-` for standard input.

use std::fs::File;
use std::io::{self, Read};

use serde::de::DeserializeOwned;
use topology::document::{self, Format, MAX_DOCUMENT_BYTES};
use topology::{Fabric, spec};

use crate::failure::Failure;

/// Reads a document into the type that describes it.
pub(crate) fn parse<T: DeserializeOwned>(name: &str) -> Result<T, Failure> {
    let format = Format::of_file(name).map_err(Failure::document)?;
    document::parse(&text(name)?, format, name).map_err(Failure::document)
}

/// Reads a fabric document.
pub(crate) fn fabric(name: &str) -> Result<Fabric, Failure> {
    let format = Format::of_file(name).map_err(Failure::document)?;
    spec::parse(&text(name)?, format, name).map_err(Failure::document)
}

/// Reads a text file of at most [`MAX_DOCUMENT_BYTES`]; a larger one is refused without reading on.
pub(crate) fn text(name: &str) -> Result<String, Failure> {
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = match name {
        "-" => io::stdin().lock().take(limit).read_to_end(&mut bytes),
        path => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|error| Failure::input(name, error))?;
    document::text(&bytes, name)
        .map(str::to_owned)
        .map_err(Failure::document)
}
