//! What this agent does and cannot do for its host, for the findings of the controller.

use api::telemetry as proto;
use proto::job_report::Report;

use crate::repeated_report::RepeatedReport;

/// Reports the status of one host while there is something in it.
#[derive(Debug)]
pub(crate) struct HostStatusReporter {
    host: String,
    sent: RepeatedReport<proto::HostStatus>,
}

impl HostStatusReporter {
    /// Repeats what stands after so many seconds: fewer than a controller keeps it.
    pub(crate) fn new(host: &str, seconds: f64) -> Self {
        Self { host: host.to_owned(), sent: RepeatedReport::new(seconds) }
    }

    /// The report that is due at `now`, in seconds: so many jobs beyond a maximum, and the levels
    /// that are set, if levels are to be set.
    pub(crate) fn due_report(
        &mut self,
        (unreported, max_jobs): (usize, usize),
        levels: Option<proto::LevelStatus>,
        now: f64,
    ) -> Option<Report> {
        let is_empty = unreported == 0 && levels.is_none();
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let status = proto::HostStatus {
            host: self.host.clone(),
            unreported_jobs: number(unreported),
            max_jobs: number(max_jobs),
            levels,
        };
        self.sent.take_due(status, is_empty, now).map(Report::HostStatus)
    }

    /// A controller has just connected, which knows nothing yet.
    pub(crate) fn forget_sent(&mut self) {
        self.sent.forget_sent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_repeated_and_its_end_is_sent_once() {
        let mut reporter = HostStatusReporter::new("h1", 3.0);
        let mut due = |unreported, now| match reporter.due_report((unreported, 64), None, now) {
            Some(Report::HostStatus(status)) => Some((status.unreported_jobs, status.max_jobs)),
            _ => None,
        };
        assert_eq!(due(0, 0.0), None);
        assert_eq!(due(2, 1.0), Some((2, 64)));
        assert_eq!(due(2, 2.0), None);
        assert_eq!(due(3, 2.5), Some((3, 64)));
        assert_eq!(due(3, 5.5), Some((3, 64)));
        assert_eq!(due(0, 6.0), Some((0, 64)));
        assert_eq!(due(0, 60.0), None);
        assert_eq!(due(1, 61.0), Some((1, 64)));
        reporter.forget_sent();
        assert!(reporter.due_report((1, 64), None, 61.5).is_some());
        // Who sets levels is there all the time.
        let levels = Some(proto::LevelStatus::default());
        assert!(reporter.due_report((0, 64), levels.clone(), 62.0).is_some());
        assert!(reporter.due_report((0, 64), levels.clone(), 63.0).is_none());
        assert!(reporter.due_report((0, 64), levels, 65.0).is_some());
    }
}
