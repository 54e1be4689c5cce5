//! What the reporters of hosts do and cannot do for them, the latter as findings.
//!
//! Sans-IO. The decision: a status is repeated while it stands, and forgotten when it was not for
//! some time, so that no finding outlives the agent that knows better.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use topology::{Fabric, Finding, LinkScheduler, Nic};

use super::host_reporters::HostReporters;
use super::reporter_identity::ReporterIdentity;
use super::{HostStatus, ReporterId};

/// The statuses of hosts in which there is something to report.
#[derive(Debug)]
pub(super) struct HostStatuses {
    reporters: HostReporters,
    hosts: BTreeMap<String, CurrentStatus>,
    /// Hosts with NICs that send by level, by the fabric document.
    strict_hosts: BTreeSet<String>,
    /// Since when agents can have reported.
    since: Instant,
    grace: Duration,
}

#[derive(Debug)]
struct CurrentStatus {
    status: HostStatus,
    from: ReporterId,
    reported_at: Instant,
}

impl HostStatuses {
    /// A status is kept for `grace` after its last repetition.
    pub(super) fn new(grace: Duration, now: Instant) -> Self {
        Self {
            reporters: HostReporters::new(grace),
            hosts: BTreeMap::new(),
            strict_hosts: BTreeSet::new(),
            since: now,
            grace,
        }
    }

    /// Plans are made for this fabric from now on.
    pub(super) fn set_fabric(&mut self, fabric: &Fabric) {
        let is_strict = |nic: &&Nic| fabric.link(nic.uplink).scheduler == LinkScheduler::HostStrict;
        let strict = fabric.nics().iter().filter(is_strict);
        self.strict_hosts = strict.map(|nic| fabric.host(nic.host).name.clone()).collect();
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
        let host = status.host.clone();
        let is_empty = status.unreported_jobs == 0 && status.levels.is_none();
        let status = CurrentStatus { status, from: from.0, reported_at: now };
        if is_empty {
            self.hosts.remove(&host)
        } else {
            self.hosts.insert(host, status)
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
        self.hosts.retain(|_, current| now.duration_since(current.reported_at) < grace);
        let statuses = self.hosts.values().map(|current| &current.status);
        let findings =
            statuses.flat_map(|status| [unreported_finding(status), level_finding(status)]);
        let missing = (now.duration_since(self.since) >= grace).then(|| self.missing_finding());
        findings.flatten().chain(missing.flatten()).collect()
    }

    /// That plans count on hosts where nobody sets levels.
    fn missing_finding(&self) -> Option<Finding> {
        let sets = |host: &String| {
            let current = self.hosts.get(host);
            current.is_some_and(|current| current.status.levels.is_some())
        };
        let mut missing = self.strict_hosts.iter().filter(|host| !sets(host));
        let first = missing.next()?;
        let text = format!(
            "{} hosts ({first} first) are host-strict in the fabric document, so plans assume that \
             their NICs send by level, and no agent sets levels there: run crux agent --set-dscp \
             on them, or make them fifo",
            1 + missing.count()
        );
        Some(Finding::warning("levels at hosts", text))
    }

    /// The hosts whose reporters set levels there.
    pub(super) fn level_setters(&self) -> impl Iterator<Item = (&str, ReporterId)> {
        let setters = self.hosts.iter().filter(|(_, current)| current.status.levels.is_some());
        setters.map(|(host, current)| (host.as_str(), current.from))
    }
}

/// That jobs have lower levels at their host than in the fabric.
fn level_finding(status: &HostStatus) -> Option<Finding> {
    let problem = status.levels.as_ref().map(|levels| &levels.problem);
    let problem = problem.filter(|problem| !problem.is_empty())?;
    let text = format!("the DSCP of its jobs is not all set at the host: {problem}");
    Some(Finding::warning(format!("levels at host {}", status.host), text))
}

fn unreported_finding(status: &HostStatus) -> Option<Finding> {
    let HostStatus { host, unreported_jobs, max_jobs, .. } = status;
    let (jobs, have) = match unreported_jobs {
        0 => return None,
        1 => ("job", "has"),
        _ => ("jobs", "have"),
    };
    let text = format!(
        "{unreported_jobs} {jobs} of this host not reported, so {have} no level and no paths: its \
         agent reports {max_jobs} at most; raise --max-jobs of its crux agent, and \
         telemetry.jobs_per_reporter here where that is less"
    );
    Some(Finding::warning(format!("host {host}"), text))
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};

    use super::*;
    use crate::telemetry::LevelStatus;

    fn status(host: &str, unreported_jobs: u32, levels: Option<LevelStatus>) -> HostStatus {
        HostStatus { host: host.to_owned(), unreported_jobs, max_jobs: 64, levels }
    }

    #[test]
    fn a_host_that_cannot_set_its_levels_is_a_finding_of_its_own() {
        let mut statuses = HostStatuses::new(Duration::from_secs(10), Instant::now());
        let (now, identity) = (Instant::now(), ReporterIdentity::default());
        let mut set = |host: &str, jobs, problem: &str| {
            let levels = Some(LevelStatus { revision: 1, problem: problem.to_owned() });
            let status = status(host, jobs, levels);
            statuses.set_status((ReporterId(1), &identity), status, now).unwrap();
        };
        set("h1", 2, "no program iptables; install iptables");
        set("h2", 0, "");
        let setters: Vec<&str> = statuses.level_setters().map(|(host, _)| host).collect();
        assert_eq!(setters, ["h1", "h2"]);
        let findings = statuses.current_findings(now);
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[1].about, "levels at host h1");
        assert!(findings[1].text.ends_with("at the host: no program iptables; install iptables"));
    }

    #[test]
    fn host_strict_hosts_without_an_agent_that_sets_levels_are_a_finding() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut statuses = HostStatuses::new(Duration::from_secs(10), start);
        let strict =
            ClosSpec { host_scheduler: Some(LinkScheduler::HostStrict), ..ClosSpec::default() };
        statuses.set_fabric(&build_clos("lab", &strict).unwrap());
        // Agents have had no time to report.
        assert_eq!(statuses.current_findings(at(9)), []);
        let all = statuses.strict_hosts.len();
        let text = statuses.current_findings(at(10)).remove(0).text;
        assert!(text.starts_with(&format!("{all} hosts (h1 first) are host-strict")), "{text}");
        let (identity, levels) = (ReporterIdentity::default(), Some(LevelStatus::default()));
        for host in statuses.strict_hosts.clone() {
            let status = status(&host, 0, levels.clone());
            statuses.set_status((ReporterId(1), &identity), status, at(11)).unwrap();
        }
        assert_eq!(statuses.current_findings(at(11)), []);
        statuses.set_fabric(&build_clos("lab", &ClosSpec::default()).unwrap());
        assert_eq!(statuses.current_findings(at(60)), []);
    }

    #[test]
    fn jobs_that_are_left_out_are_a_finding_until_they_are_not() {
        let mut statuses = HostStatuses::new(Duration::from_secs(10), Instant::now());
        let (start, identity) = (Instant::now(), ReporterIdentity::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let set = |statuses: &mut HostStatuses, (host, jobs): (&str, u32), seconds| {
            let status = status(host, jobs, None);
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
        let mut statuses = HostStatuses::new(Duration::from_secs(10), Instant::now());
        let identity = ReporterIdentity::default();
        let mut set = |stream, jobs| {
            let status = status("h1", jobs, None);
            statuses.set_status((ReporterId(stream), &identity), status, Instant::now())
        };
        assert_eq!(set(1, 5), Ok(()));
        assert!(set(2, 0).is_err());
        assert_eq!(statuses.current_findings(Instant::now()).len(), 1);
    }
}
