//! Two jobs on one link, one strictly first (Crux §4.2): who holds the link for how many seconds.
//!
//! The job that goes first runs undisturbed, so it holds the link in a strictly periodic pattern,
//! and "when will the other have had its seconds of link" has a closed answer. The timeline is
//! therefore exact, moves from event to event, and passes whole undisturbed iterations at once: it
//! costs a few steps per iteration of the longer job, however short the other is.

/// Phases of the job against the reference that are averaged.
const PHASES: usize = 16;

/// Iterations of the longer job that are played.
const HORIZON_ITERATIONS: f64 = 64.0;

/// Differences below this share of the horizon are rounding, not link time.
const ROUNDING: f64 = 1e-9;

/// What a job does in every iteration, in seconds: the link is wanted for `link`, from `lead` on,
/// and the iteration ends when computation and communication both have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rhythm {
    /// `comp_j`.
    pub(crate) compute: f64,
    /// `o_j * comp_j`.
    pub(crate) lead: f64,
    /// `t_j`.
    pub(crate) link: f64,
}

impl Rhythm {
    /// `T_j`: an iteration alone.
    fn period(&self) -> f64 {
        self.compute.max(self.lead + self.link)
    }
}

/// `k_j` of `job` against `reference`: what the reference's seconds are worth in the job's, so that
/// the corrected intensities compare. At most `cap`, which it is where only the job loses.
pub(crate) fn correction(reference: &Rhythm, job: &Rhythm, cap: f64) -> f64 {
    let horizon = HORIZON_ITERATIONS * reference.period().max(job.period());
    let first = Occupation::of(reference, 0.0);
    let offsets: [f64; PHASES] =
        std::array::from_fn(|phase| job.period() * phase as f64 / PHASES as f64);
    let seconds = offsets.map(|offset| Occupation::of(job, offset));
    let behind_first = offsets.map(|offset| Follower::new(job, offset, &first));
    let behind_second = seconds
        .each_ref()
        .map(|second| Follower::new(reference, 0.0, second));
    let (left, left_to_reference) = (play(behind_first, horizon), play(behind_second, horizon));
    let (mut job_loses, mut reference_loses) = (0.0, 0.0);
    for phase in 0..PHASES {
        job_loses += seconds[phase].busy_until(horizon) - left[phase];
        reference_loses += first.busy_until(horizon) - left_to_reference[phase];
    }
    let is_none = |seconds: f64| seconds <= ROUNDING * horizon;
    match (is_none(job_loses), is_none(reference_loses)) {
        (true, true) => 1.0,
        (false, true) => cap,
        (true, false) => 0.0,
        (false, false) => (job_loses / reference_loses).min(cap),
    }
}

/// The whole part of a number that is not negative, as `floor` gives it, without a call.
fn whole(number: f64) -> f64 {
    number as i64 as f64
}

/// When a job that nobody disturbs holds the link: `[first + n * period, + length)`, n = 0, 1, ..
#[derive(Clone, Copy, Debug)]
struct Occupation {
    first: f64,
    period: f64,
    length: f64,
}

impl Occupation {
    fn of(rhythm: &Rhythm, start: f64) -> Self {
        let first = if rhythm.link > 0.0 {
            start + rhythm.lead
        } else {
            f64::INFINITY
        };
        Self {
            first,
            period: rhythm.period(),
            length: rhythm.link,
        }
    }

    /// Seconds of link taken up to `at`.
    fn busy_until(&self, at: f64) -> f64 {
        if at <= self.first {
            return 0.0;
        }
        let periods = whole((at - self.first) / self.period);
        let into = at - self.first - periods * self.period;
        periods * self.length + into.clamp(0.0, self.length)
    }

    /// Seconds of link left over up to `at`.
    fn free_until(&self, at: f64) -> f64 {
        at - self.busy_until(at)
    }

    /// When the left-over seconds add up to `free`.
    fn when_free(&self, free: f64) -> f64 {
        if free <= self.first {
            return free;
        }
        let gap = self.period - self.length;
        if gap <= 0.0 {
            return f64::INFINITY;
        }
        // Gaps up to the one in which it happens; a sum that fills a gap ends in that gap.
        let gaps = (free - self.first) / gap;
        let begun = whole(gaps) + f64::from(u8::from(gaps > whole(gaps)));
        free + begun * self.length
    }

    /// When the free span that `at` lies in ends; `at` itself while the link is held.
    fn free_span_end(&self, at: f64) -> f64 {
        if at <= self.first {
            return self.first;
        }
        let periods = whole((at - self.first) / self.period);
        let into = at - self.first - periods * self.period;
        if into < self.length {
            at
        } else {
            self.first + (periods + 1.0) * self.period
        }
    }
}

/// A job that gives way to another.
struct Follower<'a> {
    job: &'a Rhythm,
    other: &'a Occupation,
    /// When its next iteration begins.
    begin: f64,
    /// Seconds of link that it got before.
    seconds: f64,
}

impl<'a> Follower<'a> {
    fn new(job: &'a Rhythm, start: f64, other: &'a Occupation) -> Self {
        Self {
            job,
            other,
            begin: start,
            seconds: 0.0,
        }
    }

    /// Plays on to the end of the next iteration that is disturbed; whether the horizon is ahead.
    fn step(&mut self, horizon: f64) -> bool {
        let (job, other) = (self.job, self.other);
        // Rounding may put the end of the span just before a begin that lies on it.
        let undisturbed = (other.free_span_end(self.begin).min(horizon) - self.begin).max(0.0);
        if undisturbed >= job.period() {
            let iterations = whole(undisturbed / job.period());
            self.begin += iterations * job.period();
            self.seconds += iterations * job.link;
        }
        let ready = other.free_until(self.begin + job.lead);
        let done = other.when_free(ready + job.link);
        if done >= horizon {
            self.seconds += (other.free_until(horizon) - ready).clamp(0.0, job.link);
            return false;
        }
        self.seconds += job.link;
        let next = done.max(self.begin + job.compute);
        let goes_on = next > self.begin && next < horizon;
        self.begin = next;
        goes_on
    }
}

/// Seconds of link that each follower gets until `horizon`. They take their steps in turn: a step
/// waits for the one before it, and not for those of others.
fn play<const N: usize>(mut followers: [Follower<'_>; N], horizon: f64) -> [f64; N] {
    let wants = |follower: &Follower<'_>| follower.job.link > 0.0 && follower.begin < horizon;
    let mut playing: Vec<&mut Follower<'_>> = followers
        .iter_mut()
        .filter(|follower| wants(follower))
        .collect();
    while !playing.is_empty() {
        playing.retain_mut(|follower| follower.step(horizon));
    }
    followers.map(|follower| follower.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rhythm(compute: f64, overlap_from: f64, link: f64) -> Rhythm {
        Rhythm {
            compute,
            lead: overlap_from * compute,
            link,
        }
    }

    /// E1 of the specification: the paper reads 1.5 off the steady state.
    #[test]
    fn equal_intensity_favours_the_shorter_iteration() {
        let k = correction(&rhythm(2.0, 1.0, 2.0), &rhythm(1.0, 1.0, 1.0), 64.0);
        assert!((1.45..1.55).contains(&k), "{k}");
    }

    /// E2 of the specification.
    #[test]
    fn a_job_that_hides_its_communication_ranks_lower() {
        let k = correction(&rhythm(2.0, 0.5, 3.0), &rhythm(4.0, 0.5, 1.0), 64.0);
        assert!((0.465..0.475).contains(&k), "{k}");
    }

    #[test]
    fn degenerate_jobs_have_a_factor() {
        let silent = rhythm(1.0, 1.0, 0.0);
        let greedy = rhythm(0.0, 1.0, 1.0);
        let usual = rhythm(1.0, 0.5, 1.0);
        assert_eq!(correction(&usual, &silent, 64.0), 1.0);
        assert_eq!(correction(&silent, &usual, 64.0), 1.0);
        assert_eq!(correction(&silent, &silent, 64.0), 1.0);
        for (reference, job) in [(&usual, &greedy), (&greedy, &usual), (&greedy, &greedy)] {
            let k = correction(reference, job, 64.0);
            assert!((0.0..=64.0).contains(&k), "{k}");
        }
    }

    #[test]
    fn a_job_without_cost_to_the_reference_goes_strictly_first() {
        // The reference hides 1 s of link in 10 s of computation; the job takes 1 s in 10 as well,
        // but computes nothing meanwhile.
        let k = correction(&rhythm(10.0, 0.0, 1.0), &rhythm(1.0, 1.0, 1.0), 64.0);
        assert_eq!(k, 64.0);
    }

    /// Steady state of E1 from a common start: link seconds per 12 s.
    #[test]
    fn link_seconds_of_the_worked_example() {
        let (long, short) = (rhythm(2.0, 1.0, 2.0), rhythm(1.0, 1.0, 1.0));
        let window = |seconds: f64| seconds * 12.0 / 1200.0;
        let behind = |job: &Rhythm, other: &Rhythm| {
            let other = Occupation::of(other, 0.0);
            play([Follower::new(job, 0.0, &other)], 1200.0)[0]
        };
        let (behind_long, behind_short) = (behind(&short, &long), behind(&long, &short));
        assert!((window(behind_long) - 3.0).abs() < 0.02, "{behind_long}");
        assert!((window(behind_short) - 4.0).abs() < 0.02, "{behind_short}");
    }
}
