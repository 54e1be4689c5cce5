//! Many generated cases, as many at a time as the machine has cores.
//!
//! The decision: threads only work, and one owner collects; what comes out is in the order of the
//! cases, so it does not depend on how many threads there are. A run that is interrupted (SIGINT,
//! SIGTERM) finishes the cases under way and ends with those it has; the second signal ends the
//! process.

use std::fmt::Display;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};
use rayon::prelude::*;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::progress::progress_bar;

/// Which cases to draw, and where their figures go.
#[derive(clap::Args)]
pub(super) struct CaseArgs {
    /// Cases to draw
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) cases: u32,
    /// Draws the cases, and what they leave open
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Number of the first case, to look at a single one again
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(super) first: u32,
    /// Also write the figures of every single case to this file (JSON)
    #[arg(long, value_name = "FILE")]
    raw: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

impl CaseArgs {
    /// What comes of each case, by its number.
    ///
    /// # Errors
    /// A case fails, or signals cannot be received.
    pub(super) fn examine<T: Send>(
        &self,
        of: impl Fn(u32) -> Result<T, CommandError> + Sync,
    ) -> Result<Vec<T>, CommandError> {
        let found = run_cases(self.cases, |place| of(self.first.saturating_add(place)))?;
        found.into_iter().collect()
    }

    /// Writes what came of every case into the file that is asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_raw(&self, cases: &impl Serialize) -> Result<(), CommandError> {
        files::write_requested(self.raw.as_deref(), || {
            serde_json::to_string_pretty(cases).expect("numbers and names make valid JSON")
        })
    }

    /// Prints what came of all cases.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn print(&self, summary: &(impl Serialize + Display)) -> Result<(), CommandError> {
        match self.output.format {
            OutputFormat::Json => output::print_json(summary),
            OutputFormat::Table => output::print_line(summary),
        }
    }
}

/// The exit status of a process that SIGINT ended, by convention of shells.
const INTERRUPTED: i32 = 130;

/// What comes of each of so many cases, by number; of fewer if the run is interrupted.
///
/// # Errors
/// Signals cannot be received.
pub(super) fn run_cases<T: Send>(
    cases: u32,
    of: impl Fn(u32) -> T + Sync,
) -> Result<Vec<T>, CommandError> {
    let (sender, receiver) = mpsc::channel();
    let progress = progress_bar("cases", cases.into());
    let is_interrupted = AtomicBool::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(CommandError::failed)?;
    let (ended, end) = oneshot::channel::<()>();
    let mut done: Vec<(u32, T)> = thread::scope(|scope| {
        scope.spawn(|| {
            let numbers = (0..cases).into_par_iter();
            // A collector that went away has panicked, and says so itself.
            numbers.for_each_with(sender, |sender, number| {
                if !is_interrupted.load(Ordering::Relaxed) {
                    let _ = sender.send((number, of(number)));
                }
            });
        });
        let watch = scope.spawn(|| runtime.block_on(watch_signals(&is_interrupted, end)));
        let done = receiver.into_iter().inspect(|_| progress.inc(1)).collect();
        drop(ended);
        watch.join().expect("waiting for signals does not panic").map(|()| done)
    })?;
    if done.len() < cases as usize {
        eprintln!("interrupted: {} of {cases} cases were run", done.len());
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Notes the first signal, and ends the process at the second; returns once all cases have ended.
async fn watch_signals(
    is_interrupted: &AtomicBool,
    mut end: oneshot::Receiver<()>,
) -> Result<(), CommandError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandError::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandError::failed)?;
    loop {
        tokio::select! {
            _ = &mut end => return Ok(()),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if is_interrupted.swap(true, Ordering::Relaxed) {
            process::exit(INTERRUPTED);
        }
    }
}
