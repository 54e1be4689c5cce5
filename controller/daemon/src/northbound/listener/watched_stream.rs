//! A stream that shows when its peer does not read.
//!
//! What HTTP has buffered for a connection is no longer a body, so [`ResponseStall`] of bodies
//! alone would miss the end of a response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::super::paced_body::ResponseStall;

/// A stream whose writes are watched.
pub(super) struct WatchedStream<S> {
    stream: S,
    stall: ResponseStall,
    /// Its number among the responses of the connection.
    number: u64,
    is_blocked: bool,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, stall: ResponseStall, number: u64) -> Self {
        Self { stream, stall, number, is_blocked: false }
    }

    fn watch<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.is_blocked {
            self.is_blocked = written.is_pending();
            self.stall.set(self.number, self.is_blocked.then(Instant::now));
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
