//! The listener of the northbound address: plain connections, or TLS.
//!
//! Every connection has a task, which serves HTTP on it and closes it when it must: when it gives
//! way to another one ([`ConnectionTable`]), sends no request in time, or does not read its
//! responses. The decision: a client that does not use TLS where it is required receives an error
//! in HTTP, because a closed connection explains nothing.

mod tls_files;
mod watched_stream;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::resource::{Resource, getrlimit};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use tracing::{debug, info, warn};
use webpki::EndEntityCert;

use self::tls_files::TlsServer;
use self::watched_stream::WatchedStream;
use super::connection_table::{ConnectionAdmission, ConnectionId, ConnectionTable};
use super::limit_counters::{LimitCounters, LimitReached};
use super::paced_body::ResponseStall;
use crate::config::{CertificateMatch, NorthboundConfig, NorthboundLimits, RetryBackoff};

/// How a record of TLS with a handshake begins (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// Time between two looks at what a connection does.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Waits after failed accepts, for example without descriptors.
const ACCEPT_BACKOFF: RetryBackoff =
    RetryBackoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };

/// Streams of one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 256;

/// Bytes of the headers of one HTTP/2 request.
const HEADER_BYTES: u32 = 16 << 10;

/// Bytes that an HTTP/1 connection buffers, of headers and of responses.
const BUFFER_BYTES: usize = 64 << 10;

/// The response to a client that does not use TLS.
const NO_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
    connection: close\r\n\r\n\
    {\"findings\":[{\"severity\":\"error\",\"about\":\"access\",\"text\":\
    \"this controller is served over TLS: ask with https, and trust its authority (crux: --ca)\"\
    }]}";

/// A connection.
type ClientStream = Either<TcpStream, TlsStream<TcpStream>>;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct ClientPeer {
    pub(super) address: SocketAddr,
    /// The certificate that was shown and found good.
    pub(super) certificate: Option<Arc<ShownCertificate>>,
    /// Whether the connection is secured by TLS.
    pub(super) is_secured: bool,
}

impl ClientPeer {
    fn of_stream(stream: &ClientStream, address: SocketAddr) -> Self {
        let own = client_chain(stream).into_iter().next();
        Self {
            address,
            certificate: own.map(|certificate| Arc::new(ShownCertificate::new(&certificate))),
            is_secured: matches!(stream, Either::Right(_)),
        }
    }
}

/// A client's certificate, as the configuration may name it.
#[derive(Clone, Debug)]
pub(super) struct ShownCertificate {
    sha256: [u8; 32],
    /// The DNS names that it is for, in lower case.
    dns_names: Vec<String>,
}

impl ShownCertificate {
    fn new(certificate: &CertificateDer<'_>) -> Self {
        // The handshake has parsed and verified it.
        let parsed = EndEntityCert::try_from(certificate);
        let names = |parsed: EndEntityCert<'_>| {
            parsed.valid_dns_names().map(str::to_ascii_lowercase).collect()
        };
        Self {
            sha256: Sha256::digest(certificate).into(),
            dns_names: parsed.map(names).unwrap_or_default(),
        }
    }

    /// Whether it is the one, or is for the name. Names are compared letter by letter: a wildcard
    /// in a certificate stands for itself.
    pub(super) fn is_match(&self, listed: &CertificateMatch) -> bool {
        match listed {
            CertificateMatch::Digest(sha256) => self.sha256 == *sha256,
            CertificateMatch::Name(name) => self.dns_names.contains(name),
        }
    }
}

/// Open connections. Behind a lock, because each has a task of its own; it is held for one change.
#[derive(Clone, Debug)]
struct OpenConnections(Arc<Mutex<(ConnectionTable, BTreeMap<ConnectionId, CancellationToken>)>>);

/// One of them: what its requests say about themselves.
#[derive(Clone, Debug)]
pub(super) struct ConnectionHandle {
    id: ConnectionId,
    open: OpenConnections,
    pub(super) stall: ResponseStall,
    responses: Arc<AtomicU64>,
}

/// A request in progress, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestInProgress(ConnectionHandle);

/// The end of a connection, when it is dropped.
struct ConnectionEnd(ConnectionHandle);

impl OpenConnections {
    fn lock(&self) -> MutexGuard<'_, (ConnectionTable, BTreeMap<ConnectionId, CancellationToken>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection of an address, perhaps in place of another.
    fn admit_connection(&self, from: IpAddr) -> Option<(ConnectionEnd, CancellationToken)> {
        let mut open = self.lock();
        let (table, stops) = &mut *open;
        match table.open_connection(from, Instant::now()) {
            ConnectionAdmission::Refused => None,
            ConnectionAdmission::Admitted { id, evicted } => {
                if let Some(stop) = evicted.and_then(|evicted| stops.remove(&evicted)) {
                    stop.cancel();
                }
                let stop = CancellationToken::new();
                stops.insert(id, stop.clone());
                let handle = ConnectionHandle {
                    id,
                    open: self.clone(),
                    stall: ResponseStall::default(),
                    responses: Arc::default(),
                };
                Some((ConnectionEnd(handle), stop))
            }
        }
    }
}

impl ConnectionHandle {
    /// The connection keeps its place for as long as the result is kept.
    pub(super) fn begin_request(&self) -> RequestInProgress {
        self.open.lock().0.begin_request(self.id);
        RequestInProgress(self.clone())
    }

    /// A number for its next response.
    pub(super) fn next_response(&self) -> u64 {
        self.responses.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the connection has waited too long, for a request or for its client to read.
    fn has_expired(&self, has_served: bool, limits: &NorthboundLimits) -> bool {
        let now = Instant::now();
        let longest = if has_served { limits.idle } else { limits.first_request };
        let waiting = self.open.lock().0.waiting_since(self.id);
        let stalled = self.stall.stalled_since();
        waiting.is_some_and(|since| now >= since + longest)
            || stalled.is_some_and(|since| now >= since + limits.stalled)
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.open.lock().0.end_request(self.0.id, Instant::now());
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        open.0.close_connection(self.0.id);
        open.1.remove(&self.0.id);
    }
}

/// Serves connections.
pub(super) struct ConnectionListener {
    listener: TcpListener,
    tls: Option<Arc<TlsServer>>,
    open: OpenConnections,
    limits: NorthboundLimits,
    limited: LimitCounters,
    router: Router,
}

impl ConnectionListener {
    /// Serves `router` to the clients of `listener`, with TLS if there are files for it.
    pub(super) fn new(
        listener: TcpListener,
        config: &NorthboundConfig,
        router: Router,
        limited: LimitCounters,
    ) -> std::io::Result<Self> {
        let files = config.tls.as_ref();
        let tls = files.map(TlsServer::load).transpose().map_err(std::io::Error::other)?;
        let limits = config.limits;
        let most = usable_connections(limits.connections.get());
        let table = ConnectionTable::new(most, limits.connections_per_address.get());
        Ok(Self {
            listener,
            tls: tls.map(Arc::new),
            open: OpenConnections(Arc::new(Mutex::new((table, BTreeMap::new())))),
            limits,
            limited,
            router,
        })
    }

    /// Accepts connections until `stop`, which ends all of them as well.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            match accepted {
                Ok((stream, from)) => {
                    failures = 0;
                    self.spawn_connection(stream, from, &stop);
                }
                Err(error) => {
                    warn!("cannot accept a northbound connection: {error}");
                    failures += 1;
                    sleep(ACCEPT_BACKOFF.wait_after(failures)).await;
                }
            }
        }
    }

    fn spawn_connection(&self, stream: TcpStream, from: SocketAddr, stop: &CancellationToken) {
        let Some((end, evicted)) = self.open.admit_connection(from.ip()) else {
            self.limited.count(LimitReached::ConnectionRefused);
            debug!(%from, "refused: all connections have requests in progress");
            return;
        };
        let (tls, limits, router) = (self.tls.clone(), self.limits, self.router.clone());
        let (stop, limited) = (stop.clone(), self.limited.clone());
        tokio::spawn(async move {
            let connection = async {
                let secured = secure_stream(stream, tls.as_deref(), limits.first_request);
                let Some(stream) = secured.await? else {
                    return Ok(());
                };
                let refused = until_refused(tls.as_deref(), client_chain(&stream));
                tokio::select! {
                    served = serve_connection(stream, from, router, &end.0, limits) => served,
                    () = refused => {
                        info!(%from, "closed: the certificate of the client is refused by now");
                        Ok(())
                    }
                }
            };
            tokio::select! {
                ended = connection => drop(ended.inspect_err(|ConnectionExpired| {
                    debug!(%from, "closed: no request, or nobody reads a response");
                    limited.count(LimitReached::ConnectionExpired);
                })),
                () = evicted.cancelled() => limited.count(LimitReached::ConnectionEvicted),
                () = stop.cancelled() => {}
            }
            drop(end);
        });
    }
}

/// Half of the descriptors of the process at most, so that switches can always be connected.
fn usable_connections(wanted: usize) -> usize {
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return wanted;
    };
    let half = usize::try_from(soft / 2).unwrap_or(usize::MAX).max(1);
    if half < wanted {
        warn!(
            "northbound.limits.connections is {wanted}, but this process may open {soft} files: \
             {half} connections are served at most (raise LimitNOFILE)"
        );
    }
    wanted.min(half)
}

/// A connection that sent no request, or did not read a response, in time.
struct ConnectionExpired;

/// Makes the TLS handshake where TLS is configured; no stream if it fails.
async fn secure_stream(
    stream: TcpStream,
    tls: Option<&TlsServer>,
    deadline: Duration,
) -> Result<Option<ClientStream>, ConnectionExpired> {
    let Some(tls) = tls else {
        return Ok(Some(Either::Left(stream)));
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.current_tls(Instant::now()).config));
    let made =
        timeout(deadline, accept_tls(stream, &acceptor)).await.map_err(|_| ConnectionExpired)?;
    let made = made.inspect_err(|why| debug!("no handshake: {why}"));
    Ok(made.ok().map(Either::Right))
}

/// What the client has shown, its own certificate first.
fn client_chain(stream: &ClientStream) -> Vec<CertificateDer<'static>> {
    let shown = match stream {
        Either::Left(_) => None,
        Either::Right(secured) => secured.get_ref().1.peer_certificates(),
    };
    shown
        .map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect())
        .unwrap_or_default()
}

/// Waits until a client's certificates are refused, if they ever are.
async fn until_refused(tls: Option<&TlsServer>, chain: Vec<CertificateDer<'static>>) {
    match tls {
        Some(tls) => tls.until_refused(chain).await,
        None => std::future::pending().await,
    }
}

/// Serves one connection until it ends or has waited too long.
async fn serve_connection(
    stream: ClientStream,
    from: SocketAddr,
    router: Router,
    handle: &ConnectionHandle,
    limits: NorthboundLimits,
) -> Result<(), ConnectionExpired> {
    let peer = ClientPeer::of_stream(&stream, from);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        request.extensions_mut().insert(handle.clone());
        router.clone().call(request)
    });
    let server = http_server(&limits);
    let stream = WatchedStream::new(stream, handle.stall.clone(), handle.next_response());
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let opened = handle.open.lock().0.waiting_since(handle.id);
    let mut has_served = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(why) = ended {
                    debug!(%from, "the connection ended: {why}");
                }
                return Ok(());
            }
            _ = checks.tick() => {
                has_served |= handle.open.lock().0.waiting_since(handle.id) != opened;
                if handle.has_expired(has_served, &limits) {
                    return Err(ConnectionExpired);
                }
            }
        }
    }
}

fn http_server(limits: &NorthboundLimits) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.first_request)
        .max_buf_size(BUFFER_BYTES);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle / 4)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(HEADER_BYTES);
    server
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
