//! A running controller, as commands see it: HTTP with JSON.
//!
//! The decision: commands are clients like any other. What they print is what the interface
//! answers, so whatever a person can see, a program can ask for.

use std::time::Duration;

use ::controller::northbound::openapi::Problem;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::Failure;

/// Longer than any answer takes: a change waits for its switches.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which controller to talk to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct To {
    /// Where the controller listens (northbound.listen of its configuration)
    #[arg(long, default_value = "127.0.0.1:9300", value_name = "HOST:PORT")]
    controller: String,
}

impl To {
    /// The controller that listens there.
    pub(crate) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
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
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build();
        let runtime = runtime.map_err(|error| Failure::work(&error))?;
        let asking = async { timeout(PATIENCE, self.exchange(method, path, body)).await };
        let late = |_| Failure::Work(format!("{}: no answer in time", self.controller));
        let (status, text) = runtime.block_on(asking).map_err(late)??;
        match status {
            StatusCode::OK => self.understand(&text),
            _ => Err(self.problem(status, &text)),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let unreachable = |error: &dyn std::error::Error| {
            let address = &self.controller;
            Failure::Work(format!("no controller answers at {address}: {error}"))
        };
        let stream = TcpStream::connect(&self.controller).await;
        let stream = stream.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        // It ends with its sender; whatever goes wrong, the answer says.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.controller)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failure::input(path, error))?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| unreachable(&error))?;
        Ok((status, body.to_bytes()))
    }

    fn understand<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, Failure> {
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
