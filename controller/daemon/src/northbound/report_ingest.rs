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
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status, Streaming};
use topology::Finding;

use super::auth::CallerIdentity;
use super::limit_counters::{LimitCounters, LimitReached};
use super::listener::ClientPeer;
use super::rate_limiter::RateLimiter;
use crate::config::TelemetryConfig;
use crate::telemetry::task::StreamEvent;
use crate::telemetry::{
    JobReport, ReportFeedback, ReporterId, ReporterIdentity, ReporterReply, ReporterScope,
    TelemetryReport,
};

/// Feedback that is queued for one reporter; more is dropped.
const QUEUED_FEEDBACK: usize = 64;

/// One stream has at most such a share of the bytes that wait.
const STREAM_SHARE: usize = 16;

/// The secret by which a reporter takes its jobs again after its stream broke, as metadata.
const LEASE: &str = "crux-lease";

/// Where streams arrive.
pub(super) struct ReportIngest {
    events: mpsc::Sender<StreamEvent>,
    limits: TelemetryConfig,
    /// Bytes of reports that may wait.
    queue: Arc<Semaphore>,
    /// Bytes of them of one stream.
    stream_bytes: usize,
    next: AtomicU64,
    streams: OpenStreams,
    limited: LimitCounters,
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
    pub(super) fn new(
        events: mpsc::Sender<StreamEvent>,
        limits: &TelemetryConfig,
        limited: LimitCounters,
    ) -> Self {
        Self {
            events,
            limited,
            limits: *limits,
            queue: Arc::new(Semaphore::new(limits.queue_bytes.get())),
            stream_bytes: (limits.queue_bytes.get() / STREAM_SHARE).max(1),
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
        let CallerIdentity(caller) = request.extensions().get().cloned().unwrap_or_default();
        let lease = request.metadata().get(LEASE).map(|lease| Sha256::digest(lease.as_bytes()));
        let scope: ReporterScope = request.extensions().get().cloned().unwrap_or_default();
        let lease = lease.map(Into::into);
        let identity = ReporterIdentity { caller, address, lease, scope: scope.clone() };
        let guest = self
            .streams
            .admit_stream(address, &self.limits)
            .inspect_err(|_| self.limited.count(LimitReached::ReportStreams))?;
        let (feedback, outgoing) = mpsc::channel(QUEUED_FEEDBACK);
        let line = StreamReader {
            reporter: ReporterId(self.next.fetch_add(1, Ordering::Relaxed)),
            events: self.events.clone(),
            feedback,
            scope,
            shares: [Arc::clone(&self.queue), Arc::new(Semaphore::new(self.stream_bytes))],
            stream_bytes: self.stream_bytes,
            limiter: RateLimiter::new(self.limits.reports_per_second.get(), Instant::now()),
            limited: self.limited.clone(),
        };
        let incoming = request.into_inner();
        tokio::spawn(async move {
            line.read_reports(identity, incoming).await;
            drop(guest);
        });
        let limited = self.limited.clone();
        let outgoing = ReceiverStream::new(outgoing).map(move |reply: ReporterReply| {
            if matches!(&reply, ReporterReply::Feedback(feedback) if feedback.is_refusal()) {
                limited.count(LimitReached::ReportRefused);
            }
            Ok(reply.into())
        });
        Ok(Response::new(Box::pin(outgoing)))
    }
}

/// One stream.
struct StreamReader {
    reporter: ReporterId,
    events: mpsc::Sender<StreamEvent>,
    feedback: mpsc::Sender<ReporterReply>,
    /// What it may report.
    scope: ReporterScope,
    /// Bytes of reports that may wait, of all streams and of this one.
    shares: [Arc<Semaphore>; 2],
    stream_bytes: usize,
    limiter: RateLimiter,
    limited: LimitCounters,
}

impl StreamReader {
    async fn read_reports(
        mut self,
        identity: ReporterIdentity,
        mut incoming: Streaming<proto::JobReport>,
    ) {
        let opened = StreamEvent::Opened(self.reporter, identity, self.feedback.clone());
        if self.events.send(opened).await.is_err() {
            return;
        }
        while let Some(report) = self.next_report(&mut incoming).await {
            let bytes = report.encoded_len();
            match TelemetryReport::try_from(report) {
                Ok(report) => {
                    if let Err(why) = self.check_scope(&report) {
                        self.reject_report(&why);
                    } else if self.queue_report(report, bytes).await.is_none() {
                        return;
                    }
                }
                Err(unreadable) => self.reject_report(&unreadable),
            }
            let now = Instant::now();
            let slot = self.limiter.reserve_slot(now);
            if slot > now {
                self.limited.count(LimitReached::ReportRate);
                sleep_until(slot).await;
            }
        }
        // If the desk has gone, so has everything that it knew.
        drop(self.events.send(StreamEvent::Closed(self.reporter)).await);
    }

    async fn next_report(
        &self,
        incoming: &mut Streaming<proto::JobReport>,
    ) -> Option<proto::JobReport> {
        let received = incoming.message().await;
        // What tonic says of a message that is longer than the service accepts.
        if received.as_ref().is_err_and(|status| status.code() == Code::OutOfRange) {
            self.limited.count(LimitReached::LargeReport);
        }
        received.ok().flatten()
    }

    fn check_scope(&self, report: &TelemetryReport) -> Result<(), String> {
        match report {
            TelemetryReport::Job(JobReport::Announcement(job)) => self.scope.check_job(job),
            // Of jobs that this stream has announced.
            TelemetryReport::Job(JobReport::Window(_) | JobReport::End(_)) => Ok(()),
            TelemetryReport::QueuePairs(report) => self.scope.check_host(&report.host),
            TelemetryReport::HostStatus(status) => self.scope.check_host(&status.host),
        }
    }

    /// Queues a report once there is room for its bytes; none if nobody processes reports.
    async fn queue_report(&self, report: TelemetryReport, bytes: usize) -> Option<()> {
        let bytes = u32::try_from(bytes.min(self.stream_bytes)).ok()?;
        let [all, own] = &self.shares;
        if all.available_permits().min(own.available_permits()) < bytes as usize {
            self.limited.count(LimitReached::ReportQueue);
        }
        // Its own first, so that a stream waits with nothing of what others could use.
        let own = Arc::clone(own).acquire_many_owned(bytes).await.ok()?;
        let all = Arc::clone(all).acquire_many_owned(bytes).await.ok()?;
        let event = StreamEvent::Reported(self.reporter, report, [all, own]);
        self.events.send(event).await.ok()
    }

    fn reject_report(&self, why: &dyn std::fmt::Display) {
        let feedback = ReportFeedback {
            to: Some(self.reporter),
            job: String::new(),
            finding: Finding::error("report", format!("refused: {why}")),
        };
        drop(self.feedback.try_send(ReporterReply::Feedback(feedback)));
    }
}

impl From<ReporterReply> for proto::ReportFeedback {
    fn from(reply: ReporterReply) -> Self {
        match reply {
            ReporterReply::Feedback(feedback) => Self {
                job: feedback.job,
                severity: feedback.finding.severity.to_string(),
                text: feedback.finding.text,
                ..Self::default()
            },
            ReporterReply::Slot(change) => {
                let finding = change.finding();
                let slot =
                    change.slot.map_or_else(proto::StartSlot::default, |slot| proto::StartSlot {
                        period_seconds: slot.period_seconds,
                        first_send_seconds: slot.first_send_seconds,
                        most_wait_seconds: slot.most_wait_seconds,
                    });
                Self {
                    job: change.job.to_string(),
                    severity: finding.severity.to_string(),
                    text: finding.text,
                    slot: Some(slot),
                    ..Self::default()
                }
            }
            ReporterReply::Levels(levels) => {
                Self { levels: Some(levels.as_ref().into()), ..Self::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_report_without_room_waits_and_is_counted() {
        let (events, _queued) = mpsc::channel(4);
        let limited = LimitCounters::default();
        let reader = StreamReader {
            reporter: ReporterId(1),
            events,
            feedback: mpsc::channel(1).0,
            scope: ReporterScope::default(),
            shares: [Arc::new(Semaphore::new(8)), Arc::new(Semaphore::new(4))],
            stream_bytes: 4,
            limiter: RateLimiter::new(1, Instant::now()),
            limited: limited.clone(),
        };
        let report = || TelemetryReport::Job(JobReport::End("gpt".to_owned()));
        reader.queue_report(report(), 3).await.unwrap();
        assert_eq!(limited.count_of(LimitReached::ReportQueue), 0);
        let waits = timeout(Duration::from_secs(60), reader.queue_report(report(), 3)).await;
        assert!(waits.is_err());
        assert_eq!(limited.count_of(LimitReached::ReportQueue), 1);
    }
}
