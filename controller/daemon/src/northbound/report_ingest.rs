//! Streams of reports, each read by a task of its own.
//!
//! The decision: a stream is read no faster than its share ([`RateLimiter`]) and waits its turn at
//! the desk, so memory is bounded by the number of streams, and how long anybody waits by the
//! number of the others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::telemetry as proto;
use axum::extract::ConnectInfo;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};
use topology::Finding;

use super::listener::ClientPeer;
use super::rate_limiter::RateLimiter;
use crate::config::TelemetryConfig;
use crate::telemetry::task::StreamEvent;
use crate::telemetry::{ReportFeedback, ReporterId, TelemetryReport};

/// Feedback that is queued for one reporter; more is dropped.
const QUEUED_FEEDBACK: usize = 64;

/// Where streams arrive.
pub(super) struct ReportIngest {
    events: mpsc::Sender<StreamEvent>,
    limits: TelemetryConfig,
    next: AtomicU64,
    streams: OpenStreams,
}

/// Open streams by address. Behind a lock, because tonic calls from any task and the count must be
/// taken and checked at once; it is held for no longer than that.
#[derive(Clone, Debug, Default)]
struct OpenStreams(Arc<Mutex<BTreeMap<Option<IpAddr>, usize>>>);

/// One of them, for as long as its stream is open.
#[derive(Debug)]
struct StreamPermit {
    streams: OpenStreams,
    address: Option<IpAddr>,
}

impl OpenStreams {
    fn admit_stream(
        &self,
        address: Option<IpAddr>,
        limits: &TelemetryConfig,
    ) -> Result<StreamPermit, Status> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.entry(address).or_default();
        if *own >= limits.streams_per_address.get() || all >= limits.streams.get() {
            return Err(Status::resource_exhausted("too many streams of reports"));
        }
        *own += 1;
        Ok(StreamPermit { streams: self.clone(), address })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut counts = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.address) {
            *own -= 1;
        }
        counts.retain(|_, own| *own > 0);
    }
}

impl ReportIngest {
    pub(super) fn new(calls: mpsc::Sender<StreamEvent>, limits: &TelemetryConfig) -> Self {
        Self {
            events: calls,
            limits: limits.clone(),
            next: AtomicU64::new(1),
            streams: OpenStreams::default(),
        }
    }
}

#[tonic::async_trait]
impl proto::telemetry_server::Telemetry for ReportIngest {
    type StreamReportsStream =
        Pin<Box<dyn Stream<Item = Result<proto::ReportFeedback, Status>> + Send>>;

    async fn stream_reports(
        &self,
        request: Request<Streaming<proto::JobReport>>,
    ) -> Result<Response<Self::StreamReportsStream>, Status> {
        let peer = request.extensions().get::<ConnectInfo<ClientPeer>>();
        let address = peer.map(|ConnectInfo(peer)| peer.address.ip());
        let guest = self.streams.admit_stream(address, &self.limits)?;
        let (feedback, outgoing) = mpsc::channel(QUEUED_FEEDBACK);
        let line = StreamReader {
            reporter: ReporterId(self.next.fetch_add(1, Ordering::Relaxed)),
            events: self.events.clone(),
            feedback,
            limiter: RateLimiter::new(self.limits.reports_per_second.get(), Instant::now()),
        };
        let incoming = request.into_inner();
        tokio::spawn(async move {
            line.read_reports(incoming).await;
            drop(guest);
        });
        let outgoing = ReceiverStream::new(outgoing).map(|feedback| Ok(feedback.into()));
        Ok(Response::new(Box::pin(outgoing)))
    }
}

/// One stream.
struct StreamReader {
    reporter: ReporterId,
    events: mpsc::Sender<StreamEvent>,
    feedback: mpsc::Sender<ReportFeedback>,
    limiter: RateLimiter,
}

impl StreamReader {
    async fn read_reports(mut self, mut incoming: Streaming<proto::JobReport>) {
        let opened = StreamEvent::Opened(self.reporter, self.feedback.clone());
        if self.events.send(opened).await.is_err() {
            return;
        }
        while let Ok(Some(report)) = incoming.message().await {
            match TelemetryReport::try_from(report) {
                Ok(report) => {
                    let event = StreamEvent::Reported(self.reporter, report);
                    if self.events.send(event).await.is_err() {
                        return;
                    }
                }
                Err(unreadable) => self.reject_report(&unreadable),
            }
            sleep_until(self.limiter.reserve_slot(Instant::now())).await;
        }
        // If the desk has gone, so has everything that it knew.
        drop(self.events.send(StreamEvent::Closed(self.reporter)).await);
    }

    fn reject_report(&self, why: &dyn std::error::Error) {
        let feedback = ReportFeedback {
            to: Some(self.reporter),
            job: String::new(),
            finding: Finding::error("report", format!("refused: {why}")),
        };
        drop(self.feedback.try_send(feedback));
    }
}

impl From<ReportFeedback> for proto::ReportFeedback {
    fn from(feedback: ReportFeedback) -> Self {
        Self {
            job: feedback.job,
            severity: feedback.finding.severity.to_string(),
            text: feedback.finding.text,
        }
    }
}
