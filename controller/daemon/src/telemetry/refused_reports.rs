//! Findings about refused reports: the reporter receives the reason, and an
//! operator would not see it otherwise.
//!
//! Sans-IO: time is an argument. The decision: a refusal is forgotten a minute after its last
//! repetition, and few are kept of each reporter, so that none fills the list or hides another.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use topology::Finding;

use super::reported_jobs::NOT_ANNOUNCED;
use super::reporter_identity::ReporterIdentity;

/// How long a refusal is kept after its last repetition; reporters repeat announcements.
const KEPT: Duration = Duration::from_secs(60);

/// Jobs that are kept for a reporter at most, and in all.
const JOBS_OF_REPORTER: usize = 4;
const JOBS: usize = 128;

/// The latest refusals, by reporter and by the name of the job.
#[derive(Debug, Default)]
pub(super) struct RefusedReports {
    by_reporter: BTreeMap<String, BTreeMap<String, (Finding, Instant)>>,
}

impl RefusedReports {
    /// Records a refusal; whether it is a new one.
    pub(super) fn record_refusal(
        &mut self,
        reporter: &ReporterIdentity,
        (job, refusal): (&str, &Finding),
        now: Instant,
    ) -> bool {
        self.forget_old(now);
        let all: usize = self.by_reporter.values().map(BTreeMap::len).sum();
        let reporter = reporter.to_string();
        let text = format!("reports of it by {reporter} are {}", refusal.text);
        let jobs = self.by_reporter.entry(reporter).or_default();
        let is_full = all >= JOBS || jobs.len() >= JOBS_OF_REPORTER;
        match jobs.get_mut(job) {
            // The windows of a job are refused because its announcement was, and that is the cause.
            Some((_, at)) if refusal.text == NOT_ANNOUNCED => {
                *at = now;
                return false;
            }
            None if is_full => return false,
            _ => {}
        }
        let finding = Finding::warning(&refusal.about, text);
        let before = jobs.insert(job.to_owned(), (finding.clone(), now));
        before.is_none_or(|(had, _)| had != finding)
    }

    /// The refusals that go on.
    pub(super) fn current_findings(&mut self, now: Instant) -> Vec<Finding> {
        self.forget_old(now);
        let jobs = self.by_reporter.values().flat_map(BTreeMap::values);
        jobs.map(|(finding, _)| finding.clone()).collect()
    }

    fn forget_old(&mut self, now: Instant) {
        for jobs in self.by_reporter.values_mut() {
            jobs.retain(|_, (_, at)| now.saturating_duration_since(*at) < KEPT);
        }
        self.by_reporter.retain(|_, jobs| !jobs.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter(caller: &str) -> ReporterIdentity {
        let address = Some([10, 0, 0, 7].into());
        ReporterIdentity { caller: Some(caller.into()), address, ..ReporterIdentity::default() }
    }

    fn refusal(text: &str) -> Finding {
        Finding::error("job gpt", format!("refused: {text}"))
    }

    #[test]
    fn a_refusal_is_seen_until_it_is_repeated_no_more() {
        let start = Instant::now();
        let mut refused = RefusedReports::default();
        let mut record =
            |text: &str, at| refused.record_refusal(&reporter("ada"), ("gpt", &refusal(text)), at);
        assert!(record("no host `h9`", start));
        let again = start + KEPT / 2;
        assert!(!record("no host `h9`", again));
        assert!(record("no host `h8`", again));
        let text = "reports of it by ada at 10.0.0.7 are refused: no host `h8`";
        let expected = Finding::warning("job gpt", text);
        let seen = refused.current_findings(start + KEPT);
        assert_eq!(seen, std::slice::from_ref(&expected));
        // Windows that follow a refused announcement have no cause of their own.
        let follows = Finding::error("job gpt", NOT_ANNOUNCED);
        assert!(!refused.record_refusal(&reporter("ada"), ("gpt", &follows), again));
        assert_eq!(refused.current_findings(again), [expected]);
        assert_eq!(refused.current_findings(again + KEPT), []);
    }

    #[test]
    fn a_reporter_with_many_names_hides_no_other() {
        let start = Instant::now();
        let mut refused = RefusedReports::default();
        let too_many = refusal("too many");
        for number in 0..1_000 {
            let name = format!("job-{number}");
            refused.record_refusal(&reporter("eve"), (&name, &too_many), start);
        }
        assert_eq!(refused.current_findings(start).len(), JOBS_OF_REPORTER);
        assert!(refused.record_refusal(&reporter("bob"), ("bert", &too_many), start));
        for number in 0..1_000 {
            let eve = reporter(&format!("eve{number}"));
            refused.record_refusal(&eve, ("job", &too_many), start);
        }
        assert_eq!(refused.current_findings(start).len(), JOBS);
    }
}
