//! Whose turn it is to read a switch whole, or to write many entries to it.
//!
//! A controller that takes over has all its switches to read at once. Side by side they share the
//! processor, so all would be read late; in turns the first are written to while others are still
//! read. The decision: a turn is a courtesy and not a lock. It lasts, and is waited for, no longer
//! than the configuration says, so that a slow switch holds nobody up. Only large writes wait as
//! long as it takes: what is read back of hundreds of switches at once would take gigabytes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Turns of all sessions.
#[derive(Clone, Debug)]
pub(crate) struct ReadLimiter {
    permits: Arc<Semaphore>,
    large_writes: Arc<Semaphore>,
    turn: Duration,
}

impl ReadLimiter {
    /// So many at once, of which each lasts so long at most.
    pub(crate) fn new(count: usize, lasts: Duration) -> Self {
        let [permits, large_writes] = [(); 2].map(|()| Arc::new(Semaphore::new(count)));
        Self { permits, large_writes, turn: lasts }
    }

    /// Does the work when it is its turn, or when that has not come in time.
    pub(super) async fn run_limited<T>(&self, work: impl Future<Output = T>) -> T {
        let turn = timeout(self.turn, self.permits.acquire()).await;
        self.run_during_turn(turn, work).await
    }

    /// Does the work when it is its turn. A switch whose work takes longer than that keeps others
    /// waiting for one turn only.
    pub(super) async fn run_large_write<T>(&self, work: impl Future<Output = T>) -> T {
        let turn = self.large_writes.acquire().await;
        self.run_during_turn(turn, work).await
    }

    /// Does the work, and ends the turn when it is done or when the time is over.
    async fn run_during_turn<T, P>(&self, turn: P, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(self.turn) => drop(turn),
        }
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const LASTS: Duration = Duration::from_millis(20);

    #[tokio::test(start_paused = true)]
    async fn reads_take_turns_and_a_slow_read_blocks_others_briefly() {
        let (turns, begun) = (ReadLimiter::new(2, LASTS), Instant::now());
        let work = [1_000, 5, 5, 5, 1_000].map(Duration::from_millis);
        let done = work.map(|length| {
            let turns = turns.clone();
            async move {
                turns.run_limited(async { sleep(length).await }).await;
                begun.elapsed().as_millis()
            }
        });
        let done = futures::future::join_all(done).await;
        assert_eq!(done, [1_000, 5, 10, 15, 1_015]);
    }

    #[tokio::test(start_paused = true)]
    async fn large_writes_wait_for_their_turn_and_a_slow_one_takes_one_turn() {
        let (turns, begun) = (ReadLimiter::new(1, LASTS), Instant::now());
        let work = [1_000, 5, 5, 5].map(Duration::from_millis);
        let done = work.map(|length| {
            let turns = turns.clone();
            async move {
                turns.run_large_write(async { sleep(length).await }).await;
                begun.elapsed().as_millis()
            }
        });
        let done = futures::future::join_all(done).await;
        assert_eq!(done, [1_000, 25, 30, 35]);
    }

    #[tokio::test(start_paused = true)]
    async fn among_slow_reads_each_waits_at_most_one_turn() {
        let (turns, begun) = (ReadLimiter::new(1, LASTS), Instant::now());
        let hour = Duration::from_secs(3_600);
        let slow = (0..9).map(|_| turns.run_limited(async move { sleep(hour).await }));
        futures::future::join_all(slow).await;
        assert_eq!(begun.elapsed(), hour + LASTS);
    }
}
