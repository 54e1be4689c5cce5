//! Files of a controller: its configuration, and policies that are sent to it.

use ::controller::Config;
use ::controller::northbound::service::{DocumentFile, parse_policy};
use command_io::CommandError;
use command_io::files::read_text;
use topology::document::{self, DocumentFormat};

/// Reads the configuration of a controller.
pub(crate) fn read_configuration(name: &str) -> Result<Config, CommandError> {
    let format = DocumentFormat::from_file_name(name).map_err(CommandError::document)?;
    Config::parse_text(&read_text(name)?, format, name).map_err(CommandError::document)
}

/// Reads a policy file as it is.
pub(crate) fn read_policy_file(name: &str) -> Result<DocumentFile, CommandError> {
    Ok(DocumentFile { file: name.to_owned(), text: read_text(name)? })
}

/// Reads a policy file in the form in which a controller takes it: YAML, which a controller does
/// not parse, becomes JSON.
pub fn read_policy_to_send(name: &str) -> Result<DocumentFile, CommandError> {
    let file = read_policy_file(name)?;
    let format = DocumentFormat::from_file_name(name).map_err(CommandError::document)?;
    if format != DocumentFormat::Yaml {
        return Ok(file);
    }
    let policy = parse_policy(&file).map_err(|finding| CommandError::document(finding.text))?;
    let text = document::print_document(&policy, DocumentFormat::Json);
    Ok(DocumentFile { file: format!("{name}.json"), text: text.map_err(CommandError::failed)? })
}
