//! The listener of the northbound address: plain connections, or TLS.
//!
//! A client decides how long its handshake takes, so each handshake has a task and a deadline, and
//! their number is bounded. The decision: a client that does not use TLS where it is required
//! receives an error in HTTP, because a closed connection explains nothing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tracing::debug;

use crate::config::TlsFiles;

/// Concurrent handshakes; further clients wait to be accepted.
const HANDSHAKES: usize = 256;

/// Connections that are ready and wait to be served.
const READY: usize = 64;

/// The longest that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a record of TLS with a handshake begins (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// The response to a client that does not use TLS.
const NO_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
    connection: close\r\n\r\n\
    {\"findings\":[{\"severity\":\"error\",\"about\":\"access\",\"text\":\
    \"this controller is served over TLS: ask with https, and trust its authority (crux: --ca)\"\
    }]}";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    /// A file cannot be used.
    #[error("northbound.tls: {}: no {wanted} in PEM can be read", file.display())]
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

/// A connection.
type ClientStream = Either<TcpStream, TlsStream<TcpStream>>;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientPeer {
    pub(super) address: SocketAddr,
    /// SHA-256 of the certificate that was shown and found good.
    pub(super) certificate: Option<[u8; 32]>,
}

impl Connected<IncomingStream<'_, ConnectionListener>> for ClientPeer {
    fn connect_info(connection: IncomingStream<'_, ConnectionListener>) -> Self {
        let shown = match connection.io() {
            Either::Left(_) => None,
            Either::Right(secured) => secured.get_ref().1.peer_certificates(),
        };
        let own = shown.and_then(<[CertificateDer<'_>]>::first);
        Self {
            address: *connection.remote_addr(),
            certificate: own.map(|certificate| Sha256::digest(certificate).into()),
        }
    }
}

/// Where connections come in.
pub(super) enum ConnectionListener {
    /// As they are.
    Plain(TcpListener),
    /// Over TLS: where, and those whose handshake is done.
    Tls(SocketAddr, mpsc::Receiver<(ClientStream, SocketAddr)>),
}

impl ConnectionListener {
    /// Doors at `listener`, with TLS if there are files for it.
    pub(super) fn wrap_listener(
        listener: TcpListener,
        tls: Option<&TlsFiles>,
    ) -> std::io::Result<Self> {
        let Some(files) = tls else {
            return Ok(Self::Plain(listener));
        };
        let address = listener.local_addr()?;
        let config = server_config(files).map_err(std::io::Error::other)?;
        let (to, ready) = mpsc::channel(READY);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // It ends with the receiver.
        tokio::spawn(accept_connections(listener, acceptor, to));
        Ok(Self::Tls(address, ready))
    }
}

impl Listener for ConnectionListener {
    type Io = ClientStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ClientStream, SocketAddr) {
        match self {
            Self::Plain(listener) => {
                let (stream, from) = Listener::accept(listener).await;
                (Either::Left(stream), from)
            }
            Self::Tls(_, ready) => match ready.recv().await {
                Some(arrived) => arrived,
                // The task behind it ends only with this.
                None => std::future::pending().await,
            },
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Plain(listener) => listener.local_addr(),
            Self::Tls(address, _) => Ok(*address),
        }
    }
}

/// Accepts connections and passes those on that are ready, until the receiver is dropped.
async fn accept_connections(
    mut listener: TcpListener,
    acceptor: TlsAcceptor,
    to: mpsc::Sender<(ClientStream, SocketAddr)>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            () = to.closed() => return,
            Some(_) = handshakes.join_next() => {}
            (stream, from) = Listener::accept(&mut listener), if handshakes.len() < HANDSHAKES => {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                handshakes.spawn(async move {
                    match timeout(HANDSHAKE_TIMEOUT, accept_tls(stream, &acceptor)).await {
                        Ok(Ok(stream)) => drop(to.send((Either::Right(stream), from)).await),
                        Ok(Err(why)) => debug!(%from, "no handshake: {why}"),
                        Err(_) => debug!(%from, "no handshake in time"),
                    }
                });
            }
        }
    }
}

/// Makes the handshake, or explains in HTTP that TLS is required.
async fn accept_tls(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first == [HANDSHAKE] {
        return acceptor.accept(stream).await;
    }
    // Closing with unread input would send a reset, which can discard the response at the client.
    let read = stream.read(&mut [0; 4_096]).await?;
    stream.write_all(NO_TLS.as_bytes()).await?;
    stream.shutdown().await?;
    Err(std::io::Error::other(format!("{read} bytes without TLS")))
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
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
    let key = PrivateKeyDer::from_pem_file(&files.key)
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
