//! Documents and certificates that are read again when they change.
//!
//! The decision: files are polled, and a change counts once two polls agree. This works on every
//! file system and with every editor, and a file that is only half written is not read.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// The interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The modification time and length of a file; none if it does not exist.
type FileStamp = Option<(SystemTime, u64)>;

/// Files that are watched.
pub struct FileWatch {
    files: Vec<PathBuf>,
    steady: DebouncedValue<Vec<FileStamp>>,
    polls: Interval,
}

impl FileWatch {
    /// Watches these files from now on.
    pub fn new(files: impl Iterator<Item = PathBuf>) -> Self {
        let files: Vec<PathBuf> = files.collect();
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { steady: DebouncedValue::new(file_stamps(&files)), files, polls }
    }

    /// Waits until a file has changed and is stable.
    pub async fn wait_for_change(&mut self) {
        loop {
            self.polls.tick().await;
            if self.steady.observe_value(file_stamps(&self.files)) {
                return;
            }
        }
    }
}

fn file_stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    files
        .iter()
        .map(|file| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}

/// A value that counts once it was observed twice in a row.
struct DebouncedValue<T> {
    counts: T,
    seen: T,
}

impl<T: Clone + PartialEq> DebouncedValue<T> {
    fn new(counts: T) -> Self {
        let seen = counts.clone();
        Self { counts, seen }
    }

    /// Whether the value has changed and is stable.
    fn observe_value(&mut self, now: T) -> bool {
        // Two equal observations in a row: an editor may still be writing after the first one.
        let is_steady = now == self.seen;
        self.seen = now;
        let is_changed = is_steady && self.seen != self.counts;
        if is_changed {
            self.counts = self.seen.clone();
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_and_only_when_stable() {
        let mut steady = DebouncedValue::new(1);
        let seen = [1, 2, 3, 3, 3, 1, 3, 3, 4, 4].map(|now| steady.observe_value(now));
        let t = [false, false, false, true, false, false, false, false, false, true];
        assert_eq!(seen, t);
    }
}
