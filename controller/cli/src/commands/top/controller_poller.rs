//! What is known of the controller, asked for on a thread of its own.
//!
//! Events say when to ask again, as for the page. The decision: what is known is replaced whole, so
//! whoever draws never sees half of an answer.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::controller::event_log::{EventPage, EventPosition, OperatorEvent};
use ::controller::northbound::controller_view::{JobRow, LinkRow, SwitchRow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use command_io::CommandError;
use command_io::{ControllerClient, FrameStream};

/// Events that can be scrolled back to.
const KEPT: usize = 500;

/// Whatever comes within this time is one reason to ask.
const GATHER: Duration = Duration::from_millis(200);

/// After this time it is asked again without a reason: loads that are measured change without one.
const REFRESH: Duration = Duration::from_secs(2);

/// Before a controller that is away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopSnapshot {
    pub(super) jobs: Vec<JobRow>,
    pub(super) links: Vec<LinkRow>,
    pub(super) switches: Vec<SwitchRow>,
    /// The latest last.
    pub(super) events: Vec<OperatorEvent>,
    /// Why there is nothing newer, if that is so.
    pub(super) trouble: Option<String>,
}

impl TopSnapshot {
    fn add_event(&mut self, event: OperatorEvent) {
        self.events.push(event);
        let too_many = self.events.len().saturating_sub(KEPT);
        self.events.drain(..too_many);
    }
}

/// The thread that asks.
#[derive(Debug)]
pub(super) struct ControllerPoller {
    snapshot: watch::Receiver<Arc<TopSnapshot>>,
    end: watch::Receiver<bool>,
}

impl ControllerPoller {
    /// Begins to ask.
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

    /// What is known now.
    pub(super) fn latest_snapshot(&self) -> Arc<TopSnapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Whether a signal says that it is over.
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
        // Keys still end it.
        Err(_) => std::future::pending().await,
    }
}

/// Everything, once.
pub(super) async fn read_snapshot(to: &ControllerClient) -> Result<TopSnapshot, CommandError> {
    let page: EventPage = to.get_json_async("/v1/events").await?;
    let mut known = TopSnapshot::default();
    page.events.into_iter().for_each(|event| known.add_event(event));
    refresh_snapshot(to, known).await
}

/// The same events with new answers.
async fn refresh_snapshot(
    to: &ControllerClient,
    known: TopSnapshot,
) -> Result<TopSnapshot, CommandError> {
    Ok(TopSnapshot {
        jobs: to.get_json_async("/v1/jobs").await?,
        links: to.get_json_async("/v1/links").await?,
        switches: to.get_json_async("/v1/switches").await?,
        trouble: None,
        ..known
    })
}

/// Asks for as long as anybody looks.
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

/// Hears events and asks after each, until the stream ends.
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

/// Takes in what comes in the time of one reason to ask; whether the stream goes on.
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

/// Waits for the next event and shows it at once, or until what is measured is old; whether the
/// stream goes on.
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
