//! How many updates one switch takes in a request.
//!
//! P4Runtime has no way to ask (p4lang/p4runtime#125): a server with a limit refuses the whole
//! request. The decision: the size is found by halving what was refused, and holds for the
//! mastership; the next one asks anew, as the server may be another.

use std::sync::atomic::{AtomicUsize, Ordering};

use p4::codec::WriteError;
use tonic::Code;

/// The most updates that a request to one switch has. Writes that are under way at once share it,
/// so that what one of them finds out holds for all.
#[derive(Debug)]
pub(super) struct BatchSize(AtomicUsize);

impl BatchSize {
    /// Before anything was refused.
    pub(super) fn new(configured: usize) -> Self {
        Self(AtomicUsize::new(configured))
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Halves the size where `error`, the answer to a request of so many `updates`, says that they
    /// are too many. `None` if it says something else, or cannot say it of so few.
    pub(super) fn halve_after(&self, error: &WriteError, updates: usize) -> Option<usize> {
        let half = updates.div_ceil(2);
        // A single update cannot be divided: its refusal is about the update.
        if half == updates || !is_size_refused(error) {
            return None;
        }
        // Of concurrent writes the smallest size wins. Relaxed is enough, since no other memory
        // depends on it.
        let before = self.0.fetch_min(half, Ordering::Relaxed);
        Some(before.min(half))
    }
}

/// Whether a switch refuses a request for its size: RESOURCE_EXHAUSTED from servers that count
/// updates and from gRPC's C core, OUT_OF_RANGE from tonic, for bytes.
fn is_size_refused(error: &WriteError) -> bool {
    matches!(error, WriteError::Batch { code: Code::ResourceExhausted | Code::OutOfRange, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: Code) -> WriteError {
        WriteError::Batch { code, message: "too many".to_owned() }
    }

    #[test]
    fn what_a_switch_refuses_is_halved_down_to_single_updates() {
        let size = BatchSize::new(500);
        let mut tried = Vec::new();
        while let Some(next) = size.halve_after(&refusal(Code::ResourceExhausted), size.get()) {
            tried.push(next);
        }
        assert_eq!(tried, [250, 125, 63, 32, 16, 8, 4, 2, 1]);
    }

    #[test]
    fn only_a_refusal_for_size_halves_and_late_ones_do_not_grow_it() {
        let size = BatchSize::new(500);
        assert_eq!(size.halve_after(&refusal(Code::Unknown), 500), None);
        assert_eq!(size.halve_after(&refusal(Code::OutOfRange), 100), Some(50));
        assert_eq!(size.halve_after(&refusal(Code::ResourceExhausted), 500), Some(50));
        assert_eq!(size.get(), 50);
    }
}
