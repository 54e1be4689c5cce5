//! Supervision of tasks: none that panics is lost without a word.
//!
//! The decision: a task whose state survives a panic (observers, sessions, telemetry) is run again
//! after a backoff; one whose state must be whole (the event loop, the cluster member, what accepts
//! connections) ends the controller, so that the service manager starts a new process. Both are
//! logged and reported as findings.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use topology::Finding;
use tracing::error;

use crate::retry_backoff::RetryBackoff;
use crate::standing_findings::StandingFindings;

/// Waits before a task runs again. One that ran for longer than the longest begins with the first.
const RESTART: RetryBackoff =
    RetryBackoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };

/// When the event loop last answered its watchdog; cheap to clone, and all clones are one.
#[derive(Clone, Debug, Default)]
pub struct LoopHeartbeat(watch::Sender<Option<Instant>>);

impl LoopHeartbeat {
    /// Records that the event loop has answered.
    pub fn record_answer(&self, now: Instant) {
        self.0.send_replace(Some(now));
    }

    /// How long it has been silent by `now`; none if nobody watches it.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        let last = *self.0.borrow();
        last.map(|last| now.saturating_duration_since(last))
    }
}

/// Supervises the tasks of one controller.
#[derive(Clone, Debug, Default)]
pub struct TaskSupervisor {
    findings: StandingFindings,
    stop: CancellationToken,
}

impl TaskSupervisor {
    /// A supervisor that reports to `findings` and ends the controller by `stop`.
    pub fn new(findings: StandingFindings, stop: CancellationToken) -> Self {
        Self { findings, stop }
    }

    /// The standing findings to which panics and stalls are added.
    pub fn findings(&self) -> &StandingFindings {
        &self.findings
    }

    /// A token that is cancelled with the controller, or by itself.
    pub fn child_stop(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Runs `work` on `state` until it ends, again after each panic.
    pub async fn run_restarting<T>(
        &self,
        name: &str,
        state: &mut T,
        mut work: impl for<'a> FnMut(&'a mut T) -> BoxFuture<'a, ()>,
    ) {
        let mut panics = 0;
        loop {
            let begun = Instant::now();
            if AssertUnwindSafe(work(state)).catch_unwind().await.is_ok() {
                return;
            }
            panics = if begun.elapsed() > RESTART.longest { 1 } else { panics + 1 };
            self.report_panic(name, "it was started again");
            tokio::time::sleep(RESTART.wait_after(panics)).await;
        }
    }

    /// Spawns a task without which the controller cannot go on.
    pub fn spawn_critical(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let supervisor = self.clone();
        tokio::spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                supervisor.report_panic(name, "the controller ends; switches keep their entries");
                supervisor.stop.cancel();
            }
        })
    }

    fn report_panic(&self, name: &str, consequence: &str) {
        error!(task = name, "a task panicked; {consequence}");
        let text = format!("the task `{name}` panicked; {consequence}; please report it");
        self.findings.report_finding(format!("task {name}"), Finding::error("controller", text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_runs_again_with_its_state() {
        let findings = StandingFindings::default();
        let supervisor = TaskSupervisor::new(findings.clone(), CancellationToken::new());
        let mut runs = 0;
        let begun = Instant::now();
        let running = supervisor.run_restarting("observer", &mut runs, |runs| {
            *runs += 1;
            let is_last = *runs == 4;
            async move { assert!(is_last, "planted") }.boxed()
        });
        running.await;
        assert_eq!((runs, begun.elapsed().as_millis()), (4, 100 + 200 + 400));
        let found = findings.list_findings();
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("`observer` panicked"), "{found:?}");
    }

    #[tokio::test]
    async fn a_critical_task_that_panics_ends_the_controller() {
        let stop = CancellationToken::new();
        let supervisor = TaskSupervisor::new(StandingFindings::default(), stop.clone());
        supervisor.spawn_critical("loop", async { panic!("planted") }).await.unwrap();
        assert!(stop.is_cancelled());
    }
}
