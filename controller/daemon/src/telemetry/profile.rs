//! What windows add up to, and the job that they show.
//!
//! The decision: sums and nothing else, so that a job takes as much memory after a year as after a
//! second; they begin anew each time that something was concluded from them.

use planner::JobDocument;

use super::ReportWindow;

/// Work of an iteration of which nothing is known, FLOP: the least that a job can have.
pub(super) const UNKNOWN_FLOP: f64 = 1.0;

/// Seconds of computation of an iteration of which nothing is known.
pub(super) const UNKNOWN_SECONDS: f64 = 1.0;

/// Bytes of a collective of which nothing is known.
pub(super) const UNKNOWN_BYTES: f64 = 0.0;

/// Sums over windows of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedProfile {
    iterations: u64,
    seconds: f64,
    flop: f64,
    compute_seconds: f64,
    communication_seconds: f64,
    flow_bytes: Vec<f64>,
    /// Iterations of windows that know bytes.
    counted: u64,
}

impl ReportedProfile {
    /// Adds a plausible window.
    pub fn add_window(&mut self, window: &ReportWindow) {
        self.iterations += window.iteration_starts.len() as u64;
        self.seconds += window.seconds;
        self.flop += window.flop;
        self.compute_seconds += window.compute_seconds;
        self.communication_seconds += window.communication_seconds;
        if window.flow_bytes.is_empty() {
            return;
        }
        self.counted += window.iteration_starts.len() as u64;
        self.flow_bytes.resize(window.flow_bytes.len(), 0.0);
        let sums = self.flow_bytes.iter_mut().zip(&window.flow_bytes);
        sums.for_each(|(sum, bytes)| *sum += bytes);
    }

    /// Iterations that began in these windows.
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// The job as these windows show it, means over their iterations; as it was if none began.
    pub fn apply_to(&self, job: &JobDocument) -> JobDocument {
        let mut shown = job.clone();
        if self.iterations == 0 {
            return shown;
        }
        let iterations = self.iterations as f64;
        shown.flop_per_iteration = Some((self.flop / iterations).max(UNKNOWN_FLOP));
        shown.compute_seconds = Some(self.compute_seconds / iterations);
        shown.overlap_from = Some(self.overlap_from());
        if self.counted > 0 {
            let flows = shown.flows.iter_mut().flatten().zip(&self.flow_bytes);
            flows.for_each(|(flow, bytes)| flow.bytes = bytes / self.counted as f64);
        }
        shown
    }

    /// Whether no work was reported.
    pub fn lacks_work(&self) -> bool {
        self.flop == 0.0
    }

    /// An iteration of `T` seconds whose communication takes the last `c` of them begins it at
    /// `T - c`, which is `o_j comp_j`.
    fn overlap_from(&self) -> f64 {
        if self.compute_seconds == 0.0 {
            return 1.0;
        }
        let begins = self.seconds - self.communication_seconds;
        (begins / self.compute_seconds).clamp(0.0, 1.0)
    }
}

/// Whether two numbers differ by more than a share of the larger.
pub(super) fn differs_by(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() > share * a.abs().max(b.abs())
}

/// Whether a job differs from another by more than this share of anything that decides its plan.
pub(super) fn profile_differs(a: &JobDocument, b: &JobDocument, share: f64) -> bool {
    let pairs =
        [(a.flop_per_iteration, b.flop_per_iteration), (a.compute_seconds, b.compute_seconds)];
    let overlap = a.overlap_from.unwrap_or(1.0) - b.overlap_from.unwrap_or(1.0);
    let flows = a.flows.iter().flatten().zip(b.flows.iter().flatten());
    pairs.iter().any(|(a, b)| differs_by(a.unwrap_or(0.0), b.unwrap_or(0.0), share))
        || overlap.abs() > share
        || flows.into_iter().any(|(a, b)| differs_by(a.bytes, b.bytes, share))
}

#[cfg(test)]
mod tests {
    use planner::FlowDocument;

    use super::*;

    #[test]
    fn windows_show_the_means_of_their_iterations() {
        let mut profile = ReportedProfile::default();
        let window = ReportWindow {
            seconds: 4.0,
            iteration_starts: vec![0.5, 2.5],
            flop: 6e15,
            compute_seconds: 2.0,
            communication_seconds: 3.0,
            flow_bytes: vec![8e9],
            ..ReportWindow::default()
        };
        profile.add_window(&window);
        profile.add_window(&window);
        let job =
            JobDocument { flows: Some(vec![FlowDocument::default()]), ..JobDocument::default() };
        let shown = profile.apply_to(&job);
        assert_eq!(shown.flop_per_iteration, Some(3e15));
        assert_eq!(shown.compute_seconds, Some(1.0));
        // Of 2 s, 1.5 s are communication, which begins at half of the computation.
        assert_eq!(shown.overlap_from, Some(0.5));
        assert_eq!(shown.flows.as_ref().unwrap()[0].bytes, 4e9);
        assert!(profile_differs(&shown, &job, 0.1) && !profile_differs(&shown, &shown, 0.0));
        // Windows without bytes leave those that are known.
        profile.add_window(&ReportWindow { flow_bytes: Vec::new(), ..window });
        assert_eq!(profile.apply_to(&job).flows.unwrap()[0].bytes, 4e9);
    }
}
