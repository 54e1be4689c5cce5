//! Reports that were refused, for whoever lists findings: the reporter receives the reason, and an
//! operator would not see it otherwise.
//!
//! Sans-IO: time is an argument. The decision: a refusal is forgotten a minute after its last
//! repetition, and few names are kept, so whoever may report cannot fill the list.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use topology::Finding;

use super::reported_jobs::NOT_ANNOUNCED;

/// How long a refusal is kept after its last repetition; reporters repeat announcements.
const KEPT: Duration = Duration::from_secs(60);

/// Names that are kept at most.
const NAMES: usize = 32;

/// The latest refusals, by the name of the job.
#[derive(Debug, Default)]
pub(super) struct RefusedReports {
    by_job: BTreeMap<String, (Finding, Instant)>,
}

impl RefusedReports {
    /// Records a refusal; whether it is a new one.
    pub(super) fn record_refusal(&mut self, job: &str, refusal: &Finding, now: Instant) -> bool {
        self.forget_old(now);
        let is_full = self.by_job.len() >= NAMES;
        match self.by_job.get_mut(job) {
            // The windows of a job are refused because its announcement was, and that is the cause.
            Some((_, at)) if refusal.text == NOT_ANNOUNCED => {
                *at = now;
                return false;
            }
            None if is_full => return false,
            _ => {}
        }
        let text = format!("its reports are {}", refusal.text);
        let finding = Finding::warning(&refusal.about, text);
        let before = self.by_job.insert(job.to_owned(), (finding.clone(), now));
        before.is_none_or(|(had, _)| had != finding)
    }

    /// The refusals that go on.
    pub(super) fn current_findings(&mut self, now: Instant) -> Vec<Finding> {
        self.forget_old(now);
        self.by_job.values().map(|(finding, _)| finding.clone()).collect()
    }

    fn forget_old(&mut self, now: Instant) {
        self.by_job.retain(|_, (_, at)| now.saturating_duration_since(*at) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Finding {
        Finding::error("job gpt", format!("refused: {text}"))
    }

    #[test]
    fn a_refusal_is_seen_until_it_is_repeated_no_more() {
        let start = Instant::now();
        let mut refused = RefusedReports::default();
        assert!(refused.record_refusal("gpt", &refusal("no host `h9`"), start));
        let again = start + KEPT / 2;
        assert!(!refused.record_refusal("gpt", &refusal("no host `h9`"), again));
        assert!(refused.record_refusal("gpt", &refusal("no host `h8`"), again));
        let expected = Finding::warning("job gpt", "its reports are refused: no host `h8`");
        let seen = refused.current_findings(start + KEPT);
        assert_eq!(seen, std::slice::from_ref(&expected));
        // Windows that follow a refused announcement have no cause of their own.
        assert!(!refused.record_refusal("gpt", &Finding::error("job gpt", NOT_ANNOUNCED), again));
        assert_eq!(refused.current_findings(again), [expected]);
        assert_eq!(refused.current_findings(again + KEPT), []);
    }

    #[test]
    fn many_names_do_not_fill_the_list() {
        let start = Instant::now();
        let mut refused = RefusedReports::default();
        for number in 0..1_000 {
            refused.record_refusal(&format!("job-{number}"), &refusal("too many"), start);
        }
        assert_eq!(refused.current_findings(start).len(), NAMES);
    }
}
