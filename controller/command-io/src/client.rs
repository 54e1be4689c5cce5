//! A client of a running controller: HTTP with JSON.
//!
//! The decision: commands use the public interface like any other client, so a program can obtain
//! whatever a command prints.

mod credentials;
mod frames;

use std::future::Future;
use std::time::Duration;

use api::ErrorBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

pub use self::credentials::ClientCredentials;
pub use self::frames::{EventFrame, FrameStream};
use crate::command_error::{CommandError, error_chain};

/// Longer than any response takes: a policy change waits for its switches.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Which controller to talk to.
#[derive(clap::Args, Clone, Debug)]
pub struct ControllerClient {
    /// Where the controller listens (northbound.listen of its configuration)
    #[arg(
        long,
        default_value = "127.0.0.1:9300",
        value_name = "HOST:PORT",
        env = "CRUX_CONTROLLER"
    )]
    controller: String,
    #[command(flatten)]
    credentials: ClientCredentials,
}

/// A connection, over TLS where that is wanted.
type ControllerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl ControllerClient {
    /// A client of the controller at this address.
    pub fn new(controller: &str, credentials: &ClientCredentials) -> Self {
        Self { controller: controller.to_owned(), credentials: credentials.clone() }
    }

    /// Requests `path` and parses the response.
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandError> {
        self.request_json(Method::GET, path, Vec::new())
    }

    /// Posts a document and parses the response.
    pub fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, CommandError> {
        let body = serde_json::to_vec(document).map_err(CommandError::failed)?;
        self.request_json(Method::POST, path, body)
    }

    fn request_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, CommandError> {
        self.block_on(self.exchange_json(method, path, body))
    }

    /// Requests `path` from asynchronous code, such as several requests at a time.
    pub async fn get_json_async<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandError> {
        self.exchange_json(Method::GET, path, Vec::new()).await
    }

    async fn exchange_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, CommandError> {
        let request = self.build_request(method, path, "application/json", Bytes::from(body))?;
        let exchange = async {
            let answer = self.send_request(request).await?;
            let status = answer.status();
            Ok((status, self.read_body(answer).await?))
        };
        let (status, text) =
            timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| self.timeout_error())??;
        match status {
            StatusCode::OK => self.parse_json(&text),
            _ => Err(self.response_error(status, &text)),
        }
    }

    /// Runs a future on a runtime of its own.
    pub fn block_on<T>(
        &self,
        exchange: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(CommandError::failed)?;
        runtime.block_on(exchange)
    }

    /// Opens the stream of server-sent events at `path`.
    pub async fn open_event_stream(&self, path: &str) -> Result<FrameStream, CommandError> {
        let request = self.build_request(Method::GET, path, "text/event-stream", Bytes::new())?;
        let answer = timeout(REQUEST_TIMEOUT, self.send_request(request))
            .await
            .map_err(|_| self.timeout_error())??;
        match answer.status() {
            StatusCode::OK => Ok(FrameStream::new(answer.into_body())),
            status => {
                let body = self.read_body(answer).await?;
                Err(self.response_error(status, &body))
            }
        }
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, CommandError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.controller)
            .header("accept", accept)
            .header("content-type", "application/json");
        if let Some(token) = self.credentials.read_token(&self.controller)? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::new(body)).map_err(|error| CommandError::input(path, error))
    }

    async fn send_request(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, CommandError> {
        let line = self.open_connection().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(line))
            .await
            .map_err(|error| self.unreachable_error(&error))?;
        // It ends with its sender; an error is reported by the response.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| self.unreachable_error(&error))
    }

    async fn open_connection(&self) -> Result<ControllerStream, CommandError> {
        let connector = self.credentials.tls_connector()?;
        let stream = TcpStream::connect(&self.controller)
            .await
            .map_err(|error| self.unreachable_error(&error))?;
        let Some(connector) = connector else {
            return Ok(Either::Left(stream));
        };
        let (host, _) = { self.controller.rsplit_once(':') }.unwrap_or((&self.controller, ""));
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| CommandError::input("--controller", error))?;
        let stream =
            connector.connect(name, stream).await.map_err(|error| self.handshake_error(&error))?;
        Ok(Either::Right(Box::new(stream)))
    }

    async fn read_body(&self, answer: Response<Incoming>) -> Result<Bytes, CommandError> {
        let body =
            answer.into_body().collect().await.map_err(|error| self.unreachable_error(&error))?;
        Ok(body.to_bytes())
    }

    fn unreachable_error(&self, error: &dyn std::error::Error) -> CommandError {
        let address = &self.controller;
        let why = error_chain(error);
        CommandError::Failed(format!(
            "no controller answers at {address}: {why}\nstart one there (crux controller \
             --listen {address}), or name another with --controller, CRUX_CONTROLLER or crux \
             context"
        ))
    }

    /// The error of a failed TLS handshake.
    fn handshake_error(&self, error: &std::io::Error) -> CommandError {
        let address = &self.controller;
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        CommandError::Failed(match source {
            Some(rustls::Error::InvalidMessage(_)) => {
                format!("the server at {address} does not use TLS; omit --ca")
            }
            _ => format!(
                "the controller at {address} has no certificate of an authority of --ca: {error}"
            ),
        })
    }

    fn timeout_error(&self) -> CommandError {
        CommandError::Failed(format!(
            "the controller at {} did not respond in time",
            self.controller
        ))
    }

    /// Parses a message of the controller.
    pub fn parse_json<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, CommandError> {
        serde_json::from_slice(text).map_err(|error| {
            CommandError::Failed(format!(
                "invalid response of the controller at {}: {error}",
                self.controller
            ))
        })
    }

    /// The findings of a refused request; status 422 means invalid input.
    fn response_error(&self, status: StatusCode, text: &[u8]) -> CommandError {
        let Ok(ErrorBody { findings }) = self.parse_json::<ErrorBody>(text) else {
            return CommandError::Failed(format!(
                "the controller at {} responded {status}",
                self.controller
            ));
        };
        let texts: Vec<String> = findings.into_iter().map(|finding| finding.text).collect();
        match status {
            StatusCode::UNPROCESSABLE_ENTITY => CommandError::Document(texts.join("\n")),
            _ => CommandError::Failed(texts.join("\n")),
        }
    }
}
