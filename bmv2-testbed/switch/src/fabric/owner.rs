//! The one thread that owns a fabric: it works off events and, between them, commands.
//!
//! Three modes: held, running to a time, released. The only clock read here is for a released
//! fabric at real-time pace, which sleeps until the next event is due; everything else follows from
//! events.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::handle::{COMMAND_LIMIT, Command, FabricHandle, Pace};
use super::world::World;
use crate::device::Nanos;

/// Events worked off before commands are looked at again.
const BATCH: usize = 64;
/// A real-time fabric that falls this far behind stops trying to catch up: its clock is slow.
const LAG_LIMIT: Duration = Duration::from_millis(1);

/// The owner of a fabric.
pub(super) struct Owner {
    pub(super) world: World,
    mode: Mode,
}

enum Mode {
    Held,
    RunUntil {
        time: Nanos,
        reached: oneshot::Sender<Nanos>,
    },
    Free,
    RealTime {
        since: Instant,
        from: Nanos,
    },
    Stopped,
}

/// What to do before the next command is looked at.
enum Pause {
    None,
    UntilCommand,
    Until(Instant),
}

/// Starts the owner on a thread of its own.
pub(super) fn spawn(world: World) -> std::io::Result<FabricHandle> {
    let (sender, commands) = mpsc::channel(COMMAND_LIMIT);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let owner = Owner {
        world,
        mode: Mode::Held,
    };
    std::thread::Builder::new()
        .name("fabric".to_owned())
        .spawn(move || runtime.block_on(owner.drive(commands)))?;
    Ok(FabricHandle::new(sender))
}

impl Owner {
    /// Runs up to and including `time`, then holds and says so.
    pub(super) fn run_until(&mut self, time: Nanos, reached: oneshot::Sender<Nanos>) {
        self.hold();
        self.mode = Mode::RunUntil { time, reached };
    }

    /// Runs until told otherwise.
    pub(super) fn release(&mut self, pace: Pace) {
        self.hold();
        self.mode = match pace {
            Pace::Free => Mode::Free,
            Pace::RealTime => Mode::RealTime {
                since: Instant::now(),
                from: self.world.now(),
            },
        };
    }

    /// Stops the clock.
    pub(super) fn hold(&mut self) {
        if let Mode::RunUntil { reached, .. } = std::mem::replace(&mut self.mode, Mode::Held) {
            // Whoever asked may have gone; the clock is held all the same.
            let _unheard = reached.send(self.world.now());
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.hold();
        self.mode = Mode::Stopped;
    }

    async fn drive(mut self, mut commands: mpsc::Receiver<Command>) {
        while !matches!(self.mode, Mode::Stopped) {
            let command = match self.advance() {
                Pause::None => match commands.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => None,
                },
                Pause::UntilCommand => commands.recv().await,
                Pause::Until(time) => {
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

    /// Works off a batch of events, as the mode allows.
    fn advance(&mut self) -> Pause {
        match self.mode {
            Mode::Held | Mode::Stopped => Pause::UntilCommand,
            Mode::Free => match self.work(Nanos::MAX) {
                true => Pause::UntilCommand,
                false => Pause::None,
            },
            Mode::RunUntil { time, .. } => {
                if self.work(time) {
                    self.world.advance_to(time);
                    self.hold();
                }
                Pause::None
            }
            Mode::RealTime { since, from } => self.keep_time(since, from),
        }
    }

    fn keep_time(&mut self, since: Instant, from: Nanos) -> Pause {
        let elapsed = u64::try_from(since.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let due = from.saturating_add(elapsed);
        if self.work(due) {
            self.world.advance_to(due);
            return match self.world.next_event() {
                Some(next) => Pause::Until(since + Duration::from_nanos(next - from)),
                None => Pause::UntilCommand,
            };
        }
        if u128::from(due - self.world.now()) > LAG_LIMIT.as_nanos() {
            self.mode = Mode::RealTime {
                since: Instant::now(),
                from: self.world.now(),
            };
        }
        Pause::None
    }

    /// Works off at most a batch of the events up to `limit`; true when none is left.
    fn work(&mut self, limit: Nanos) -> bool {
        for _ in 0..BATCH {
            if self.world.next_event().is_none_or(|next| next > limit) {
                return true;
            }
            self.world.step();
        }
        false
    }
}
