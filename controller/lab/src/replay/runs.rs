//! Runs replays in parallel on all cores, prints their progress and writes checkpoints.
//!
//! The decision: a checkpoint is written beside and then moved over the one before, so that a whole
//! one is there whenever the program is killed.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rayon::prelude::*;
use simulator::Scheduler;
use simulator::replay::{
    ReplayCheckpoint, ReplayOutcome, ReplaySetup, TraceReplay, TraceReplayError,
};

use topology::error_chain;

use crate::progress::ProgressGroup;
use crate::scheduler_process::AnyScheduler;
use command_io::CommandError;

/// Where checkpoints are kept, if at all, and how often they are written.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct CheckpointArgs {
    /// Keep what is needed to go on later in files of this name and that of each scheduler; if they
    /// are there, go on from them
    #[arg(long = "checkpoint", value_name = "FILE")]
    file: Option<String>,
    /// Seconds between two checkpoints
    #[arg(long = "checkpoint-seconds", value_name = "CHECKPOINT_SECONDS", default_value_t = 10.0)]
    seconds: f64,
}

/// Replays all setups, in their order, and the first once more with the schedules of `program`, if
/// there is one. What a program knows is in no checkpoint, so its replay has none.
pub(crate) fn replay_all(
    setups: &[ReplaySetup],
    program: Option<&AnyScheduler>,
    checkpoints: &CheckpointArgs,
) -> Result<Vec<ReplayOutcome>, CommandError> {
    let progress = ProgressGroup::default();
    // Jobs have the flows that they have by ECMP.
    let of_program = setups.first().filter(|_| program.is_some());
    let of_program =
        of_program.map(|setup| ReplaySetup { scheduler: Scheduler::Ecmp, ..setup.clone() });
    let named = setups.iter().map(|setup| (setup, None));
    let runs: Vec<_> = named.chain(of_program.iter().map(|setup| (setup, program))).collect();
    let replayed = runs.par_iter().map(|(setup, program)| {
        let name = program.map_or(setup.scheduler.name(), AnyScheduler::name);
        let bar = progress.add_bar(name, setup.trace.jobs.len() as u64);
        let Some(program) = program else {
            let kept = CheckpointFile::for_setup(setup, checkpoints)?;
            return replay_setup(setup, kept.as_ref(), &bar);
        };
        let replay = TraceReplay::new(setup).map_err(|error| replay_error(&error))?;
        let source = program.start().map_err(CommandError::failed)?;
        run_to_end(replay.decided_by(source), None, &bar)
    });
    replayed.collect()
}

/// Replays one setup to its end, from where it is kept if it is.
fn replay_setup(
    setup: &ReplaySetup,
    kept: Option<&CheckpointFile>,
    progress: &ProgressBar,
) -> Result<ReplayOutcome, CommandError> {
    let checkpoint = kept.map(CheckpointFile::read_checkpoint).transpose()?.flatten();
    let replay = match checkpoint {
        Some(checkpoint) => TraceReplay::resume_from(setup, &checkpoint),
        None => TraceReplay::new(setup),
    }
    .map_err(|error| replay_error(&error))?;
    run_to_end(replay, kept, progress)
}

fn run_to_end(
    mut replay: TraceReplay<'_>,
    kept: Option<&CheckpointFile>,
    progress: &ProgressBar,
) -> Result<ReplayOutcome, CommandError> {
    let mut written = Instant::now();
    while replay.step_event().map_err(|error| replay_error(&error))? {
        progress.set_position(replay.departed_jobs() as u64);
        if let Some(kept) = kept.filter(|kept| written.elapsed() >= kept.pause) {
            kept.write_checkpoint(&replay.save_checkpoint())?;
            written = Instant::now();
        }
    }
    if let Some(kept) = kept {
        kept.write_checkpoint(&replay.save_checkpoint())?;
    }
    Ok(replay.to_outcome())
}

fn replay_error(error: &TraceReplayError) -> CommandError {
    match error {
        TraceReplayError::Checkpoint(cause) => CommandError::input("--checkpoint", cause),
        TraceReplayError::Placement(cause) => {
            CommandError::input("--placement", error_chain(&cause))
        }
        TraceReplayError::Job(cause) => CommandError::document(cause),
        _ => CommandError::failed(error),
    }
}

/// The checkpoint of one replay.
struct CheckpointFile {
    file: String,
    pause: Duration,
}

impl CheckpointFile {
    fn for_setup(
        setup: &ReplaySetup,
        checkpoints: &CheckpointArgs,
    ) -> Result<Option<Self>, CommandError> {
        let Some(file) = &checkpoints.file else {
            return Ok(None);
        };
        let pause = Duration::try_from_secs_f64(checkpoints.seconds);
        Ok(Some(Self {
            file: format!("{file}.{}", setup.scheduler),
            pause: pause.map_err(|error| CommandError::input("--checkpoint-seconds", error))?,
        }))
    }

    fn read_checkpoint(&self) -> Result<Option<ReplayCheckpoint>, CommandError> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CommandError::input(&self.file, error)),
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                let checkpoint = read.map_err(|error| CommandError::input(&self.file, error))?;
                eprintln!("going on from {}", self.file);
                Ok(Some(checkpoint))
            }
        }
    }

    fn write_checkpoint(&self, checkpoint: &ReplayCheckpoint) -> Result<(), CommandError> {
        let text = serde_json::to_vec(checkpoint).map_err(CommandError::failed)?;
        let beside = format!("{}.new", self.file);
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &self.file))
            .map_err(|error| CommandError::input(&self.file, error))
    }
}
