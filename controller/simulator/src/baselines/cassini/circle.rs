//! The geometric abstraction of CASSINI (its section 3): iterations rolled around a circle.
//!
//! The perimeter `p` of a link's circle is the least common multiple of the iteration times of its
//! jobs; job `j` goes round `r_j = p / iter_j` times, and at every angle it asks a share of the
//! link. Turning a job by `Delta` delays it by `Delta / 2 pi * p`. The rotations wanted are those
//! of the best compatibility score (its Eq. 1 to 5):
//!
//! ```text
//! score = 1 - sum over angles a of max(0, sum_j bw_j(a - Delta_j) - C) / (|A| C)
//! ```
//!
//! with `0 <= Delta_j < 2 pi / r_j` and angles every 5 degrees, as in the paper. Iteration times
//! are no whole numbers, so the perimeter is the least multiple of the longest in which every job
//! fits a whole number of iterations with at most 1 % to spare, or of the first twelve the one with
//! the least to spare. An angle stands for the arc up to the next one, with the mean over it.

use std::f64::consts::TAU;

/// Angles of a circle: one every 5 degrees.
pub const ANGLES: usize = 72;

/// Most iterations of the longest job around a circle.
const MAX_TURNS: u32 = 12;

/// Spare time that is still a common multiple, as a share of an iteration.
const SPARE_MAX: f64 = 0.01;

/// What one job does on one link in an iteration alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficPattern {
    /// Seconds of an iteration.
    pub iteration_seconds: f64,
    /// Seconds from its begin until communication begins.
    pub communication_from_seconds: f64,
    /// Seconds of communication.
    pub communication_seconds: f64,
    /// Share of the link that it needs meanwhile, 0..=1.
    pub link_share: f64,
}

/// The jobs of one link around its circle.
#[derive(Clone, Debug)]
pub struct UnifiedCircle {
    perimeter_seconds: f64,
    /// Iterations of each job around the circle.
    rounds: Vec<usize>,
    /// Share of the link that each job needs at each angle.
    shares: Vec<[f64; ANGLES]>,
}

/// Rotations and what they are worth.
#[derive(Clone, Debug, PartialEq)]
pub struct RotationFit {
    /// Compatibility score: 1 if no angle is over capacity.
    pub score: f64,
    /// Rotation of each job, in angles of 5 degrees.
    pub rotations: Vec<usize>,
    /// The rotations as delays, in seconds.
    pub shifts_seconds: Vec<f64>,
}

impl RotationFit {
    /// Rotation of a job in radians.
    pub fn rotation_radians(&self, job: usize) -> f64 {
        self.rotations[job] as f64 / ANGLES as f64 * TAU
    }
}

impl UnifiedCircle {
    /// The circle of jobs with these patterns.
    pub fn new(patterns: &[TrafficPattern]) -> Self {
        let (perimeter_seconds, rounds) = fit_perimeter(patterns);
        let shares = patterns.iter().zip(&rounds).map(|(pattern, rounds)| {
            let period = perimeter_seconds / *rounds as f64;
            unroll_pattern(pattern, period, perimeter_seconds)
        });
        Self { perimeter_seconds, shares: shares.collect(), rounds }
    }

    /// Seconds around the circle.
    pub fn perimeter_seconds(&self) -> f64 {
        self.perimeter_seconds
    }

    /// Seconds between the iterations of each job on the circle.
    pub fn job_periods(&self) -> impl Iterator<Item = f64> + '_ {
        let rounds = self.rounds.iter();
        rounds.map(|rounds| self.perimeter_seconds / *rounds as f64)
    }

    /// Demand over capacity with these rotations, as a share of the circle's capacity.
    pub fn excess_demand(&self, rotations: &[usize]) -> f64 {
        (0..ANGLES)
            .map(|angle| {
                let jobs = 0..self.shares.len();
                let asked = jobs.map(|job| self.link_share(job, rotations[job], angle));
                (asked.sum::<f64>() - 1.0).max(0.0)
            })
            .sum::<f64>()
            / ANGLES as f64
    }

    /// The rotations of the best score. The first job stays, every rotation of the second is tried,
    /// and the others follow, each where it is best with those before it and then with all, until
    /// none moves: exact for two and three jobs. Of equals the first.
    pub fn find_best_fit(&self) -> RotationFit {
        let mut best: Option<(f64, Vec<usize>)> = None;
        for second in 0..self.distinct_rotations(1) {
            let rotations = self.settle_rotations(second);
            let excess = self.excess_demand(&rotations);
            if best.as_ref().is_none_or(|(least, _)| excess < *least - NOISE) {
                best = Some((excess, rotations));
            }
        }
        let (excess, rotations) = best.unwrap_or_else(|| (0.0, vec![0; self.shares.len()]));
        RotationFit {
            score: 1.0 - excess,
            shifts_seconds: (0..rotations.len())
                .map(|job| self.shift_seconds(job, rotations[job]))
                .collect(),
            rotations,
        }
    }

    /// Rotations of a job that differ: those within one of its iterations.
    fn distinct_rotations(&self, job: usize) -> usize {
        let rounds = self.rounds.get(job).copied().unwrap_or(ANGLES);
        (ANGLES / rounds).max(1)
    }

    fn link_share(&self, job: usize, rotation: usize, angle: usize) -> f64 {
        self.shares[job][(angle + ANGLES - rotation) % ANGLES]
    }

    /// Delay of a job turned by `rotation`, within one of its iterations.
    fn shift_seconds(&self, job: usize, rotation: usize) -> f64 {
        let seconds = rotation as f64 / ANGLES as f64 * self.perimeter_seconds;
        let period = self.perimeter_seconds / self.rounds[job] as f64;
        if seconds < period { seconds } else { 0.0 }
    }

    fn settle_rotations(&self, second: usize) -> Vec<usize> {
        let jobs = self.shares.len();
        let mut rotations = vec![0; jobs];
        let mut asked = [0.0; ANGLES];
        for job in 0..jobs {
            if job == 1 {
                rotations[1] = second;
            } else if job > 1 {
                rotations[job] = self.best_rotation(job, 0, &asked);
            }
            self.add_demand(&mut asked, job, rotations[job], 1.0);
        }
        for _ in 0..MAX_SWEEPS {
            let before = rotations.clone();
            for (job, rotation) in rotations.iter_mut().enumerate().skip(2) {
                self.add_demand(&mut asked, job, *rotation, -1.0);
                *rotation = self.best_rotation(job, *rotation, &asked);
                self.add_demand(&mut asked, job, *rotation, 1.0);
            }
            if rotations == before {
                break;
            }
        }
        rotations
    }

    /// Where a job adds the least excess to what is already asked; it stays where it is unless
    /// something is gained.
    fn best_rotation(&self, job: usize, present: usize, asked: &[f64; ANGLES]) -> usize {
        let excess = |rotation: usize| -> f64 {
            let angles = 0..ANGLES;
            angles
                .map(|angle| (asked[angle] + self.link_share(job, rotation, angle) - 1.0).max(0.0))
                .sum()
        };
        // A rotation must gain more than rounding, or equal rotations would alternate.
        let mut best = (excess(present), present);
        for rotation in 0..self.distinct_rotations(job) {
            let worth = excess(rotation);
            if worth < best.0 - NOISE {
                best = (worth, rotation);
            }
        }
        best.1
    }

    fn add_demand(&self, asked: &mut [f64; ANGLES], job: usize, rotation: usize, sign: f64) {
        for (angle, sum) in asked.iter_mut().enumerate() {
            *sum += sign * self.link_share(job, rotation, angle);
        }
    }
}

/// Differences of excess below this are rounding.
const NOISE: f64 = 1e-9;

/// Sweeps over the jobs of a circle; each lowers the excess, so few are needed.
const MAX_SWEEPS: usize = 16;

/// The perimeter, and the iterations of each job around it.
fn fit_perimeter(patterns: &[TrafficPattern]) -> (f64, Vec<usize>) {
    let seconds = patterns.iter().map(|pattern| pattern.iteration_seconds);
    let longest = seconds.fold(0.0, f64::max);
    let mut best: Option<(f64, f64, Vec<usize>)> = None;
    for turns in 1..=MAX_TURNS {
        let perimeter = f64::from(turns) * longest;
        let rounds: Vec<usize> = patterns.iter().map(|p| whole_iterations(perimeter, p)).collect();
        let spares = patterns.iter().zip(&rounds).map(|(pattern, rounds)| {
            perimeter / (*rounds as f64 * pattern.iteration_seconds) - 1.0
        });
        let spare = spares.fold(0.0, f64::max);
        if best.as_ref().is_none_or(|(least, ..)| spare < *least) {
            best = Some((spare, perimeter, rounds));
        }
        if spare <= SPARE_MAX {
            break;
        }
    }
    best.map_or_else(
        || (longest, vec![1; patterns.len()]),
        |(_, perimeter, rounds)| (perimeter, rounds),
    )
}

/// Whole iterations that fit around, at least one.
fn whole_iterations(perimeter: f64, pattern: &TrafficPattern) -> usize {
    let times = (perimeter / pattern.iteration_seconds + 1e-6).floor();
    // A job of very short iterations fills its share of every angle anyway.
    times.clamp(1.0, 1e6) as usize
}

/// Mean share of the link at each angle, of a job that repeats every `period`.
fn unroll_pattern(pattern: &TrafficPattern, period: f64, perimeter: f64) -> [f64; ANGLES] {
    let arc = perimeter / ANGLES as f64;
    let mut shares = [0.0; ANGLES];
    for (angle, share) in shares.iter_mut().enumerate() {
        let from = angle as f64 * arc;
        let busy = busy_until(pattern, period, from + arc) - busy_until(pattern, period, from);
        *share = pattern.link_share * (busy / arc).clamp(0.0, 1.0);
    }
    shares
}

/// Seconds of communication from 0 to `until`, of a job that began long before and repeats every
/// `period`; communication that outlasts a period runs into the next.
fn busy_until(pattern: &TrafficPattern, period: f64, until: f64) -> f64 {
    let shifted = until - pattern.communication_from_seconds;
    let whole = (shifted / period).floor();
    whole * pattern.communication_seconds
        + (shifted - whole * period).min(pattern.communication_seconds)
}

#[cfg(test)]
mod tests;
