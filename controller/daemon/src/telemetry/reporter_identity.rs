//! Who a reporter is, and which jobs are its own to report.
//!
//! Pure. The decision: a token may be bound to hosts and tenants, and a job of other hosts is
//! nobody's to announce with it; and a job whose stream broke is kept for the holder of its lease,
//! or where none was sent for the same owner of a token at the same address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use planner::JobDocument;

use super::ReporterId;

/// What the owner of a token may report; empty lists bind nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReporterScope {
    /// Hosts, or beginnings of their names with `*` at the end.
    pub hosts: Vec<String>,
    /// Tenants of jobs.
    pub tenants: Vec<String>,
}

/// Who has a stream of reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReporterIdentity {
    /// The owner of the token.
    pub caller: Option<Arc<str>>,
    /// The address of the stream.
    pub address: Option<IpAddr>,
    /// SHA-256 of the secret with which a job is taken again after its stream broke.
    pub lease: Option<[u8; 32]>,
    /// What it may report.
    pub scope: ReporterScope,
}

/// Who may report something: the open stream that has it or, once that has closed, the
/// identity that it is kept for.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportOwner {
    /// The stream it belongs to; none once that has closed, or after a restart.
    pub(super) stream: Option<ReporterId>,
    /// Who had the stream that has closed.
    kept_for: Option<ReporterIdentity>,
}

impl ReportOwner {
    /// An open stream.
    pub(super) fn of_stream(stream: ReporterId) -> Self {
        Self { stream: Some(stream), kept_for: None }
    }

    /// Whether a stream of this reporter may report it.
    pub(super) fn may_report(&self, from: ReporterId, identity: Option<&ReporterIdentity>) -> bool {
        match (self.stream, &self.kept_for) {
            (Some(owner), _) => owner == from,
            (None, Some(kept_for)) => identity.is_some_and(|from| kept_for.yields_to(from)),
            // Of an earlier run of the controller, which had the identity.
            (None, None) => true,
        }
    }

    /// A stream of `identity` has closed.
    pub(super) fn close_stream(&mut self, stream: ReporterId, identity: Option<&ReporterIdentity>) {
        if self.stream == Some(stream) {
            *self = Self { stream: None, kept_for: identity.cloned() };
        }
    }
}

/// Who an operator has to ask: the owner of the token, and the address.
impl fmt::Display for ReporterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.caller, self.address) {
            (Some(caller), Some(address)) => write!(f, "{caller} at {address}"),
            (Some(caller), None) => f.write_str(caller),
            (None, Some(address)) => write!(f, "a reporter at {address}"),
            (None, None) => f.write_str("an unknown reporter"),
        }
    }
}

impl ReporterIdentity {
    /// Whether `other` may take the jobs of a broken stream of this one.
    fn yields_to(&self, other: &Self) -> bool {
        match self.lease {
            Some(lease) => other.lease == Some(lease),
            None => (&self.caller, self.address) == (&other.caller, other.address),
        }
    }
}

impl ReporterScope {
    /// Whether a job is within the scope.
    ///
    /// # Errors
    /// The host or the tenant that is not.
    pub fn check_job(&self, job: &JobDocument) -> Result<(), String> {
        if !self.has_tenant(job.tenant.as_deref()) {
            let tenant = job.tenant.as_deref().unwrap_or_default();
            return Err(format!("this token reports no jobs of tenant `{tenant}`"));
        }
        let flows = job.flows.iter().flatten();
        let ends = flows.flat_map(|flow| [flow.src.as_str(), flow.dst.as_str()]);
        let mut hosts = job.gpus.keys().map(String::as_str).chain(ends);
        match hosts.find(|host| !self.has_host(host)) {
            Some(host) => Err(format!("this token reports no jobs of host `{host}`")),
            None => Ok(()),
        }
    }

    /// Whether reports about a host are within the scope.
    ///
    /// # Errors
    /// They are not.
    pub fn check_host(&self, host: &str) -> Result<(), String> {
        let text = || format!("this token reports nothing of host `{host}`");
        self.has_host(host).then_some(()).ok_or_else(text)
    }

    /// Whether jobs of a tenant are within the scope.
    pub(super) fn has_tenant(&self, tenant: Option<&str>) -> bool {
        let is_own = |tenant: &str| self.tenants.iter().any(|own| own == tenant);
        self.tenants.is_empty() || tenant.is_some_and(is_own)
    }

    fn has_host(&self, host: &str) -> bool {
        let matches = |own: &String| match own.strip_suffix('*') {
            Some(beginning) => host.starts_with(beginning),
            None => own == host,
        };
        self.hosts.is_empty() || self.hosts.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reports_jobs_of_its_hosts_and_tenants() {
        let scope = |hosts: &[&str], tenants: &[&str]| ReporterScope {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        };
        let job = JobDocument {
            tenant: Some("red".to_owned()),
            gpus: [("rack1-h1".to_owned(), 8), ("rack1-h2".to_owned(), 8)].into(),
            ..JobDocument::default()
        };
        assert_eq!(scope(&[], &[]).check_job(&job), Ok(()));
        assert_eq!(scope(&["rack1-*"], &["red"]).check_job(&job), Ok(()));
        let refused = |scope: ReporterScope| scope.check_job(&job).unwrap_err();
        assert!(refused(scope(&["rack1-h1"], &[])).contains("host `rack1-h2`"));
        assert!(refused(scope(&[], &["blue"])).contains("tenant `red`"));
        assert_eq!(scope(&["rack1-*"], &[]).check_host("rack1-h7"), Ok(()));
        let refused = scope(&["rack1-*"], &[]).check_host("rack2-h1").unwrap_err();
        assert!(refused.contains("host `rack2-h1`"));
    }

    #[test]
    fn a_lease_or_the_same_owner_takes_a_job_again() {
        let identity = |caller: &str, lease| ReporterIdentity {
            caller: Some(caller.into()),
            lease,
            ..ReporterIdentity::default()
        };
        let (ada, eve) = (identity("ada", None), identity("eve", None));
        assert!(ada.yields_to(&ada) && !ada.yields_to(&eve));
        let leased = identity("ada", Some([1; 32]));
        assert!(!leased.yields_to(&ada) && leased.yields_to(&identity("bob", Some([1; 32]))));
        assert!(!leased.yields_to(&identity("ada", Some([2; 32]))));
    }
}
