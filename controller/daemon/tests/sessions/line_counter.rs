//! Lines of the log, counted by the place in the source that logs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::span;

/// Counts the lines that a controller logs at `info` or above where it subscribes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineCounter(Arc<Mutex<LinesByPlace>>);

/// How many lines each place in the source has logged.
pub(crate) type LinesByPlace = BTreeMap<String, u64>;

impl LineCounter {
    /// The lines since it was asked last.
    pub(crate) fn take_lines(&self) -> LinesByPlace {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl tracing::Subscriber for LineCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("controller") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let file = metadata.file().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let place = format!("{file}:{}", metadata.line().unwrap_or_default());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
