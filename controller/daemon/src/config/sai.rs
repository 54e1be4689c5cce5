//! The SAI P4 program that switches with that pipeline get.

use std::path::PathBuf;

use p4::ForwardingPipeline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::tls::read_text;

/// The SAI P4 program of the switches that have one; without files, the controller's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawSai {
    /// P4Info of another SAI P4 program, as text (`middleblock.p4info.pb.txt`), which is pushed to
    /// the switches instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p4info: Option<PathBuf>,
    /// That program as p4c compiles it for BMv2, for switches that are software. SONiC needs
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
        let (p4info, json) = match (&self.p4info, &self.json) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let (field, other) = ("sai.json", "sai.p4info");
                return Err(ConfigError::MissingPartner { field, other });
            }
            (Some(p4info), json) => (read_text("sai.p4info", p4info)?, json),
        };
        let json = json.as_ref().map(|path| read_text("sai.json", path)).transpose()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        p4info: Option<&str>,
        json: Option<&str>,
    ) -> Result<Option<ForwardingPipeline>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: Option<&str>| {
            let path = folder.path().join(name);
            text.map(|text| std::fs::write(&path, text).unwrap()).map(|()| path)
        };
        let raw = RawSai { p4info: file("p4info", p4info), json: file("json", json) };
        raw.load_program().map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        })
    }

    #[test]
    fn programs_are_loaded_with_and_without_code() {
        let (p4info, json) = (p4::artefacts::SAI.p4info, p4::artefacts::SAI.json);
        assert_eq!(load(None, None).unwrap(), None);
        let whole = load(Some(p4info), Some(json)).unwrap();
        assert_eq!(whole.as_ref(), Some(ForwardingPipeline::embedded_sai()));
        let alone = load(Some(p4info), None).unwrap().unwrap();
        assert!(alone.device_config.is_empty());
        assert_ne!(Some(alone), whole);
    }

    #[test]
    fn wrong_programs_are_refused_by_field() {
        let (p4info, json) = (p4::artefacts::SAI.p4info, p4::artefacts::SAI.json);
        for (p4info, json, expected) in [
            (None, Some(json), "sai.json: requires sai.p4info"),
            (Some("tables {"), None, "sai.p4info: not a P4 program: cannot read the P4Info"),
            (Some(p4info), Some("{"), "sai.p4info: not a P4 program: cannot read the BMv2 JSON"),
            (Some(p4info), Some("{}"), "sai.p4info: not a P4 program: P4Info and BMv2 JSON differ"),
        ] {
            let error = load(p4info, json).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
