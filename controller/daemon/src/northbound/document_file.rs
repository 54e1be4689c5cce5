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
        return Err(Finding::error(field, "it has control characters, such as line ends"));
    }
    if let Some(found) = text.chars().find(|c| is_invisible(*c)) {
        let text = format!(
            "it has U+{:04X}, which is not visible or changes the order of what follows",
            u32::from(found)
        );
        return Err(Finding::error(field, text));
    }
    Ok(())
}

/// Whether a character shows nothing or has others shown in another order, so that a history would
/// not read as it is.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_history_would_not_show_is_refused() {
        for accepted in ["", "ada", "neue Netzkarte für Spine 2", "交換機", "a‑b 🔧"] {
            assert_eq!(check_text("reason", accepted, 100), Ok(()), "{accepted}");
        }
        for hidden in
            ["\n", "\u{1b}[2J", "\u{202e}enips", "ad\u{200b}a", "\u{feff}ada", "\u{2066}x\u{2069}"]
        {
            assert!(check_text("author", hidden, 100).is_err(), "{hidden:?}");
        }
    }
}
