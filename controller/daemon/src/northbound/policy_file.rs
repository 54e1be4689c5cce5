//! Policy documents as callers send them: which are accepted, and what is wrong with others.

use planner::PolicyDocument;
use topology::Finding;
use topology::document::{self, DocumentError, DocumentFormat};

use super::policy_messages::PolicyFile;

/// Refuses documents that a caller could make the controller work on for long: a parser of YAML
/// takes time that grows with the square of the nesting.
pub(super) fn check_policy_file(file: &PolicyFile, document_max: usize) -> Result<(), Finding> {
    let PolicyFile { file, text } = file;
    if text.len() > document_max {
        let bytes = text.len();
        return Err(Finding::error(
            "policy",
            format!(
                "{file}: {bytes} bytes; a policy has at most {document_max} \
                 (northbound.limits.document_bytes)"
            ),
        ));
    }
    match DocumentFormat::from_file_name(file) {
        Ok(DocumentFormat::Yaml) => Err(Finding::error(
            "policy",
            format!(
                "{file}: a controller accepts TOML and JSON only; crux policy diff and apply \
                 convert a YAML file before they send it"
            ),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(document_finding(&error)),
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
pub fn parse_policy(text: &PolicyFile) -> Result<PolicyDocument, Finding> {
    let PolicyFile { file, text } = text;
    let format = DocumentFormat::from_file_name(file).map_err(|error| document_finding(&error))?;
    let document: PolicyDocument =
        document::parse_document(text, format, file).map_err(|error| document_finding(&error))?;
    // The parser knows lines; the checks know fields, the lines of which are searched in the text.
    document
        .to_policy(file)
        .map_err(|error| Finding::error("policy", error.with_line_in(text, format).to_string()))?;
    Ok(document)
}

fn document_finding(error: &DocumentError) -> Finding {
    Finding::error("policy", error.to_string())
}
