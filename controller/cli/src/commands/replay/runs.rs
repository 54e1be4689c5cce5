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

/// Where checkpoints are kept, if at all, and how often they are written.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    /// Keep what is needed to go on later in files of this name and that of each scheduler; if they
    /// are there, go on from them
    #[arg(long = "checkpoint", value_name = "FILE")]
    file: Option<String>,
    /// Seconds between two checkpoints
    #[arg(
        long = "checkpoint-seconds",
        value_name = "CHECKPOINT_SECONDS",
        default_value_t = 10.0
    )]
    seconds: f64,
}

/// Replays all setups, in their order.
pub(crate) fn replay_all(
    setups: &[Setup],
    checkpoints: &Checkpoints,
) -> Result<Vec<ReplayOutcome>, Failure> {
    let replayed = setups.par_iter().map(|setup| {
        let kept = Kept::of(setup, checkpoints)?;
        replay(setup, kept.as_ref())
    });
    replayed.collect()
}

/// Replays one setup to its end, from where it is kept if it is.
fn replay(setup: &Setup, kept: Option<&Kept>) -> Result<ReplayOutcome, Failure> {
    let checkpoint = kept.map(Kept::read).transpose()?.flatten();
    let mut replay = match checkpoint {
        Some(checkpoint) => Replay::resume(setup, &checkpoint),
        None => Replay::new(setup),
    }
    .map_err(|error| failure(&error))?;
    let jobs = setup.trace.jobs.len() as f64;
    let mut progress = Progress::of(setup.scheduler.name(), jobs, "jobs");
    let mut written = Instant::now();
    while replay.step().map_err(|error| failure(&error))? {
        progress.tell(replay.left() as f64);
        if let Some(kept) = kept.filter(|kept| written.elapsed() >= kept.pause) {
            kept.write(&replay.checkpoint())?;
            written = Instant::now();
        }
    }
    if let Some(kept) = kept {
        kept.write(&replay.checkpoint())?;
    }
    Ok(replay.outcome())
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
    fn of(setup: &Setup, checkpoints: &Checkpoints) -> Result<Option<Self>, Failure> {
        let Some(file) = &checkpoints.file else {
            return Ok(None);
        };
        let pause = Duration::try_from_secs_f64(checkpoints.seconds);
        Ok(Some(Self {
            file: format!("{file}.{}", setup.scheduler),
            pause: pause.map_err(|error| Failure::input("--checkpoint-seconds", error))?,
        }))
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
