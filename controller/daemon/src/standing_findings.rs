//! Findings that stand until their cause is gone.
//!
//! The runtime, the store and the supervision of tasks report here what no row of a view shows. The
//! decision: a finding has a key, so that what is reported again replaces itself and the list stays
//! as short as the number of causes.

use std::collections::BTreeMap;

use tokio::sync::watch;
use topology::Finding;

/// The findings, by cause; cheap to clone, and all clones are one list.
#[derive(Clone, Debug, Default)]
pub struct StandingFindings(watch::Sender<BTreeMap<String, Finding>>);

impl StandingFindings {
    /// Reports a finding in place of the earlier one of this cause.
    pub fn report_finding(&self, cause: impl Into<String>, finding: Finding) {
        let cause = cause.into();
        self.0.send_if_modified(|findings| {
            let before = findings.insert(cause, finding.clone());
            before != Some(finding)
        });
    }

    /// Removes the finding of a cause that is gone.
    pub fn clear_finding(&self, cause: &str) {
        self.0.send_if_modified(|findings| findings.remove(cause).is_some());
    }

    /// Removes the findings of all causes that begin so.
    pub fn clear_causes(&self, beginning: &str) {
        self.0.send_if_modified(|findings| {
            let before = findings.len();
            findings.retain(|cause, _| !cause.starts_with(beginning));
            findings.len() != before
        });
    }

    /// Whether there is a finding of this cause.
    pub(crate) fn has_finding(&self, cause: &str) -> bool {
        self.0.borrow().contains_key(cause)
    }

    /// All of them, by cause.
    pub fn list_findings(&self) -> Vec<Finding> {
        self.0.borrow().values().cloned().collect()
    }
}
