//! HTTP with JSON, over [`NorthboundService`].
//!
//! The decision: one table says every endpoint; the router and the OpenAPI document are both made
//! from it, so that neither can have what the other has not.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api::ErrorBody;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use topology::Finding;

use super::auth::{CallerIdentity, HEALTH, READINESS, RETRY_AFTER};
use super::service::{NorthboundService, ServiceError};
use super::{events, openapi};

/// An answer, or the reason of a refusal.
type HandlerFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, ServiceError>> + Send>>;

/// What answers a request: the service, the last part of its path if that is a name, and its body.
pub(super) type EndpointHandler = fn(NorthboundService, EndpointRequest) -> HandlerFuture;

/// A request.
pub(super) struct EndpointRequest {
    pub(super) name: String,
    /// The query of its URI, as it was sent.
    pub(super) query: String,
    pub(super) body: Bytes,
}

/// All endpoints.
pub(super) fn build_router(service: NorthboundService) -> Router {
    let service = Arc::new(service);
    let mut router = Router::new();
    for endpoint in openapi::ENDPOINTS {
        let handler = endpoint.handler;
        let answer = move |State(service): State<Arc<NorthboundService>>,
                           Extension(CallerIdentity(caller)): Extension<CallerIdentity>,
                           name: Option<Path<String>>,
                           RawQuery(query): RawQuery,
                           body: Bytes| async move {
            let name = name.map_or_else(String::new, |Path(name)| name);
            let asked = EndpointRequest { name, query: query.unwrap_or_default(), body };
            build_response(handler(service.with_caller(caller), asked).await)
        };
        let method =
            if endpoint.takes.is_some() { routing::post(answer) } else { routing::get(answer) };
        router = router.route(endpoint.path, method);
    }
    router
        .route("/openapi.json", routing::get(serve_openapi))
        .route("/metrics", routing::get(serve_metrics))
        .route(HEALTH, routing::get(serve_health))
        .route(READINESS, routing::get(serve_readiness))
        .route(events::PATH, routing::get(events::handle_request))
        .with_state(service)
}

/// The error for an unknown path (404), in the form that the caller reads: tonic by itself answers
/// status 200 without a body, which programs that speak no gRPC take for success.
pub(super) async fn serve_unknown_path(uri: Uri, headers: HeaderMap) -> Response {
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content.is_some_and(|content| content.starts_with("application/grpc")) {
        return Status::unimplemented("there is no such method").into_http();
    }
    let text = format!("there is no {}; /openapi.json lists what there is", uri.path());
    build_response(Err(ServiceError::Unknown(text)))
}

async fn serve_openapi() -> Response {
    json_response(StatusCode::OK, openapi::openapi_text().into_bytes())
}

/// Whether the event loop answers. It asks nothing of the loop, so strangers cannot delay it.
async fn serve_health(State(service): State<Arc<NorthboundService>>) -> Response {
    probe_response(service.is_alive())
}

/// Whether there is a plan: a standby has one too, and is as ready as the leader.
async fn serve_readiness(State(service): State<Arc<NorthboundService>>) -> Response {
    probe_response(service.is_alive() && service.is_ready())
}

fn probe_response(is_well: bool) -> Response {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response(status, b"{}\n".into())
}

/// What Prometheus scrapes.
async fn serve_metrics(State(service): State<Arc<NorthboundService>>) -> Response {
    match service.render_metrics().await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => build_response(Err(error)),
    }
}

/// A handler that takes nothing.
macro_rules! get {
    ($method:ident) => {
        |service, _| Box::pin(async move { encode_body(&service.$method().await?) })
    };
}

/// A handler that takes a document.
macro_rules! post {
    ($method:ident) => {
        |service, asked| {
            Box::pin(async move {
                let document = parse_body(&asked.body)?;
                encode_body(&service.$method(&document).await?)
            })
        }
    };
}

/// A handler that takes a name.
macro_rules! get_by_name {
    ($method:ident) => {
        |service, asked| Box::pin(async move { encode_body(&service.$method(&asked.name).await?) })
    };
}

/// A handler that takes numbers in the query of its URI.
macro_rules! get_page {
    ($method:ident) => {
        |service, asked| {
            Box::pin(async move {
                let page = parse_query(&asked.query)?;
                encode_body(&service.$method(&page).await?)
            })
        }
    };
}

pub(super) use {get, get_by_name, get_page, post};

/// What the numbers of a query say, by name.
pub(super) fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, ServiceError> {
    let refuse = |why: String| {
        ServiceError::Refused(vec![Finding::error("query", format!("refused: {why}"))])
    };
    let fields = query.split('&').filter(|field| !field.is_empty()).map(|field| {
        let number =
            field.split_once('=').and_then(|(name, text)| Some((name, text.parse().ok()?)));
        number.ok_or_else(|| refuse(format!("`{field}` is not NAME=NUMBER")))
    });
    let fields: BTreeMap<&str, u64> = fields.collect::<Result<_, _>>()?;
    let fields = serde_json::json!(fields);
    serde_json::from_value(fields).map_err(|error| refuse(error.to_string()))
}

pub(super) fn parse_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ServiceError> {
    serde_json::from_slice(body)
        .map_err(|error| ServiceError::Refused(vec![Finding::error("request", error.to_string())]))
}

pub(super) fn encode_body(answer: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    Ok(serde_json::to_vec(answer).expect("answers have text for keys"))
}

pub(super) fn build_response(answer: Result<Vec<u8>, ServiceError>) -> Response {
    let error = match answer {
        Ok(body) => return json_response(StatusCode::OK, body),
        Err(error) => error,
    };
    let status = match &error {
        ServiceError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ServiceError::Unknown(_) => StatusCode::NOT_FOUND,
        ServiceError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        ServiceError::Overloaded(_) | ServiceError::Controller(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let can_retry = matches!(error, ServiceError::TooMany(_) | ServiceError::Overloaded(_));
    let findings = match error {
        ServiceError::Refused(findings) => findings,
        other => vec![Finding::error("request", other.to_string())],
    };
    let body = serde_json::to_vec(&ErrorBody { findings });
    let mut response = json_response(status, body.expect("findings have text for keys"));
    if can_retry {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
