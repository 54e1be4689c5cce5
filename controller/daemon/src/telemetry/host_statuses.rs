//! What the reporters of hosts cannot do for them, as findings.
//!
//! Sans-IO. The decision: a status is repeated while it stands, and forgotten when it was not for
//! some time, so that no finding outlives the agent that knows better.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};
use topology::Finding;

use super::host_reporters::HostReporters;
use super::reporter_identity::ReporterIdentity;
use super::{HostStatus, ReporterId};

/// The statuses of hosts in which there is something to report.
#[derive(Debug)]
pub(super) struct HostStatuses {
    reporters: HostReporters,
    hosts: BTreeMap<String, (HostStatus, Instant)>,
    grace: Duration,
}

impl HostStatuses {
    /// A status is kept for `grace` after its last repetition.
    pub(super) fn new(grace: Duration) -> Self {
        Self { reporters: HostReporters::new(grace), hosts: BTreeMap::new(), grace }
    }

    /// Replaces the status of a host.
    ///
    /// # Errors
    /// Another reporter has the host.
    pub(super) fn set_status(
        &mut self,
        from: (ReporterId, &ReporterIdentity),
        status: HostStatus,
        now: Instant,
    ) -> Result<(), Finding> {
        self.reporters.claim_host(&status.host, from, now)?;
        match status.unreported_jobs {
            0 => self.hosts.remove(&status.host),
            _ => self.hosts.insert(status.host.clone(), (status, now)),
        };
        Ok(())
    }

    /// A stream has closed.
    pub(super) fn close_stream(&mut self, reporter: ReporterId, identity: &ReporterIdentity) {
        self.reporters.close_stream(reporter, identity);
    }

    /// The findings that stand at `now`, by host.
    pub(super) fn current_findings(&mut self, now: Instant) -> Vec<Finding> {
        let grace = self.grace;
        self.hosts.retain(|_, (_, reported)| now.duration_since(*reported) < grace);
        self.hosts.values().map(|(status, _)| unreported_finding(status)).collect()
    }
}

fn unreported_finding(status: &HostStatus) -> Finding {
    let HostStatus { host, unreported_jobs, max_jobs } = status;
    let (jobs, have) = match unreported_jobs {
        1 => ("job", "has"),
        _ => ("jobs", "have"),
    };
    let text = format!(
        "{unreported_jobs} {jobs} of this host not reported, so {have} no level and no paths: its \
         agent reports {max_jobs} at most; raise --max-jobs of its crux agent, and \
         telemetry.jobs_per_reporter here where that is less"
    );
    Finding::warning(format!("host {host}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_are_left_out_are_a_finding_until_they_are_not() {
        let mut statuses = HostStatuses::new(Duration::from_secs(10));
        let (start, identity) = (Instant::now(), ReporterIdentity::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let set = |statuses: &mut HostStatuses, (host, jobs): (&str, u32), seconds| {
            let status = HostStatus { host: host.to_owned(), unreported_jobs: jobs, max_jobs: 64 };
            statuses.set_status((ReporterId(1), &identity), status, at(seconds)).unwrap();
        };
        set(&mut statuses, ("h1", 3), 0);
        set(&mut statuses, ("h2", 1), 0);
        let findings = statuses.current_findings(at(1));
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0].about, "host h1");
        assert_eq!(
            findings[0].text,
            "3 jobs of this host not reported, so have no level and no paths: its agent reports 64 \
             at most; raise --max-jobs of its crux agent, and telemetry.jobs_per_reporter here \
             where that is less"
        );
        assert!(findings[1].text.starts_with("1 job of this host not reported, so has no level"));
        set(&mut statuses, ("h1", 0), 2);
        assert_eq!(statuses.current_findings(at(2)).len(), 1);
        // The agent of h2 is not there any more.
        assert_eq!(statuses.current_findings(at(9)).len(), 1);
        assert_eq!(statuses.current_findings(at(10)), []);
    }

    #[test]
    fn nobody_else_replaces_the_status_of_a_host() {
        let mut statuses = HostStatuses::new(Duration::from_secs(10));
        let identity = ReporterIdentity::default();
        let mut set = |stream, jobs| {
            let status = HostStatus { host: "h1".into(), unreported_jobs: jobs, max_jobs: 2 };
            statuses.set_status((ReporterId(stream), &identity), status, Instant::now())
        };
        assert_eq!(set(1, 5), Ok(()));
        assert!(set(2, 0).is_err());
        assert_eq!(statuses.current_findings(Instant::now()).len(), 1);
    }
}
