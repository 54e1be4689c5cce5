//! Why a request does not pass, in HTTP and in gRPC.

use api::ErrorBody;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tonic::Status;
use topology::Finding;

use super::super::limit_counters::LimitReached;
use super::super::request_budget::BudgetExceeded;
use super::super::request_origin::OriginError;
use crate::config::AccessRole;

/// Seconds after which a request that was refused for want of room may be sent again.
pub(in crate::northbound) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request does not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::northbound) enum AccessDenied {
    /// Nothing says whose it is.
    #[error(
        "a token is missing: send `Authorization: Bearer TOKEN` (crux: --token-file) or show a \
         certificate that northbound.certificates has (crux: --cert), with a token of role `{0}`"
    )]
    MissingToken(AccessRole),
    /// Nobody has this token.
    #[error("unknown token: it is not among northbound.tokens of the controller's configuration")]
    UnknownToken,
    /// The owner of the token may do less.
    #[error("`{name}` may {has}, and this needs a token of role `{needs}`")]
    InsufficientRole {
        /// Whose token it is.
        name: String,
        /// What it grants.
        has: AccessRole,
        /// What the request needs.
        needs: AccessRole,
    },
    /// Too many requests in a second.
    #[error("more requests than northbound.requests_per_second; try again later")]
    RateLimited,
    /// It may come from a page of somebody else.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The caller has too many requests in progress.
    #[error("more than {0} in progress; try again later")]
    CallerBusy(&'static str),
    /// All callers together have too many requests in progress.
    #[error("the controller is busy: {0} are in progress; try again later")]
    Overloaded(&'static str),
    /// The body is too large.
    #[error("a body has at most {0} bytes (northbound.body_max)")]
    LargeBody(usize),
    /// The body did not arrive in time.
    #[error("the body did not arrive within northbound.limits.body_ms")]
    SlowBody,
}

impl From<BudgetExceeded> for AccessDenied {
    fn from(exceeded: BudgetExceeded) -> Self {
        match exceeded {
            BudgetExceeded::Caller(bound) => Self::CallerBusy(bound),
            BudgetExceeded::All(bound) => Self::Overloaded(bound),
        }
    }
}

impl AccessDenied {
    /// The response, in the form of the protocol.
    pub(super) fn into_response(self, is_grpc: bool) -> Response {
        if is_grpc { self.grpc_status().into_http() } else { self.http_response() }
    }

    /// What it counts as.
    pub(super) fn limit_reached(&self) -> LimitReached {
        match self {
            Self::MissingToken(_) | Self::UnknownToken => LimitReached::Unauthenticated,
            Self::InsufficientRole { .. } => LimitReached::Forbidden,
            Self::Origin(_) => LimitReached::ForeignOrigin,
            Self::RateLimited => LimitReached::RateLimited,
            Self::CallerBusy(_) => LimitReached::CallerBusy,
            Self::Overloaded(_) => LimitReached::Overloaded,
            Self::LargeBody(_) => LimitReached::LargeBody,
            Self::SlowBody => LimitReached::SlowBody,
        }
    }

    fn grpc_status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::MissingToken(_) | Self::UnknownToken => Status::unauthenticated(text),
            Self::InsufficientRole { .. } | Self::Origin(_) => Status::permission_denied(text),
            Self::RateLimited | Self::CallerBusy(_) | Self::LargeBody(_) => {
                Status::resource_exhausted(text)
            }
            Self::Overloaded(_) => Status::unavailable(text),
            Self::SlowBody => Status::deadline_exceeded(text),
        }
    }

    fn http_status(&self) -> StatusCode {
        match self {
            Self::MissingToken(_) | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::InsufficientRole { .. } | Self::Origin(OriginError::ForeignPage(_)) => {
                StatusCode::FORBIDDEN
            }
            Self::Origin(OriginError::UnknownHost(_)) => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin(OriginError::NotJson) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RateLimited | Self::CallerBusy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::LargeBody(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn http_response(&self) -> Response {
        let status = self.http_status();
        let findings = vec![Finding::error("access", self.to_string())];
        let body =
            serde_json::to_vec(&ErrorBody { findings }).expect("findings have text for keys");
        let kind = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (status, kind, body).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                // Not `Basic`: a browser would send its password with requests of any page.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
                // The rest of the body is not read.
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
