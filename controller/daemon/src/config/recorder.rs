//! The folder of the flight recorder, and how much it keeps.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count};

/// The folder of the flight recorder, and how much it keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingConfig {
    /// The folder of the ring; it is created if it does not exist.
    pub folder: PathBuf,
    /// Length after which the next file begins.
    pub file_bytes: u64,
    /// How many files are kept.
    pub files: usize,
}

/// The flight recorder: inputs, decisions and writes of the controller, in files that `crux replay-
/// incident` repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawRecorder {
    /// Folder of the files, created if it does not exist. Without one, nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Length after which the next file begins.
    #[schemars(range(min = 4096))]
    pub file_bytes: u64,
    /// Files that are kept. The oldest are deleted.
    #[schemars(range(min = 1))]
    pub files: usize,
}

impl Default for RawRecorder {
    fn default() -> Self {
        Self { folder: None, file_bytes: 16 << 20, files: 8 }
    }
}

impl RawRecorder {
    /// Checks the bounds; none without a folder.
    pub(super) fn load_recorder(&self) -> Result<Option<RecordingConfig>, ConfigError> {
        let enough = self.file_bytes >= 4_096;
        let field = "recorder.file_bytes";
        check_field(field, &self.file_bytes, "at least 4096", enough)?;
        let files = positive_count("recorder.files", self.files)?;
        Ok(self.folder.as_ref().map(|folder| RecordingConfig {
            folder: folder.clone(),
            file_bytes: self.file_bytes,
            files: files.get(),
        }))
    }
}
