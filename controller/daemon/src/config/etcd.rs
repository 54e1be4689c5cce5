//! etcd: its servers, the user, and the timing of leadership.
//!
//! The decision: user and certificates are checked even without servers, so that a mistake shows
//! before etcd is first used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls::{self, RawTls, TlsConfig, missing_partner, read_secret_line};
use super::{ConfigError, RawConfig, RetryBackoff, check_field, positive_duration};

/// etcd as files spell it: who of several controllers leads and what they share, instead of the
/// switches and of the embedded store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawEtcd {
    /// Servers, `host:port`. An empty list means without etcd.
    pub endpoints: Vec<String>,
    /// Prefix of all keys. All controllers of a fabric use the same.
    pub prefix: String,
    /// A leader whose lease is not renewed for this long is succeeded. It stops by itself after
    /// four fifths of it.
    #[schemars(range(min = 2))]
    pub lease_s: u64,
    /// Deadline of one call; at most a fifth of `lease_s`.
    #[schemars(range(min = 1))]
    pub deadline_ms: u64,
    /// User name, where etcd has users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with the user's password in its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<PathBuf>,
    /// TLS towards etcd.
    pub tls: RawTls,
}

impl Default for RawEtcd {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "/crux".to_owned(),
            lease_s: 5,
            deadline_ms: 500,
            user: None,
            password: None,
            tls: RawTls::default(),
        }
    }
}

/// The servers, user and timing of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Its servers, at least one.
    pub endpoints: Vec<String>,
    /// Prefix of every key.
    pub prefix: String,
    /// How long leadership lasts after the leader's last renewal.
    pub lease: Duration,
    /// Deadline of one call.
    pub deadline: Duration,
    /// The wait before another server is tried.
    pub backoff: RetryBackoff,
    /// The user, if etcd has users.
    pub user: Option<EtcdUser>,
    /// TLS of connections, if it is configured.
    pub tls: Option<TlsConfig>,
}

/// A user of etcd with the password.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// The user name.
    pub name: String,
    /// The password in clear text.
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        let mut shown = f.debug_struct("User");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

impl RawEtcd {
    /// Reads user and TLS files; none without servers.
    pub(super) fn load_etcd(&self, of: &RawConfig) -> Result<Option<EtcdConfig>, ConfigError> {
        let (user, tls) = (self.load_user()?, self.tls.load_files(&tls::ETCD)?);
        if self.endpoints.is_empty() {
            return Ok(None);
        }
        let path = of.store.path.as_ref();
        let stored = path.map_or(String::new(), |path| path.display().to_string());
        let wanted = "left out with etcd.endpoints, as etcd then stores jobs and policy";
        check_field("store.path", &stored, wanted, path.is_none())?;
        let lease_s = self.lease_s;
        // etcd itself extends shorter leases to its minimum.
        check_field("etcd.lease_s", &lease_s, "at least 2 s", lease_s >= 2)?;
        let lease = Duration::from_secs(lease_s);
        let deadline = positive_duration("etcd.deadline_ms", self.deadline_ms)?;
        // A call that fails at its deadline leaves time for another one before the leader stops.
        let wanted = "at most a fifth of etcd.lease_s";
        let is_short = 5 * deadline <= lease;
        check_field("etcd.deadline_ms", &self.deadline_ms, wanted, is_short)?;
        Ok(Some(EtcdConfig {
            endpoints: self.endpoints.clone(),
            prefix: self.prefix.clone(),
            lease,
            deadline,
            backoff: RetryBackoff::try_from(&of.reconcile)?,
            user,
            tls,
        }))
    }

    fn load_user(&self) -> Result<Option<EtcdUser>, ConfigError> {
        let field = "etcd.password";
        match (&self.user, &self.password) {
            (None, None) => Ok(None),
            (Some(name), Some(path)) => {
                let wanted = "a file with the password in its first line";
                let password = read_secret_line(field, path, wanted)?;
                Ok(Some(EtcdUser { name: name.clone(), password }))
            }
            (Some(_), None) => Err(missing_partner("etcd.user", field)),
            (None, Some(_)) => Err(missing_partner(field, "etcd.user")),
        }
    }
}
