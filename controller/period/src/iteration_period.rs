//! The period of a job's iterations, and what it sends in one, from the bytes it sends by time.
//!
//! A job that trains computes and communicates in turns, and every iteration repeats the last. Crux
//! §5 looks for the highest line in the spectrum of the series. But in time no iteration is quite
//! like another: computation jitters, and contention stretches bursts. In bytes they are alike,
//! because a job sends the same in each. So the series is turned around, seconds by byte instead of
//! bytes by second: computation is then a spike, always as many bytes after the last one. The
//! volume is the distance at which these seconds resemble themselves, by Fourier transform; the
//! period is how long such a volume takes.

use std::ops::Range;

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

/// Of the highest resemblance, what the shortest distance must reach to be the volume.
const MIN_PEAK_RATIO: f64 = 0.85;
/// Resemblance below this counts as chance.
const MIN_CLARITY: f64 = 0.3;
/// Iterations that a series must show.
const MIN_ITERATIONS: usize = 3;
/// How far iterations may be from where their number and the volume put them, in volumes.
const POSITION_TOLERANCE: f64 = 0.2;
/// Shares of the bytes for one interval of time, and at most.
const SHARES_PER_INTERVAL: usize = 8;
/// How often dwelling is spread over neighbouring shares. Stops whose distances differ by one share
/// then resemble each other by exp(-1 / (2 * 6)) = 0.92, more than `FIRST_OF_HIGHEST`; with two
/// times it would be 0.8.
const SMOOTHING_PASSES: usize = 6;
const MAX_SHARES: usize = 1 << 17;

/// What repeats in a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IterationPeriod {
    /// Seconds of an iteration, on average.
    pub seconds: f64,
    /// Bytes sent in one.
    pub bytes: f64,
    /// How much iterations resemble each other: 1 if they are the same.
    pub clarity: f64,
}

/// The period of a series of `bytes`, sent in intervals of `interval_seconds` each. None if nothing
/// repeats, or not three times, as in a job that never stops sending. Costs
/// O(n log n) for n intervals.
pub fn estimate_period(bytes: &[f64], interval_seconds: f64) -> Option<IterationPeriod> {
    let dwell = DwellTimes::new(bytes, interval_seconds)?;
    let peaks = find_peaks(&normalised_correlation(&dwell.seconds));
    let highest = peaks.iter().map(|peak| peak.height).reduce(f64::max)?;
    let first = peaks.iter().find(|peak| peak.height >= MIN_PEAK_RATIO * highest)?;
    if first.height < MIN_CLARITY {
        return None;
    }
    let shares = refine_distance(first, &peaks);
    Some(IterationPeriod {
        seconds: dwell.mean_seconds(shares)?,
        bytes: shares * dwell.share_bytes,
        clarity: first.height.min(1.0),
    })
}

/// How long the job dwelt at each share of all its bytes.
struct DwellTimes {
    seconds: Vec<f64>,
    share_bytes: f64,
}

impl DwellTimes {
    /// None if nothing was sent.
    fn new(bytes: &[f64], interval_seconds: f64) -> Option<Self> {
        let total: f64 = bytes.iter().sum();
        let shares = (SHARES_PER_INTERVAL * bytes.len()).clamp(1, MAX_SHARES);
        let share_bytes = total / shares as f64;
        if !(share_bytes > 0.0 && share_bytes.is_finite()) {
            return None;
        }
        let mut seconds = vec![0.0; shares];
        let mut sent = 0.0;
        for bytes in bytes {
            let (from, to) = (sent / share_bytes, (sent + bytes) / share_bytes);
            spread_seconds(&mut seconds, from..to, interval_seconds);
            sent += bytes;
        }
        Some(Self { seconds, share_bytes })
    }

    /// Mean seconds of iterations of `shares` each: from where the longest stop in the first one
    /// begins to where the same stop in the last one does. The series may have begun amid a stop,
    /// so none at its first byte counts.
    fn mean_seconds(&self, shares: f64) -> Option<f64> {
        let first = self.longest_share(1.0, shares + 1.0)?;
        let iterations =
            ((self.seconds.len() - first) as f64 / shares - POSITION_TOLERANCE).floor();
        if iterations < 1.0 {
            return None;
        }
        let expected = first as f64 + iterations * shares;
        let tolerance = POSITION_TOLERANCE * shares;
        let last = self.longest_share(expected - tolerance, expected + tolerance)?;
        Some(self.seconds[first..last].iter().sum::<f64>() / iterations)
    }

    /// The share between `from` and `to` in which the series dwelt longest.
    fn longest_share(&self, from: f64, to: f64) -> Option<usize> {
        let range = from.max(1.0) as usize..self.seconds.len().min(to as usize + 1);
        range.max_by(|a, b| self.seconds[*a].total_cmp(&self.seconds[*b]))
    }
}

/// Spreads `seconds` evenly over a range of shares.
fn spread_seconds(shares: &mut [f64], range: Range<f64>, seconds: f64) {
    let Range { start: from, end: to } = range;
    let last = shares.len() - 1;
    let (start, end) = ((from as usize).min(last), (to as usize).min(last));
    if start == end {
        shares[start] += seconds;
        return;
    }
    for (share, dwelt) in shares.iter_mut().enumerate().take(end + 1).skip(start) {
        let covered = (share as f64 + 1.0).min(to) - (share as f64).max(from);
        *dwelt += seconds * covered.max(0.0) / (to - from);
    }
}

/// A distance at which a series resembles itself more than at those around.
#[derive(Clone, Copy, Debug)]
struct CorrelationPeak {
    /// In shares.
    distance: f64,
    height: f64,
}

/// By distance d, `2 sum(x[i] x[i+d]) / sum(x[i]^2 + x[i+d]^2)` of the values less their mean: 1
/// where they are the same, -1 where they are opposite (McLeod and Wyvill, "A smarter way to find
/// pitch", 2005).
fn normalised_correlation(values: &[f64]) -> Vec<f64> {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / (count.max(1) as f64);
    let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let centred = (0..SMOOTHING_PASSES).fold(centred, |values, _| smooth_values(&values));
    let products = autocorrelation(&centred);
    let mut squares = 2.0 * centred.iter().map(|x| x * x).sum::<f64>();
    let floor = 1e-6 * mean * mean * count as f64;
    let mut resemblance = Vec::new();
    for distance in 0..count.min(count / MIN_ITERATIONS + 1) {
        let is_flat = squares <= floor;
        resemblance.push(if is_flat { 0.0 } else { 2.0 * products[distance] / squares });
        let (first, last) = (centred[distance], centred[count - 1 - distance]);
        squares -= first * first + last * last;
    }
    resemblance
}

/// Each value with a half of its neighbours. Without it, spikes would meet only where they fall on
/// the same share.
fn smooth_values(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let before = index.checked_sub(1).map_or(0.0, |before| values[before]);
            let after = values.get(index + 1).copied().unwrap_or(0.0);
            value + 0.5 * (before + after)
        })
        .collect()
}

/// `sum(x[i] x[i+d])` by distance d (Wiener-Khinchin); zeros behind the values keep their end from
/// meeting their beginning.
fn autocorrelation(values: &[f64]) -> Vec<f64> {
    let size = (2 * values.len()).next_power_of_two();
    let complex = values.iter().map(|value| Complex::new(*value, 0.0));
    let mut spectrum: Vec<Complex<f64>> = complex.collect();
    spectrum.resize(size, Complex::default());
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(size).process(&mut spectrum);
    for line in &mut spectrum {
        *line = Complex::new(line.norm_sqr(), 0.0);
    }
    planner.plan_fft_inverse(size).process(&mut spectrum);
    spectrum.iter().map(|value| value.re / size as f64).collect()
}

/// The highest distance of each stretch of positive resemblance, after the one around 0.
fn find_peaks(resemblance: &[f64]) -> Vec<CorrelationPeak> {
    let mut peaks = Vec::new();
    let mut best: Option<usize> = None;
    let start = resemblance.iter().position(|height| *height <= 0.0);
    for distance in start.unwrap_or(resemblance.len())..resemblance.len() {
        if resemblance[distance] > 0.0 {
            let is_higher = best.is_none_or(|best| resemblance[distance] > resemblance[best]);
            best = if is_higher { Some(distance) } else { best };
        } else {
            peaks.extend(best.take().and_then(|at| interpolate_peak(resemblance, at)));
        }
    }
    peaks.extend(best.and_then(|at| interpolate_peak(resemblance, at)));
    peaks
}

/// The top of the parabola through a distance and its neighbours; none at the end, where the top
/// may be beyond.
fn interpolate_peak(resemblance: &[f64], distance: usize) -> Option<CorrelationPeak> {
    let before = resemblance[distance - 1];
    let (at, after) = (resemblance[distance], *resemblance.get(distance + 1)?);
    let bend = before - 2.0 * at + after;
    let aside = if bend < 0.0 { (0.5 * (before - after) / bend).clamp(-0.5, 0.5) } else { 0.0 };
    Some(CorrelationPeak {
        distance: distance as f64 + aside,
        height: at - 0.25 * (before - after) * aside,
    })
}

/// The distance of one iteration, from those of two, three and more as long as they are clear: what
/// is uncertain about a distance is divided by the iterations in it.
fn refine_distance(first: &CorrelationPeak, peaks: &[CorrelationPeak]) -> f64 {
    let mut distance = first.distance;
    for iterations in 2.. {
        let iterations = f64::from(iterations);
        let near = peaks
            .iter()
            .filter(|peak| (peak.distance / distance - iterations).abs() < POSITION_TOLERANCE);
        match near.max_by(|a, b| a.height.total_cmp(&b.height)) {
            Some(peak) if peak.height >= MIN_PEAK_RATIO * first.height => {
                distance = peak.distance / iterations;
            }
            _ => break,
        }
    }
    distance
}

#[cfg(test)]
mod tests;
