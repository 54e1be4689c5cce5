//! A bound on the bytes of requests that are received and handled at once, on all connections.
//!
//! A request is decoded before anybody knows whether its sender may write. The decision: the bytes
//! of writes and programs are counted as they arrive and until their call has ended, and a body
//! that exceeds what is left fails. Controllers send far less; who sends more gets an error, and
//! the switch keeps its memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use super::MAX_REQUEST_BYTES;

/// Bytes of all such requests at once: two of the largest. Decoded they take about six times that.
pub(super) const BYTES_IN_FLIGHT: usize = 64 << 20;

/// The calls whose requests are counted; all others are small.
const COUNTED: [&str; 2] = ["/Write", "/SetForwardingPipelineConfig"];

/// A service whose large requests share a budget of bytes.
#[derive(Clone, Debug)]
pub(super) struct BudgetedService<S> {
    service: S,
    total: Arc<AtomicUsize>,
}

impl<S> BudgetedService<S> {
    pub(super) fn new(service: S) -> Self {
        Self { service, total: Arc::default() }
    }
}

impl<S: NamedService> NamedService for BudgetedService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for BudgetedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if !COUNTED.iter().any(|call| request.uri().path().ends_with(call)) {
            return self.service.call(request).boxed();
        }
        let bytes = Arc::new(CallBytes::new(Arc::clone(&self.total)));
        let counted = Arc::clone(&bytes);
        let request = request.map(|body| Body::new(CountedBody { body, bytes: counted }));
        let answer = self.service.call(request);
        async move {
            let answer = answer.await;
            // The bytes count until the call has ended, decoded or not.
            drop(bytes);
            answer
        }
        .boxed()
    }
}

/// The bytes of one call, given back when it ends.
#[derive(Debug)]
struct CallBytes {
    total: Arc<AtomicUsize>,
    taken: AtomicUsize,
}

impl CallBytes {
    fn new(total: Arc<AtomicUsize>) -> Self {
        Self { total, taken: AtomicUsize::new(0) }
    }

    /// How long the message of the call is, by the prefix that gRPC puts in front of it, if `data`
    /// are its first bytes: a flag and the length.
    fn announced_bytes(&self, data: &[u8]) -> Option<usize> {
        let [_, length @ ..] = *data.first_chunk::<5>()?;
        let is_first = self.taken.load(Ordering::Relaxed) == 0;
        is_first.then(|| u32::from_be_bytes(length) as usize)
    }

    /// Takes more bytes, if all calls together may have so many.
    fn take_bytes(&self, more: usize) -> bool {
        let before = self.total.fetch_add(more, Ordering::Relaxed);
        self.taken.fetch_add(more, Ordering::Relaxed);
        before + more <= BYTES_IN_FLIGHT
    }
}

impl Drop for CallBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The body of a counted request.
struct CountedBody {
    body: Body,
    bytes: Arc<CallBytes>,
}

impl HttpBody for CountedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let data = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(&[] as &[u8], |data| &data[..]),
            _ => &[],
        };
        if let Some(bytes) = self.bytes.announced_bytes(data).filter(|&b| b > MAX_REQUEST_BYTES) {
            // tonic would refuse it with OUT_OF_RANGE, where gRPC's C core has this code.
            let text = format!("the request has {bytes} bytes, at most {MAX_REQUEST_BYTES}");
            return Poll::Ready(Some(Err(Status::resource_exhausted(text))));
        }
        if !self.bytes.take_bytes(data.len()) {
            let text = "the requests in progress take too much memory; send this one again";
            return Poll::Ready(Some(Err(Status::resource_exhausted(text))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_share_the_budget_and_give_it_back() {
        let total = Arc::<AtomicUsize>::default();
        let [first, second] = [(); 2].map(|()| CallBytes::new(Arc::clone(&total)));
        assert!(first.take_bytes(BYTES_IN_FLIGHT - 1));
        assert!(second.take_bytes(1) && !second.take_bytes(1));
        drop(second);
        drop(first);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
