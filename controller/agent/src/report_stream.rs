//! The stream of reports to the controller, which is opened again whenever it ends.
//!
//! The decision: what could not be sent is not kept. A controller that was away is told which jobs
//! there are, and then what happens from now on; windows of before would be compared with a clock
//! that has gone on.

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
use tracing::{info, warn};

use crate::AgentError;

/// Reports that wait; one too many is lost.
const REPORT_QUEUE: usize = 1_024;
/// What was heard and waits.
const EVENT_QUEUE: usize = 64;
/// The longest that connecting, and ending in order, may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection over which nothing comes is asked for a sign of life.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Whom to tell, and how each knows the other.
#[derive(Clone, Debug, Default)]
pub struct ControllerTarget {
    /// Where the controller listens, `host:port`.
    pub address: String,
    /// What is shown to it.
    pub token: Option<String>,
    /// Who it must be; without it, nothing is protected.
    pub tls: Option<ClientTlsConfig>,
}

impl ControllerTarget {
    /// Whoever listens at `address`.
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
        let value = |token: &String| format!("Bearer {token}").parse();
        let value = self.token.as_ref().map(value).transpose();
        value.map_err(|_| AgentError::Token)
    }
}

/// What comes from the controller's side.
#[derive(Debug)]
pub enum ReportStreamEvent {
    /// The stream is open; it knows no job yet.
    Opened,
    /// The controller says something.
    Feedback(proto::Remark),
}

/// The way to the controller.
#[derive(Debug)]
pub struct ReportStream {
    reports: mpsc::Sender<proto::Report>,
    events: mpsc::Receiver<ReportStreamEvent>,
    task: JoinHandle<()>,
}

impl ReportStream {
    /// Begins to connect to a controller. Needs a tokio runtime.
    ///
    /// # Errors
    /// The address is none, or token or TLS cannot be used.
    pub fn open(contact: &ControllerTarget) -> Result<Self, AgentError> {
        let way = (contact.tonic_endpoint()?, contact.authorization_header()?);
        let (say, reports) = mpsc::channel(REPORT_QUEUE);
        let (tell, heard) = mpsc::channel(EVENT_QUEUE);
        let task = tokio::spawn(keep_connected(way, reports, tell));
        Ok(Self { reports: say, events: heard, task })
    }

    /// Says something, if there is room; whether there was.
    pub fn send_report(&self, said: proto::report::Said) -> bool {
        let report = proto::Report { said: Some(said) };
        self.reports.try_send(report).is_ok()
    }

    /// The next thing that is heard.
    pub async fn next_event(&mut self) -> ReportStreamEvent {
        match self.events.recv().await {
            Some(heard) => heard,
            // The task ends only when it is told to.
            None => std::future::pending().await,
        }
    }

    /// Sends what waits, and ends the stream in order if there is one.
    pub async fn close(mut self) {
        drop(self.reports);
        self.events.close();
        if timeout(CONNECTION_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

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

async fn keep_connected(
    (endpoint, authorization): (Endpoint, Option<AsciiMetadataValue>),
    mut reports: mpsc::Receiver<proto::Report>,
    heard: mpsc::Sender<ReportStreamEvent>,
) {
    let mut backoff = ReconnectBackoff(ReconnectBackoff::FIRST);
    loop {
        let ended = match endpoint.connect().await {
            Ok(channel) => {
                let way = (channel, authorization.clone());
                stream_reports(way, &mut reports, &heard, &mut backoff).await
            }
            Err(error) => Err(error_chain(&error)),
        };
        let Err(why) = ended else { return };
        if reports.is_closed() {
            return;
        }
        let wait = backoff.next_wait();
        warn!(seconds = wait.as_secs_f64(), "no controller: {why}; trying again");
        tokio::select! {
            () = sleep(wait) => {}
            () = drain_until_closed(&mut reports) => return,
        }
    }
}

/// Waits until nobody wants to say anything any more; what is said meanwhile is lost.
async fn drain_until_closed(reports: &mut mpsc::Receiver<proto::Report>) {
    while reports.recv().await.is_some() {}
}

/// One stream, until there is nothing more to say, or why it ended before.
async fn stream_reports(
    (channel, authorization): (Channel, Option<AsciiMetadataValue>),
    reports: &mut mpsc::Receiver<proto::Report>,
    heard: &mpsc::Sender<ReportStreamEvent>,
    backoff: &mut ReconnectBackoff,
) -> Result<(), String> {
    let (say, saying) = mpsc::channel(1);
    let mut client = TelemetryClient::new(channel);
    let mut request = Request::new(ReceiverStream::new(saying));
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value);
    }
    let answer = client.report(request).await;
    let mut remarks = answer.map_err(|status| status.to_string())?.into_inner();
    while reports.try_recv().is_ok() {}
    info!("reporting");
    *backoff = ReconnectBackoff(ReconnectBackoff::FIRST);
    drop(heard.send(ReportStreamEvent::Opened).await);
    let mut say = Some(say);
    loop {
        tokio::select! {
            report = reports.recv(), if say.is_some() => match (report, &say) {
                (Some(report), Some(to)) => drop(to.send(report).await),
                _ => say = None,
            },
            remark = remarks.message() => match (remark, &say) {
                (Ok(Some(remark)), _) => drop(heard.send(ReportStreamEvent::Feedback(remark)).await),
                (Ok(None), None) => return Ok(()),
                (Ok(None), Some(_)) => return Err("the controller ended the stream".to_owned()),
                (Err(status), _) => return Err(status.to_string()),
            },
        }
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let causes: String = causes.map(|cause| format!(": {cause}")).collect();
    format!("{error}{causes}")
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
