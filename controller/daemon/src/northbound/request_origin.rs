//! Whether a request may come from where it says: protection against web pages of others.
//!
//! A browser sends whatever any page asks it to, with the cookies of this controller. Pure. The
//! decisions: a request that a token authenticates is nobody's but the owner's, so only requests
//! without one need a known `Host` (a page whose name resolves to this machine has another one); a
//! browser says which page a change is from (`Origin`), and that must be this controller; and
//! documents have a content type that a page cannot send elsewhere without asking first.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Uri, header};

/// Why a request may not come from where it does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OriginError {
    #[error(
        "this controller is not known as `{0}`: use its IP address, send a token, or add the name \
         to northbound.hosts"
    )]
    UnknownHost(String),
    #[error("requests of pages from `{0}` are refused: this controller serves its own page only")]
    ForeignPage(String),
    #[error(
        "the content type is missing or not JSON: send `Content-Type: application/json` (curl \
         --json)"
    )]
    NotJson,
}

/// The parts of a request that say where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOrigin<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    /// Whether a token of its own authenticates it.
    pub(super) has_token: bool,
    /// Whether its connection is secured, so that the certificate vouches for the name.
    pub(super) is_secured: bool,
}

impl RequestOrigin<'_> {
    /// Checks host, page and content type; `hosts` are the names of this controller.
    pub(super) fn check(&self, hosts: &[String]) -> Result<(), OriginError> {
        let host = self.authority();
        if !self.has_token && !self.is_secured && !is_own_host(host, hosts) {
            return Err(OriginError::UnknownHost(host.to_owned()));
        }
        if let Some(origin) = text(self.headers, header::ORIGIN) {
            let page = origin.split_once("://").map_or(origin, |(_, authority)| authority);
            if !page.eq_ignore_ascii_case(host) {
                return Err(OriginError::ForeignPage(origin.to_owned()));
            }
        }
        if self.method == Method::POST && !self.has_document_type() {
            Err(OriginError::NotJson)
        } else {
            Ok(())
        }
    }

    /// Host and port that the client means.
    fn authority(&self) -> &str {
        let named = text(self.headers, header::HOST);
        named.or_else(|| Some(self.uri.authority()?.as_str())).unwrap_or_default()
    }

    fn has_document_type(&self) -> bool {
        let kind = text(self.headers, header::CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_grpc = kind == "application/grpc" || kind.starts_with("application/grpc+");
        kind == "application/json" || is_grpc
    }
}

/// Whether a host, perhaps with a port, is an address, `localhost` or one of the names.
fn is_own_host(authority: &str, hosts: &[String]) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let host = host.to_ascii_lowercase();
    host.parse::<IpAddr>().is_ok() || host == "localhost" || hosts.contains(&host)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a POST with these headers.
    fn check(headers: &[(header::HeaderName, &str)], has_token: bool) -> Result<(), OriginError> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let request = RequestOrigin {
            method: &Method::POST,
            uri: &Uri::from_static("/v1/policy/apply"),
            headers: &HeaderMap::from_iter(headers),
            has_token,
            is_secured: false,
        };
        request.check(&["ctl.example".to_owned()])
    }

    #[test]
    fn pages_of_others_are_refused() {
        use header::{CONTENT_TYPE, HOST, ORIGIN};
        let json = (CONTENT_TYPE, "application/json; charset=utf-8");
        for host in ["127.0.0.1:9300", "[::1]:9300", "localhost", "CTL.example:9300"] {
            assert_eq!(check(&[(HOST, host), json.clone()], false), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:9300", "", "[evil]"] {
            let error = OriginError::UnknownHost(host.to_owned());
            assert_eq!(check(&[(HOST, host), json.clone()], false), Err(error), "{host}");
        }
        assert_eq!(check(&[(HOST, "evil.example"), json.clone()], true), Ok(()), "with a token");
        let own = (HOST, "127.0.0.1:9300");
        let page = |origin| check(&[own.clone(), json.clone(), (ORIGIN, origin)], false);
        assert_eq!(page("http://127.0.0.1:9300"), Ok(()));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9301"] {
            assert_eq!(page(origin), Err(OriginError::ForeignPage(origin.to_owned())));
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/grpcx"] {
            let refused = check(&[own.clone(), (CONTENT_TYPE, kind)], true);
            assert_eq!(refused, Err(OriginError::NotJson), "{kind}");
        }
        assert_eq!(check(&[own], true), Err(OriginError::NotJson));
    }
}
