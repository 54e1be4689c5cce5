//! Progress of long runs, drawn on standard error where that is a terminal.
//!
//! The decision: a library draws the bars, so that runs in parallel do not overwrite each other's
//! lines and nothing is written into a file.

use indicatif::{MultiProgress, ProgressBar, ProgressFinish, ProgressStyle};

/// Bars of runs that are under way together, each below the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressGroup(MultiProgress);

impl ProgressGroup {
    /// A further bar, for a run of that name.
    pub(crate) fn add_bar(&self, name: &'static str, length: u64) -> ProgressBar {
        self.0.add(progress_bar(name, length))
    }
}

/// The bar of one run, which is removed when the run has ended.
pub(crate) fn progress_bar(name: &'static str, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos} of {len}, {eta} left");
    ProgressBar::new(length)
        .with_style(style.expect("the template is valid"))
        .with_prefix(name)
        .with_finish(ProgressFinish::AndClear)
}
