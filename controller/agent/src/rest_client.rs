//! A small HTTP client of what schedulers serve: Kubernetes' API server and slurmrestd.
//!
//! One connection for each request, over TCP, TLS or a Unix socket. The decision: a request has a
//! deadline until its headers and one for each piece of its body, so a server that goes silent is
//! noticed; a body is read whole within bounds, or line by line for as long as it comes.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Limit for a connection and the headers of its response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a body that is read whole: 500 pods of 100 KiB.
const MAX_BODY: usize = 64 << 20;
/// Bytes of one line; an object in etcd has 1.5 MiB.
const MAX_LINE: usize = 4 << 20;
/// Characters of a refused request's body that are shown.
const SHOWN_BODY: usize = 200;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// The address is invalid.
    #[error("invalid address `{0}`: expected http://HOST:PORT, https://HOST:PORT or unix:PATH")]
    Address(String),
    /// An authority, a certificate or a key cannot be used.
    #[error("invalid TLS settings: {0}")]
    Tls(String),
    /// Nothing accepts connections, or the TLS handshake failed.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke or did not speak HTTP.
    #[error("the connection to {address} failed: {source}")]
    Connection {
        /// Where.
        address: String,
        /// Why.
        source: hyper::Error,
    },
    /// Nothing came in time.
    #[error("{0} does not respond")]
    Timeout(String),
    /// The request was refused.
    #[error("{path}: status {status}: {text}")]
    Status {
        /// What was requested.
        path: String,
        /// How it was refused.
        status: StatusCode,
        /// The beginning of the response.
        text: String,
    },
    /// A path, a header or a body cannot be used.
    #[error("{path}: {problem}")]
    Content {
        /// What was requested.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

impl RestError {
    /// The status of a refused request.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Authorities and a client certificate, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsIdentity {
    /// Certificates of authorities that may vouch for the server.
    pub authorities: String,
    /// Certificate and private key of the client.
    pub client: Option<(String, String)>,
}

/// How a server is reached.
#[derive(Clone)]
enum RestTarget {
    Tcp(String),
    Tls(String, ServerName<'static>, TlsConnector),
    Unix(PathBuf),
}

/// A client of one server; see the module.
#[derive(Clone)]
pub struct RestClient {
    address: String,
    target: RestTarget,
}

impl std::fmt::Debug for RestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RestClient").field(&self.address).finish()
    }
}

impl RestClient {
    /// A client of the server at `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:PATH`; `tls`
    /// is for `https`.
    ///
    /// # Errors
    /// The address has another form, or the TLS settings are invalid.
    pub fn new(address: &str, tls: &TlsIdentity) -> Result<Self, RestError> {
        let invalid = || RestError::Address(address.to_owned());
        let trimmed = address.trim_end_matches('/');
        let target = if let Some(path) = trimmed.strip_prefix("unix:") {
            RestTarget::Unix(PathBuf::from(path))
        } else if let Some(authority) = trimmed.strip_prefix("http://") {
            RestTarget::Tcp(with_port(authority, 80).ok_or_else(invalid)?)
        } else {
            let authority = trimmed.strip_prefix("https://").ok_or_else(invalid)?;
            let authority = with_port(authority, 443).ok_or_else(invalid)?;
            let host = authority.rsplit_once(':').map_or("", |(host, _)| host);
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
            RestTarget::Tls(authority, name.map_err(|_| invalid())?, tls_connector(tls)?)
        };
        Ok(Self { address: trimmed.to_owned(), target })
    }

    /// The body of a response with status 200.
    ///
    /// # Errors
    /// It does not arrive in time, or it is longer than 64 MiB.
    pub async fn get_body(
        &self,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Bytes, RestError> {
        let body = self.request_body(path, headers).await?;
        timeout(RESPONSE_TIMEOUT, read_whole(path, body))
            .await
            .map_err(|_| RestError::Timeout(self.address.clone()))?
    }

    /// The body of a response with status 200, which stays open, by lines.
    ///
    /// # Errors
    /// There is no response in time.
    pub async fn get_lines(
        &self,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<LineStream, RestError> {
        let body = self.request_body(path, headers).await?;
        let lines = LineDecoder::default();
        Ok(LineStream { address: self.address.clone(), path: path.to_owned(), body, lines })
    }

    async fn request_body(
        &self,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Incoming, RestError> {
        let exchange = async {
            match &self.target {
                RestTarget::Unix(socket) => {
                    let stream = UnixStream::connect(socket).await;
                    self.exchange(stream.map_err(self.unconnected())?, path, headers).await
                }
                RestTarget::Tcp(authority) => {
                    let stream = TcpStream::connect(authority).await;
                    self.exchange(stream.map_err(self.unconnected())?, path, headers).await
                }
                RestTarget::Tls(authority, name, connector) => {
                    let stream = TcpStream::connect(authority).await;
                    let stream = stream.map_err(self.unconnected())?;
                    let stream = connector.connect(name.clone(), stream).await;
                    self.exchange(stream.map_err(self.unconnected())?, path, headers).await
                }
            }
        };
        let limited = timeout(RESPONSE_TIMEOUT, exchange).await;
        limited.map_err(|_| RestError::Timeout(self.address.clone()))?
    }

    fn unconnected(&self) -> impl Fn(std::io::Error) -> RestError + '_ {
        |source| RestError::Connect { address: self.address.clone(), source }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Incoming, RestError> {
        let broken = |source| RestError::Connection { address: self.address.clone(), source };
        let request = self.build_request(path, headers)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends with its body; an error is reported there.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        match status {
            StatusCode::OK => Ok(response.into_body()),
            _ => {
                let body = read_whole(path, response.into_body()).await.unwrap_or_default();
                let text: String =
                    String::from_utf8_lossy(&body).chars().take(SHOWN_BODY).collect();
                Err(RestError::Status { path: path.to_owned(), status, text })
            }
        }
    }

    fn build_request(
        &self,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Request<Empty<Bytes>>, RestError> {
        let host = match &self.target {
            RestTarget::Unix(_) => "localhost",
            RestTarget::Tcp(authority) | RestTarget::Tls(authority, ..) => authority,
        };
        let mut request =
            Request::get(path).header("host", host).header("accept", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        request.body(Empty::new()).map_err(|error| content_error(path, &error))
    }
}

/// The lines of a response that stays open.
#[derive(Debug)]
pub struct LineStream {
    address: String,
    path: String,
    body: Incoming,
    lines: LineDecoder,
}

impl LineStream {
    /// The next line, without its end; none when the server has ended the body. Loses nothing if it
    /// is dropped before it is ready.
    ///
    /// # Errors
    /// The connection broke, or a line is longer than 4 MiB.
    pub async fn next_line(&mut self) -> Result<Option<Vec<u8>>, RestError> {
        loop {
            if let Some(line) = self.lines.whole.pop_front() {
                return Ok(Some(line));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|source| RestError::Connection {
                address: self.address.clone(),
                source,
            })?;
            if let Some(bytes) = frame.data_ref() {
                self.lines.push_bytes(bytes);
            }
            if self.lines.unfinished.len() > MAX_LINE {
                return Err(content_error(&self.path, &"a line is longer than 4 MiB"));
            }
        }
    }
}

/// Assembles lines from pieces.
#[derive(Debug, Default)]
struct LineDecoder {
    unfinished: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl LineDecoder {
    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.unfinished.extend_from_slice(piece);
            if pieces.peek().is_some() {
                let line = std::mem::take(&mut self.unfinished);
                self.whole.extend(Some(line).filter(|line| !line.is_empty()));
            }
        }
    }
}

fn content_error(path: &str, problem: &dyn std::fmt::Display) -> RestError {
    RestError::Content { path: path.to_owned(), problem: problem.to_string() }
}

async fn read_whole(path: &str, body: Incoming) -> Result<Bytes, RestError> {
    let whole = Limited::new(body, MAX_BODY).collect().await;
    whole.map(|body| body.to_bytes()).map_err(|error| content_error(path, &error))
}

/// `HOST:PORT` of `HOST[:PORT]`; none if there is a path or no host.
fn with_port(authority: &str, default: u16) -> Option<String> {
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return None;
    }
    let after_brackets = authority.rsplit(']').next().unwrap_or(authority);
    Some(match after_brackets.contains(':') {
        true => authority.to_owned(),
        false => format!("{authority}:{default}"),
    })
}

fn tls_connector(identity: &TlsIdentity) -> Result<TlsConnector, RestError> {
    let invalid = |error: &dyn std::fmt::Display| RestError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    for root in certificates(&identity.authorities)? {
        roots.add(root).map_err(|error| invalid(&error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(&error))?
        .with_root_certificates(roots);
    let config = match &identity.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
            let key = key.map_err(|error| invalid(&error))?;
            let chain = certificates(certificate)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| invalid(&error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, RestError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(RestError::Tls("no PEM certificate".to_owned())),
        Err(error) => Err(RestError::Tls(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for size in [1, 2, 5, text.len()] {
            let mut decoder = LineDecoder::default();
            text.chunks(size).for_each(|piece| decoder.push_bytes(piece));
            assert_eq!(decoder.whole, [b"{\"a\":1}".to_vec(), b"{\"b\":2}".to_vec()], "{size}");
            assert_eq!(decoder.unfinished, b"{\"c\"");
        }
    }

    #[test]
    fn addresses_have_a_port_and_no_path() {
        let port = |authority| with_port(authority, 443);
        assert_eq!(port("api.example.org").as_deref(), Some("api.example.org:443"));
        assert_eq!(port("[fd00::1]").as_deref(), Some("[fd00::1]:443"));
        assert_eq!(port("[fd00::1]:6443").as_deref(), Some("[fd00::1]:6443"));
        assert_eq!(port("10.0.0.1:6443").as_deref(), Some("10.0.0.1:6443"));
        assert_eq!((port(""), port("host/path"), port("user@host")), (None, None, None));
        for address in ["10.0.0.1:6443", "ftp://host", "http://host/path"] {
            let error = RestClient::new(address, &TlsIdentity::default()).unwrap_err();
            assert!(error.to_string().contains(address), "{error}");
        }
        let error = RestClient::new("https://host", &TlsIdentity::default()).unwrap_err();
        assert!(error.to_string().contains("no PEM certificate"), "{error}");
    }
}
