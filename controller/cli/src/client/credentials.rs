//! How a command knows the controller, and the controller it: authorities, a certificate, a token.
//!
//! The decision: everything is a file, because arguments and variables of the environment can be
//! read by others on the same machine; and who gives authorities speaks TLS or not at all.

use std::path::Path;
use std::sync::Arc;

use agent::uplink::Contact;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::failure::Failure;
use crate::files;

/// What is shown to a controller, and what it must show.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// File with the token that the controller wants (northbound.tokens of its configuration)
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<String>,
    /// Speak TLS with a controller that these authorities know (PEM), and with no other
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<String>,
    /// Certificate to show (PEM), where the controller wants one (northbound.tls.client_roots)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    pub(crate) cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<String>,
}

impl Credentials {
    /// These, or where there are none, those.
    pub(crate) fn or(self, those: Self) -> Self {
        Self {
            token_file: self.token_file.or(those.token_file),
            ca: self.ca.or(those.ca),
            cert: self.cert.or(those.cert),
            key: self.key.or(those.key),
        }
    }

    /// The token, if there is one.
    pub(super) fn token(&self) -> Result<Option<String>, Failure> {
        let token = self.token_file.as_deref().map(files::text).transpose()?;
        Ok(token.map(|token| token.trim().to_owned()))
    }

    /// What connections are made with, if TLS is wanted.
    pub(super) fn connector(&self) -> Result<Option<TlsConnector>, Failure> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            roots.add(root).map_err(|error| Failure::input(ca, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Failure::work(&error))?;
        let builder = builder.with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let wrong = |error: &dyn std::fmt::Display| Failure::input(key, error);
                let secret = PrivateKeyDer::from_pem_file(Path::new(key));
                let secret = secret.map_err(|error| wrong(&error))?;
                let config = builder.with_client_auth_cert(certificates(cert)?, secret);
                config.map_err(|error| wrong(&error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }

    /// The same for a stream of reports to the controller at `address`.
    pub(crate) fn contact(&self, address: &str) -> Result<Contact, Failure> {
        let contact = Contact {
            token: self.token()?,
            ..Contact::at(address)
        };
        let Some(ca) = &self.ca else {
            return Ok(contact);
        };
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(files::text(ca)?));
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls.identity(Identity::from_pem(files::text(cert)?, files::text(key)?))
            }
            _ => tls,
        };
        Ok(Contact {
            tls: Some(tls),
            ..contact
        })
    }
}

/// The certificates of a file, at least one.
fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| Failure::input(file, error))?;
    match read.is_empty() {
        true => Err(Failure::input(file, "no certificate in PEM is there")),
        false => Ok(read),
    }
}
