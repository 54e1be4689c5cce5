//! What is known of the controller, asked for on a thread of its own.
//!
//! Events say when to ask again, as for the page. The decision: what is known is replaced whole, so
//! whoever draws never sees half of an answer.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::controller::chronicle::{Happening, Page, Position};
use ::controller::northbound::answers::{JobRow, LinkRow, SwitchRow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::client::{Frames, To};
use crate::failure::Failure;

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
pub(super) struct Known {
    pub(super) jobs: Vec<JobRow>,
    pub(super) links: Vec<LinkRow>,
    pub(super) switches: Vec<SwitchRow>,
    /// The latest last.
    pub(super) events: Vec<Happening>,
    /// Why there is nothing newer, if that is so.
    pub(super) trouble: Option<String>,
}

impl Known {
    fn hear(&mut self, event: Happening) {
        self.events.push(event);
        let too_many = self.events.len().saturating_sub(KEPT);
        self.events.drain(..too_many);
    }
}

/// The thread that asks.
#[derive(Debug)]
pub(super) struct Source {
    known: watch::Receiver<Arc<Known>>,
    end: watch::Receiver<bool>,
}

impl Source {
    /// Begins to ask.
    pub(super) fn start(to: &To) -> Result<Self, Failure> {
        let (sender, known) = watch::channel(Arc::new(Known::default()));
        let (ending, end) = watch::channel(false);
        let to = to.clone();
        let asking = move || {
            let work = async {
                tokio::select! {
                    () = ask(&to, &sender) => {}
                    () = told_to_end() => {}
                }
                Ok(())
            };
            let _: Result<(), Failure> = to.run(work);
            ending.send_replace(true);
        };
        let thread = thread::Builder::new().name("source".to_owned());
        thread
            .spawn(asking)
            .map_err(|error| Failure::work(&error))?;
        Ok(Self { known, end })
    }

    /// What is known now.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.borrow())
    }

    /// Whether a signal says that it is over.
    pub(super) fn is_told_to_end(&self) -> bool {
        *self.end.borrow()
    }
}

async fn told_to_end() {
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
pub(super) async fn read(to: &To) -> Result<Known, Failure> {
    let page: Page = to.fetch("/v1/events").await?;
    let mut known = Known::default();
    page.events.into_iter().for_each(|event| known.hear(event));
    look(to, known).await
}

/// The same events with new answers.
async fn look(to: &To, known: Known) -> Result<Known, Failure> {
    Ok(Known {
        jobs: to.fetch("/v1/jobs").await?,
        links: to.fetch("/v1/links").await?,
        switches: to.fetch("/v1/switches").await?,
        trouble: None,
        ..known
    })
}

/// Asks for as long as anybody looks.
async fn ask(to: &To, sender: &watch::Sender<Arc<Known>>) {
    let mut since = Position::default();
    while !sender.is_closed() {
        if let Err(failure) = listen(to, sender, &mut since).await {
            let known = Known {
                trouble: Some(failure.to_string()),
                ..Known::clone(&sender.borrow())
            };
            sender.send_replace(Arc::new(known));
        }
        sleep(RETRY).await;
    }
}

/// Hears events and asks after each, until the stream ends.
async fn listen(
    to: &To,
    sender: &watch::Sender<Arc<Known>>,
    since: &mut Position,
) -> Result<(), Failure> {
    let mut frames = to.stream(&format!("/v1/events?since={since}")).await?;
    let mut goes_on = true;
    while goes_on {
        let mut known = Known::clone(&sender.borrow());
        goes_on = gather(to, &mut frames, &mut known, since).await?;
        sender.send_replace(Arc::new(look(to, known).await?));
        if goes_on {
            goes_on = wait(to, &mut frames, sender, since).await?;
        }
    }
    Err(Failure::Work("the controller is away".to_owned()))
}

/// Takes in what comes in the time of one reason to ask; whether the stream goes on.
async fn gather(
    to: &To,
    frames: &mut Frames,
    known: &mut Known,
    since: &mut Position,
) -> Result<bool, Failure> {
    let end = Instant::now() + GATHER;
    while let Ok(frame) = timeout_at(end, frames.next()).await {
        let Some(frame) = frame else { return Ok(false) };
        *since = frame.id.parse().unwrap_or(*since);
        if frame.event.is_empty() {
            known.hear(to.understand(frame.data.as_bytes())?);
        }
    }
    Ok(true)
}

/// Waits for the next event and shows it at once, or until what is measured is old; whether the
/// stream goes on.
async fn wait(
    to: &To,
    frames: &mut Frames,
    sender: &watch::Sender<Arc<Known>>,
    since: &mut Position,
) -> Result<bool, Failure> {
    let Ok(frame) = timeout(REFRESH, frames.next()).await else {
        return Ok(true);
    };
    let Some(frame) = frame else { return Ok(false) };
    *since = frame.id.parse().unwrap_or(*since);
    if frame.event.is_empty() {
        let mut known = Known::clone(&sender.borrow());
        known.hear(to.understand(frame.data.as_bytes())?);
        sender.send_replace(Arc::new(known));
    }
    Ok(true)
}
