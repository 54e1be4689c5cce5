//! A session as the runtime holds it: a task, and the way to end it.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// A session that was started.
pub(super) struct SessionTask {
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
}

impl SessionTask {
    /// Ends it, and waits for that; it ends the next time that it would do anything.
    pub(super) async fn stop_session(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            error!("a session panicked");
        }
    }
}
