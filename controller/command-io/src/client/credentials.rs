//! What authenticates a command and the controller to each other: authorities, a certificate, a
//! token.
//!
//! The decision: all of them are files, because other users of the machine can read arguments and
//! environment variables; and TLS is used exactly where authorities are given.

use std::net::IpAddr;
use std::sync::Arc;

use api::local_token;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::command_error::CommandError;
use crate::files;

/// What is shown to a controller, and what it must show.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ClientCredentials {
    /// File with the token that the controller wants (northbound.tokens of its configuration);
    /// without one, the token of this machine is sent to a controller on it
    #[arg(long, value_name = "FILE", env = "CRUX_TOKEN_FILE")]
    pub token_file: Option<String>,
    /// Speak TLS with a controller that these authorities know (PEM), and with no other
    #[arg(long, value_name = "FILE", env = "CRUX_CA")]
    pub ca: Option<String>,
    /// Certificate to show (PEM), where the controller wants one (northbound.tls.client_roots)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca", env = "CRUX_CERT")]
    pub cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "CRUX_KEY")]
    pub key: Option<String>,
}

impl ClientCredentials {
    /// These credentials, completed by `those`.
    pub fn with_fallback(self, those: Self) -> Self {
        Self {
            token_file: self.token_file.or(those.token_file),
            ca: self.ca.or(those.ca),
            cert: self.cert.or(those.cert),
            key: self.key.or(those.key),
        }
    }

    /// Reads the token from the file that is given; without one, that of this machine for a
    /// controller on it.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub fn read_token(&self, controller: &str) -> Result<Option<String>, CommandError> {
        match &self.token_file {
            Some(file) => Ok(Some(files::read_secret(file)?.trim().to_owned())),
            None if is_on_this_machine(controller) => Ok(local_token::find_local_token()),
            None => Ok(None),
        }
    }

    /// The TLS connector, if authorities are given.
    pub(super) fn tls_connector(&self) -> Result<Option<TlsConnector>, CommandError> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for root in load_certificates(ca)? {
            roots.add(root).map_err(|error| CommandError::input(ca, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(CommandError::failed)?
            .with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let wrong = |error: &dyn std::fmt::Display| CommandError::input(key, error);
                let text = files::read_secret(key)?;
                let secret = PrivateKeyDer::from_pem_slice(text.as_bytes())
                    .map_err(|error| wrong(&error))?;
                builder
                    .with_client_auth_cert(load_certificates(cert)?, secret)
                    .map_err(|error| wrong(&error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

/// Whether an address, with its port, is of this machine alone: a token that is not for others must
/// not be sent elsewhere.
fn is_on_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The certificates of a file, at least one.
fn load_certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, CommandError> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| CommandError::input(file, error))?;
    match read.is_empty() {
        true => Err(CommandError::input(file, "no PEM certificate in the file")),
        false => Ok(read),
    }
}
