//! Response bodies that keep the shares of their request until the client has read them.
//!
//! The decision: a body is handed to the connection in pieces, so what the connection holds is
//! bounded; and when the connection does not come back for the next piece, the client is not
//! reading, which [`ResponseStall`] makes visible to the task of the connection.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// Largest piece.
const PIECE_BYTES: usize = 64 << 10;

/// Since when the responses of a connection wait for their client. Behind a lock, because the
/// connection writes responses while its task looks; it is held for one look.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseStall(Arc<Mutex<Vec<(u64, Instant)>>>);

impl ResponseStall {
    /// Since when the first of them waits.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(|(_, since)| *since).min()
    }

    /// Notes that a response, or the connection itself, waits since then, or does not.
    pub(super) fn set(&self, response: u64, since: Option<Instant>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(other, _)| *other != response);
        waiting.extend(since.map(|since| (response, since)));
    }
}

/// A body in pieces, with whatever is to be kept until it has been sent.
pub(super) struct PacedBody<G> {
    body: Body,
    /// What is left of the latest frame.
    rest: Bytes,
    trailers: Option<HeaderMap>,
    response: u64,
    stall: ResponseStall,
    _guard: G,
}

impl<G> PacedBody<G> {
    /// The body of the response with this number of a connection.
    pub(super) fn new(body: Body, response: u64, stall: ResponseStall, guard: G) -> Self {
        Self { body, rest: Bytes::new(), trailers: None, response, stall, _guard: guard }
    }

    fn next_piece(&mut self) -> Option<Frame<Bytes>> {
        if self.rest.is_empty() {
            return self.trailers.take().map(Frame::trailers);
        }
        Some(Frame::data(self.rest.split_to(PIECE_BYTES.min(self.rest.len()))))
    }
}

impl<G: Unpin> HttpBody for PacedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.stall.set(self.response, None);
        if let Some(piece) = self.next_piece() {
            self.stall.set(self.response, Some(Instant::now()));
            return Poll::Ready(Some(Ok(piece)));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        match frame.into_data() {
            Ok(data) => self.rest = data,
            Err(other) => self.trailers = other.into_trailers().ok(),
        }
        self.stall.set(self.response, Some(Instant::now()));
        match self.next_piece() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => Poll::Ready(Some(Ok(Frame::data(Bytes::new())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl<G> Drop for PacedBody<G> {
    fn drop(&mut self) {
        self.stall.set(self.response, None);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_comes_in_pieces_and_shows_who_does_not_read() {
        let stall = ResponseStall::default();
        let guard = Arc::new(());
        let body = Body::from(vec![7; 3 * PIECE_BYTES + 1]);
        let mut body = PacedBody::new(body, 1, stall.clone(), Arc::clone(&guard));
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            assert!(stall.stalled_since().is_some());
            sizes.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]);
        assert_eq!((stall.stalled_since(), Arc::strong_count(&guard)), (None, 2));
        drop(body);
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
