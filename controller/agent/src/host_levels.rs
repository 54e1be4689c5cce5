//! Keeps the DSCP of what this host sends at the levels that the controller last sent.
//!
//! Setting may take a while and happens on a thread of its own, one setting at a time. The
//! decision: only the newest levels count, and what could not be set is tried again in intervals,
//! since whatever is missing may be installed meanwhile.

use std::sync::Arc;

use api::telemetry as proto;
use futures::FutureExt;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::dscp_rules::DscpRules;
use crate::kernel_dscp::DscpSetter;

/// Seconds after which what could not be set is tried again.
const RETRY_SECONDS: f64 = 30.0;
/// Bytes of the problems that are reported.
const MAX_PROBLEM: usize = 250;

/// Sets the levels of one host.
#[derive(Debug)]
pub(crate) struct LevelKeeper {
    setter: Arc<dyn DscpSetter>,
    /// The newest levels.
    wanted: Option<proto::HostLevels>,
    /// The levels that are being set.
    running: Option<(u64, JoinHandle<Vec<String>>)>,
    /// The levels that were set last, and what was wrong then.
    status: proto::LevelStatus,
    set_at: f64,
}

impl LevelKeeper {
    /// Nothing is set before levels come.
    pub(crate) fn new(setter: Arc<dyn DscpSetter>) -> Self {
        let status = proto::LevelStatus::default();
        Self { setter, wanted: None, running: None, status, set_at: 0.0 }
    }

    /// Levels have come; they are set with the next poll.
    pub(crate) fn want_levels(&mut self, levels: proto::HostLevels) {
        self.wanted = Some(levels);
    }

    /// What was set last, for the controller.
    pub(crate) fn status(&self) -> proto::LevelStatus {
        self.status.clone()
    }

    /// Takes in what has been set and begins what is due at `now`, in seconds. Needs a tokio
    /// runtime.
    pub(crate) fn poll_setting(&mut self, now: f64) {
        if let Some((revision, setting)) = &mut self.running {
            let Some(done) = setting.now_or_never() else { return };
            let problems = done.unwrap_or_else(|error| vec![error.to_string()]);
            self.status = finished_status(*revision, &problems, &self.status);
            (self.running, self.set_at) = (None, now);
        }
        let Some(levels) = &self.wanted else { return };
        let is_due = levels.revision != self.status.revision
            || !self.status.problem.is_empty() && now - self.set_at >= RETRY_SECONDS;
        if is_due {
            let (rules, setter) = (DscpRules::from_levels(levels), Arc::clone(&self.setter));
            let setting = tokio::task::spawn_blocking(move || setter.apply_rules(&rules));
            self.running = Some((levels.revision, setting));
        }
    }

    /// Takes back everything that was set.
    pub(crate) async fn undo(self) {
        if let Some((_, setting)) = self.running {
            drop(setting.await);
        }
        let setter = self.setter;
        let problems = tokio::task::spawn_blocking(move || setter.undo_rules()).await;
        for problem in problems.unwrap_or_default() {
            warn!("the DSCP of some packets stays set: {problem}");
        }
    }
}

/// The status after a setting; problems are logged when they are new.
fn finished_status(
    revision: u64,
    problems: &[String],
    before: &proto::LevelStatus,
) -> proto::LevelStatus {
    let problem: String = problems.join("; ").chars().take(MAX_PROBLEM).collect();
    if problem != before.problem {
        match problem.is_empty() {
            true => info!("the DSCP of all jobs is set again"),
            false => warn!("cannot set the DSCP of all jobs: {problem}"),
        }
    }
    proto::LevelStatus { revision, problem }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Remembers what it was given, and fails as long as it has a problem.
    #[derive(Debug, Default)]
    struct RecordedSetter {
        applied: Mutex<Vec<usize>>,
        problem: Mutex<Option<String>>,
    }

    impl DscpSetter for RecordedSetter {
        fn apply_rules(&self, rules: &DscpRules) -> Vec<String> {
            self.applied.lock().unwrap().push(rules.count());
            self.problem.lock().unwrap().clone().into_iter().collect()
        }

        fn undo_rules(&self) -> Vec<String> {
            self.applied.lock().unwrap().push(usize::MAX);
            Vec::new()
        }
    }

    async fn settle(keeper: &mut LevelKeeper, now: f64) {
        keeper.poll_setting(now);
        while let Some((_, setting)) = &keeper.running {
            match setting.is_finished() {
                true => keeper.poll_setting(now),
                false => tokio::task::yield_now().await,
            }
        }
    }

    #[tokio::test]
    async fn the_newest_levels_are_set_problems_are_tried_again_and_all_is_undone() {
        let setter = Arc::new(RecordedSetter::default());
        let mut keeper = LevelKeeper::new(Arc::clone(&setter) as Arc<dyn DscpSetter>);
        settle(&mut keeper, 0.0).await;
        let levels = |revision| proto::HostLevels { revision, ..Default::default() };
        keeper.want_levels(levels(7));
        keeper.want_levels(levels(8));
        *setter.problem.lock().unwrap() = Some("no program".to_owned());
        settle(&mut keeper, 1.0).await;
        let status =
            |revision, problem: &str| proto::LevelStatus { revision, problem: problem.to_owned() };
        assert_eq!(keeper.status(), status(8, "no program"));
        settle(&mut keeper, 2.0).await;
        assert_eq!(setter.applied.lock().unwrap().len(), 1);
        *setter.problem.lock().unwrap() = None;
        settle(&mut keeper, 40.0).await;
        assert_eq!(keeper.status(), status(8, ""));
        settle(&mut keeper, 90.0).await;
        keeper.undo().await;
        assert_eq!(*setter.applied.lock().unwrap(), [0, 0, usize::MAX]);
    }
}
