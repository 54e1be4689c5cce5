//! TLS towards switches: which roots their certificates have, and what the controller shows.
//!
//! The decision: the files are read with the configuration. One that is missing or cannot be read
//! is a mistake in the configuration and told as such, not a switch that is out of reach.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// TLS as files spell it. Without `ca`, connections are not secured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawTls {
    /// The roots of the switches' certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The controller's own certificate, for switches that ask for one; in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its private key; in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name in the switches' certificates, where it is not that of their addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// What secures connections to switches.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The roots of the switches' certificates, in PEM.
    pub roots: Vec<u8>,
    /// The controller's certificate and its key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the switches' certificates.
    pub domain: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl RawTls {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<Option<Tls>, ConfigError> {
        let read = |field, path: &PathBuf| {
            std::fs::read(path).map_err(|source| ConfigError::File {
                field,
                path: path.clone(),
                source,
            })
        };
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read("tls.cert", cert)?, read("tls.key", key)?)),
            (None, None) => None,
            (Some(cert), None) => return Err(alone("tls.cert", cert, "together with tls.key")),
            (None, Some(key)) => return Err(alone("tls.key", key, "together with tls.cert")),
        };
        match &self.ca {
            Some(ca) => Ok(Some(Tls {
                roots: read("tls.ca", ca)?,
                identity,
                domain: self.domain.clone(),
            })),
            None => match &self.cert {
                Some(cert) => Err(alone("tls.cert", cert, "together with tls.ca")),
                None => Ok(None),
            },
        }
    }
}

fn alone(field: &'static str, found: &std::path::Path, wanted: &'static str) -> ConfigError {
    ConfigError::Invalid {
        field,
        found: format!("{} alone", found.display()),
        wanted,
    }
}
