//! Streams of reports, each read by a task of its own.
//!
//! The decision: a stream is read no faster than its share ([`Pace`]) and waits its turn at the
//! desk, so memory is bounded by the number of streams, and how long anybody waits by the number of
//! the others.

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

use super::doors::Peer;
use super::pace::Pace;
use crate::config::Telemetry;
use crate::telemetry::desk::Call;
use crate::telemetry::{Remark, Report, Reporter};

/// Remarks that wait for a reporter; one that does not read loses the rest.
const REMARKS: usize = 64;

/// Where streams arrive.
pub(super) struct Reception {
    calls: mpsc::Sender<Call>,
    limits: Telemetry,
    next: AtomicU64,
    guests: Guests,
}

/// Open streams by address. Behind a lock, because tonic calls from any task and the count must be
/// taken and checked at once; it is held for no longer than that.
#[derive(Clone, Debug, Default)]
struct Guests(Arc<Mutex<BTreeMap<Option<IpAddr>, usize>>>);

/// One of them, for as long as its stream is open.
#[derive(Debug)]
struct Guest {
    guests: Guests,
    address: Option<IpAddr>,
}

impl Guests {
    fn admit(&self, address: Option<IpAddr>, limits: &Telemetry) -> Result<Guest, Status> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.entry(address).or_default();
        if *own >= limits.streams_per_address.get() || all >= limits.streams.get() {
            return Err(Status::resource_exhausted("too many streams of reports"));
        }
        *own += 1;
        Ok(Guest {
            guests: self.clone(),
            address,
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut counts = self.guests.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.address) {
            *own -= 1;
        }
        counts.retain(|_, own| *own > 0);
    }
}

impl Reception {
    pub(super) fn new(calls: mpsc::Sender<Call>, limits: &Telemetry) -> Self {
        Self {
            calls,
            limits: limits.clone(),
            next: AtomicU64::new(1),
            guests: Guests::default(),
        }
    }
}

#[tonic::async_trait]
impl proto::telemetry_server::Telemetry for Reception {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<proto::Remark, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<proto::Report>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let peer = request.extensions().get::<ConnectInfo<Peer>>();
        let address = peer.map(|ConnectInfo(peer)| peer.address.ip());
        let guest = self.guests.admit(address, &self.limits)?;
        let (remarks, outgoing) = mpsc::channel(REMARKS);
        let line = Line {
            reporter: Reporter(self.next.fetch_add(1, Ordering::Relaxed)),
            calls: self.calls.clone(),
            remarks,
            pace: Pace::new(self.limits.reports_per_second.get(), Instant::now()),
        };
        let incoming = request.into_inner();
        tokio::spawn(async move {
            line.read(incoming).await;
            drop(guest);
        });
        let outgoing = ReceiverStream::new(outgoing).map(|remark| Ok(remark.into()));
        Ok(Response::new(Box::pin(outgoing)))
    }
}

/// One stream.
struct Line {
    reporter: Reporter,
    calls: mpsc::Sender<Call>,
    remarks: mpsc::Sender<Remark>,
    pace: Pace,
}

impl Line {
    async fn read(mut self, mut incoming: Streaming<proto::Report>) {
        let opened = Call::Opened(self.reporter, self.remarks.clone());
        if self.calls.send(opened).await.is_err() {
            return;
        }
        while let Ok(Some(report)) = incoming.message().await {
            match Report::try_from(report) {
                Ok(report) => {
                    let said = Call::Said(self.reporter, report);
                    if self.calls.send(said).await.is_err() {
                        return;
                    }
                }
                Err(unreadable) => self.refuse(&unreadable),
            }
            sleep_until(self.pace.take(Instant::now())).await;
        }
        // If the desk has gone, so has everything that it knew.
        drop(self.calls.send(Call::Closed(self.reporter)).await);
    }

    fn refuse(&self, why: &dyn std::error::Error) {
        let remark = Remark {
            to: Some(self.reporter),
            job: String::new(),
            finding: Finding::error("report", format!("refused: {why}")),
        };
        drop(self.remarks.try_send(remark));
    }
}

impl From<Remark> for proto::Remark {
    fn from(remark: Remark) -> Self {
        Self {
            job: remark.job,
            severity: remark.finding.severity.to_string(),
            text: remark.finding.text,
        }
    }
}
