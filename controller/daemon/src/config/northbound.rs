//! The address for people and programs, and their access.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod limits;

pub use self::limits::{NorthboundLimits, RawNorthboundLimits};
use super::{ConfigError, check_field, positive_count, positive_rate};

/// Where people and programs are served, and what they may do there.
#[derive(Clone, Debug, PartialEq)]
pub struct NorthboundConfig {
    /// The address; without one, nothing is served.
    pub listen: Option<SocketAddr>,
    /// Whether everybody who reaches the address has full access, if there are no tokens.
    pub anyone: bool,
    /// Access by token.
    pub tokens: Vec<AccessToken>,
    /// Where the token of this machine is kept, if not where `crux` looks.
    pub token_file: Option<PathBuf>,
    /// Access by client certificate.
    pub certificates: Vec<AccessToken>,
    /// Files of the TLS server, if it serves over TLS.
    pub tls: Option<TlsFiles>,
    /// Names of this controller that clients without a token may use, besides addresses.
    pub hosts: Vec<String>,
    /// What callers may cost.
    pub limits: NorthboundLimits,
    /// The longest body of a request, bytes.
    pub body_max: NonZeroUsize,
    /// Requests per second of each address.
    pub requests_per_second: NonZeroU32,
}

impl NorthboundConfig {
    /// Whether the configuration says who may do what: by tokens, certificates or the roots of
    /// certificates, or that anyone may.
    pub fn has_access_rules(&self) -> bool {
        self.anyone || self.has_tokens() || self.admits_certificates()
    }

    /// Whether everybody who reaches the address may do everything.
    pub fn is_open(&self) -> bool {
        self.anyone && !self.has_tokens()
    }

    /// Whether requests need a token or a certificate that is one.
    pub fn needs_token(&self) -> bool {
        !self.is_open() && (self.has_tokens() || !self.admits_certificates())
    }

    fn has_tokens(&self) -> bool {
        !self.tokens.is_empty() || !self.certificates.is_empty()
    }

    /// Whether every client has a certificate of known roots.
    fn admits_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_roots.is_some())
    }
}

/// A token or a client's certificate, which grants a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The name of the owner.
    pub name: String,
    /// The role that it grants.
    pub role: AccessRole,
    /// SHA-256 of the token, or of the certificate in DER.
    pub sha256: [u8; 32],
    /// Hosts whose jobs the owner may report; all, if empty.
    pub hosts: Vec<String>,
    /// Tenants whose jobs the owner may report; all, if empty.
    pub tenants: Vec<String>,
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

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessRole {
    /// Send job reports.
    Report,
    /// Read everything.
    Read,
    /// Read and change everything, and send job reports.
    Write,
}

impl AccessRole {
    /// Whether this role includes the one that a request needs.
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
    /// Serve everybody who reaches the address, without tokens. `crux doctor` warns of it.
    pub anyone: bool,
    /// Where the token of this machine is kept if the configuration has no tokens, no certificates
    /// and no `client_roots`; created with a random token, for its owner alone. Without it,
    /// `crux/token` in `XDG_STATE_HOME` or in `~/.local/state`, where `crux` looks by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Access by token. Every request needs one, job reports included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<RawToken>,
    /// Access by client certificate. Apart from `tokens`, because whoever knows a certificate could
    /// send it; only its owner has the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<RawToken>,
    /// Serve over TLS. With `client_roots`, clients need a certificate as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Names by which browsers and clients without a token may address this controller, besides
    /// `localhost` and IP addresses. A web page whose name resolves to this machine is refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What callers may cost, each and all together.
    pub limits: RawNorthboundLimits,
    /// Events that are kept. A reader that falls further behind receives the number of missed
    /// events.
    #[schemars(range(min = 1))]
    pub events: usize,
    /// Largest body of a request.
    #[schemars(range(min = 1))]
    pub body_max: usize,
    /// Requests per second of each caller at an address, and refused ones of each address. More
    /// are answered with 429.
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
    /// Hosts whose jobs the owner may report, or beginnings of their names with `*` at the end;
    /// all, if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Tenants whose jobs the owner may report; all, if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
}

impl Default for RawNorthbound {
    fn default() -> Self {
        Self {
            listen: None,
            anyone: false,
            token_file: None,
            tokens: Vec::new(),
            certificates: Vec::new(),
            tls: None,
            hosts: Vec::new(),
            limits: RawNorthboundLimits::default(),
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
        let certificates = parse_tokens("northbound.certificates.sha256", &raw.certificates)?;
        let certified = raw.tls.as_ref().and_then(|tls| tls.client_roots.as_ref());
        let wanted =
            "left out without northbound.tls.client_roots, as clients then send no certificate";
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
        Ok(Self {
            listen: raw.listen,
            anyone: raw.anyone,
            token_file: raw.token_file.clone(),
            tokens,
            certificates,
            tls: raw.tls.clone(),
            hosts: raw.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            limits: NorthboundLimits::try_from(&raw.limits)?,
            body_max: positive_count("northbound.body_max", raw.body_max)?,
            requests_per_second: positive_rate(
                "northbound.requests_per_second",
                raw.requests_per_second,
            )?,
        })
    }
}

/// Parses the digests of tokens or certificates, which are in this field.
fn parse_tokens(field: &'static str, raw: &[RawToken]) -> Result<Vec<AccessToken>, ConfigError> {
    let tokens = raw.iter().map(|raw| {
        let sha256 = parse_sha256(&raw.sha256).ok_or_else(|| ConfigError::Invalid {
            field,
            found: format!("{} digits for `{}`", raw.sha256.len(), raw.name),
            wanted: "64 hexadecimal digits, as sha256sum prints them",
        })?;
        Ok(AccessToken {
            name: raw.name.clone(),
            role: raw.role,
            sha256,
            hosts: raw.hosts.clone(),
            tenants: raw.tenants.clone(),
        })
    });
    tokens.collect()
}

fn parse_sha256(digits: &str) -> Option<[u8; 32]> {
    let pairs = (0..digits.len()).step_by(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    bytes?.try_into().ok()
}
