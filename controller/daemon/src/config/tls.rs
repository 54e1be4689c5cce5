//! TLS towards switches, etcd and a collector of traces: the roots of their certificates, and the
//! certificate of the controller.
//!
//! The decision: the files are read with the configuration. A missing or unreadable file is an
//! error of the configuration, and not a switch that cannot be reached.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Error, Identity};

use super::{ConfigError, check_field};
use api::private_file::read_private;

/// TLS of a client. Without `ca`, connections are not secured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTls {
    /// Roots of the servers' certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The controller's certificate for servers that require one, in PEM. Requires `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Private key of `cert`, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name in the servers' certificates, where it differs from their addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// Roots and identity of a TLS client.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The roots of the servers' certificates, in PEM.
    pub roots: Vec<u8>,
    /// The controller's certificate and its key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the servers' certificates.
    pub domain: Option<String>,
    /// Where they were read from.
    files: RawTls,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl TlsConfig {
    /// Reads the files again; where they cannot be used, what was read before stays.
    fn reload_files(&self) -> Self {
        let read = self.files.load_files(&SWITCHES);
        read.ok().flatten().unwrap_or_else(|| self.clone())
    }

    /// The URI of a server, `host:port`: `https` with TLS, else `http`.
    pub(crate) fn server_uri(tls: Option<&Self>, server: &str) -> String {
        let scheme = tls.map_or("http", |_| "https");
        format!("{scheme}://{server}")
    }

    /// The endpoint with TLS, if it is configured, with certificates as they are now: they are
    /// renewed while the controller runs.
    pub(crate) fn secure_endpoint(tls: Option<&Self>, server: Endpoint) -> Result<Endpoint, Error> {
        match tls {
            Some(tls) => server.tls_config(tls.reload_files().client_config()),
            None => Ok(server),
        }
    }

    fn client_config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.roots));
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain);
        }
        config
    }
}

/// Names of the fields that have the files, for errors.
pub(super) struct TlsFields {
    ca: &'static str,
    cert: &'static str,
    key: &'static str,
}

/// The fields of TLS towards switches.
pub(super) const SWITCHES: TlsFields = TlsFields { ca: "tls.ca", cert: "tls.cert", key: "tls.key" };

/// The fields of TLS towards etcd.
pub(super) const ETCD: TlsFields =
    TlsFields { ca: "etcd.tls.ca", cert: "etcd.tls.cert", key: "etcd.tls.key" };

/// The fields of TLS towards the collector of traces.
pub(super) const TRACES: TlsFields =
    TlsFields { ca: "traces.tls.ca", cert: "traces.tls.cert", key: "traces.tls.key" };

impl RawTls {
    /// Reads the files; none without roots.
    pub(super) fn load_files(&self, fields: &TlsFields) -> Result<Option<TlsConfig>, ConfigError> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some((read_file(fields.cert, cert)?, read_secret(fields.key, key)?))
            }
            (None, None) => None,
            (Some(_), None) => return Err(missing_partner(fields.cert, fields.key)),
            (None, Some(_)) => return Err(missing_partner(fields.key, fields.cert)),
        };
        match (&self.ca, &self.cert) {
            (Some(ca), _) => Ok(Some(TlsConfig {
                roots: read_file(fields.ca, ca)?,
                identity,
                domain: self.domain.clone(),
                files: self.clone(),
            })),
            (None, Some(_)) => Err(missing_partner(fields.cert, fields.ca)),
            (None, None) => Ok(None),
        }
    }
}

/// The content of a file that a field names.
pub(super) fn read_file(field: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The text of a file that a field names.
pub(super) fn read_text(field: &'static str, path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path);
    text.map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The content of a secret file that a field names; others must not be able to read it.
pub(super) fn read_secret(field: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    read_private(path).map_err(|source| ConfigError::File { field, path: path.to_owned(), source })
}

/// The first line of a secret file that a field names, not blank; `wanted` says what it has to be.
pub(super) fn read_secret_line(
    field: &'static str,
    path: &Path,
    wanted: &'static str,
) -> Result<String, ConfigError> {
    let text = String::from_utf8_lossy(&read_secret(field, path)?).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    check_field(field, &path.display(), wanted, !line.trim().is_empty())?;
    Ok(line)
}

/// The error that a field requires another one.
pub(super) fn missing_partner(field: &'static str, other: &'static str) -> ConfigError {
    ConfigError::MissingPartner { field, other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_again_for_every_connection_and_missing_ones_are_not_missed() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "first").unwrap();
        let raw = RawTls { ca: Some(ca.clone()), ..RawTls::default() };
        let tls = raw.load_files(&ETCD).unwrap().unwrap();
        std::fs::write(&ca, "second").unwrap();
        assert_eq!(tls.reload_files().roots, b"second");
        std::fs::remove_file(&ca).unwrap();
        assert_eq!(tls.reload_files().roots, b"first", "what was read before stays");
    }
}
