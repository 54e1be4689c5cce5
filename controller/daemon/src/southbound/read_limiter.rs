//! Whose turn it is to read a switch whole, to write many entries to it, or to read back.
//!
//! A controller that takes over has all its switches to read at once. Side by side they share the
//! processor, so all would be read late; in turns the first are written to while others are still
//! read. After a failure all switches get a few entries each: traffic waits for the writes and
//! nobody for what is read back, so writes go first. The decision: a turn is a courtesy and not a
//! lock. It lasts, and is waited for, no longer than the configuration says, so that a slow switch
//! holds nobody up. Only large writes wait as long as it takes: what is read back of hundreds of
//! switches at once would take gigabytes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Turns of all sessions.
#[derive(Clone, Debug)]
pub(crate) struct ReadLimiter {
    permits: Arc<Semaphore>,
    large_writes: Arc<Semaphore>,
    small_writes: Arc<WriteCount>,
    turn: Duration,
}

/// Small writes, of all switches.
#[derive(Debug, Default)]
struct WriteCount {
    under_way: AtomicUsize,
    ended: AtomicUsize,
    none_left: Notify,
}

/// One of those under way, until it is dropped.
struct CountedWrite<'a>(&'a WriteCount);

impl WriteCount {
    fn begin_write(&self) -> CountedWrite<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        CountedWrite(self)
    }

    async fn wait_for_none(&self) {
        let mut none_left = pin!(self.none_left.notified());
        // From here on no notice is missed, so one that comes after the comparison is seen.
        none_left.as_mut().enable();
        if self.under_way.load(Ordering::Acquire) > 0 {
            none_left.await;
        }
    }
}

impl Drop for CountedWrite<'_> {
    fn drop(&mut self) {
        // Before the other count falls, so that who sees no write under way also sees that this one
        // ended.
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            // All waiters: each session waits by itself for the same moment.
            self.0.none_left.notify_waiters();
        }
    }
}

impl ReadLimiter {
    /// So many at once, of which each lasts so long at most.
    pub(crate) fn new(count: usize, lasts: Duration) -> Self {
        let [permits, large_writes] = [(); 2].map(|()| Arc::new(Semaphore::new(count)));
        Self { permits, large_writes, small_writes: Arc::default(), turn: lasts }
    }

    /// Does the work when it is its turn, or when that has not come in time.
    pub(super) async fn run_limited<T>(&self, work: impl Future<Output = T>) -> T {
        // The timeout holds no permit; the work then runs beside those that do.
        let turn = timeout(self.turn, self.permits.acquire()).await;
        self.run_during_turn(turn, work).await
    }

    /// Does the work when it is its turn. A switch whose work takes longer than that keeps others
    /// waiting for one turn only.
    pub(super) async fn run_large_write<T>(&self, work: impl Future<Output = T>) -> T {
        let turn = self.large_writes.acquire().await;
        self.run_during_turn(turn, work).await
    }

    /// Does the work at once; [`ReadLimiter::wait_for_writes`] waits for it.
    pub(super) async fn run_small_write<T>(&self, work: impl Future<Output = T>) -> T {
        let _write = self.small_writes.begin_write();
        work.await
    }

    /// Waits until no small write is under way, or none has ended for one turn.
    pub(super) async fn wait_for_writes(&self) {
        let ended = || self.small_writes.ended.load(Ordering::Acquire);
        let mut before = ended();
        while timeout(self.turn, self.small_writes.wait_for_none()).await.is_err() {
            let now = ended();
            // No small write has ended for a whole turn: a slow switch must not hold this one up.
            if now == before {
                break;
            }
            before = now;
        }
    }

    /// Does the work, and ends the turn when it is done or when the time is over.
    async fn run_during_turn<T, P>(&self, turn: P, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            // The work first, so that a turn that ends at the same poll does not cost another one.
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
    async fn reading_back_waits_for_small_writes_and_briefly_for_a_slow_one() {
        let turns = ReadLimiter::new(1, LASTS);
        let pass = |milliseconds| {
            let (turns, begun) = (turns.clone(), Instant::now());
            async move {
                turns.run_small_write(sleep(Duration::from_millis(milliseconds))).await;
                turns.wait_for_writes().await;
                begun.elapsed().as_millis()
            }
        };
        let at_once = |lengths: [u64; 4]| futures::future::join_all(lengths.map(pass));
        assert_eq!(at_once([5, 20, 35, 1]).await, [35; 4]);
        assert_eq!(at_once([5, 1_000, 12, 1]).await, [45, 1_000, 32, 41]);
        drop(timeout(LASTS, pass(1_000)).await);
        assert_eq!(pass(5).await, 5, "a write that was cancelled has ended");
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
