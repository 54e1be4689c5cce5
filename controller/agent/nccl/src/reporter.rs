//! The plugin's own thread: drains the queue, and sends messages to the agent's socket.
//!
//! The thread sleeps a few milliseconds whenever the queue is empty. An agent that is absent or
//! slow costs nothing but the messages: a line that cannot be sent within the deadline is dropped,
//! and the connection is tried again later.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::analysis::TrafficAnalysis;
use crate::event::CommunicatorInfo;
use crate::message::{CommunicatorMessage, JobEnvironment, message_line};
use crate::recorder::EventRecorder;

/// Events that fit while the thread does not run: 131 ms at 10^6 events a second, 6 MiB.
pub(crate) const QUEUE_CAPACITY: usize = 1 << 17;
/// Pause when the queue is empty.
const PAUSE: Duration = Duration::from_millis(2);
/// Events after which the thread looks at the clock again.
const BATCH: usize = 8_192;
/// Limit of each write to the agent.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_secs(5);
/// Communicators that may open or close before the thread has seen them.
const MAX_CHANGES: usize = 1_024;
const DEFAULT_SOCKET: &str = "/run/crux/agent.sock";
const DEFAULT_REPORT_MS: u64 = 1_000;

/// A communicator that was opened or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommunicatorChange {
    Opened(CommunicatorInfo),
    Closed(u32),
}

/// Changes of communicators on their way to the thread. NCCL opens and closes a communicator in
/// milliseconds, so a lock is harmless here.
#[derive(Debug, Default)]
pub(crate) struct CommunicatorChanges {
    waiting: Mutex<Vec<CommunicatorChange>>,
}

impl CommunicatorChanges {
    /// False if too many changes wait.
    pub(crate) fn add(&self, change: CommunicatorChange) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.len() < MAX_CHANGES;
        if has_room {
            waiting.push(change);
        }
        has_room
    }

    fn take(&self) -> Vec<CommunicatorChange> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CommunicatorChange>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the environment says about reports.
#[derive(Clone, Debug)]
pub(crate) struct ReportSettings {
    socket: PathBuf,
    interval: Duration,
    job: JobEnvironment,
}

impl ReportSettings {
    /// From the environment of the process: `CRUX_AGENT_SOCKET`, `CRUX_NCCL_REPORT_MS` and the
    /// variables of [`JobEnvironment`].
    pub(crate) fn from_environment() -> Self {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let interval = read("CRUX_NCCL_REPORT_MS").and_then(|text| text.parse().ok());
        let interval = interval.filter(|interval| (10..=60_000).contains(interval));
        Self {
            socket: read("CRUX_AGENT_SOCKET").unwrap_or(DEFAULT_SOCKET.to_owned()).into(),
            interval: Duration::from_millis(interval.unwrap_or(DEFAULT_REPORT_MS)),
            job: JobEnvironment::from_variables(read),
        }
    }
}

/// Runs until the process ends.
pub(crate) fn run_reporter(
    recorder: &EventRecorder,
    changes: &CommunicatorChanges,
    settings: &ReportSettings,
) {
    let mut analysis = TrafficAnalysis::default();
    let mut agent = AgentConnection::new(settings.socket.clone());
    let mut due = Instant::now() + settings.interval;
    let mut unknown = 0;
    loop {
        let mut is_closing = false;
        let changed = changes.take();
        let (opened, closed): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|change| matches!(change, CommunicatorChange::Opened(_)));
        for change in opened {
            if let CommunicatorChange::Opened(info) = change
                && !analysis.open_communicator(info, recorder.now_ns())
            {
                unknown += 1;
            }
        }
        let is_drained = drain_queue(recorder, &mut analysis);
        for change in closed {
            if let CommunicatorChange::Closed(number) = change {
                analysis.close_communicator(number);
                is_closing = true;
            }
        }
        if is_closing || Instant::now() >= due {
            due = Instant::now() + settings.interval;
            let dropped = recorder.queue().dropped() + unknown;
            let messages = analysis.take_messages(recorder.now_ns(), dropped, &settings.job);
            agent.send_all(&messages);
        }
        if is_drained {
            thread::sleep(PAUSE);
        }
    }
}

/// Whether the queue was empty before a whole batch was taken.
fn drain_queue(recorder: &EventRecorder, analysis: &mut TrafficAnalysis) -> bool {
    for _ in 0..BATCH {
        match recorder.queue().pop() {
            Some(event) => analysis.apply_event(&event),
            None => return true,
        }
    }
    false
}

/// The connection to the agent, which may be absent.
#[derive(Debug)]
struct AgentConnection {
    path: PathBuf,
    stream: Option<UnixStream>,
    tried: Option<Instant>,
}

impl AgentConnection {
    fn new(path: PathBuf) -> Self {
        Self { path, stream: None, tried: None }
    }

    /// Sends messages, or drops them all if the agent does not take them.
    fn send_all(&mut self, messages: &[CommunicatorMessage]) {
        let may_retry = self.tried.is_none_or(|tried| tried.elapsed() >= RETRY);
        if self.stream.is_none() && may_retry {
            self.tried = Some(Instant::now());
            self.stream = self.connect();
        }
        let Some(stream) = &mut self.stream else { return };
        discard_replies(stream);
        let is_sent = messages.iter().all(|message| {
            let line = message_line(message) + "\n";
            stream.write_all(line.as_bytes()).is_ok()
        });
        if !is_sent {
            self.stream = None;
        }
    }

    fn connect(&self) -> Option<UnixStream> {
        let stream = UnixStream::connect(&self.path).ok()?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT)).ok()?;
        Some(stream)
    }
}

/// Reads what the agent has replied. An agent whose replies nobody reads would stop reading itself.
fn discard_replies(stream: &mut UnixStream) {
    let mut buffer = [0; 4_096];
    let _still_blocking = stream.set_nonblocking(true);
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
    let _still_nonblocking = stream.set_nonblocking(false);
}
