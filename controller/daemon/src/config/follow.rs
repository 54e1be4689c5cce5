//! The other controllers of the fabric that this one follows while one of them leads.
//!
//! The decision: members name each other, so whoever leads, the others know where to follow it. A
//! file of an operator's token is read with the configuration, as certificates are.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls::{self, RawTls, TlsConfig, read_secret_line};
use super::{ConfigError, RawConfig, RetryBackoff, check_field, positive_duration};

/// The other controllers of the fabric, as files spell them. With them, this controller replicates
/// the state of the one that leads, and leads when most switches have no leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawFollow {
    /// Their addresses for people and programs, `host:port`. An empty list means that this
    /// controller follows nobody.
    pub members: Vec<String>,
    /// File with a token of the role `write` in its first line, where the others require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
    /// TLS towards them.
    pub tls: RawTls,
}

/// Where the leader is found, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct FollowConfig {
    /// The addresses of the other controllers, at least one.
    pub members: Vec<String>,
    /// The token for them, if they require one.
    pub token: Option<String>,
    /// TLS of connections, if it is configured.
    pub tls: Option<TlsConfig>,
    /// Deadline for opening a connection, and silence after which it counts as lost.
    pub connect_deadline: Duration,
    /// The wait before another one is tried.
    pub backoff: RetryBackoff,
}

impl fmt::Debug for FollowConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the token.
        f.debug_struct("Follow").field("members", &self.members).finish_non_exhaustive()
    }
}

impl RawFollow {
    /// Reads token and TLS files; none without members.
    pub(super) fn load_follow(&self, of: &RawConfig) -> Result<Option<FollowConfig>, ConfigError> {
        let tls = self.tls.load_files(&tls::FOLLOW)?;
        let token = self.token.as_ref().map(|path| {
            let wanted = "a file with a token in its first line";
            read_secret_line("follow.token", path, wanted)
        });
        let token = token.transpose()?.map(|line| line.trim().to_owned());
        let count = self.members.len();
        let wanted = "empty with etcd.endpoints, as etcd then elects the leader";
        check_field("follow.members", &count, wanted, count == 0 || of.etcd.endpoints.is_empty())?;
        let malformed = self.members.iter().find(|member| !member.contains(':'));
        if let Some(member) = malformed {
            check_field("follow.members", member, "host:port", false)?;
        }
        let connect_deadline = positive_duration("deadlines.connect_ms", of.deadlines.connect_ms)?;
        let backoff = RetryBackoff::try_from(&of.reconcile)?;
        Ok((count > 0).then(|| FollowConfig {
            members: self.members.clone(),
            token,
            tls,
            connect_deadline,
            backoff,
        }))
    }
}
