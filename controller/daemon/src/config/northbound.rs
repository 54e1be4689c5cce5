//! Where people and programs are served, and what they may do there.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ConfigError, check, count};

/// Where people and programs are served, and what they may do there.
#[derive(Clone, Debug, PartialEq)]
pub struct Northbound {
    /// Address; nobody is served without one.
    pub listen: Option<SocketAddr>,
    /// Who may do what; without tokens, whoever reaches the address may do everything.
    pub tokens: Vec<Token>,
    /// Served over TLS, with these files.
    pub tls: Option<TlsFiles>,
    /// The longest body of a request, bytes.
    pub body_max: NonZeroUsize,
    /// Requests that are answered in a second, of each address.
    pub requests_per_second: NonZeroU32,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// SHA-256 of it: of what is sent, or of a client's certificate in DER.
    pub sha256: [u8; 32],
}

/// What TLS needs, all in PEM; read when the controller begins to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, and those between it and its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Roots of the certificates of clients: who shows none of them is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_roots: Option<PathBuf>,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Tell of jobs.
    Report,
    /// Ask everything.
    Read,
    /// Ask and change everything, and tell of jobs.
    Write,
}

impl Role {
    /// Whether who has this role may do what needs the other.
    pub fn may(self, needs: Self) -> bool {
        self == needs || self == Self::Write
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Report => "report",
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// Where people and programs are served, as files spell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawNorthbound {
    /// Address and port, as `127.0.0.1:9300`; without one, nobody is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Serve whoever reaches the address, though it is not one of this machine alone and there are
    /// no tokens.
    pub anyone: bool,
    /// Who may do what. With tokens, every request needs one; reports of jobs do once there is one
    /// of role `report`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<RawToken>,
    /// Serve over TLS. With `client_roots`, clients need a certificate as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Events that are kept: whoever falls further behind is told how many were missed.
    pub events: usize,
    /// The longest body of a request, in bytes.
    pub body_max: usize,
    /// Requests that are answered in a second, of each address; more are refused.
    pub requests_per_second: u32,
}

/// A token, as files spell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawToken {
    /// Whose it is, for people.
    pub name: String,
    /// `report`, `read` or `write`.
    pub role: Role,
    /// SHA-256 of the token in hexadecimal digits (`printf %s TOKEN | sha256sum`), so that who
    /// reads the configuration does not learn the token. Or that of a client's certificate
    /// (`openssl x509 -in CERT -outform der | sha256sum`), which is a token then.
    pub sha256: String,
}

impl Default for RawNorthbound {
    fn default() -> Self {
        Self {
            listen: None,
            anyone: false,
            tokens: Vec::new(),
            tls: None,
            events: 4_096,
            body_max: 1 << 20,
            requests_per_second: 200,
        }
    }
}

impl TryFrom<&RawNorthbound> for Northbound {
    type Error = ConfigError;

    fn try_from(raw: &RawNorthbound) -> Result<Self, ConfigError> {
        let tokens = raw.tokens.iter().map(Token::try_from);
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        if let Some(listen) = raw.listen {
            let certified = raw.tls.as_ref().and_then(|tls| tls.client_roots.as_ref());
            let is_known = !tokens.is_empty() || certified.is_some();
            let is_open = !is_known && !listen.ip().is_loopback();
            let wanted = "an address of this machine alone (127.0.0.1), unless northbound.tokens \
                          says who may do what, northbound.tls.client_roots who is known, or \
                          northbound.anyone = true";
            check("northbound.listen", &listen, wanted, !is_open || raw.anyone)?;
        }
        let rate = NonZeroU32::new(raw.requests_per_second);
        Ok(Self {
            listen: raw.listen,
            tokens,
            tls: raw.tls.clone(),
            body_max: count("northbound.body_max", raw.body_max)?,
            requests_per_second: rate.ok_or_else(|| ConfigError::Invalid {
                field: "northbound.requests_per_second",
                found: "0".to_owned(),
                wanted: "above 0",
            })?,
        })
    }
}

impl TryFrom<&RawToken> for Token {
    type Error = ConfigError;

    fn try_from(raw: &RawToken) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Invalid {
            field: "northbound.tokens.sha256",
            found: format!("{} digits for `{}`", raw.sha256.len(), raw.name),
            wanted: "64 hexadecimal digits, of printf %s TOKEN | sha256sum",
        };
        let digits: Option<Vec<u8>> = (0..raw.sha256.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(raw.sha256.get(at..at + 2)?, 16).ok())
            .collect();
        let sha256 = digits.and_then(|digits| digits.try_into().ok());
        Ok(Self {
            name: raw.name.clone(),
            role: raw.role,
            sha256: sha256.ok_or_else(wrong)?,
        })
    }
}
