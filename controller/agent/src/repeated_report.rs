//! A report of a whole state, which is sent when it changes and repeated in intervals.
//!
//! Pure. The decision: every report has all of it, so that none that is lost matters for long; and
//! a state in which there is nothing to report is sent only in place of another.

/// What was last sent of such a state, and when.
#[derive(Clone, Debug)]
pub(crate) struct RepeatedReport<T> {
    sent: Option<(T, f64)>,
    /// Seconds after which an unchanged report is sent again.
    interval: f64,
}

impl<T: Clone + PartialEq> RepeatedReport<T> {
    /// Nothing was sent yet.
    pub(crate) fn new(interval: f64) -> Self {
        Self { sent: None, interval }
    }

    /// The report, if it is due at `now`, in seconds.
    pub(crate) fn take_due(&mut self, report: T, is_empty: bool, now: f64) -> Option<T> {
        let is_due = match &self.sent {
            None => !is_empty,
            Some((sent, at)) => *sent != report || !is_empty && now - at >= self.interval,
        };
        is_due.then(|| {
            self.sent = Some((report.clone(), now));
            report
        })
    }

    /// Marks the report as unknown to the controller, so that it is sent again.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = None;
    }
}
