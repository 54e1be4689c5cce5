//! A running controller, as commands see it: HTTP with JSON.
//!
//! The decision: commands are clients like any other. What they print is what the interface
//! answers, so whatever a person can see, a program can ask for.

mod credentials;
mod frames;

use std::future::Future;
use std::time::Duration;

use ::controller::northbound::openapi::Problem;
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

pub(crate) use self::credentials::Credentials;
pub(crate) use self::frames::{Frame, Frames};
use crate::failure::{Failure, chain};

/// Longer than any answer takes: a change waits for its switches.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which controller to talk to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct To {
    /// Where the controller listens (northbound.listen of its configuration)
    #[arg(long, default_value = "127.0.0.1:9300", value_name = "HOST:PORT")]
    controller: String,
    #[command(flatten)]
    credentials: Credentials,
}

/// A connection, over TLS where that is wanted.
type Line = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl To {
    /// The controller that listens there.
    pub(crate) fn new(controller: &str, credentials: &Credentials) -> Self {
        Self {
            controller: controller.to_owned(),
            credentials: credentials.clone(),
        }
    }

    /// What the controller answers at `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Vec::new())
    }

    /// What it answers to a document.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        document: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(document).map_err(|error| Failure::work(&error))?;
        self.ask(Method::POST, path, body)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        self.run(self.answer(method, path, body))
    }

    /// The same as [`To::get`], for who asks several things at a time.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.answer(Method::GET, path, Vec::new()).await
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        let request = self.request(method, path, "application/json", Bytes::from(body))?;
        let exchange = async {
            let answer = self.send(request).await?;
            let status = answer.status();
            Ok((status, self.whole(answer).await?))
        };
        let (status, text) = timeout(PATIENCE, exchange)
            .await
            .map_err(|_| self.late())??;
        match status {
            StatusCode::OK => self.understand(&text),
            _ => Err(self.problem(status, &text)),
        }
    }

    /// Runs something that asks.
    pub(crate) fn run<T>(
        &self,
        asking: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build();
        let runtime = runtime.map_err(|error| Failure::work(&error))?;
        runtime.block_on(asking)
    }

    /// The events that the controller goes on to send from `path`.
    pub(crate) async fn stream(&self, path: &str) -> Result<Frames, Failure> {
        let request = self.request(Method::GET, path, "text/event-stream", Bytes::new())?;
        let answer = timeout(PATIENCE, self.send(request)).await;
        let answer = answer.map_err(|_| self.late())??;
        match answer.status() {
            StatusCode::OK => Ok(Frames::new(answer.into_body())),
            status => {
                let body = self.whole(answer).await?;
                Err(self.problem(status, &body))
            }
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.controller)
            .header("accept", accept);
        if let Some(token) = self.credentials.token()? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request
            .body(Full::new(body))
            .map_err(|error| Failure::input(path, error))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let line = self.line().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(line))
            .await
            .map_err(|error| self.unreachable(&error))?;
        // It ends with its sender and the answer; whatever goes wrong, the answer says.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        answer.map_err(|error| self.unreachable(&error))
    }

    async fn line(&self) -> Result<Line, Failure> {
        let connector = self.credentials.connector()?;
        let stream = TcpStream::connect(&self.controller).await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let Some(connector) = connector else {
            return Ok(Either::Left(stream));
        };
        let (host, _) = { self.controller.rsplit_once(':') }.unwrap_or((&self.controller, ""));
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| Failure::input("--controller", error))?;
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|error| self.untrusted(&error))?;
        Ok(Either::Right(Box::new(stream)))
    }

    async fn whole(&self, answer: Response<Incoming>) -> Result<Bytes, Failure> {
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| self.unreachable(&error))?;
        Ok(body.to_bytes())
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Failure {
        let address = &self.controller;
        let why = chain(error);
        Failure::Work(format!("no controller answers at {address}: {why}"))
    }

    /// What went wrong in the handshake.
    fn untrusted(&self, error: &std::io::Error) -> Failure {
        let address = &self.controller;
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        Failure::Work(match source {
            Some(rustls::Error::InvalidMessage(_)) => {
                format!("what listens at {address} speaks no TLS; leave out --ca")
            }
            _ => format!("the controller at {address} is not one that --ca knows: {error}"),
        })
    }

    fn late(&self) -> Failure {
        Failure::Work(format!("{}: no answer in time", self.controller))
    }

    pub(crate) fn understand<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, Failure> {
        let other = |error| Failure::Work(format!("{}: not an answer: {error}", self.controller));
        serde_json::from_slice(text).map_err(other)
    }

    /// A refusal in the controller's own words: what it refuses is wrong input.
    fn problem(&self, status: StatusCode, text: &[u8]) -> Failure {
        let Ok(Problem { findings }) = self.understand::<Problem>(text) else {
            return Failure::Work(format!("{} answers {status}", self.controller));
        };
        let texts: Vec<String> = findings.into_iter().map(|finding| finding.text).collect();
        match status {
            StatusCode::UNPROCESSABLE_ENTITY => Failure::Document(texts.join("\n")),
            _ => Failure::Work(texts.join("\n")),
        }
    }
}
