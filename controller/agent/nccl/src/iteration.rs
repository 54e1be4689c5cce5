//! The iteration of a job, from the operations of one communicator.
//!
//! A training loop queues the same operations again and again. Two steps find how many make one
//! iteration:
//!
//! 1. *By kind.* The smallest lag at which operations repeat, from the prefix function (Knuth,
//!    Morris and Pratt) of the reversed history. A lag that explains nearly as much as the best one
//!    is preferred to it, so that an evaluation or a checkpoint now and then does not count as part
//!    of every iteration.
//! 2. *By time.* Where an iteration has several equal operations, such as buckets of one size, the
//!    lag by kind is too short. The gaps between operations then repeat at a multiple of it, at
//!    which their autocorrelation has its first high value. Two late operations, of a process that
//!    had to wait for a processor, correlate as well: a lag counts only if most of what deviates
//!    also recurs one lag before and one lag after.
//!
//! Pure: times are arguments.

/// Repetitions that a lag needs before it counts.
const MIN_REPEATS: usize = 3;
/// Share of the best explanation that a shorter lag must reach.
const KIND_SHARE: f64 = 0.9;
/// Share of the highest autocorrelation that a shorter lag must reach.
const TIME_SHARE: f64 = 0.8;
/// Autocorrelation below which gaps count as unrelated.
const MIN_AUTOCORRELATION: f64 = 0.3;
/// Share of the deviation of gaps that must recur at a lag.
const RECURRING_SHARE: f64 = 0.5;
/// Operations that are searched, the latest ones.
const MAX_OPERATIONS: usize = 2_048;
/// Iterations that are averaged.
const MAX_ITERATIONS: usize = 64;

/// An operation and what it has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredOperation {
    /// Its number in the process.
    pub number: u32,
    /// Equal for operations of one kind, count and peer.
    pub signature: u64,
    /// When it was queued.
    pub at_ns: u64,
    /// What it has sent over the network.
    pub bytes: u64,
}

/// An iteration, as an average of the latest ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclIteration {
    /// How long it takes.
    pub seconds: f64,
    /// What the rank sends in it over the network.
    pub bytes: f64,
    /// Operations that it consists of.
    pub operations: usize,
    /// How many were averaged.
    pub averaged: usize,
}

/// The iteration that `history` repeats (the oldest operation first), if it does.
pub fn find_iteration(history: &[MeasuredOperation]) -> Option<NcclIteration> {
    let history = &history[history.len().saturating_sub(MAX_OPERATIONS)..];
    let lag = lag_by_kind(history)?;
    let history = without_singular_operations(history, lag);
    let lag = multiply_by_time(&history, lag);
    if history.len() <= 2 * lag {
        return None;
    }
    // The data of the latest iteration may still be on their way.
    let last = history.len() - 1 - lag;
    let averaged = (last / lag).min(MAX_ITERATIONS);
    let first = last - averaged * lag;
    let elapsed_ns = history[last].at_ns.saturating_sub(history[first].at_ns);
    let sent: u64 = history[first + 1..=last].iter().map(|operation| operation.bytes).sum();
    (averaged > 0 && elapsed_ns > 0).then(|| NcclIteration {
        seconds: elapsed_ns as f64 / 1e9 / averaged as f64,
        bytes: sent as f64 / averaged as f64,
        operations: lag,
        averaged,
    })
}

/// The smallest lag at which nearly all operations repeat that repeat at any lag.
fn lag_by_kind(history: &[MeasuredOperation]) -> Option<usize> {
    let mut lags = repeated_lags(history);
    lags.dedup();
    let matching = |lag: usize| {
        let pairs = history.iter().zip(&history[lag..]);
        let equal = pairs.filter(|(one, later)| one.signature == later.signature).count();
        equal as f64 / (history.len() - lag) as f64
    };
    let scores: Vec<(usize, f64)> = lags.into_iter().map(|lag| (lag, matching(lag))).collect();
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    scores.iter().find(|(_, score)| *score >= KIND_SHARE * best).map(|(lag, _)| *lag)
}

/// Leaves out operations that repeat neither `lag` earlier nor later, such as those of an
/// evaluation now and then: counted, they would shorten the average iteration.
fn without_singular_operations(
    history: &[MeasuredOperation],
    lag: usize,
) -> Vec<MeasuredOperation> {
    let is_equal = |one: usize, other: Option<usize>| {
        let other = other.and_then(|index| history.get(index));
        other.is_some_and(|other| other.signature == history[one].signature)
    };
    let regular = (0..history.len()).filter(|index| {
        is_equal(*index, index.checked_sub(lag)) || is_equal(*index, Some(index + lag))
    });
    regular.map(|index| history[index]).collect()
}

/// Lags at which the latest operations repeat at least [`MIN_REPEATS`] times, ascending.
fn repeated_lags(history: &[MeasuredOperation]) -> Vec<usize> {
    let signature = |index: usize| history[history.len() - 1 - index].signature;
    let mut borders: Vec<usize> = vec![0; history.len()];
    let mut lags = Vec::new();
    for length in 1..history.len() {
        let mut border = borders[length - 1];
        while border > 0 && signature(length) != signature(border) {
            border = borders[border - 1];
        }
        border += usize::from(signature(length) == signature(border));
        borders[length] = border;
        let lag = length + 1 - border;
        if length + 1 >= (MIN_REPEATS + 1) * lag {
            lags.push(lag);
        }
    }
    lags
}

/// The multiple of `lag` at which the gaps between operations repeat; `lag` if at none.
fn multiply_by_time(history: &[MeasuredOperation], lag: usize) -> usize {
    let gaps: Vec<f64> =
        history.windows(2).map(|pair| pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    let deviations: Vec<f64> = gaps.iter().map(|gap| gap - mean).collect();
    let longest = gaps.len() / (MIN_REPEATS + 1);
    let correlations: Vec<(usize, f64)> =
        (lag..=longest).step_by(lag).map(|lag| (lag, autocorrelation(&deviations, lag))).collect();
    let highest = correlations.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    // Gaps without any pattern correlate by chance, with a deviation of 1/sqrt(n).
    let chance = 4.0 / (gaps.len() as f64).sqrt();
    if highest < MIN_AUTOCORRELATION.max(chance) {
        return lag;
    }
    let first = correlations.iter().find(|(_, value)| *value >= TIME_SHARE * highest);
    let multiple = first.map_or(lag, |(lag, _)| *lag);
    if recurring_share(&gaps, multiple) < RECURRING_SHARE { lag } else { multiple }
}

/// How much of what gaps deviate from the median gap is there one `lag` earlier and later too,
/// from 0 to 1.
fn recurring_share(gaps: &[f64], lag: usize) -> f64 {
    let typical = median(gaps.to_vec());
    let deviation = |index: usize| gaps[index] - typical;
    let (mut recurring, mut total) = (0.0, 0.0);
    for index in lag..gaps.len().saturating_sub(lag) {
        let thrice = [deviation(index - lag), deviation(index), deviation(index + lag)];
        let is_one_sided = thrice.iter().all(|value| value.signum() == thrice[1].signum());
        let least = thrice.iter().fold(f64::INFINITY, |least, value| least.min(value.abs()));
        recurring += if is_one_sided { least } else { 0.0 };
        total += thrice[1].abs();
    }
    if total > 0.0 { recurring / total } else { 0.0 }
}

/// The upper median of `values`, which are not empty.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of the deviations and the same ones `lag` later, from -1 to 1; 0 if nothing deviates.
fn autocorrelation(deviations: &[f64], lag: usize) -> f64 {
    let (early, late) = (&deviations[..deviations.len() - lag], &deviations[lag..]);
    let product: f64 = early.iter().zip(late).map(|(a, b)| a * b).sum();
    let power = |part: &[f64]| part.iter().map(|value| value * value).sum::<f64>();
    let scale = (power(early) * power(late)).sqrt();
    if scale > 0.0 { product / scale } else { 0.0 }
}

#[cfg(test)]
mod tests;
