//! Where the flight recorder writes, and how much it keeps.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count};

/// Where a controller records, and how much.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingConfig {
    /// The folder of the ring; it is made if it is not there.
    pub folder: PathBuf,
    /// A file that is longer is followed by the next.
    pub file_bytes: u64,
    /// Files that are kept.
    pub files: usize,
}

/// The flight recorder: what the controller learned, decided and gave to switches, in files that
/// `crux replay-incident` runs again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawRecorder {
    /// Folder of the files, which is made if it is not there. Without one, nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// A file that is longer, in bytes, is followed by the next.
    pub file_bytes: u64,
    /// Files that are kept; the oldest go.
    pub files: usize,
}

impl Default for RawRecorder {
    fn default() -> Self {
        Self { folder: None, file_bytes: 16 << 20, files: 8 }
    }
}

impl RawRecorder {
    /// Where to record, if a folder is named.
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
