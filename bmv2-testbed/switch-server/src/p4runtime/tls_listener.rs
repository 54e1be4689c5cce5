//! Connections over TLS, with certificates that can be replaced while the switch runs.
//!
//! The decision: the handshake is made here and not by tonic, which takes certificates once. A
//! handshake uses the configuration of its moment; connections that are open keep theirs. Clients
//! that never finish one take nothing but their place among [`HANDSHAKES`], for a while.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::service_options::ServiceTls;

/// The configuration of the next handshake.
pub(crate) type CurrentTls = watch::Sender<Arc<ServerConfig>>;

/// Handshakes that are made at once; further connections wait to be accepted.
const HANDSHAKES: usize = 1_024;
/// The longest handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// The configuration of a server that is this switch.
///
/// # Errors
/// Something is not PEM, the key is not that of the certificate, or there are no roots.
pub(crate) fn tls_config(tls: &ServiceTls) -> Result<ServerConfig, Error> {
    let provider = Arc::new(default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.client_roots {
        None => versions.with_no_client_auth(),
        Some(roots) => {
            let mut trusted = RootCertStore::empty();
            trusted.add_parsable_certificates(parse_certificates(roots)?);
            let mut verifier =
                WebPkiClientVerifier::builder_with_provider(trusted.into(), provider);
            if let Some(lists) = &tls.revoked {
                verifier = verifier
                    .with_crls(parse_revocations(lists)?)
                    .only_check_end_entity_revocation();
            }
            let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
            versions.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(&tls.key)
        .map_err(|error| Error::General(format!("the private key: {error}")))?;
    let mut config = builder.with_single_cert(parse_certificates(&tls.certificate)?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::General(format!("a certificate: {error}")))
}

fn parse_revocations(pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let lists: Vec<_> = CertificateRevocationListDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::General(format!("a revocation list: {error}")))?;
    // Without a list nothing would be refused.
    if lists.is_empty() {
        return Err(Error::General("a revocation list: the file has no list".to_owned()));
    }
    Ok(lists)
}

/// The connections whose clients have finished the handshake, in the order in which they did.
pub(crate) fn accept_tls(
    connections: impl Stream<Item = io::Result<TcpStream>>,
    current: watch::Receiver<Arc<ServerConfig>>,
) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> {
    let handshakes = connections.map(move |connection| {
        let acceptor = TlsAcceptor::from(Arc::clone(&current.borrow()));
        async move { timeout(HANDSHAKE_DEADLINE, acceptor.accept(connection.ok()?)).await.ok() }
    });
    handshakes.buffer_unordered(HANDSHAKES).filter_map(|finished| async {
        match finished? {
            Ok(stream) => Some(Ok(stream)),
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        }
    })
}
