//! The one thread that owns an emulated network: it runs events and, between them, commands.
//!
//! Three modes: held, running to a time, released. The only clock read here is for a released
//! network at real-time pace, which sleeps until the next event is due; everything else follows
//! from events.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::handle::{COMMAND_LIMIT, ClockPace, EmulatedNetworkHandle, NetworkCommand};
use super::state::NetworkState;
use crate::time::Nanos;

/// Events that run before the next command.
const EVENT_BATCH: usize = 64;
/// A real-time network that falls this far behind does not catch up: its clock runs slow.
const LAG_LIMIT: Duration = Duration::from_millis(1);

/// The owner of an emulated network.
pub(super) struct NetworkOwner {
    pub(super) state: NetworkState,
    mode: ClockMode,
}

enum ClockMode {
    Held,
    RunUntil { time: Nanos, reached: oneshot::Sender<Nanos> },
    Free,
    RealTime { since: Instant, from: Nanos },
    Stopped,
}

/// How long to wait for the next command.
enum CommandWait {
    None,
    UntilCommand,
    Until(Instant),
}

/// Starts the owner on a thread of its own.
pub(super) fn spawn_owner(world: NetworkState) -> std::io::Result<EmulatedNetworkHandle> {
    let (sender, commands) = mpsc::channel(COMMAND_LIMIT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let owner = NetworkOwner { state: world, mode: ClockMode::Held };
    std::thread::Builder::new()
        .name("network".to_owned())
        .spawn(move || runtime.block_on(owner.run_loop(commands)))?;
    Ok(EmulatedNetworkHandle::new(sender))
}

impl NetworkOwner {
    /// Runs up to and including `time`, then holds and reports through `reached`.
    pub(super) fn run_until(&mut self, time: Nanos, reached: oneshot::Sender<Nanos>) {
        self.hold_clock();
        self.mode = ClockMode::RunUntil { time, reached };
    }

    /// Runs until another command changes the mode.
    pub(super) fn release_clock(&mut self, pace: ClockPace) {
        self.hold_clock();
        self.mode = match pace {
            ClockPace::Free => ClockMode::Free,
            ClockPace::RealTime => {
                ClockMode::RealTime { since: Instant::now(), from: self.state.now() }
            }
        };
    }

    /// Stops the clock.
    pub(super) fn hold_clock(&mut self) {
        if let ClockMode::RunUntil { reached, .. } =
            std::mem::replace(&mut self.mode, ClockMode::Held)
        {
            // The caller may have stopped waiting; the clock is held all the same.
            let _unheard = reached.send(self.state.now());
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.hold_clock();
        self.mode = ClockMode::Stopped;
    }

    async fn run_loop(mut self, mut commands: mpsc::Receiver<NetworkCommand>) {
        while !matches!(self.mode, ClockMode::Stopped) {
            let command = match self.process_events() {
                // Events are due, so only look whether a command has arrived between two batches.
                CommandWait::None => match commands.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => None,
                },
                CommandWait::UntilCommand => commands.recv().await,
                CommandWait::Until(time) => {
                    match tokio::time::timeout_at(time.into(), commands.recv()).await {
                        Ok(command) => command,
                        Err(_due) => continue,
                    }
                }
            };
            match command {
                Some(command) => command(&mut self),
                None => return,
            }
        }
    }

    /// Runs a batch of events, as the mode allows.
    fn process_events(&mut self) -> CommandWait {
        match self.mode {
            ClockMode::Held | ClockMode::Stopped => CommandWait::UntilCommand,
            ClockMode::Free => match self.process_batch(Nanos::MAX) {
                true => CommandWait::UntilCommand,
                false => CommandWait::None,
            },
            ClockMode::RunUntil { time, .. } => {
                if self.process_batch(time) {
                    self.state.advance_to(time);
                    self.hold_clock();
                }
                CommandWait::None
            }
            ClockMode::RealTime { since, from } => self.follow_real_time(since, from),
        }
    }

    fn follow_real_time(&mut self, since: Instant, from: Nanos) -> CommandWait {
        let elapsed = u64::try_from(since.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let due = from.saturating_add(elapsed);
        if self.process_batch(due) {
            self.state.advance_to(due);
            return match self.state.next_event_time() {
                Some(next) => CommandWait::Until(since + Duration::from_nanos(next - from)),
                None => CommandWait::UntilCommand,
            };
        }
        // Catching up would run events in bursts; a clock that falls behind starts anew from here.
        if u128::from(due - self.state.now()) > LAG_LIMIT.as_nanos() {
            self.mode = ClockMode::RealTime { since: Instant::now(), from: self.state.now() };
        }
        CommandWait::None
    }

    /// Runs at most a batch of the events up to `limit`; true when none is left.
    fn process_batch(&mut self, limit: Nanos) -> bool {
        for _ in 0..EVENT_BATCH {
            if self.state.next_event_time().is_none_or(|next| next > limit) {
                return true;
            }
            self.state.process_next_event();
        }
        false
    }
}
