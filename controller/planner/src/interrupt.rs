//! The end of a plan that nobody waits for any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says, when it is raised, that a plan will not be used: comparisons that it has not begun are left
/// out. One that is not raised changes nothing, so policies with different ones are equal.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Raises it, on whatever thread the plan is made.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for Interrupt {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
