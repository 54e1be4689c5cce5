//! As whom etcd is asked: a name and a password once, and from then on the token that it gave for
//! them.
//!
//! [`calls`](super::calls) shows the token with every call, by way of [`TokenInterceptor`]. The
//! decision: a token is used until etcd does not know it any more, however long that is; how tokens
//! end is etcd's own business and differs between its kinds of them.

use tokio::sync::watch;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::client::EtcdError;
use crate::config::EtcdUser;

/// What shows that somebody said their password.
type AuthToken = MetadataValue<Ascii>;

/// What etcd reads a token from.
const HEADER: &str = "token";

/// A user and their latest token, the same one in all clones.
#[derive(Clone, Debug)]
pub(super) struct EtcdLogin {
    pub(super) user: EtcdUser,
    /// Where passwords go: who shows a token that has ended gets no other one.
    pub(super) channel: Channel,
    token: watch::Sender<Option<AuthToken>>,
}

impl EtcdLogin {
    pub(super) fn new(user: EtcdUser, channel: Channel) -> Self {
        Self { user, channel, token: watch::Sender::default() }
    }

    /// What shows the latest token.
    pub(super) fn token_interceptor(&self) -> TokenInterceptor {
        TokenInterceptor(Some(self.token.subscribe()))
    }

    /// Takes a token that etcd gave.
    pub(super) fn set_token(&self, token: &str) -> Result<(), EtcdError> {
        let mut token: AuthToken = token.parse().map_err(|_| self.login_error("no token"))?;
        token.set_sensitive(true);
        self.token.send_replace(Some(token));
        Ok(())
    }

    /// That etcd does not take the password.
    pub(super) fn login_error(&self, message: &str) -> EtcdError {
        EtcdError::Login { user: self.user.name.clone(), message: message.to_owned() }
    }
}

/// Shows the latest token with each call, where there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenInterceptor(Option<watch::Receiver<Option<AuthToken>>>);

impl Interceptor for TokenInterceptor {
    fn call(&mut self, mut asked: Request<()>) -> Result<Request<()>, Status> {
        let token = self.0.as_ref().and_then(|token| token.borrow().clone());
        if let Some(token) = token {
            asked.metadata_mut().insert(HEADER, token);
        }
        Ok(asked)
    }
}

/// Whether an answer means that a token has ended.
pub(super) fn is_token_expired(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
}
