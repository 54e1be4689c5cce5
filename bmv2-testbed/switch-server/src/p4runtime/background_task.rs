//! Tasks beside the calls of a served switch, started again if they panic.
//!
//! The decision: they have no state of their own, so a panic loses the message at hand and nothing
//! else; without this, a switch would serve on and never again send a packet or a digest.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tracing::error;

/// Wait before a task that panicked starts again.
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// Spawns a task that runs what `work` makes until it ends, again after each panic.
pub(super) fn spawn_restarting<F>(
    name: &'static str,
    work: impl Fn() -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
            error!(task = name, "a task panicked; it is started again");
            tokio::time::sleep(RESTART_AFTER).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again() {
        let runs = Arc::<AtomicU32>::default();
        let seen = Arc::clone(&runs);
        let work = move || {
            let run = seen.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run >= 2, "planted") }
        };
        spawn_restarting("test", work).await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
