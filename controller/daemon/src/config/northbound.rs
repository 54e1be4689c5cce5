//! The address for people and programs, and their access.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hexadecimal::decode_hex;

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
    pub certificates: Vec<CertificateGrant>,
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

/// A token, which grants a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// What it grants.
    pub grants: AccessGrant,
}

/// What a token or a client certificate grants to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    /// The name of the owner.
    pub name: String,
    /// The role.
    pub role: AccessRole,
    /// Hosts whose jobs the owner may report; all, if empty.
    pub hosts: Vec<String>,
    /// Tenants whose jobs the owner may report; all, if empty.
    pub tenants: Vec<String>,
}

/// A client certificate that serves as a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateGrant {
    /// Which certificate.
    pub shown: CertificateMatch,
    /// What it grants.
    pub grants: AccessGrant,
}

/// How a client certificate is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateMatch {
    /// By the SHA-256 of it in DER.
    Digest([u8; 32]),
    /// By a DNS name that it is for, in lower case.
    Name(String),
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
    /// Certificate revocation lists of the clients' authorities, in PEM; requires `client_roots`.
    /// The issuer of every client's certificate needs a list here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
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
    /// Access by client certificate. Apart from `tokens`, because anybody who knows a certificate
    /// could send it; only its owner has the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<RawCertificate>,
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

/// A token with its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawToken {
    /// Name of the owner, for people.
    pub name: String,
    /// What the owner may do.
    pub role: AccessRole,
    /// SHA-256 of the token in hexadecimal digits (`printf %s TOKEN | sha256sum`), so that a reader
    /// of the configuration does not learn it.
    pub sha256: String,
    /// Hosts whose jobs the owner may report, or beginnings of their names with `*` at the end;
    /// all, if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Tenants whose jobs the owner may report; all, if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
}

/// A client certificate with its role: the one with a digest, or all for a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCertificate {
    /// Name of the owner, for people.
    pub name: String,
    /// What the owner may do.
    pub role: AccessRole,
    /// DNS name that the certificate is for (`subjectAltName`), letter by letter. A renewed
    /// certificate for the name has the same role. Instead of `sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
    /// SHA-256 of the certificate in hexadecimal digits (`openssl x509 -in CERT -outform der |
    /// sha256sum`). Instead of `dns_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
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
        let tokens = raw.tokens.iter().map(AccessToken::try_from);
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        let certificates = raw.certificates.iter().map(CertificateGrant::try_from);
        let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
        let certified = raw.tls.as_ref().and_then(|tls| tls.client_roots.as_ref());
        let wanted =
            "left out without northbound.tls.client_roots, as clients then send no certificate";
        let is_asked = certificates.is_empty() || certified.is_some();
        check_field("northbound.certificates", &certificates.len(), wanted, is_asked)?;
        let revoked = raw.tls.as_ref().and_then(|tls| tls.revoked.as_ref());
        if revoked.is_some() && certified.is_none() {
            let [field, other] = ["northbound.tls.revoked", "northbound.tls.client_roots"];
            return Err(ConfigError::MissingPartner { field, other });
        }
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

impl TryFrom<&RawToken> for AccessToken {
    type Error = ConfigError;

    fn try_from(raw: &RawToken) -> Result<Self, ConfigError> {
        let RawToken { name, role, sha256, hosts, tenants } = raw.clone();
        Ok(Self {
            sha256: checked_sha256("northbound.tokens.sha256", &sha256, &name)?,
            grants: AccessGrant { name, role, hosts, tenants },
        })
    }
}

impl TryFrom<&RawCertificate> for CertificateGrant {
    type Error = ConfigError;

    fn try_from(raw: &RawCertificate) -> Result<Self, ConfigError> {
        let RawCertificate { name, role, dns_name, sha256, hosts, tenants } = raw.clone();
        let shown = match (dns_name, sha256) {
            (Some(dns_name), None) => {
                let is_name = !dns_name.is_empty() && !dns_name.contains('*');
                let wanted = "a DNS name without `*`";
                check_field("northbound.certificates.dns_name", &dns_name, wanted, is_name)?;
                CertificateMatch::Name(dns_name.to_ascii_lowercase())
            }
            (None, Some(sha256)) => {
                let field = "northbound.certificates.sha256";
                CertificateMatch::Digest(checked_sha256(field, &sha256, &name)?)
            }
            (dns_name, _) => {
                let found = if dns_name.is_some() { "both" } else { "neither" };
                return Err(ConfigError::Invalid {
                    field: "northbound.certificates",
                    found: format!("{found} for `{name}`"),
                    wanted: "either dns_name or sha256",
                });
            }
        };
        Ok(Self { shown, grants: AccessGrant { name, role, hosts, tenants } })
    }
}

/// The digest in a field of this owner.
fn checked_sha256(field: &'static str, digits: &str, name: &str) -> Result<[u8; 32], ConfigError> {
    parse_sha256(digits).ok_or_else(|| ConfigError::Invalid {
        field,
        found: format!("{} digits for `{name}`", digits.len()),
        wanted: "64 hexadecimal digits, as sha256sum prints them",
    })
}

fn parse_sha256(digits: &str) -> Option<[u8; 32]> {
    decode_hex(digits)?.try_into().ok()
}
