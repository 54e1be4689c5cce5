//! Files that users name: bounded reading, `-` for standard input, and results beside what is
//! printed.

use std::fs::{self, File};
use std::io::{self, Read};

use ::controller::northbound::service::Text;
use planner::{FieldError, Job, JobsDocument, Policy, PolicyDocument};
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

/// Reads a policy document, or takes the defaults without one, which `change` may change before it
/// is validated.
pub(crate) fn policy_with(
    name: Option<&str>,
    change: impl FnOnce(&mut PolicyDocument),
) -> Result<Policy, Failure> {
    let Some(name) = name else {
        let mut document = PolicyDocument::default();
        change(&mut document);
        return document.validate("policy").map_err(Failure::document);
    };
    let (text, format) = (
        text(name)?,
        Format::of_file(name).map_err(Failure::document)?,
    );
    let parsed = document::parse::<PolicyDocument>(&text, format, name);
    let mut document = parsed.map_err(Failure::document)?;
    change(&mut document);
    document.validate(name).map_err(located(&text, format))
}

/// The failure of a document that makes no sense, with the line.
fn located(text: &str, format: Format) -> impl Fn(FieldError) -> Failure {
    move |error| Failure::document(error.in_text(text, format))
}

/// Reads a jobs document: its jobs on `fabric`, and what is odd about them.
pub(crate) fn jobs(name: &str, fabric: &Fabric) -> Result<(Vec<Job>, Vec<Finding>), Failure> {
    let (text, format) = (
        text(name)?,
        Format::of_file(name).map_err(Failure::document)?,
    );
    let document = document::parse::<JobsDocument>(&text, format, name);
    let resolved = document.map_err(Failure::document)?.resolve(fabric, name);
    let resolved = resolved.map_err(located(&text, format))?;
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

/// A text with the name of its file, as a controller takes it.
pub(crate) fn named(name: &str) -> Result<Text, Failure> {
    Ok(Text {
        file: name.to_owned(),
        text: text(name)?,
    })
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

/// Writes a text to the file, if one was asked for, and says so.
pub(crate) fn write_asked(
    name: Option<&str>,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let Some(name) = name else {
        return Ok(());
    };
    fs::write(name, text()).map_err(|error| Failure::input(name, error))?;
    eprintln!("wrote {name}");
    Ok(())
}
