//! Authentication, authorisation and rate limits of the northbound address.
//!
//! Every request passes here first, whatever its protocol. The decisions: the role that a request
//! needs follows from its method and path alone, so an endpoint that is added later is not open by
//! mistake; only digests of tokens are kept, in the configuration as well; and a request is
//! authenticated before it is counted, so that nobody uses up the rate of another.

mod denial;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

pub(super) use self::denial::{AccessDenied, RETRY_AFTER};
use super::http::{build_response, encode_body, parse_body};
use super::limit_counters::LimitCounters;
use super::listener::{ClientPeer, ConnectionHandle, ShownCertificate};
use super::login::{self, LoginSessions};
use super::paced_body::PacedBody;
use super::page;
use super::rate_limiter::RateLimiter;
use super::request_budget::{BudgetOwner, RequestBudget, RequestKind};
use super::request_origin::RequestOrigin;
use crate::audit::AuditTrail;
use crate::config::{AccessGrant, AccessRole, NorthboundConfig};
use crate::telemetry::ReporterScope;

/// The gRPC service that receives reports.
const REPORTS: &str = "/crux.telemetry.v1.Telemetry/";

/// What changes something, or may do everything: the ends of HTTP paths and of gRPC methods.
const CHANGES: [&str; 14] = [
    "/v1/cluster/lead",
    "/v1/cluster/step-down",
    "/v1/fabric/apply",
    "/v1/fabric/rollback",
    "/v1/policy/apply",
    "/v1/policy/confirm",
    "/v1/policy/rollback",
    "/ApplyFabric",
    "/RollbackFabric",
    "/ApplyPolicy",
    "/ConfirmPolicy",
    "/RollbackPolicy",
    "/TakeLead",
    "/StepDown",
];

/// Queries that are sent as POST because they carry a document.
const POSTED_QUERIES: [&str; 2] = ["/v1/fabric/preview", "/v1/policy/preview"];

/// Queries about callers, which are for those who may do everything.
const RESTRICTED_QUERIES: [&str; 4] =
    ["/v1/audit-records", "/ListAuditRecords", "/v1/state-backup", "/GetStateBackup"];

/// gRPC services whose methods are queries unless they are among the changes; all use POST.
const GRPC: [&str; 2] =
    ["/crux.northbound.v1.Northbound/", "/grpc.reflection.v1.ServerReflection/"];

/// gRPC services whose requests are streams, which have limits of their own.
const STREAMED: [&str; 2] = [REPORTS, "/grpc.reflection.v1.ServerReflection/"];

/// Answers that the controller is there, and nothing else.
pub(super) const HEALTH: &str = "/health";
/// Where the controller says that it has a plan.
pub(super) const READINESS: &str = "/ready";

/// Callers whose rate is limited separately; more of them start all limits anew.
const MAX_LIMITERS: usize = 4_096;

/// The name of the token or certificate of a request; none where none is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallerIdentity(pub(super) Option<Arc<str>>);

/// Decides which requests pass.
#[derive(Clone, Debug)]
pub(super) struct AccessControl {
    rules: Arc<NorthboundConfig>,
    sessions: LoginSessions,
    budget: RequestBudget,
    limited: LimitCounters,
    audit: AuditTrail,
    /// The rates of callers. Behind a lock, because requests arrive on any task and are counted and
    /// checked in one step; it is held for that step only.
    rates: Arc<Mutex<BTreeMap<(CallerKind, IpAddr), RateLimiter>>>,
}

/// Whose rate it is, at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CallerKind {
    /// Requests that are refused, or need no role.
    Unknown,
    /// The owner of a token; none where none is required.
    Known(Option<Arc<str>>),
}

/// A request that passes.
struct AdmittedRequest {
    caller: CallerIdentity,
    /// What the caller may report.
    scope: ReporterScope,
    /// Counted against the budget; streams of reports have their own.
    owner: Option<BudgetOwner>,
}

/// What a browser sends to log in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    token: String,
}

/// Who a browser is.
#[derive(Serialize)]
struct SessionDocument {
    /// The name of its token; none where none is required.
    name: Option<String>,
    /// read or write; none where it must log in.
    role: Option<String>,
}

impl SessionDocument {
    fn of_grants(grants: Option<&AccessGrant>) -> Self {
        Self {
            name: grants.map(|grants| grants.name.clone()),
            role: grants.map(|grants| grants.role.to_string()),
        }
    }
}

impl AccessControl {
    /// The access to a controller that is served at `port`.
    pub(super) fn new(
        rules: &NorthboundConfig,
        port: u16,
        limited: LimitCounters,
        audit: AuditTrail,
    ) -> Self {
        Self {
            rules: Arc::new(rules.clone()),
            sessions: LoginSessions::new(port, limited.clone()),
            budget: RequestBudget::new(rules.limits, rules.body_max.get()),
            limited,
            audit,
            rates: Arc::default(),
        }
    }

    /// Where browsers log in and out.
    pub(super) fn session_router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let routes: MethodRouter<Self> = post(log_in).get(show_session).delete(log_out);
        Router::new().route(login::PATH, routes.with_state(self.clone()))
    }

    /// Whether a request may pass, and whose it is.
    fn admit_request(
        &self,
        request: &Request,
        peer: Option<&ClientPeer>,
    ) -> Result<AdmittedRequest, AccessDenied> {
        let address = peer.map(|peer| peer.address.ip());
        let found = self.authorise_request(request, peer);
        self.record_access(address, &found);
        let kind = match &found {
            Ok(Some((CallerIdentity(caller), _))) => CallerKind::Known(caller.clone()),
            // Known all the same: guesses at the same address do not use up its rate.
            Err(AccessDenied::InsufficientRole { name, .. }) => {
                CallerKind::Known(Some(name.as_str().into()))
            }
            Ok(None) | Err(_) => CallerKind::Unknown,
        };
        let path = request.uri().path();
        let is_stream = STREAMED.iter().any(|service| path.starts_with(service));
        if let Some(address) = address.filter(|_| found.is_err() || !is_stream) {
            self.count_request((kind, address))?;
        }
        let (caller, scope) = found?.unwrap_or_default();
        let owner = match (&caller.0, path.starts_with(REPORTS)) {
            (_, true) => None,
            (Some(name), _) => Some(BudgetOwner::Caller(Arc::clone(name))),
            (None, _) => Some(BudgetOwner::Address(address)),
        };
        Ok(AdmittedRequest { caller, scope, owner })
    }

    /// Records who was let in or refused.
    fn record_access(
        &self,
        address: Option<IpAddr>,
        found: &Result<Option<(CallerIdentity, ReporterScope)>, AccessDenied>,
    ) {
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        match found {
            Ok(Some((CallerIdentity(Some(name)), _))) => {
                self.audit.record_admission(name, &address);
            }
            Ok(_) => {}
            Err(denied) => self.audit.record_denial(&address, &denied.to_string()),
        }
    }

    /// Whose a request is, if it needs a role.
    fn authorise_request(
        &self,
        request: &Request,
        peer: Option<&ClientPeer>,
    ) -> Result<Option<(CallerIdentity, ReporterScope)>, AccessDenied> {
        let sent = bearer_token(request.headers());
        let origin = RequestOrigin {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            has_token: sent.is_some(),
            is_secured: peer.is_some_and(|peer| peer.is_secured),
        };
        origin.check(&self.rules.hosts)?;
        if is_public(request.method(), request.uri().path()) {
            return Ok(None);
        }
        let needs = required_role(request.method(), request.uri().path());
        if !self.rules.needs_token() {
            return Ok(Some(Default::default()));
        }
        let shown = peer.and_then(|peer| peer.certificate.as_deref());
        let grants = match sent {
            Some(sent) => self.find_token(sent)?,
            None => self
                .sessions
                .find_grants(request.headers())
                .or_else(|| self.find_certificate(shown?))
                .ok_or(AccessDenied::MissingToken(needs))?,
        };
        let AccessGrant { name, role, hosts, tenants } = grants;
        let scope = ReporterScope { hosts, tenants };
        if role.allows_role(needs) {
            Ok(Some((CallerIdentity(Some(name.into())), scope)))
        } else {
            Err(AccessDenied::InsufficientRole { name, has: role, needs })
        }
    }

    fn find_token(&self, sent: &str) -> Result<AccessGrant, AccessDenied> {
        let digest: [u8; 32] = Sha256::digest(sent).into();
        let mut tokens = self.rules.tokens.iter();
        let token = tokens.find(|token| token.sha256 == digest);
        token.map(|token| token.grants.clone()).ok_or(AccessDenied::UnknownToken)
    }

    fn find_certificate(&self, shown: &ShownCertificate) -> Option<AccessGrant> {
        let mut certificates = self.rules.certificates.iter();
        let found = certificates.find(|listed| shown.is_match(&listed.shown));
        found.map(|listed| listed.grants.clone())
    }

    /// Counts a request of a caller at an address against the rate limit.
    fn count_request(&self, caller: (CallerKind, IpAddr)) -> Result<(), AccessDenied> {
        let now = Instant::now();
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() >= MAX_LIMITERS {
            // Bounds the memory that requests from forged addresses can take.
            rates.clear();
        }
        let rate = self.rules.requests_per_second.get();
        let limiter = rates.entry(caller).or_insert_with(|| RateLimiter::new(rate, now));
        if !limiter.has_capacity(now) {
            return Err(AccessDenied::RateLimited);
        }
        limiter.reserve_slot(now);
        Ok(())
    }

    /// Receives the body of a request as a whole, within its bounds of size and time.
    /// Its length in bytes, beside it.
    async fn receive_body(&self, request: Request) -> Result<(Request, usize), AccessDenied> {
        let (parts, body) = request.into_parts();
        let body_max = self.rules.body_max.get();
        let received = Limited::new(body, body_max).collect();
        let received = timeout(self.rules.limits.body, received).await;
        let body = received
            .map_err(|_| AccessDenied::SlowBody)?
            .map_err(|_| AccessDenied::LargeBody(body_max))?;
        let body = body.to_bytes();
        let length = body.len();
        Ok((Request::from_parts(parts, Body::from(body)), length))
    }

    /// Passes a request on within its budget.
    async fn run_request(&self, request: Request, next: Next) -> Result<Response, AccessDenied> {
        let peer = request.extensions().get::<ConnectInfo<ClientPeer>>();
        let peer = peer.map(|ConnectInfo(peer)| peer);
        let AdmittedRequest { caller, scope, owner } = self.admit_request(&request, peer)?;
        let path = request.uri().path();
        let is_stream = STREAMED.iter().any(|service| path.starts_with(service));
        let is_change = CHANGES.iter().any(|end| path.ends_with(end));
        let kind = if is_change { RequestKind::Change } else { RequestKind::Query };
        let reserved = if is_stream { 0 } else { self.body_bytes(&request)? };
        let begun = owner.map(|owner| self.budget.begin_request(owner, kind, reserved));
        let mut permit = begun.transpose()?;
        let (mut request, length) =
            if is_stream { (request, 0) } else { self.receive_body(request).await? };
        if let Some(permit) = &mut permit {
            permit.shrink_body(length);
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(scope);
        let Some(handle) = request.extensions().get::<ConnectionHandle>().cloned() else {
            return Ok(next.run(request).await);
        };
        let begun = handle.begin_request();
        let response = next.run(request).await;
        // The answer begins after the body was read: a stream of events must not keep its room.
        if let Some(permit) = &mut permit {
            permit.shrink_body(0);
        }
        let guard = (permit, begun);
        let (number, stall) = (handle.next_response(), handle.stall.clone());
        // Reporters need not read what they are answered.
        let stall = if is_stream { Default::default() } else { stall };
        Ok(response.map(|body| Body::new(PacedBody::new(body, number, stall, guard))))
    }

    /// The size of a body, or the most that it may have.
    fn body_bytes(&self, request: &Request) -> Result<usize, AccessDenied> {
        let body_max = self.rules.body_max.get();
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        match length {
            Some(length) if length > body_max => Err(AccessDenied::LargeBody(body_max)),
            Some(length) => Ok(length),
            None if request.method() == Method::POST => Ok(body_max),
            None => Ok(0),
        }
    }
}

/// Passes a request on, or refuses it in the form of its protocol.
pub(super) async fn enforce_access(
    State(access): State<AccessControl>,
    request: Request,
    next: Next,
) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let limited = access.limited.clone();
    let answered = access.run_request(request, next).await;
    let answered = answered.inspect_err(|denied| limited.count(denied.limit_reached()));
    let mut response = answered.unwrap_or_else(|denied| denied.into_response(is_grpc));
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Exchanges a token for the cookie of a session.
async fn log_in(
    State(access): State<AccessControl>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<ClientPeer>>,
    body: Bytes,
) -> Response {
    let LoginRequest { token } = match parse_body(&body) {
        Ok(request) => request,
        Err(refused) => return build_response(Err(refused)),
    };
    let grants = match access.find_token(token.trim()) {
        Ok(grants) => grants,
        Err(denied) => {
            access.audit.record_denial(&peer.address.ip().to_string(), &denied.to_string());
            return denied.into_response(false);
        }
    };
    set_cookie(access.sessions.open_session(grants, peer.is_secured))
}

/// Says who a browser is logged in as, and what that allows; neither if it is not.
async fn show_session(
    State(access): State<AccessControl>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<ClientPeer>>,
    headers: HeaderMap,
) -> Response {
    let session = if access.rules.needs_token() {
        let grants = access.sessions.find_grants(&headers);
        let grants = grants.or_else(|| access.find_certificate(peer.certificate.as_deref()?));
        SessionDocument::of_grants(grants.as_ref())
    } else {
        SessionDocument { name: None, role: Some(AccessRole::Write.to_string()) }
    };
    build_response(encode_body(&session))
}

async fn log_out(
    State(access): State<AccessControl>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<ClientPeer>>,
    headers: HeaderMap,
) -> Response {
    set_cookie(access.sessions.end_session(&headers, peer.is_secured))
}

fn set_cookie(cookie: Option<HeaderValue>) -> Response {
    match cookie {
        Some(cookie) => (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// What needs no token: the page (without anything of the fabric), the login, and whether the
/// controller is there and ready.
fn is_public(method: &Method, path: &str) -> bool {
    path == login::PATH
        || is_read(method) && ([HEALTH, READINESS].contains(&path) || page::is_file(path))
}

/// Whether a method changes nothing: HEAD is GET without the body.
fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// The role that a request needs. Unknown paths count as changes, except for GET and HEAD.
fn required_role(method: &Method, path: &str) -> AccessRole {
    if path.starts_with(REPORTS) {
        return AccessRole::Report;
    }
    let mut restricted = CHANGES.iter().chain(&RESTRICTED_QUERIES);
    let changes = restricted.any(|end| path.ends_with(end));
    let is_query = is_read(method)
        || GRPC.iter().any(|service| path.starts_with(service))
        || POSTED_QUERIES.contains(&path);
    if is_query && !changes { AccessRole::Read } else { AccessRole::Write }
}

/// The bearer token of a request.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_need_the_role_write() {
        let cases = [
            ("GET", "/v1/jobs", AccessRole::Read),
            ("GET", "/metrics", AccessRole::Read),
            ("HEAD", "/metrics", AccessRole::Read),
            ("HEAD", "/v1/audit-records", AccessRole::Write),
            ("POST", "/v1/policy/preview", AccessRole::Read),
            ("POST", "/v1/policy/apply", AccessRole::Write),
            ("POST", "/v1/fabric/preview", AccessRole::Read),
            ("POST", "/v1/fabric/rollback", AccessRole::Write),
            ("POST", "/crux.northbound.v1.Northbound/ApplyFabric", AccessRole::Write),
            ("POST", "/v1/something/new", AccessRole::Write),
            ("DELETE", "/v1/jobs", AccessRole::Write),
            ("GET", "/v1/audit-records", AccessRole::Write),
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
    fn a_token_is_a_bearer_token() {
        let given = |value: &str| {
            let value = value.parse().unwrap();
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(given("bearer abc").as_deref(), Some("abc"));
        assert_eq!(given("basic YWRhOmFiYw=="), None, "browsers would send it to any page");
        assert_eq!(given("abc"), None);
    }
}
