//! The files of the TLS server: certificate, key, and the roots of client certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{
    ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tracing::{info, warn};

use crate::certificates::read_certificates;
use crate::config::TlsFiles;
use api::private_file::read_private;

/// Between two looks at the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

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
    let mut config = builder.with_cert_resolver(Arc::new(ReloadedIdentity::load(files)?));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificate and its key, read again when a file has changed. What cannot be used, because
/// only one of both is new, leaves the earlier ones in use.
#[derive(Debug)]
struct ReloadedIdentity {
    files: TlsFiles,
    /// Behind a lock, because handshakes run on any task; it is held for a look at two files.
    state: Mutex<LoadedIdentity>,
}

#[derive(Debug)]
struct LoadedIdentity {
    identity: Arc<CertifiedKey>,
    changed: [Option<SystemTime>; 2],
    checked: Instant,
}

impl ReloadedIdentity {
    fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let state = LoadedIdentity {
            changed: file_times(files),
            identity: Arc::new(load_identity(files)?),
            checked: Instant::now(),
        };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    fn current_identity(&self, now: Instant) -> Arc<CertifiedKey> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) < RELOAD_INTERVAL {
            return Arc::clone(&state.identity);
        }
        state.checked = now;
        let changed = file_times(&self.files);
        if changed != state.changed {
            match load_identity(&self.files) {
                Ok(identity) => {
                    info!("the certificate of the northbound address was read again");
                    (state.identity, state.changed) = (Arc::new(identity), changed);
                }
                Err(error) => warn!(%error, "the earlier certificate stays in use"),
            }
        }
        Arc::clone(&state.identity)
    }
}

impl ResolvesServerCert for ReloadedIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current_identity(Instant::now()))
    }
}

/// When the certificate and the key were last changed.
fn file_times(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key]
        .map(|file| fs::metadata(file).and_then(|metadata| metadata.modified()).ok())
}

/// The certificate and the key, which belong to each other.
fn load_identity(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let chain = load_certificates(&files.certificate)?;
    let key = read_private(&files.key).map_err(pem::Error::Io);
    let key = key
        .and_then(|key| PrivateKeyDer::from_pem_slice(&key))
        .map_err(|source| file_error(&files.key, "private key", source))?;
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(TlsError::Identity)
}

/// The certificates of a file, at least one.
fn load_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    read_certificates(file).map_err(|source| file_error(file, "certificate", source))
}

fn file_error(file: &Path, wanted: &'static str, source: pem::Error) -> TlsError {
    TlsError::File { file: file.to_owned(), wanted, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::private_file::write_private_once;

    /// Copies a certificate of the switch's tests and its key to where the files are read.
    fn install(files: &TlsFiles, name: &str) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tests = tests.join("../../bmv2-testbed/switch-server/tests/p4runtime/tls");
        for (from, to) in [("pem", &files.certificate), ("key.pem", &files.key)] {
            drop(fs::remove_file(to));
            let content = fs::read(tests.join(format!("{name}.{from}"))).unwrap();
            write_private_once(to, &content).unwrap();
        }
    }

    #[test]
    fn a_renewed_certificate_is_presented_and_half_of_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["a.pem", "a.key.pem"].map(|name| folder.path().join(name));
        let files = TlsFiles { certificate, key, client_roots: None };
        install(&files, "switch");
        let identity = ReloadedIdentity::load(&files).unwrap();
        let now = Instant::now();
        let first = identity.current_identity(now);
        install(&files, "controller");
        let presented = |at| identity.current_identity(at).cert.clone();
        assert_eq!(presented(now), first.cert, "it was looked at a moment ago");
        let later = now + RELOAD_INTERVAL;
        assert_ne!(presented(later), first.cert);
        let second = presented(later);
        drop(fs::remove_file(&files.key));
        assert_eq!(presented(later + RELOAD_INTERVAL), second);
    }
}
