//! Policy and fabric documents as callers send them: which are accepted, and what is wrong with
//! others.

use planner::PolicyDocument;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::document::{self, DocumentError, DocumentFormat};
use topology::{Fabric, Finding, spec};

/// A document as it stands in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentFile {
    /// Name of the file; its extension says the format, as `.toml`, `.yaml` or `.json`.
    pub file: String,
    /// What is in it.
    pub text: String,
}

/// Refuses policies that a caller could make the controller work on for long. Fabrics are larger,
/// and bounded as every body is.
pub(super) fn check_policy_file(file: &DocumentFile, document_max: usize) -> Result<(), Finding> {
    let DocumentFile { file: name, text } = file;
    if text.len() > document_max {
        let bytes = text.len();
        return Err(Finding::error(
            "policy",
            format!(
                "{name}: {bytes} bytes; a policy has at most {document_max} \
                 (northbound.limits.document_bytes)"
            ),
        ));
    }
    check_format("policy", file)
}

/// Refuses YAML: its parser takes time that grows with the square of the nesting.
pub(super) fn check_format(about: &str, file: &DocumentFile) -> Result<(), Finding> {
    let name = &file.file;
    match DocumentFormat::from_file_name(name) {
        Ok(DocumentFormat::Yaml) => Err(Finding::error(
            about,
            format!(
                "{name}: a controller accepts TOML and JSON only; crux {about} diff and apply \
                 convert a YAML file before they send it"
            ),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(document_finding(about, &error)),
    }
}

/// Refuses a text of an operator that is too long for a history, or would control a terminal.
pub(super) fn check_text(field: &str, text: &str, most: usize) -> Result<(), Finding> {
    if text.len() > most {
        let bytes = text.len();
        return Err(Finding::error(field, format!("{bytes} bytes; it has at most {most}")));
    }
    if text.contains(|c: char| c.is_control()) {
        Err(Finding::error(field, "it has control characters, such as line ends"))
    } else {
        Ok(())
    }
}

/// The policy document that a text is, with the line of whatever is wrong.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn parse_policy(text: &DocumentFile) -> Result<PolicyDocument, Finding> {
    let DocumentFile { file, text } = text;
    let format =
        DocumentFormat::from_file_name(file).map_err(|error| document_finding("policy", &error))?;
    let document: PolicyDocument = document::parse_document(text, format, file)
        .map_err(|error| document_finding("policy", &error))?;
    // The parser knows lines; the checks know fields, the lines of which are searched in the text.
    document
        .to_policy(file)
        .map_err(|error| Finding::error("policy", error.with_line_in(text, format).to_string()))?;
    Ok(document)
}

/// The fabric that a text describes.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub(super) fn parse_fabric(text: &DocumentFile) -> Result<Fabric, Finding> {
    let DocumentFile { file, text } = text;
    let format = DocumentFormat::from_file_name(file);
    let format = format.map_err(|error| document_finding("fabric", &error))?;
    spec::parse_fabric(text, format, file)
        .map_err(|error| Finding::error("fabric", error.to_string()))
}

fn document_finding(about: &str, error: &DocumentError) -> Finding {
    Finding::error(about, error.to_string())
}
