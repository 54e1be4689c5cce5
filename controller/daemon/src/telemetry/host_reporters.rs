//! Who reports what a host does: its queue pairs, and its status.
//!
//! Sans-IO. The decision: as with jobs, a host belongs to the stream that reports it until that is
//! closed, so nobody else can say what it sends. What a token may not report is left out.

use std::collections::BTreeMap;

use planner::JobId;
use tokio::time::{Duration, Instant};
use topology::{Fabric, Finding};

use super::ReporterId;
use super::reporter_identity::{ReportOwner, ReporterIdentity, ReporterScope};
use crate::learning::HostQueuePairs;

/// The hosts that report, each with its reporter.
#[derive(Debug)]
pub(super) struct HostReporters {
    hosts: BTreeMap<String, HostReporter>,
    /// A host is kept for so long for the reporter whose stream broke.
    grace: Duration,
}

#[derive(Debug)]
struct HostReporter {
    owner: ReportOwner,
    last_report: Instant,
}

impl HostReporters {
    pub(super) fn new(grace: Duration) -> Self {
        Self { hosts: BTreeMap::new(), grace }
    }

    /// Gives a host to a stream that reports it; whether that stream has not reported it before.
    ///
    /// # Errors
    /// Another reporter has it.
    pub(super) fn claim_host(
        &mut self,
        host: &str,
        (from, identity): (ReporterId, &ReporterIdentity),
        now: Instant,
    ) -> Result<bool, Finding> {
        let had = self.hosts.get(host);
        let grace = self.grace;
        let is_free = had.is_none_or(|had| {
            had.owner.may_report(from, Some(identity))
                || had.owner.stream.is_none() && now.duration_since(had.last_report) >= grace
        });
        if !is_free {
            return Err(host_finding(host, "another reporter has this host"));
        }
        let is_first = had.is_none_or(|had| had.owner.stream != Some(from));
        let owner = ReportOwner::of_stream(from);
        self.hosts.insert(host.to_owned(), HostReporter { owner, last_report: now });
        Ok(is_first)
    }

    /// A stream has closed: its hosts are kept for the same reporter.
    pub(super) fn close_stream(&mut self, reporter: ReporterId, identity: &ReporterIdentity) {
        for host in self.hosts.values_mut() {
            host.owner.close_stream(reporter, Some(identity));
        }
    }
}

/// Checks that the fabric has a host.
///
/// # Errors
/// It has not.
pub(super) fn check_host(host: &str, fabric: &Fabric) -> Result<(), Finding> {
    let is_known = fabric.host_named(host).is_some();
    is_known.then_some(()).ok_or_else(|| host_finding(host, "the fabric has no such host"))
}

/// What a reporter calls the job of a pod begins with this; the UID of the pod follows.
const POD: &str = "pod-";

/// Gives queue pairs that are named by a pod the job of that pod; none where it is not known.
pub(super) fn name_pods(report: &mut HostQueuePairs, job_of_pod: impl Fn(&str) -> Option<JobId>) {
    for group in &mut report.groups {
        let uid = group.job.as_ref().and_then(|job| job.as_str().strip_prefix(POD));
        if let Some(uid) = uid {
            group.job = job_of_pod(uid);
        }
    }
}

/// Removes what a token may not report: queue pairs of jobs of other tenants. How many groups that
/// were.
pub(super) fn leave_out_foreign(
    report: &mut HostQueuePairs,
    scope: &ReporterScope,
    tenant_of: impl Fn(&JobId) -> Option<String>,
) -> usize {
    let groups = report.groups.len();
    report.groups.retain(|group| {
        let tenant = group.job.as_ref().and_then(&tenant_of);
        scope.has_tenant(tenant.as_deref())
    });
    groups - report.groups.len()
}

fn host_finding(host: &str, why: &str) -> Finding {
    Finding::error(format!("host {host}"), format!("refused: {why}"))
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;
    use crate::learning::QueuePairGroup;

    fn identity(caller: &str) -> ReporterIdentity {
        ReporterIdentity { caller: Some(caller.into()), ..ReporterIdentity::default() }
    }

    #[test]
    fn a_host_belongs_to_one_stream_and_is_kept_for_its_reporter() {
        let mut reporters = HostReporters::new(Duration::from_secs(10));
        let (ada, eve) = (identity("ada"), identity("eve"));
        let start = Instant::now();
        let claim = |reporters: &mut HostReporters, (stream, who), seconds| {
            let at = start + Duration::from_secs(seconds);
            reporters.claim_host("h1", (ReporterId(stream), who), at)
        };
        assert_eq!(claim(&mut reporters, (1, &ada), 0), Ok(true));
        assert_eq!(claim(&mut reporters, (1, &ada), 1), Ok(false));
        let refused = claim(&mut reporters, (2, &eve), 60).unwrap_err();
        assert!(refused.text.contains("another reporter"), "{refused}");
        reporters.close_stream(ReporterId(1), &ada);
        assert!(claim(&mut reporters, (2, &eve), 2).is_err());
        assert_eq!(claim(&mut reporters, (3, &ada), 3), Ok(true));
        // After the grace it is anybody's.
        reporters.close_stream(ReporterId(3), &ada);
        assert_eq!(claim(&mut reporters, (2, &eve), 13), Ok(true));
    }

    #[test]
    fn a_token_says_nothing_of_jobs_of_other_tenants() {
        let group = |job: &str| QueuePairGroup { job: Some(job.into()), ..Default::default() };
        let groups = vec![group("red-1"), group("blue-1"), QueuePairGroup::default()];
        let mut report = HostQueuePairs { host: "h1".to_owned(), groups };
        let tenant_of = |job: &JobId| Some(job.as_str().split('-').next()?.to_owned());
        assert_eq!(leave_out_foreign(&mut report, &ReporterScope::default(), tenant_of), 0);
        let red = ReporterScope { tenants: vec!["red".to_owned()], ..ReporterScope::default() };
        assert_eq!(leave_out_foreign(&mut report, &red, tenant_of), 2);
        assert_eq!(report.groups, [group("red-1")]);
    }

    #[test]
    fn queue_pairs_of_a_pod_are_of_its_job() {
        let group = |job: &str| QueuePairGroup { job: Some(job.into()), ..Default::default() };
        let groups = vec![group("pod-1"), group("pod-2"), group("podium"), group("slurm-1")];
        let mut report = HostQueuePairs { host: "h1".to_owned(), groups };
        name_pods(&mut report, |uid| (uid == "1").then(|| "k8s.ml.gpt".into()));
        let unknown = QueuePairGroup::default();
        let named = [group("k8s.ml.gpt"), unknown, group("podium"), group("slurm-1")];
        assert_eq!(report.groups, named);
    }

    #[test]
    fn hosts_are_those_of_the_fabric() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        assert_eq!(check_host("h1", &fabric), Ok(()));
        assert!(check_host("h99", &fabric).unwrap_err().text.contains("no such host"));
    }
}
