//! Polls the controller on a thread of its own.
//!
//! Events trigger a refresh, as on the web page. The decision: a snapshot is replaced as a whole,
//! so a frame never shows half of a response.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::controller::event_log::{EventPage, EventPosition, OperatorEvent};
use ::controller::northbound::controller_view::{JobRow, LinkRow, SwitchRow};
use ::controller::northbound::utilization::{
    UtilizationHistory, UtilizationPage, UtilizationSeries,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use topology::Finding;

use command_io::CommandError;
use command_io::{ControllerClient, FrameStream};

/// Events that can be scrolled back to.
const KEPT: usize = 500;

/// Events within this time trigger one refresh.
const GATHER: Duration = Duration::from_millis(200);

/// The interval of refreshes without events: measured loads change without one.
const REFRESH: Duration = Duration::from_secs(2);

/// The delay before a reconnect.
const RETRY: Duration = Duration::from_secs(1);

/// The state of the controller as last read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopSnapshot {
    pub(super) jobs: Vec<UsedJob>,
    pub(super) links: Vec<LinkRow>,
    pub(super) switches: Vec<SwitchRow>,
    pub(super) findings: Vec<Finding>,
    /// The latest sample of the utilisation.
    pub(super) worth: UtilizationHistory,
    /// In order, the latest last.
    pub(super) events: Vec<OperatorEvent>,
    /// Why the snapshot is stale, if it is.
    pub(super) trouble: Option<String>,
}

/// A job with its utilisation: measured, planned and under ECMP.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UsedJob {
    pub(super) row: JobRow,
    pub(super) utilization: [Option<f64>; 3],
}

impl UsedJob {
    /// A job of a snapshot, with what a history has of it.
    pub(super) fn new(row: JobRow, worth: &UtilizationHistory) -> Self {
        let series = worth.jobs.iter().find(|series| series.name == row.id);
        Self { row, utilization: series.map_or([None; 3], UtilizationSeries::latest_values) }
    }

    /// The measured utilisation, else the planned one; unknown sorts last.
    pub(super) fn used(&self) -> f64 {
        let [measured, planned, _] = self.utilization;
        measured.or(planned).unwrap_or(-1.0)
    }

    /// The utilisation under ECMP; unknown sorts last.
    pub(super) fn ecmp(&self) -> f64 {
        self.utilization[2].unwrap_or(-1.0)
    }
}

impl TopSnapshot {
    fn add_event(&mut self, event: OperatorEvent) {
        self.events.push(event);
        let too_many = self.events.len().saturating_sub(KEPT);
        self.events.drain(..too_many);
    }
}

/// The polling thread, seen from the terminal.
#[derive(Debug)]
pub(super) struct ControllerPoller {
    snapshot: watch::Receiver<Arc<TopSnapshot>>,
    end: watch::Receiver<bool>,
}

impl ControllerPoller {
    /// Starts the polling thread.
    pub(super) fn spawn_poller(to: &ControllerClient) -> Result<Self, CommandError> {
        let (sender, known) = watch::channel(Arc::new(TopSnapshot::default()));
        let (ending, end) = watch::channel(false);
        let to = to.clone();
        let thread = thread::Builder::new().name("source".to_owned());
        thread
            .spawn(move || {
                let work = async {
                    tokio::select! {
                        () = poll_until_closed(&to, &sender) => {}
                        () = termination_signal() => {}
                    }
                    Ok(())
                };
                let _: Result<(), CommandError> = to.block_on(work);
                ending.send_replace(true);
            })
            .map_err(CommandError::failed)?;
        Ok(Self { snapshot: known, end })
    }

    /// The latest snapshot.
    pub(super) fn latest_snapshot(&self) -> Arc<TopSnapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Whether a signal requests termination.
    pub(super) fn is_terminated(&self) -> bool {
        *self.end.borrow()
    }
}

async fn termination_signal() {
    let signals = signal(SignalKind::interrupt()).and_then(|interrupt| {
        let terminate = signal(SignalKind::terminate())?;
        Ok((interrupt, terminate))
    });
    match signals {
        Ok((mut interrupt, mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without signal handlers, keys still end the program.
        Err(_) => std::future::pending().await,
    }
}

/// Reads a whole snapshot once.
pub(super) async fn read_snapshot(to: &ControllerClient) -> Result<TopSnapshot, CommandError> {
    let page: EventPage = to.get_json_async("/v1/events").await?;
    let mut known = TopSnapshot::default();
    page.events.into_iter().for_each(|event| known.add_event(event));
    refresh_snapshot(to, known).await
}

/// Keeps the events and reads everything else again.
async fn refresh_snapshot(
    to: &ControllerClient,
    known: TopSnapshot,
) -> Result<TopSnapshot, CommandError> {
    let latest = format!("/v1/utilization?seconds={}", UtilizationPage::LATEST);
    let worth: UtilizationHistory = to.get_json_async(&latest).await?;
    let jobs: Vec<JobRow> = to.get_json_async("/v1/jobs").await?;
    Ok(TopSnapshot {
        jobs: jobs.into_iter().map(|row| UsedJob::new(row, &worth)).collect(),
        findings: to.get_json_async("/v1/findings").await?,
        worth,
        links: to.get_json_async("/v1/links").await?,
        switches: to.get_json_async("/v1/switches").await?,
        trouble: None,
        ..known
    })
}

/// Polls until the receiver is dropped.
async fn poll_until_closed(to: &ControllerClient, sender: &watch::Sender<Arc<TopSnapshot>>) {
    let mut since = EventPosition::default();
    while !sender.is_closed() {
        if let Err(failure) = follow_events(to, sender, &mut since).await {
            let known = TopSnapshot {
                trouble: Some(failure.to_string()),
                ..TopSnapshot::clone(&sender.borrow())
            };
            sender.send_replace(Arc::new(known));
        }
        sleep(RETRY).await;
    }
}

/// Follows the event stream and refreshes after events, until it ends.
async fn follow_events(
    to: &ControllerClient,
    sender: &watch::Sender<Arc<TopSnapshot>>,
    since: &mut EventPosition,
) -> Result<(), CommandError> {
    let mut frames = to.open_event_stream(&format!("/v1/events?since={since}")).await?;
    let mut goes_on = true;
    while goes_on {
        let mut known = TopSnapshot::clone(&sender.borrow());
        goes_on = gather_events(to, &mut frames, &mut known, since).await?;
        sender.send_replace(Arc::new(refresh_snapshot(to, known).await?));
        if goes_on {
            goes_on = wait_for_event(to, &mut frames, sender, since).await?;
        }
    }
    Err(CommandError::Failed("the controller is away".to_owned()))
}

/// Collects the events of one refresh; false when the stream has ended.
async fn gather_events(
    to: &ControllerClient,
    frames: &mut FrameStream,
    known: &mut TopSnapshot,
    since: &mut EventPosition,
) -> Result<bool, CommandError> {
    let end = Instant::now() + GATHER;
    while let Ok(frame) = timeout_at(end, frames.next()).await {
        let Some(frame) = frame else { return Ok(false) };
        *since = frame.id.parse().unwrap_or(*since);
        if frame.event.is_empty() {
            known.add_event(to.parse_json(frame.data.as_bytes())?);
        }
    }
    Ok(true)
}

/// Waits for the next event and shows it at once, or until measured loads are stale; false when the
/// stream has ended.
async fn wait_for_event(
    to: &ControllerClient,
    frames: &mut FrameStream,
    sender: &watch::Sender<Arc<TopSnapshot>>,
    since: &mut EventPosition,
) -> Result<bool, CommandError> {
    let Ok(frame) = timeout(REFRESH, frames.next()).await else {
        return Ok(true);
    };
    let Some(frame) = frame else { return Ok(false) };
    *since = frame.id.parse().unwrap_or(*since);
    if frame.event.is_empty() {
        let mut known = TopSnapshot::clone(&sender.borrow());
        known.add_event(to.parse_json(frame.data.as_bytes())?);
        sender.send_replace(Arc::new(known));
    }
    Ok(true)
}
