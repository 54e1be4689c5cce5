//! Replays side by side on all cores, each told about while it lasts, and checkpoints of each.
//!
//! The decision: a checkpoint is written beside and then moved over the one before, so that a whole
//! one is there whenever the program is killed.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use simulator::replay::{Checkpoint, Replay, ReplayError, ReplayOutcome, Setup};

use crate::commands::simulate::progress::Progress;
use crate::failure::Failure;

/// Where checkpoints are kept, and how often they are written.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    /// The name of each begins so and ends in its scheduler's.
    pub(crate) file: String,
    /// Seconds between two.
    pub(crate) seconds: f64,
}

/// Replays all setups, in their order.
pub(crate) fn replay_all(
    setups: &[Setup],
    checkpoints: Option<&Checkpoints>,
) -> Result<Vec<ReplayOutcome>, Failure> {
    let replayed = setups.par_iter().map(|setup| match checkpoints {
        Some(checkpoints) => Kept::new(setup, checkpoints)?.run(setup),
        None => replay(setup),
    });
    replayed.collect()
}

/// Replays one setup to its end.
fn replay(setup: &Setup) -> Result<ReplayOutcome, Failure> {
    let mut replay = Replay::new(setup).map_err(|error| failure(&error))?;
    let mut progress = progress(setup);
    while replay.step().map_err(|error| failure(&error))? {
        progress.tell(replay.left() as f64);
    }
    Ok(replay.outcome())
}

fn progress(setup: &Setup) -> Progress {
    Progress::of(
        setup.scheduler.name(),
        setup.trace.jobs.len() as f64,
        "jobs",
    )
}

fn failure(error: &ReplayError) -> Failure {
    match error {
        ReplayError::Checkpoint(cause) => Failure::input("--checkpoint", cause),
        ReplayError::Placement(cause) => Failure::input("--placement", cause),
        ReplayError::Job(cause) => Failure::document(cause),
        _ => Failure::work(error),
    }
}

/// The checkpoint of one replay.
struct Kept {
    file: String,
    pause: Duration,
}

impl Kept {
    fn new(setup: &Setup, checkpoints: &Checkpoints) -> Result<Self, Failure> {
        let pause = Duration::try_from_secs_f64(checkpoints.seconds);
        Ok(Self {
            file: format!("{}.{}", checkpoints.file, setup.scheduler),
            pause: pause.map_err(|error| Failure::input("--checkpoint-seconds", error))?,
        })
    }

    fn run(&self, setup: &Setup) -> Result<ReplayOutcome, Failure> {
        let mut replay = match self.read()? {
            Some(checkpoint) => Replay::resume(setup, &checkpoint),
            None => Replay::new(setup),
        }
        .map_err(|error| failure(&error))?;
        let mut progress = progress(setup);
        let mut kept = Instant::now();
        while replay.step().map_err(|error| failure(&error))? {
            progress.tell(replay.left() as f64);
            if kept.elapsed() >= self.pause {
                self.write(&replay.checkpoint())?;
                kept = Instant::now();
            }
        }
        self.write(&replay.checkpoint())?;
        Ok(replay.outcome())
    }

    fn read(&self) -> Result<Option<Checkpoint>, Failure> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::input(&self.file, error)),
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                let checkpoint = read.map_err(|error| Failure::input(&self.file, error))?;
                eprintln!("going on from {}", self.file);
                Ok(Some(checkpoint))
            }
        }
    }

    fn write(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let text = serde_json::to_vec(checkpoint).map_err(|error| Failure::work(&error))?;
        let beside = format!("{}.new", self.file);
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.file));
        written.map_err(|error| Failure::input(&self.file, error))
    }
}
