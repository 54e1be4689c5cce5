//! Intervals and limits of what an agent measures and reports.

/// How often the agent samples and reports, and for how many jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportLimits {
    /// The shortest window, seconds.
    pub window_seconds: f64,
    /// Seconds without a report after which a job is kept alive by an empty window.
    pub presence_seconds: f64,
    /// Maximum number of jobs of this host.
    pub jobs: usize,
    /// Between two readings of counters, seconds.
    pub sample_seconds: f64,
    /// Seconds of history that are searched for a period.
    pub memory_seconds: f64,
}
