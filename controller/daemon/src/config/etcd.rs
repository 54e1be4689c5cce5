//! etcd: where it is, as whom to ask it, and how leadership is kept there.
//!
//! The decision: whoever names a user or certificates is told of mistakes in them whether or not
//! there are servers to use them with; a file that is read only once etcd is needed would be
//! missed then.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls::{self, RawTls, TlsConfig, missing_partner, read_file};
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

/// How a controller deals with etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Its servers, at least one.
    pub endpoints: Vec<String>,
    /// Before every key.
    pub prefix: String,
    /// How long leadership outlives the last sign of the leader.
    pub lease: Duration,
    /// One call.
    pub deadline: Duration,
    /// The wait before another server is tried.
    pub backoff: RetryBackoff,
    /// As whom to ask it, if it has users.
    pub user: Option<EtcdUser>,
    /// What secures connections, if anything does.
    pub tls: Option<TlsConfig>,
}

/// Somebody whom etcd knows.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// Their name.
    pub name: String,
    /// Their password.
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
    /// How to deal with etcd, if there is any.
    pub(super) fn load_etcd(&self, of: &RawConfig) -> Result<Option<EtcdConfig>, ConfigError> {
        let (user, tls) = (self.load_user()?, self.tls.load_files(&tls::ETCD)?);
        if self.endpoints.is_empty() {
            return Ok(None);
        }
        let path = of.store.path.as_ref();
        let stored = path.map_or(String::new(), |path| path.display().to_string());
        let wanted = "left out where etcd.endpoints says what shares jobs and policy";
        check_field("store.path", &stored, wanted, path.is_none())?;
        let lease_s = self.lease_s;
        // etcd itself makes shorter ones longer.
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
                let text = String::from_utf8_lossy(&read_file(field, path)?).into_owned();
                let password = text.lines().next().unwrap_or_default().to_owned();
                let found = path.display();
                let wanted = "a file with the password in its first line";
                check_field(field, &found, wanted, !password.is_empty())?;
                let name = name.clone();
                Ok(Some(EtcdUser { name, password }))
            }
            (Some(_), None) => Err(missing_partner("etcd.user", field)),
            (None, Some(_)) => Err(missing_partner(field, "etcd.user")),
        }
    }
}
