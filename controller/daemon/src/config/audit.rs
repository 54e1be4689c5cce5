//! The files of the audit trail.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count};

/// The files of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that is appended to; earlier ones have a number after its name.
    pub path: PathBuf,
    /// Length after which the next file begins.
    pub file_bytes: u64,
    /// How many files are kept.
    pub files: usize,
}

/// The audit trail: who was let in, refused, and changed the policy. `crux audit` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawAudit {
    /// File of the trail. Without one, it is `store.path` with `.audit` after it; without that,
    /// the latest 1,000 records are kept in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Length after which the next file begins.
    #[schemars(range(min = 4096))]
    pub file_bytes: u64,
    /// Files that are kept. The oldest are deleted.
    #[schemars(range(min = 1))]
    pub files: usize,
}

impl Default for RawAudit {
    fn default() -> Self {
        Self { path: None, file_bytes: 16 << 20, files: 8 }
    }
}

impl RawAudit {
    /// Checks the bounds; none without a file.
    pub(super) fn load_audit(
        &self,
        store: Option<&PathBuf>,
    ) -> Result<Option<AuditConfig>, ConfigError> {
        let enough = self.file_bytes >= 4_096;
        check_field("audit.file_bytes", &self.file_bytes, "at least 4096", enough)?;
        let files = positive_count("audit.files", self.files)?.get();
        let beside_store = store.map(|store| {
            let mut name = store.file_name().unwrap_or_default().to_owned();
            name.push(".audit");
            store.with_file_name(name)
        });
        let path = self.path.clone().or(beside_store);
        Ok(path.map(|path| AuditConfig { path, file_bytes: self.file_bytes, files }))
    }
}
