//! Files that users name: bounded reading, `-` for standard input.

use std::fs::File;
use std::io::{self, Read};

use planner::{Job, JobsDocument, Policy, PolicyDocument};
use serde::de::DeserializeOwned;
use simulator::workload::Models;
use topology::document::{self, Format, MAX_DOCUMENT_BYTES};
use topology::{Fabric, Finding, spec};

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

/// Reads a policy document, or takes the defaults without one, which `change` may change before it is validated.
pub(crate) fn policy_with(
    name: Option<&str>,
    change: impl FnOnce(&mut PolicyDocument),
) -> Result<Policy, Failure> {
    let mut document = name.map_or_else(|| Ok(PolicyDocument::default()), parse)?;
    change(&mut document);
    let policy = document.validate(name.unwrap_or("policy"));
    policy.map_err(Failure::document)
}

/// Reads a jobs document: its jobs on `fabric`, and what is odd about them.
pub(crate) fn jobs(name: &str, fabric: &Fabric) -> Result<(Vec<Job>, Vec<Finding>), Failure> {
    let document: JobsDocument = parse(name)?;
    let resolved = document.resolve(fabric, name).map_err(Failure::document)?;
    Ok((resolved.jobs, resolved.findings))
}

/// The built-in models, and those of a file beside them or in their place.
pub(crate) fn models(name: Option<&str>) -> Result<Models, Failure> {
    let models = Models::built_in();
    match name {
        Some(file) => models.with(&text(file)?, file).map_err(Failure::document),
        None => Ok(models),
    }
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
