//! Long computations that nobody waits for: forecasts for pictures, and better plans.
//!
//! The decision: they run at a lower priority of the operating system. On a machine of two processors
//! they would otherwise take half of what reports, repairs and answers need, for seconds where there
//! are hundreds of jobs.

use std::panic::resume_unwind;
use std::thread;

use rustix::process::{getpriority_process, setpriority_process};

/// `nice` of these threads: a tenth of the processor while others want it.
const NICE: i32 = 10;

/// The result of `work`, which runs with the threads that it starts at a low priority. The priority of
/// a thread cannot be raised again without a privilege, so it has a thread of its own.
pub(crate) fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            // Of this thread alone, on Linux. Where it is refused, the work is done all the same.
            let _ = getpriority_process(None).map(|had| setpriority_process(None, NICE.max(had)));
            work()
        });
        working.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_work_and_what_it_starts_has_a_low_priority() {
        let priority = || getpriority_process(None).unwrap();
        let before = priority();
        let inside = at_low_priority(|| (priority(), thread::spawn(priority).join().unwrap()));
        assert_eq!((inside, priority()), ((NICE.max(before), NICE.max(before)), before));
    }

    #[test]
    #[should_panic = "inside"]
    fn a_panic_is_that_of_the_caller() {
        at_low_priority(|| panic!("inside"));
    }
}
