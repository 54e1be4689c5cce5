//! Sessions of browsers: a token is exchanged for a cookie that scripts cannot read.
//!
//! The decisions: the cookie is a random number and not the token, and is sent by the controller's
//! own page only (`SameSite=Strict`); sessions are in memory, bounded, and end with the controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::limit_counters::{LimitCounters, LimitReached};
use crate::config::AccessGrant;
use crate::hexadecimal::random_secret;

/// Where a session begins (POST, with the token) and ends (DELETE).
pub(super) const PATH: &str = "/v1/session";

/// How long a browser stays logged in.
const SESSION_LENGTH: Duration = Duration::from_secs(12 * 3_600);

/// Sessions in all; the one that ends first gives way to another.
const MAX_SESSIONS: usize = 1_024;

/// Open sessions by the digest of their number. Behind a lock, because requests arrive on any task;
/// it is held for one look-up.
#[derive(Clone, Debug)]
pub(super) struct LoginSessions {
    /// The name of the cookie: browsers do not tell controllers on two ports of a machine apart.
    cookie: Arc<str>,
    open: Arc<Mutex<BTreeMap<[u8; 32], LoginSession>>>,
    limited: LimitCounters,
}

/// One of them.
#[derive(Clone, Debug)]
struct LoginSession {
    /// What the token grants that it was opened with.
    grants: AccessGrant,
    ends: Instant,
}

impl LoginSessions {
    pub(super) fn new(port: u16, limited: LimitCounters) -> Self {
        Self { cookie: format!("crux_session_{port}").into(), open: Arc::default(), limited }
    }

    /// Opens a session, and gives the header that sets its cookie; `None` without random numbers.
    pub(super) fn open_session(
        &self,
        grants: AccessGrant,
        is_secured: bool,
    ) -> Option<HeaderValue> {
        let text = random_secret().ok()?;
        let now = Instant::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| session.ends > now);
        if open.len() >= MAX_SESSIONS {
            let first = open.iter().min_by_key(|(_, session)| session.ends);
            let first = first.map(|(digest, _)| *digest);
            first.map(|digest| open.remove(&digest));
            self.limited.count(LimitReached::SessionEvicted);
        }
        let session = LoginSession { grants, ends: now + SESSION_LENGTH };
        open.insert(Sha256::digest(&text).into(), session);
        self.set_cookie(&text, SESSION_LENGTH, is_secured)
    }

    /// Ends the session of a request, and gives the header that deletes its cookie.
    pub(super) fn end_session(&self, headers: &HeaderMap, is_secured: bool) -> Option<HeaderValue> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.session_digest(headers).map(|digest| open.remove(&digest));
        self.set_cookie("", Duration::ZERO, is_secured)
    }

    /// What the session grants that a request has a cookie of.
    pub(super) fn find_grants(&self, headers: &HeaderMap) -> Option<AccessGrant> {
        let digest = self.session_digest(headers)?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get(&digest).filter(|session| session.ends > Instant::now())?;
        Some(session.grants.clone())
    }

    fn session_digest(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';').filter_map(|pair| pair.trim().split_once('=')));
        let (_, number) = pairs.find(|(name, _)| *name == &*self.cookie)?;
        Some(Sha256::digest(number).into())
    }

    fn set_cookie(&self, value: &str, lasts: Duration, is_secured: bool) -> Option<HeaderValue> {
        let secure = if is_secured { "; Secure" } else { "" };
        let (name, lasts) = (&self.cookie, lasts.as_secs());
        let cookie =
            format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lasts}{secure}");
        HeaderValue::from_str(&cookie).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AccessRole;

    fn grants_of(name: &str) -> AccessGrant {
        AccessGrant {
            name: name.to_owned(),
            role: AccessRole::Read,
            hosts: Vec::new(),
            tenants: Vec::new(),
        }
    }

    /// The headers of a request with the cookie that was set.
    fn cookie(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let pair = format!("other=1; {pair}").parse().unwrap();
        HeaderMap::from_iter([(header::COOKIE, pair)])
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_by_itself_or_on_request() {
        let sessions = LoginSessions::new(9_300, LimitCounters::default());
        let set = sessions.open_session(grants_of("ada"), false).unwrap();
        let text = set.to_str().unwrap();
        assert!(text.contains("; HttpOnly; SameSite=Strict; Max-Age=43200"), "{text}");
        let ada = cookie(&set);
        assert_eq!(sessions.find_grants(&ada).unwrap().name, "ada");
        assert_eq!(LoginSessions::new(9_301, LimitCounters::default()).find_grants(&ada), None);
        let bob = cookie(&sessions.open_session(grants_of("bob"), true).unwrap());
        sessions.end_session(&ada, true).unwrap();
        assert_eq!(sessions.find_grants(&ada), None);
        assert_eq!(sessions.find_grants(&bob).unwrap().name, "bob");
        tokio::time::advance(SESSION_LENGTH).await;
        assert_eq!(sessions.find_grants(&bob), None);
        for _ in 0..=MAX_SESSIONS {
            sessions.open_session(grants_of("eve"), true).unwrap();
        }
        assert_eq!(sessions.open.lock().unwrap().len(), MAX_SESSIONS);
    }
}
