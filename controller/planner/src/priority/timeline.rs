//! Two jobs on one link, one strictly first (Crux §4.2): who holds the link for how many seconds.
//!
//! The job that goes first runs undisturbed, so it holds the link in a strictly periodic pattern,
//! and the time at which the other has had its seconds of link has a closed form. The timeline is
//! therefore exact, moves from event to event, and skips undisturbed iterations and repeated cycles
//! at once: it costs at most a few steps per iteration of the longer job, however short the other
//! is.

/// Phases of the job against the reference that are averaged.
const PHASES: usize = 16;

/// Iterations of the longer job that are simulated.
const HORIZON_ITERATIONS: f64 = 64.0;

/// Differences below this share, of the horizon or of a gap, are rounding, not link time.
const ROUNDING: f64 = 1e-9;

/// Timing of every iteration of a job, in seconds: it needs the link for `link_seconds` from
/// `flow_start_seconds` on, and the iteration ends when computation and communication have ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IterationTiming {
    /// `comp_j`.
    pub(crate) compute_seconds: f64,
    /// `o_j * comp_j`.
    pub(crate) flow_start_seconds: f64,
    /// `t_j`.
    pub(crate) link_seconds: f64,
}

impl IterationTiming {
    /// `T_j`: an iteration alone.
    fn period_seconds(&self) -> f64 {
        self.compute_seconds.max(self.flow_start_seconds + self.link_seconds)
    }
}

/// `k_j` of `job` against `reference`: the link seconds that the job loses by coming second, for
/// each one that the reference loses. At most `cap`, which it is where only the job loses.
pub(crate) fn correction_factor(
    reference: &IterationTiming,
    job: &IterationTiming,
    cap: f64,
) -> f64 {
    let horizon = HORIZON_ITERATIONS * reference.period_seconds().max(job.period_seconds());
    let first = PeriodicOccupation::from_timing(reference, 0.0);
    let offsets: [f64; PHASES] =
        std::array::from_fn(|phase| job.period_seconds() * phase as f64 / PHASES as f64);
    let seconds = offsets.map(|offset| PeriodicOccupation::from_timing(job, offset));
    let behind_first = offsets.map(|offset| YieldingJob::new(job, offset, &first));
    let behind_second = seconds.each_ref().map(|second| YieldingJob::new(reference, 0.0, second));
    let (left, left_to_reference) =
        (simulate_jobs(behind_first, horizon), simulate_jobs(behind_second, horizon));
    let (mut job_loses, mut reference_loses) = (0.0, 0.0);
    for phase in 0..PHASES {
        job_loses += seconds[phase].busy_until(horizon) - left[phase];
        reference_loses += first.busy_until(horizon) - left_to_reference[phase];
    }
    let rounding = ROUNDING * horizon;
    match (job_loses <= rounding, reference_loses <= rounding) {
        (true, true) => 1.0,
        (false, true) => cap,
        (true, false) => 0.0,
        (false, false) => (job_loses / reference_loses).min(cap),
    }
}

/// The whole part of a number that is not negative, as `floor` gives it, without a call.
fn whole_part(number: f64) -> f64 {
    number as i64 as f64
}

/// Times at which an undisturbed job holds the link: `[first + n * period, + length)`, n = 0, 1, ..
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeriodicOccupation {
    pub(crate) first: f64,
    pub(crate) period: f64,
    pub(crate) length: f64,
}

impl PeriodicOccupation {
    fn from_timing(timing: &IterationTiming, start: f64) -> Self {
        let first = if timing.link_seconds > 0.0 {
            start + timing.flow_start_seconds
        } else {
            f64::INFINITY
        };
        Self { first, period: timing.period_seconds(), length: timing.link_seconds }
    }

    /// Whole periods that have passed at `at`, and seconds of the present one; `at` is not before
    /// the first.
    fn period_position(&self, at: f64) -> (f64, f64) {
        let since = at - self.first;
        let periods = whole_part(since / self.period);
        (periods, since - periods * self.period)
    }

    /// Seconds of link taken up to `at`.
    pub(crate) fn busy_until(&self, at: f64) -> f64 {
        if at <= self.first {
            return 0.0;
        }
        let (periods, into) = self.period_position(at);
        periods * self.length + into.clamp(0.0, self.length)
    }

    /// Seconds of link left over up to `at`.
    fn free_until(&self, at: f64) -> f64 {
        at - self.busy_until(at)
    }

    /// Time at which the left-over seconds add up to `free`.
    fn time_of_free_seconds(&self, free: f64) -> f64 {
        if free <= self.first {
            return free;
        }
        let gap = self.period - self.length;
        if gap <= 0.0 {
            return f64::INFINITY;
        }
        // Number of gaps begun. A sum that fills a gap except for rounding ends in that gap: the
        // durations of different jobs are often equal numbers.
        let gaps = (free - self.first) / gap;
        let begun = whole_part(gaps) + f64::from(u8::from(gaps - whole_part(gaps) > ROUNDING));
        free + begun * self.length
    }

    /// Whether the link is held at `at`.
    fn is_held(&self, at: f64) -> bool {
        at >= self.first && self.period_position(at).1 < self.length
    }

    /// Seconds from `at` on that the link stays free; none while it is held.
    fn free_from(&self, at: f64) -> f64 {
        if at <= self.first {
            return self.first - at;
        }
        let (_, into) = self.period_position(at);
        match into < self.length {
            true => 0.0,
            false => self.period - into,
        }
    }

    /// Seconds from the time at which the link becomes held until `link` seconds were left over: no
    /// other start of a wait makes it longer.
    fn longest_wait(&self, link: f64) -> f64 {
        self.time_of_free_seconds(self.first + link) - self.first
    }
}

/// A job that yields the link to another.
struct YieldingJob<'a> {
    job: &'a IterationTiming,
    other: &'a PeriodicOccupation,
    /// When its next iteration begins.
    iteration_start: f64,
    /// Seconds of link that it got before.
    link_seconds: f64,
    /// Whether communication ends before computation whatever the other does.
    is_never_late: bool,
    cycles: CycleState,
}

/// Cycles found so far in the iterations of a yielding job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CycleState {
    /// No cycle has begun.
    Unknown,
    /// A cycle began there, with the seconds of link that the job had until then.
    Began { at: f64, seconds: f64 },
    /// All cycles that end before the horizon have been skipped.
    Skipped,
}

impl<'a> YieldingJob<'a> {
    fn new(job: &'a IterationTiming, start: f64, other: &'a PeriodicOccupation) -> Self {
        Self {
            job,
            other,
            iteration_start: start,
            link_seconds: 0.0,
            is_never_late: job.flow_start_seconds + other.longest_wait(job.link_seconds)
                <= job.compute_seconds,
            cycles: CycleState::Unknown,
        }
    }

    /// Simulates to the end of the next disturbed iteration; returns whether the horizon is ahead.
    fn step_iteration(&mut self, horizon: f64) -> bool {
        let (job, other) = (self.job, self.other);
        self.skip_undisturbed(horizon);
        let wants = self.iteration_start + job.flow_start_seconds;
        let ready = other.free_until(wants);
        let done = other.time_of_free_seconds(ready + job.link_seconds);
        if done >= horizon {
            self.link_seconds += (other.free_until(horizon) - ready).clamp(0.0, job.link_seconds);
            return false;
        }
        self.link_seconds += job.link_seconds;
        let on_time = self.iteration_start + job.compute_seconds;
        let next = done.max(on_time);
        let goes_on = next > self.iteration_start && next < horizon;
        self.iteration_start = next;
        if goes_on && done >= on_time && other.is_held(wants) {
            self.skip_cycles(horizon);
        }
        goes_on && self.iteration_start < horizon
    }

    /// Skips the whole iterations that end before the other job matters.
    fn skip_undisturbed(&mut self, horizon: f64) {
        let ahead = horizon - self.iteration_start;
        let undisturbed = match self.is_never_late {
            true => ahead,
            false => self.other.free_from(self.iteration_start).min(ahead),
        };
        if undisturbed >= self.job.period_seconds() {
            let iterations = whole_part(undisturbed / self.job.period_seconds());
            self.iteration_start += iterations * self.job.period_seconds();
            self.link_seconds += iterations * self.job.link_seconds;
        }
    }

    /// Skips the whole cycles before the horizon, once one is complete.
    ///
    /// A job that found the link held and was late for it begins its next iteration always at the
    /// same position in the other's period, so from there on everything repeats.
    fn skip_cycles(&mut self, horizon: f64) {
        self.cycles = match self.cycles {
            CycleState::Unknown => {
                CycleState::Began { at: self.iteration_start, seconds: self.link_seconds }
            }
            CycleState::Began { at, seconds } => {
                let length = self.iteration_start - at;
                let cycles = whole_part((horizon - self.iteration_start) / length);
                self.iteration_start += cycles * length;
                self.link_seconds += cycles * (self.link_seconds - seconds);
                CycleState::Skipped
            }
            CycleState::Skipped => CycleState::Skipped,
        };
    }
}

/// Seconds of link that each job gets until `horizon`. The jobs step in turn: a step depends on the
/// one before it of the same job only, so those of different jobs overlap in the processor.
fn simulate_jobs<const N: usize>(mut jobs: [YieldingJob<'_>; N], horizon: f64) -> [f64; N] {
    let mut running: Vec<&mut YieldingJob<'_>> = jobs
        .iter_mut()
        .filter(|job| job.job.link_seconds > 0.0 && job.iteration_start < horizon)
        .collect();
    while !running.is_empty() {
        running.retain_mut(|job| job.step_iteration(horizon));
    }
    jobs.map(|job| job.link_seconds)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn timing(compute: f64, overlap_from: f64, link: f64) -> IterationTiming {
        IterationTiming {
            compute_seconds: compute,
            flow_start_seconds: overlap_from * compute,
            link_seconds: link,
        }
    }

    /// E1 of the specification: the paper reads 1.5 off the steady state.
    #[test]
    fn equal_intensity_favours_the_shorter_iteration() {
        let k = correction_factor(&timing(2.0, 1.0, 2.0), &timing(1.0, 1.0, 1.0), 64.0);
        assert!((1.45..1.55).contains(&k), "{k}");
    }

    /// E2 of the specification.
    #[test]
    fn a_job_that_hides_its_communication_ranks_lower() {
        let k = correction_factor(&timing(2.0, 0.5, 3.0), &timing(4.0, 0.5, 1.0), 64.0);
        assert!((0.465..0.475).contains(&k), "{k}");
    }

    #[test]
    fn degenerate_jobs_have_a_factor() {
        let silent = timing(1.0, 1.0, 0.0);
        let greedy = timing(0.0, 1.0, 1.0);
        let usual = timing(1.0, 0.5, 1.0);
        assert_eq!(correction_factor(&usual, &silent, 64.0), 1.0);
        assert_eq!(correction_factor(&silent, &usual, 64.0), 1.0);
        assert_eq!(correction_factor(&silent, &silent, 64.0), 1.0);
        for (reference, job) in [(&usual, &greedy), (&greedy, &usual), (&greedy, &greedy)] {
            let k = correction_factor(reference, job, 64.0);
            assert!((0.0..=64.0).contains(&k), "{k}");
        }
    }

    #[test]
    fn a_job_without_cost_to_the_reference_is_served_strictly_first() {
        // The reference hides 1 s of link in 10 s of computation; the job takes 1 s in 10 as well,
        // but computes nothing meanwhile.
        let k = correction_factor(&timing(10.0, 0.0, 1.0), &timing(1.0, 1.0, 1.0), 64.0);
        assert_eq!(k, 64.0);
    }

    /// Steady state of E1 from a common start: link seconds per 12 s.
    #[test]
    fn link_seconds_of_the_worked_example() {
        let (long, short) = (timing(2.0, 1.0, 2.0), timing(1.0, 1.0, 1.0));
        let window = |seconds: f64| seconds * 12.0 / 1200.0;
        let behind = |job: &IterationTiming, other: &IterationTiming| {
            let other = PeriodicOccupation::from_timing(other, 0.0);
            simulate_jobs([YieldingJob::new(job, 0.0, &other)], 1200.0)[0]
        };
        let (behind_long, behind_short) = (behind(&short, &long), behind(&long, &short));
        assert!((window(behind_long) - 3.0).abs() < 0.02, "{behind_long}");
        assert!((window(behind_short) - 4.0).abs() < 0.02, "{behind_short}");
    }

    /// Random timings, many of which have periods in a ratio of small numbers.
    fn timings() -> impl Iterator<Item = (IterationTiming, IterationTiming)> {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut one = move || {
            let steps = |random: &mut ChaCha8Rng| f64::from(random.random_range(0..40_u8)) / 16.0;
            let any = |random: &mut ChaCha8Rng| random.random_range(0.0..2.5);
            let draw = if random.random_bool(0.5) { any } else { steps };
            timing(draw(&mut random), random.random_range(0.0..=1.0), draw(&mut random))
        };
        std::iter::repeat_with(move || (one(), one()))
    }

    /// Skipped cycles give the same seconds as the simulation of every iteration.
    #[test]
    fn skipped_cycles_equal_simulated_ones() {
        for (job, other) in timings().take(20_000) {
            let horizon = HORIZON_ITERATIONS * job.period_seconds().max(other.period_seconds());
            let occupation = PeriodicOccupation::from_timing(&other, 0.37 * other.period_seconds());
            let skipped = simulate_jobs([YieldingJob::new(&job, 0.0, &occupation)], horizon)[0];
            let every = YieldingJob {
                is_never_late: false,
                cycles: CycleState::Skipped,
                ..YieldingJob::new(&job, 0.0, &occupation)
            };
            let simulated = simulate_jobs([every], horizon)[0];
            assert!(
                (skipped - simulated).abs() <= ROUNDING * horizon,
                "{job:?} {other:?}: {skipped} for {simulated}"
            );
        }
    }
}
