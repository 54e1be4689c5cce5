//! Where people and programs are served, and what they may do there.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_field, positive_count};

/// Where people and programs are served, and what they may do there.
#[derive(Clone, Debug, PartialEq)]
pub struct NorthboundConfig {
    /// Address; nobody is served without one.
    pub listen: Option<SocketAddr>,
    /// Who may do what by what they send; without tokens and certificates, whoever reaches the
    /// address may do everything.
    pub tokens: Vec<AccessToken>,
    /// Who may do what by the certificate that they show.
    pub certificates: Vec<AccessToken>,
    /// Served over TLS, with these files.
    pub tls: Option<TlsFiles>,
    /// The longest body of a request, bytes.
    pub body_max: NonZeroUsize,
    /// Requests that are answered in a second, of each address.
    pub requests_per_second: NonZeroU32,
}

/// A token, or a client's certificate that is as good as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// Whose it is.
    pub name: String,
    /// What it is good for.
    pub role: AccessRole,
    /// SHA-256 of it; of a certificate in DER.
    pub sha256: [u8; 32],
}

/// Files of a TLS server, in PEM, read when the controller begins to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificate with its intermediates.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Roots of client certificates. A client without a certificate of theirs is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_roots: Option<PathBuf>,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessRole {
    /// Tell of jobs.
    Report,
    /// Ask everything.
    Read,
    /// Ask and change everything, and tell of jobs.
    Write,
}

impl AccessRole {
    /// Whether who has this role may do what needs the other.
    pub fn allows_role(self, needs: Self) -> bool {
        self == needs || self == Self::Write
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Report => "report",
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// The address for people and programs, and their access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawNorthbound {
    /// Address and port, as `127.0.0.1:9300`. Without one, nothing is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Serve everybody who reaches the address, although it is not a loopback address and there are
    /// no tokens.
    pub anyone: bool,
    /// Access by token. With tokens, every request needs one; job reports need one as soon as a
    /// token of role `report` exists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<RawToken>,
    /// Access by client certificate. Apart from `tokens`, because whoever knows a certificate could
    /// send it; only its owner has the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<RawToken>,
    /// Serve over TLS. With `client_roots`, clients need a certificate as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Events that are kept. A reader that falls further behind receives the number of missed
    /// events.
    #[schemars(range(min = 1))]
    pub events: usize,
    /// Largest body of a request.
    #[schemars(range(min = 1))]
    pub body_max: usize,
    /// Requests per second of each address. More are refused.
    #[schemars(range(min = 1))]
    pub requests_per_second: u32,
}

/// A token or a client certificate, with its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawToken {
    /// Name of the owner, for people.
    pub name: String,
    /// What the owner may do.
    pub role: AccessRole,
    /// SHA-256 in hexadecimal digits: of the token (`printf %s TOKEN | sha256sum`), so that a
    /// reader of the configuration does not learn it, or of the certificate (`openssl x509 -in CERT
    /// -outform der | sha256sum`).
    pub sha256: String,
}

impl Default for RawNorthbound {
    fn default() -> Self {
        Self {
            listen: None,
            anyone: false,
            tokens: Vec::new(),
            certificates: Vec::new(),
            tls: None,
            events: 4_096,
            body_max: 1 << 20,
            requests_per_second: 200,
        }
    }
}

impl TryFrom<&RawNorthbound> for NorthboundConfig {
    type Error = ConfigError;

    fn try_from(raw: &RawNorthbound) -> Result<Self, ConfigError> {
        let tokens = parse_tokens("northbound.tokens.sha256", &raw.tokens)?;
        let certificates = self::parse_tokens("northbound.certificates.sha256", &raw.certificates)?;
        let certified = raw.tls.as_ref().and_then(|tls| tls.client_roots.as_ref());
        let wanted = "left out without northbound.tls.client_roots, for nobody shows any then";
        let is_asked = certificates.is_empty() || certified.is_some();
        check_field("northbound.certificates", &certificates.len(), wanted, is_asked)?;
        if let Some(listen) = raw.listen {
            let is_known = !tokens.is_empty() || certified.is_some();
            let is_open = !is_known && !listen.ip().is_loopback();
            let wanted = "an address of this machine alone (127.0.0.1), unless northbound.tokens \
                          says who may do what, northbound.tls.client_roots who is known, or \
                          northbound.anyone = true";
            check_field("northbound.listen", &listen, wanted, !is_open || raw.anyone)?;
        }
        let rate = NonZeroU32::new(raw.requests_per_second);
        Ok(Self {
            listen: raw.listen,
            tokens,
            certificates,
            tls: raw.tls.clone(),
            body_max: positive_count("northbound.body_max", raw.body_max)?,
            requests_per_second: rate.ok_or_else(|| ConfigError::Invalid {
                field: "northbound.requests_per_second",
                found: "0".to_owned(),
                wanted: "above 0",
            })?,
        })
    }
}

/// Checks the digests, which stand in this field.
fn parse_tokens(field: &'static str, raw: &[RawToken]) -> Result<Vec<AccessToken>, ConfigError> {
    let token = |raw: &RawToken| {
        let wrong = || ConfigError::Invalid {
            field,
            found: format!("{} digits for `{}`", raw.sha256.len(), raw.name),
            wanted: "64 hexadecimal digits, as sha256sum prints them",
        };
        let digits: Option<Vec<u8>> = (0..raw.sha256.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(raw.sha256.get(at..at + 2)?, 16).ok())
            .collect();
        let sha256 = digits.and_then(|digits| digits.try_into().ok());
        Ok(AccessToken {
            name: raw.name.clone(),
            role: raw.role,
            sha256: sha256.ok_or_else(wrong)?,
        })
    };
    raw.iter().map(token).collect()
}
