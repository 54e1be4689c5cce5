//! The files of the TLS server: certificate, key, the roots of client certificates, and those that
//! are revoked.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::time::{Instant, sleep};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use topology::error_chain;
use tracing::{info, warn};

use crate::certificates::read_certificates;
use crate::config::{RELOAD_INTERVAL, TlsFiles};
use api::private_file::read_private;

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
    #[error("northbound.tls: client_roots or revoked cannot be used")]
    Roots(#[from] VerifierBuilderError),
}

/// The TLS server that the files describe, which are read again when one has changed. Files that
/// cannot be used, because only one of two is new, leave the earlier server in use.
#[derive(Debug)]
pub(super) struct TlsServer {
    files: TlsFiles,
    /// Behind a lock, because handshakes run on any task; it is held for a look at four files.
    state: Mutex<TlsState>,
}

#[derive(Debug)]
struct TlsState {
    loaded: Arc<LoadedTls>,
    changed: [Option<SystemTime>; 4],
    checked: Instant,
}

/// What was read at one time.
#[derive(Debug)]
pub(super) struct LoadedTls {
    /// Of its own, so that no session of TLS outlives a certificate that was revoked since.
    pub(super) config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsServer {
    pub(super) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let state = TlsState {
            changed: file_times(files),
            loaded: Arc::new(LoadedTls::load(files)?),
            checked: Instant::now(),
        };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    /// The server of the handshakes at `now`.
    pub(super) fn current_tls(&self, now: Instant) -> Arc<LoadedTls> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.checked) < RELOAD_INTERVAL {
            return Arc::clone(&state.loaded);
        }
        state.checked = now;
        let changed = file_times(&self.files);
        if changed != state.changed {
            match LoadedTls::load(&self.files) {
                Ok(loaded) => {
                    info!("the certificates of the northbound address were read again");
                    (state.loaded, state.changed) = (Arc::new(loaded), changed);
                }
                Err(error) => {
                    warn!(error = error_chain(&error), "the earlier certificates stay in use");
                }
            }
        }
        Arc::clone(&state.loaded)
    }

    /// Waits until what a client showed just now, its own certificate first, is not accepted any
    /// longer, for another reason than that it has ended.
    pub(super) async fn until_refused(&self, chain: Vec<CertificateDer<'static>>) {
        let at = UnixTime::now();
        let Some((own, others)) = chain.split_first() else {
            return pending().await;
        };
        let mut known = self.current_tls(Instant::now());
        loop {
            sleep(RELOAD_INTERVAL).await;
            let now = self.current_tls(Instant::now());
            if !Arc::ptr_eq(&known, &now) && !now.accepts_client(own, others, at) {
                return;
            }
            known = now;
        }
    }
}

impl LoadedTls {
    fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Identity)?;
        let clients = files.client_roots.as_deref().map(|roots| client_verifier(roots, files));
        let clients = clients.transpose()?;
        let builder = match &clients {
            None => versions.with_no_client_auth(),
            Some(clients) => versions.with_client_cert_verifier(Arc::clone(clients)),
        };
        let identity = SingleCertAndKey::from(load_identity(files)?);
        let mut config = builder.with_cert_resolver(Arc::new(identity));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), clients })
    }

    fn accepts_client(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        at: UnixTime,
    ) -> bool {
        let verify = |clients: &Arc<dyn ClientCertVerifier>| {
            clients.verify_client_cert(own, others, at).is_ok()
        };
        self.clients.as_ref().is_none_or(verify)
    }
}

/// What decides whether a client's certificate is accepted.
fn client_verifier(
    roots: &Path,
    files: &TlsFiles,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(load_certificates(roots)?);
    let provider = Arc::new(default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(trusted.into(), provider);
    match &files.revoked {
        Some(file) => {
            let lists =
                CertificateRevocationListDer::pem_file_iter(file).and_then(Iterator::collect);
            let lists: Vec<_> =
                lists.map_err(|source| file_error(file, "revocation list", source))?;
            if lists.is_empty() {
                // Without a list nothing would be refused.
                return Err(file_error(file, "revocation list", pem::Error::NoItemsFound));
            }
            Ok(builder.with_crls(lists).only_check_end_entity_revocation().build()?)
        }
        None => Ok(builder.build()?),
    }
}

/// When the files were last changed.
fn file_times(files: &TlsFiles) -> [Option<SystemTime>; 4] {
    let TlsFiles { certificate, key, client_roots, revoked } = files;
    let files = [Some(certificate), Some(key), client_roots.as_ref(), revoked.as_ref()];
    files.map(|file| fs::metadata(file?).and_then(|metadata| metadata.modified()).ok())
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
        let files = TlsFiles { certificate, key, client_roots: None, revoked: None };
        install(&files, "switch");
        let server = TlsServer::load(&files).unwrap();
        let now = Instant::now();
        let first = server.current_tls(now);
        install(&files, "controller");
        let is_used = |at, tls| Arc::ptr_eq(&server.current_tls(at), tls);
        assert!(is_used(now, &first), "the files were read a moment ago");
        let later = now + RELOAD_INTERVAL;
        assert!(!is_used(later, &first));
        let second = server.current_tls(later);
        drop(fs::remove_file(&files.key));
        assert!(is_used(later + RELOAD_INTERVAL, &second));
    }
}
