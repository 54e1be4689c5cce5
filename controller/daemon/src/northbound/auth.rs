//! Authentication, authorisation and rate limits of the northbound address.
//!
//! Every request passes here first, whatever its protocol. The decision: the role that a request
//! needs follows from its method and path alone, so an endpoint that is added later is not open by
//! mistake; and only digests of tokens are kept, in the configuration as well.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tonic::Status;
use topology::Finding;

use super::listener::ClientPeer;
use super::openapi::ErrorBody;
use super::rate_limiter::RateLimiter;
use crate::config::{AccessRole, AccessToken, NorthboundConfig};

/// The gRPC service that receives reports.
const REPORTS: &str = "/crux.telemetry.v1.Telemetry/";

/// What changes something: the ends of HTTP paths and of gRPC methods.
const CHANGES: [&str; 6] = [
    "/v1/policy/apply",
    "/v1/policy/confirm",
    "/v1/policy/rollback",
    "/ApplyPolicy",
    "/ConfirmPolicy",
    "/RollbackPolicy",
];

/// Queries that are sent as POST because they carry a document.
const POSTED_QUERIES: [&str; 1] = ["/v1/policy/preview"];

/// gRPC services whose methods are queries unless they are among the changes; all use POST.
const GRPC: [&str; 2] =
    ["/crux.northbound.v1.Northbound/", "/grpc.reflection.v1.ServerReflection/"];

/// Addresses whose rate is limited separately; more of them start all limits anew.
const MAX_LIMITERS: usize = 4_096;

/// The name of the token or certificate of a request; none where none is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallerIdentity(pub(super) Option<Arc<str>>);

/// Decides which requests pass.
#[derive(Clone, Debug)]
pub(super) struct AccessControl {
    rules: Arc<NorthboundConfig>,
    /// Behind a lock, because requests arrive on any task and are counted and checked in one step;
    /// it is held for that step only.
    limiters: Arc<Mutex<BTreeMap<IpAddr, RateLimiter>>>,
}

/// Why a request does not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum AccessDenied {
    #[error(
        "a token is missing: send `Authorization: Bearer TOKEN` (crux: --token-file) or show a \
         certificate that northbound.certificates has (crux: --cert), with a token of role `{0}`"
    )]
    MissingToken(AccessRole),
    #[error("unknown token: it is not among northbound.tokens of the controller's configuration")]
    UnknownToken,
    #[error("`{name}` may {has}, and this needs a token of role `{needs}`")]
    InsufficientRole { name: String, has: AccessRole, needs: AccessRole },
    #[error("more requests than northbound.requests_per_second; try again later")]
    RateLimited,
}

impl AccessControl {
    pub(super) fn new(rules: &NorthboundConfig) -> Self {
        Self { rules: Arc::new(rules.clone()), limiters: Arc::default() }
    }

    /// Whether a request may pass, and whose it is.
    fn authorise_request(&self, request: &Request) -> Result<CallerIdentity, AccessDenied> {
        let needs = required_role(request.method(), request.uri().path());
        let connection = request.extensions().get::<ConnectInfo<ClientPeer>>();
        let peer = connection.map(|ConnectInfo(peer)| *peer);
        if needs != AccessRole::Report
            && let Some(peer) = peer
        {
            self.count_request(peer.address.ip())?;
        }
        if !self.is_restricted(needs) {
            return Ok(CallerIdentity::default());
        }
        let shown = peer.and_then(|peer| peer.certificate);
        let token = self.find_token(presented_token(request.headers()), shown, needs)?;
        let AccessToken { name, role, .. } = token;
        match role.allows_role(needs) {
            true => Ok(CallerIdentity(Some(name.as_str().into()))),
            false => Err(AccessDenied::InsufficientRole { name: name.clone(), has: *role, needs }),
        }
    }

    /// Whether a role needs a token. Reports are open until a token with that role is configured.
    fn is_restricted(&self, needs: AccessRole) -> bool {
        let mut given = self.rules.tokens.iter().chain(&self.rules.certificates);
        match needs {
            AccessRole::Report => given.any(|token| token.role == AccessRole::Report),
            AccessRole::Read | AccessRole::Write => given.next().is_some(),
        }
    }

    /// The token that is sent, or else the certificate that is shown.
    fn find_token(
        &self,
        sent: Option<String>,
        shown: Option<[u8; 32]>,
        needs: AccessRole,
    ) -> Result<&AccessToken, AccessDenied> {
        if let Some(sent) = sent {
            let digest: [u8; 32] = Sha256::digest(sent).into();
            let mut tokens = self.rules.tokens.iter();
            let token = tokens.find(|token| token.sha256 == digest);
            return token.ok_or(AccessDenied::UnknownToken);
        }
        let mut certificates = self.rules.certificates.iter();
        let certificate = certificates.find(|token| Some(token.sha256) == shown);
        certificate.ok_or(AccessDenied::MissingToken(needs))
    }

    /// Counts a request of an address against its rate limit.
    fn count_request(&self, from: IpAddr) -> Result<(), AccessDenied> {
        let now = Instant::now();
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        if limiters.len() >= MAX_LIMITERS {
            // Bounds the memory that requests from forged addresses can take.
            limiters.clear();
        }
        let rate = self.rules.requests_per_second.get();
        let limiter = limiters.entry(from).or_insert_with(|| RateLimiter::new(rate, now));
        if !limiter.has_capacity(now) {
            return Err(AccessDenied::RateLimited);
        }
        limiter.reserve_slot(now);
        Ok(())
    }
}

/// Passes a request on, or refuses it in the form of its protocol.
pub(super) async fn enforce_access(
    State(access): State<AccessControl>,
    mut request: Request,
    next: Next,
) -> Response {
    let denied = match access.authorise_request(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            return next.run(request).await;
        }
        Err(denied) => denied,
    };
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    match is_grpc {
        true => denied.grpc_status().into_http(),
        false => denied.http_response(),
    }
}

impl AccessDenied {
    fn grpc_status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::MissingToken(_) | Self::UnknownToken => Status::unauthenticated(text),
            Self::InsufficientRole { .. } => Status::permission_denied(text),
            Self::RateLimited => Status::resource_exhausted(text),
        }
    }

    fn http_response(&self) -> Response {
        let status = match self {
            Self::MissingToken(_) | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::InsufficientRole { .. } => StatusCode::FORBIDDEN,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        };
        let findings = vec![Finding::error("access", self.to_string())];
        let body =
            serde_json::to_vec(&ErrorBody { findings }).expect("findings have text for keys");
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // `Basic` makes browsers prompt for a password, which is the token.
            let ways = header::HeaderValue::from_static("Basic realm=\"crux\", Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, ways);
        }
        response
    }
}

/// The role that a request needs. Unknown paths count as changes, except for GET.
fn required_role(method: &Method, path: &str) -> AccessRole {
    if path.starts_with(REPORTS) {
        return AccessRole::Report;
    }
    let changes = CHANGES.iter().any(|end| path.ends_with(end));
    let is_query = method == Method::GET
        || GRPC.iter().any(|service| path.starts_with(service))
        || POSTED_QUERIES.contains(&path);
    match is_query && !changes {
        true => AccessRole::Read,
        false => AccessRole::Write,
    }
}

/// The token of a request: a bearer's, or the password of a browser's user.
fn presented_token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = value.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(value.trim().to_owned()),
        "basic" => {
            let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
            text.split_once(':').map(|(_, password)| password.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_need_the_role_write() {
        let cases = [
            ("GET", "/v1/jobs", AccessRole::Read),
            ("GET", "/metrics", AccessRole::Read),
            ("POST", "/v1/policy/preview", AccessRole::Read),
            ("POST", "/v1/policy/apply", AccessRole::Write),
            ("POST", "/v1/something/new", AccessRole::Write),
            ("DELETE", "/v1/jobs", AccessRole::Write),
            ("POST", "/crux.northbound.v1.Northbound/ListJobs", AccessRole::Read),
            ("POST", "/crux.northbound.v1.Northbound/ApplyPolicy", AccessRole::Write),
            ("POST", "/crux.telemetry.v1.Telemetry/StreamReports", AccessRole::Report),
            ("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", AccessRole::Read),
            ("POST", "/crux.other.v1.Other/Look", AccessRole::Write),
        ];
        for (method, path, role) in cases {
            let method = method.parse().unwrap();
            assert_eq!(required_role(&method, path), role, "{method} {path}");
        }
    }

    #[test]
    fn a_token_is_a_bearer_token_or_a_password() {
        let given = |value: &str| {
            let value = value.parse().unwrap();
            presented_token(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        assert_eq!(given("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(given("basic YWRhOmFiYw==").as_deref(), Some("abc"));
        assert_eq!(given("basic ???"), None);
        assert_eq!(given("abc"), None);
    }
}
