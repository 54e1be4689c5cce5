//! The files of the TLS server: certificate, key, and the roots of client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::config::TlsFiles;
use crate::private_file::read_private;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(in crate::northbound) enum TlsError {
    /// A file cannot be used.
    #[error("northbound.tls: {}: no {wanted} in PEM can be read ({source})", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What should be in it.
        wanted: &'static str,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The certificate and the key are not of each other, or no use.
    #[error("northbound.tls: certificate and key cannot be used")]
    Identity(#[source] rustls::Error),
    /// The certificates that clients' are to be signed by are no use.
    #[error("northbound.tls: client_roots cannot be used")]
    Roots(#[from] VerifierBuilderError),
}

/// The TLS server that the files describe.
pub(super) fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Identity)?;
    let builder = match &files.client_roots {
        None => versions.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(load_certificates(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            versions.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = load_certificates(&files.certificate)?;
    let key = read_private(&files.key).map_err(pem::Error::Io);
    let key = key
        .and_then(|key| PrivateKeyDer::from_pem_slice(&key))
        .map_err(|source| file_error(&files.key, "private key", source))?;
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificates of a file, at least one.
fn load_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => {
            Err(file_error(file, "certificate", pem::Error::NoItemsFound))
        }
        read => read.map_err(|source| file_error(file, "certificate", source)),
    }
}

fn file_error(file: &Path, wanted: &'static str, source: pem::Error) -> TlsError {
    TlsError::File { file: file.to_owned(), wanted, source }
}
