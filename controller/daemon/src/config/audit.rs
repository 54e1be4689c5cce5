//! Where the audit trail goes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count};

/// Where the audit trail goes, beside the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// Its files, if it has any.
    pub files: Option<AuditFiles>,
    /// A syslog collector `host:port`, or the path of a datagram socket.
    pub syslog: Option<String>,
}

/// The files of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFiles {
    /// The file that is appended to; earlier ones have a number after its name.
    pub path: PathBuf,
    /// Length after which the next file begins.
    pub file_bytes: u64,
    /// How many files are kept.
    pub count: usize,
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
    /// Where each record is sent as a syslog message (RFC 5424): `host:port` over UDP, or the
    /// path of a datagram socket, as `/dev/log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syslog: Option<String>,
}

impl Default for RawAudit {
    fn default() -> Self {
        Self { path: None, file_bytes: 16 << 20, files: 8, syslog: None }
    }
}

impl RawAudit {
    /// Checks the bounds.
    pub(super) fn load_audit(&self, store: Option<&PathBuf>) -> Result<AuditConfig, ConfigError> {
        let enough = self.file_bytes >= 4_096;
        check_field("audit.file_bytes", &self.file_bytes, "at least 4096", enough)?;
        let count = positive_count("audit.files", self.files)?.get();
        let is_target = |target: &String| target.starts_with('/') || target.contains(':');
        let syslog = self.syslog.clone();
        let shown = syslog.clone().unwrap_or_default();
        let wanted = "host:port, or an absolute path";
        check_field("audit.syslog", &shown, wanted, syslog.as_ref().is_none_or(is_target))?;
        let beside_store = store.map(|store| {
            let mut name = store.file_name().unwrap_or_default().to_owned();
            name.push(".audit");
            store.with_file_name(name)
        });
        let path = self.path.clone().or(beside_store);
        let file_bytes = self.file_bytes;
        let files = path.map(|path| AuditFiles { path, file_bytes, count });
        Ok(AuditConfig { files, syslog })
    }
}
