//! Findings in the log.

use topology::{Finding, Severity};
use tracing::{error, info, warn};

/// Logs a finding at the level of its severity.
pub(super) fn log_finding(finding: &Finding) {
    let Finding { about, text, .. } = finding;
    match finding.severity {
        Severity::Error => error!(about, "{text}"),
        Severity::Warning => warn!(about, "{text}"),
        Severity::Info => info!(about, "{text}"),
    }
}
