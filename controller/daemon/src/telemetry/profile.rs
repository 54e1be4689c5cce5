//! What windows add up to, and the job that they show.
//!
//! Sums of a few stretches, so that a job takes as much memory after a year as after a second; they
//! begin anew each time that something was concluded from them. A stretch that is out of line, as
//! when a job saves a checkpoint, does not count: what a job does between such pauses is what its
//! plan is for.

use planner::JobDocument;

use super::ReportWindow;

/// Work of an iteration of which nothing is known, FLOP: the least that a job can have.
pub(super) const UNKNOWN_FLOP: f64 = 1.0;

/// Seconds of computation of an iteration of which nothing is known.
pub(super) const UNKNOWN_SECONDS: f64 = 1.0;

/// Bytes of a collective of which nothing is known.
pub(super) const UNKNOWN_BYTES: f64 = 0.0;

/// Stretches that are told apart; further windows belong to the last.
const MAX_STRETCHES: usize = 32;

/// A stretch whose iterations are this many times as long as the median is a pause.
const PAUSE_FACTOR: f64 = 3.0;

/// Windows of one job since something was concluded from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedProfile {
    stretches: Stretches,
    flow_bytes: Vec<f64>,
    /// Iterations of windows that know bytes.
    counted: u64,
}

/// Consecutive windows in stretches, each of which but the last has iterations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stretches(Vec<WindowSums>);

/// Sums over consecutive windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WindowSums {
    iterations: u64,
    seconds: f64,
    flop: f64,
    compute_seconds: f64,
    communication_seconds: f64,
}

impl WindowSums {
    fn add(&mut self, other: &Self) {
        self.iterations += other.iterations;
        self.seconds += other.seconds;
        self.flop += other.flop;
        self.compute_seconds += other.compute_seconds;
        self.communication_seconds += other.communication_seconds;
    }

    fn iteration_seconds(&self) -> f64 {
        self.seconds / self.iterations.max(1) as f64
    }
}

impl Stretches {
    pub(super) fn add_window(&mut self, window: &ReportWindow) {
        let sums = WindowSums {
            iterations: window.iteration_starts.len() as u64,
            seconds: window.seconds,
            flop: window.flop,
            compute_seconds: window.compute_seconds,
            communication_seconds: window.communication_seconds,
        };
        let is_full = self.0.len() >= MAX_STRETCHES;
        match self.0.last_mut().filter(|last| is_full || last.iterations == 0) {
            Some(last) => last.add(&sums),
            None => self.0.push(sums),
        }
    }

    /// Seconds of an iteration but for pauses; none if none began.
    pub(super) fn iteration_seconds(&self) -> Option<f64> {
        let typical = self.without_pauses();
        (typical.iterations > 0).then(|| typical.iteration_seconds())
    }

    /// The sum of the stretches that are no pauses.
    fn without_pauses(&self) -> WindowSums {
        let begun = || self.0.iter().filter(|stretch| stretch.iterations > 0);
        let mut seconds: Vec<f64> = begun().map(WindowSums::iteration_seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or(0.0);
        let mut sum = WindowSums::default();
        let typical =
            begun().filter(|stretch| stretch.iteration_seconds() <= PAUSE_FACTOR * median);
        typical.for_each(|stretch| sum.add(stretch));
        sum
    }
}

impl ReportedProfile {
    /// Adds a plausible window.
    pub fn add_window(&mut self, window: &ReportWindow) {
        self.stretches.add_window(window);
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
        self.stretches.0.iter().map(|stretch| stretch.iterations).sum()
    }

    /// The job as these windows show it, means over their iterations; as it was if none began.
    pub fn apply_to(&self, job: &JobDocument) -> JobDocument {
        let mut shown = job.clone();
        let sums = self.stretches.without_pauses();
        if sums.iterations == 0 {
            return shown;
        }
        let iterations = sums.iterations as f64;
        shown.flop_per_iteration = Some((sums.flop / iterations).max(UNKNOWN_FLOP));
        shown.compute_seconds = Some(sums.compute_seconds / iterations);
        // The first of all sends is seen, which is that of flows that state their own.
        if !shown.flows.iter().flatten().any(|flow| flow.overlap_from.is_some()) {
            shown.overlap_from = Some(sums.overlap_from());
        }
        if self.counted > 0 {
            let flows = shown.flows.iter_mut().flatten().zip(&self.flow_bytes);
            flows.for_each(|(flow, bytes)| flow.bytes = bytes / self.counted as f64);
        }
        shown
    }
}

impl WindowSums {
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
        let begins = FlowDocument { overlap_from: Some(0.1), ..FlowDocument::default() };
        let of_two =
            JobDocument { flows: Some(vec![begins]), overlap_from: Some(0.9), ..job.clone() };
        assert_eq!(
            profile.apply_to(&of_two).overlap_from,
            Some(0.9),
            "it is not that of all flows"
        );
        assert!(profile_differs(&shown, &job, 0.1) && !profile_differs(&shown, &shown, 0.0));
        // Windows without bytes leave those that are known.
        profile.add_window(&ReportWindow { flow_bytes: Vec::new(), ..window });
        assert_eq!(profile.apply_to(&job).flows.unwrap()[0].bytes, 4e9);
    }

    #[test]
    fn pauses_do_not_count_and_what_lasts_does() {
        let window = |seconds: f64, starts: &[f64]| ReportWindow {
            seconds,
            iteration_starts: starts.to_vec(),
            flop: 1e15 * starts.len() as f64,
            ..ReportWindow::default()
        };
        let mut profile = ReportedProfile::default();
        for seconds in [0.5, 0.5, 6.5, 0.5] {
            profile.add_window(&window(seconds, &[0.0]));
        }
        assert_eq!((profile.iterations(), profile.stretches.iteration_seconds()), (4, Some(0.5)));
        // A pause may take windows in which no iteration begins.
        (0..9).for_each(|_| profile.add_window(&window(1.0, &[])));
        assert_eq!(profile.stretches.iteration_seconds(), Some(0.5));
        profile.add_window(&window(0.5, &[0.0]));
        assert_eq!((profile.iterations(), profile.stretches.iteration_seconds()), (5, Some(0.5)));
        (0..6).for_each(|_| profile.add_window(&window(6.5, &[0.0])));
        assert!(profile.stretches.iteration_seconds().is_some_and(|seconds| seconds > 4.0));
        (0..100).for_each(|_| profile.add_window(&window(0.5, &[0.0])));
        assert_eq!(profile.stretches.0.len(), MAX_STRETCHES);
    }
}
