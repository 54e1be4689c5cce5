//! Measures the stages of each change once, when every switch that is up holds it.

use tokio::sync::watch;

use crate::access::StageHistograms;
use crate::southbound::ChangeTiming;

/// Counts each generation once.
#[derive(Debug)]
pub(super) struct StageTimer {
    stages: watch::Sender<StageHistograms>,
    counted: u64,
}

impl StageTimer {
    pub(super) fn new() -> Self {
        Self { stages: watch::Sender::new(StageHistograms::default()), counted: 0 }
    }

    /// What was counted, as it changes.
    pub(super) fn watch_stages(&self) -> watch::Receiver<StageHistograms> {
        self.stages.subscribe()
    }

    /// Whether this generation is still to be counted.
    pub(super) fn is_uncounted(&self, generation: u64) -> bool {
        generation > self.counted
    }

    /// Counts a generation that every switch holds.
    pub(super) fn count_change(&mut self, timing: &ChangeTiming) {
        self.counted = timing.generation;
        self.stages.send_modify(|stages| stages.observe_timing(timing));
    }
}
