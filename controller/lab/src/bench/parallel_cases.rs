//! Many generated cases, as many at a time as the machine has cores.
//!
//! The decision: threads only work, and one owner collects; what comes out is in the order of the
//! cases, so it does not depend on how many threads there are.

use std::sync::mpsc;
use std::thread;

use rayon::prelude::*;

use crate::progress::progress_bar;

/// What comes of each of so many cases, by number.
pub(super) fn run_cases<T: Send>(cases: u32, of: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let (sender, receiver) = mpsc::channel();
    let progress = progress_bar("cases", cases.into());
    let mut done: Vec<(u32, T)> = thread::scope(|scope| {
        scope.spawn(|| {
            let numbers = (0..cases).into_par_iter();
            // A collector that went away has panicked, and says so itself.
            numbers.for_each_with(sender, |sender, number| {
                let _ = sender.send((number, of(number)));
            });
        });
        receiver.into_iter().inspect(|_| progress.inc(1)).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
