//! Files that users name: bounded reading, `-` for standard input, and results beside what is
//! printed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use api::private_file::read_private;
use planner::{DocumentFieldError, Job, JobsDocument, Policy, PolicyDocument};
use serde::de::DeserializeOwned;
use topology::document::{self, DocumentFormat, MAX_DOCUMENT_BYTES};
use topology::{Fabric, Finding, spec};

use crate::command_error::CommandError;

/// Reads a document into the type that describes it.
pub fn parse_document<T: DeserializeOwned>(name: &str) -> Result<T, CommandError> {
    let format = DocumentFormat::from_file_name(name).map_err(CommandError::document)?;
    document::parse_document(&read_text(name)?, format, name).map_err(CommandError::document)
}

/// Reads a fabric document.
pub fn read_fabric(name: &str) -> Result<Fabric, CommandError> {
    let format = DocumentFormat::from_file_name(name).map_err(CommandError::document)?;
    spec::parse_fabric(&read_text(name)?, format, name).map_err(CommandError::document)
}

/// Reads a policy document, or takes the defaults without one, which `change` may change before it
/// is validated. A policy that states no levels has `levels` of them.
pub fn policy_with(
    name: Option<&str>,
    levels: u8,
    change: impl FnOnce(&mut PolicyDocument),
) -> Result<Policy, CommandError> {
    let Some(name) = name else {
        let mut document = PolicyDocument::default();
        change(&mut document);
        return document
            .with_default_levels(levels)
            .to_policy("policy")
            .map_err(CommandError::document);
    };
    let (text, format) =
        (read_text(name)?, DocumentFormat::from_file_name(name).map_err(CommandError::document)?);
    let parsed = document::parse_document::<PolicyDocument>(&text, format, name);
    let mut document = parsed.map_err(CommandError::document)?;
    change(&mut document);
    document.with_default_levels(levels).to_policy(name).map_err(locate_error(&text, format))
}

/// Adds the line to the error of an invalid document.
fn locate_error(text: &str, format: DocumentFormat) -> impl Fn(DocumentFieldError) -> CommandError {
    move |error| CommandError::document(error.with_line_in(text, format))
}

/// Reads a jobs document: its jobs on `fabric`, and findings about them.
pub fn read_jobs(name: &str, fabric: &Fabric) -> Result<(Vec<Job>, Vec<Finding>), CommandError> {
    let (text, format, document) = read_jobs_document(name)?;
    let resolved = document.resolve_jobs(fabric, name).map_err(locate_error(&text, format))?;
    Ok((resolved.jobs, resolved.findings))
}

/// Reads a jobs document as [`read_jobs`] does, without the jobs that do not fit `fabric`: an error
/// for each of them is among the findings.
pub fn read_fitting_jobs(
    name: &str,
    fabric: &Fabric,
) -> Result<(Vec<Job>, Vec<Finding>), CommandError> {
    let (text, format, document) = read_jobs_document(name)?;
    let (mut resolved, unfit) = document.resolve_fitting_jobs(fabric, name);
    resolved.findings.extend(unfit.into_iter().map(|(job, error)| {
        let text = format!("left out: {}", error.with_line_in(&text, format));
        Finding::error(format!("job {job}"), text)
    }));
    Ok((resolved.jobs, resolved.findings))
}

fn read_jobs_document(name: &str) -> Result<(String, DocumentFormat, JobsDocument), CommandError> {
    let (text, format) =
        (read_text(name)?, DocumentFormat::from_file_name(name).map_err(CommandError::document)?);
    let document = document::parse_document(&text, format, name).map_err(CommandError::document)?;
    Ok((text, format, document))
}

/// Reads a text file of at most [`MAX_DOCUMENT_BYTES`]; a larger one is refused without reading on.
pub fn read_text(name: &str) -> Result<String, CommandError> {
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = match name {
        "-" => io::stdin().lock().take(limit).read_to_end(&mut bytes),
        path => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|error| CommandError::input(name, error))?;
    document::decode_text(&bytes, name).map(str::to_owned).map_err(CommandError::document)
}

/// Reads a secret: a token or a key. A file that everybody can read is refused.
pub fn read_secret(name: &str) -> Result<String, CommandError> {
    // Standard input and pipes are nobody else's.
    if !Path::new(name).is_file() {
        return read_text(name);
    }
    let bytes = read_private(Path::new(name)).map_err(|error| CommandError::input(name, error))?;
    document::decode_text(&bytes, name).map(str::to_owned).map_err(CommandError::document)
}

/// Writes a text to the file, if one was requested, and reports that.
pub fn write_requested(
    name: Option<&str>,
    text: impl FnOnce() -> String,
) -> Result<(), CommandError> {
    let Some(name) = name else {
        return Ok(());
    };
    fs::write(name, text()).map_err(|error| CommandError::input(name, error))?;
    eprintln!("wrote {name}");
    Ok(())
}
