//! The stream of reports to the controller, with reconnection.
//!
//! The decision: reports that cannot be sent are dropped. After a reconnection the controller gets
//! the announcements of all jobs and then current windows; older windows would not match its clock.

use std::path::PathBuf;
use std::time::Duration;

use api::telemetry as proto;
use proto::telemetry_client::TelemetryClient;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use topology::error_chain;
use tracing::{info, warn};

use crate::agent_error::AgentError;
use crate::reporter_lease::load_lease;

/// Reports that may be queued; further ones are dropped.
const REPORT_QUEUE: usize = 1_024;
/// Events that may be queued for the agent.
const EVENT_QUEUE: usize = 64;
/// Limit for connecting, and for an orderly end of the stream.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keepalive pings on an idle connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Address of a controller, and how agent and controller authenticate each other.
#[derive(Clone, Debug, Default)]
pub struct ControllerTarget {
    /// Where the controller listens, `host:port`.
    pub address: String,
    /// Bearer token that the agent sends.
    pub token: Option<String>,
    /// TLS settings; without them the connection is neither encrypted nor authenticated.
    pub tls: Option<ClientTlsConfig>,
    /// Where the lease of this reporter is kept; without it, every stream task has its own.
    pub lease_file: Option<PathBuf>,
}

impl ControllerTarget {
    /// A controller at `address`, without token and TLS.
    pub fn from_address(address: &str) -> Self {
        Self { address: address.to_owned(), ..Self::default() }
    }

    fn tonic_endpoint(&self) -> Result<Endpoint, AgentError> {
        let address = &self.address;
        let scheme = self.tls.as_ref().map_or("http", |_| "https");
        let endpoint = Endpoint::try_from(format!("{scheme}://{address}"));
        let endpoint = endpoint.map_err(|_| AgentError::Address(address.clone()))?;
        let endpoint = match &self.tls {
            Some(tls) => { endpoint.tls_config(tls.clone()) }.map_err(AgentError::Tls)?,
            None => endpoint,
        };
        Ok(endpoint
            .connect_timeout(CONNECTION_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true))
    }

    fn authorization_header(&self) -> Result<Option<AsciiMetadataValue>, AgentError> {
        let header = self.token.as_ref().map(|token| format!("Bearer {token}").parse());
        header.transpose().map_err(|_| AgentError::Token)
    }
}

/// What the agent receives from the stream.
#[derive(Debug)]
pub enum ReportStreamEvent {
    /// A stream was opened; no job is announced on it yet.
    Opened,
    /// The controller sent feedback on a report.
    Feedback(proto::ReportFeedback),
}

/// Handle of the task that keeps a stream to the controller open.
#[derive(Debug)]
pub struct ReportStream {
    reports: mpsc::Sender<proto::JobReport>,
    events: mpsc::Receiver<ReportStreamEvent>,
    task: JoinHandle<()>,
}

impl ReportStream {
    /// Starts to connect to a controller. Needs a tokio runtime.
    ///
    /// # Errors
    /// The address, the token or the TLS settings are invalid.
    pub fn open(contact: &ControllerTarget) -> Result<Self, AgentError> {
        let endpoint = contact.tonic_endpoint()?;
        let authorization = contact.authorization_header()?;
        let (reports, incoming) = mpsc::channel(REPORT_QUEUE);
        let (outgoing, events) = mpsc::channel(EVENT_QUEUE);
        let lease = load_lease(contact.lease_file.as_deref());
        let lease = lease.and_then(|lease| lease.parse().ok());
        let connection = StreamConnection { endpoint, authorization, lease, events: outgoing };
        let task = tokio::spawn(connection.keep_connected(incoming));
        Ok(Self { reports, events, task })
    }

    /// Queues a report; false if the queue is full and the report is dropped.
    pub fn send_report(&self, report: proto::job_report::Report) -> bool {
        let report = proto::JobReport { report: Some(report) };
        self.reports.try_send(report).is_ok()
    }

    /// Waits for the next event.
    pub async fn next_event(&mut self) -> ReportStreamEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task only ends after `close`.
            None => std::future::pending().await,
        }
    }

    /// Sends the queued reports and ends the stream, if one is open.
    pub async fn close(mut self) {
        drop(self.reports);
        self.events.close();
        if timeout(CONNECTION_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// The metadata with the lease, as the controller expects it.
const LEASE: &str = "crux-lease";

/// How long to wait between attempts.
#[derive(Clone, Copy, Debug)]
struct ReconnectBackoff(Duration);

impl ReconnectBackoff {
    const FIRST: Duration = Duration::from_millis(200);
    const LAST: Duration = Duration::from_secs(20);

    /// The next wait; each is twice the last one, up to a limit.
    fn next_wait(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (2 * wait).min(Self::LAST);
        wait
    }
}

/// What each attempt to connect needs.
struct StreamConnection {
    endpoint: Endpoint,
    authorization: Option<AsciiMetadataValue>,
    /// The secret by which the next stream takes the jobs of a broken one.
    lease: Option<AsciiMetadataValue>,
    events: mpsc::Sender<ReportStreamEvent>,
}

impl StreamConnection {
    async fn keep_connected(self, mut reports: mpsc::Receiver<proto::JobReport>) {
        let mut backoff = ReconnectBackoff(ReconnectBackoff::FIRST);
        loop {
            let ended = match self.endpoint.connect().await {
                Ok(channel) => self.stream_reports(channel, &mut reports, &mut backoff).await,
                Err(error) => Err(error_chain(&error)),
            };
            let Err(reason) = ended else { return };
            if reports.is_closed() {
                return;
            }
            let wait = backoff.next_wait();
            warn!(
                seconds = wait.as_secs_f64(),
                "no connection to the controller: {reason}; retrying"
            );
            // The queue must not fill up meanwhile: its reports would be stale after the reconnect.
            tokio::select! {
                () = sleep(wait) => {}
                () = drain_until_closed(&mut reports) => return,
            }
        }
    }

    /// Runs one stream until all reports are sent; the error is why it ended before.
    async fn stream_reports(
        &self,
        channel: Channel,
        reports: &mut mpsc::Receiver<proto::JobReport>,
        backoff: &mut ReconnectBackoff,
    ) -> Result<(), String> {
        let (requests, outgoing) = mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        if let Some(value) = &self.authorization {
            request.metadata_mut().insert("authorization", value.clone());
        }
        if let Some(value) = &self.lease {
            request.metadata_mut().insert(LEASE, value.clone());
        }
        let response = TelemetryClient::new(channel).stream_reports(request).await;
        let mut feedback = response.map_err(|status| status.to_string())?.into_inner();
        // Reports queued while disconnected are stale; the `Opened` event causes announcements.
        while reports.try_recv().is_ok() {}
        info!("reporting");
        // Only an open stream resets the backoff: a controller may accept connections and still
        // refuse streams.
        *backoff = ReconnectBackoff(ReconnectBackoff::FIRST);
        drop(self.events.send(ReportStreamEvent::Opened).await);
        let mut requests = Some(requests);
        loop {
            tokio::select! {
                report = reports.recv(), if requests.is_some() => match (report, &requests) {
                    (Some(report), Some(requests)) => drop(requests.send(report).await),
                    // Dropping the sender ends our half of the stream; the server then ends its
                    // own.
                    _ => requests = None,
                },
                message = feedback.message() => match (message, &requests) {
                    (Ok(Some(feedback)), _) => {
                        drop(self.events.send(ReportStreamEvent::Feedback(feedback)).await);
                    }
                    (Ok(None), None) => return Ok(()),
                    (Ok(None), Some(_)) => return Err("the controller ended the stream".to_owned()),
                    (Err(status), _) => return Err(status.to_string()),
                },
            }
        }
    }
}

/// Discards reports until the agent closes the stream.
async fn drain_until_closed(reports: &mut mpsc::Receiver<proto::JobReport>) {
    while reports.recv().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_are_bounded() {
        let mut backoff = ReconnectBackoff(ReconnectBackoff::FIRST);
        let waits: Vec<_> = (0..9).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits[..4], [200, 400, 800, 1600]);
        assert_eq!(waits[8], 20_000);
    }
}
