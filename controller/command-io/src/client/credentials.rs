//! What authenticates a command and the controller to each other: authorities, a certificate, a
//! token.
//!
//! The decision: all of them are files, because other users of the machine can read arguments and
//! environment variables; and TLS is used exactly where authorities are given.

use std::path::Path;
use std::sync::Arc;

use agent::report_stream::ControllerTarget;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::command_error::CommandError;
use crate::files;

/// What is shown to a controller, and what it must show.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ClientCredentials {
    /// File with the token that the controller wants (northbound.tokens of its configuration)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<String>,
    /// Speak TLS with a controller that these authorities know (PEM), and with no other
    #[arg(long, value_name = "FILE")]
    pub ca: Option<String>,
    /// Certificate to show (PEM), where the controller wants one (northbound.tls.client_roots)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    pub cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
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

    /// Reads the token, if a file is given.
    pub(super) fn read_token(&self) -> Result<Option<String>, CommandError> {
        let token = self.token_file.as_deref().map(files::read_text).transpose()?;
        Ok(token.map(|token| token.trim().to_owned()))
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
                let secret =
                    PrivateKeyDer::from_pem_file(Path::new(key)).map_err(|error| wrong(&error))?;
                builder
                    .with_client_auth_cert(load_certificates(cert)?, secret)
                    .map_err(|error| wrong(&error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }

    /// The endpoint for a stream of reports to the controller at `address`.
    pub fn report_endpoint(&self, address: &str) -> Result<ControllerTarget, CommandError> {
        let contact = ControllerTarget {
            token: self.read_token()?,
            ..ControllerTarget::from_address(address)
        };
        let Some(ca) = &self.ca else {
            return Ok(contact);
        };
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(files::read_text(ca)?));
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls.identity(Identity::from_pem(files::read_text(cert)?, files::read_text(key)?))
            }
            _ => tls,
        };
        Ok(ControllerTarget { tls: Some(tls), ..contact })
    }
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
