//! The SAI P4 program that switches with that pipeline get.

use std::path::PathBuf;

use p4::ForwardingPipeline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls::read_file;
use super::{ConfigError, check_field};

/// The SAI P4 program of the switches that have one; without files, the controller's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawSai {
    /// P4Info of another SAI P4 program, as text (`middleblock.p4info.pb.txt`), which is pushed to
    /// the switches instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p4info: Option<PathBuf>,
    /// The same program as p4c compiles it for BMv2, for switches that are software. SONiC needs
    /// none. Requires `p4info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<PathBuf>,
}

impl RawSai {
    /// Reads the program; none without files.
    ///
    /// # Errors
    /// A file cannot be read, or is not one of a P4 program.
    pub fn load_program(&self) -> Result<Option<ForwardingPipeline>, ConfigError> {
        let Some(path) = &self.p4info else {
            let (field, other) = ("sai.json", "sai.p4info");
            let missing =
                self.json.is_some().then_some(ConfigError::MissingPartner { field, other });
            return missing.map_or(Ok(None), Err);
        };
        let p4info = read_text("sai.p4info", path)?;
        let json = self.json.as_ref().map(|path| read_text("sai.json", path)).transpose()?;
        let program = match json {
            Some(json) => ForwardingPipeline::new(&p4info, &json),
            None => ForwardingPipeline::without_code(&p4info),
        };
        program.map(Some).map_err(|source| {
            let field = "sai.p4info";
            ConfigError::Program { field, source: Box::new(source) }
        })
    }
}

fn read_text(field: &'static str, path: &PathBuf) -> Result<String, ConfigError> {
    let text = String::from_utf8(read_file(field, path)?);
    let shown = path.display();
    check_field(field, &shown, "a file of UTF-8 text", text.is_ok())?;
    Ok(text.unwrap_or_default())
}
