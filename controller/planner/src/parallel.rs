//! Work on several threads, with results that do not depend on their number.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle, available_parallelism};

/// The results of both: `aside` runs in a thread of its own, or after `here` if none is to be had.
pub(crate) fn run_both<A: Send, H>(
    mut aside: impl FnMut() -> A + Send,
    here: impl FnOnce() -> H,
) -> (A, H) {
    let (ended, here) = thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, &mut aside);
        let here = here();
        (started.map(ScopedJoinHandle::join), here)
    });
    let aside = match ended {
        Ok(result) => result.unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => aside(),
    };
    (aside, here)
}

/// What `work` makes of each of the items, in their order, with a thread for each processor.
pub(crate) fn map_in_threads<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    map_among(items, available_parallelism().map_or(1, usize::from), &work)
}

fn map_among<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: &(impl Fn(&T) -> R + Sync),
) -> Vec<R> {
    if threads < 2 || items.len() < 2 {
        return items.iter().map(work).collect();
    }
    let (left, right) = items.split_at(items.len() / 2);
    let (mut results, others) = run_both(
        || map_among(left, threads / 2, work),
        || map_among(right, threads - threads / 2, work),
    );
    results.extend(others);
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_items_whatever_the_number_of_threads() {
        let items: Vec<u32> = (0..23).collect();
        let squares: Vec<u32> = items.iter().map(|item| item * item).collect();
        for threads in 0..30 {
            assert_eq!(map_among(&items, threads, &|item| item * item), squares);
        }
        assert_eq!(map_in_threads(&items, |item| item * item), squares);
        assert_eq!(map_in_threads(&[], |item: &u32| *item), Vec::<u32>::new());
    }

    #[test]
    #[should_panic = "on its own"]
    fn a_panic_aside_is_one_here() {
        run_both(|| panic!("on its own"), || ());
    }
}
