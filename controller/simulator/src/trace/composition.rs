//! A synthetic workload with the published facts of a cluster whose trace is not at hand.
//!
//! What is published of the Lingjun trace (Crux §6.3 and its data set): 5,000 jobs in two weeks on
//! some 2,000 GPUs, more than 10 % of them on 128 GPUs or more, the largest on 512, at the peak
//! more than 30 jobs on more than 1,000 GPUs. Sizes are dealt out by quota, so that those facts
//! hold for every seed; durations are log-normal and scaled to the load; arrivals follow a
//! [`arrival_pattern`](super::arrival_pattern). The models are drawn from a mix by size. Shares of sizes below 128, the
//! spread of durations and the mix are assumptions, listed with the result.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::arrival_pattern::jobs_in_hour;
use super::{JobLength, JobTrace, SkippedRows, TraceJob, draw_model};

/// The parameters of a synthetic trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceComposition {
    /// Number of jobs to draw.
    pub jobs: usize,
    /// Hours over which they arrive.
    pub hours: u32,
    /// GPUs of the cluster.
    pub cluster_gpus: u32,
    /// GPU time of all jobs, as a fraction of what the cluster has in those hours.
    pub load: f64,
    /// Shares of job sizes: GPUs and weight.
    pub sizes: Vec<(u32, f64)>,
    /// Standard deviation of the logarithm of durations.
    pub spread: f64,
}

impl TraceComposition {
    /// Two weeks as in the Lingjun trace, arrivals as in Philly.
    pub fn lingjun_like() -> Self {
        Self {
            jobs: 5_000,
            hours: 14 * 24,
            cluster_gpus: 2_000,
            load: 0.6,
            sizes: LINGJUN_SIZES.to_vec(),
            spread: 1.8,
        }
    }

    /// Limits the cluster to so many GPUs.
    pub fn limited_to(self, cluster_gpus: u32) -> Self {
        Self { cluster_gpus: self.cluster_gpus.min(cluster_gpus), ..self }
    }
}

/// Shares of sizes: 12 % on 128 GPUs or more ("more than 10 %"), the largest 512, are published;
/// how the shares divide within is assumed.
const LINGJUN_SIZES: [(u32, f64); 10] = [
    (1, 0.10),
    (2, 0.05),
    (4, 0.07),
    (8, 0.30),
    (16, 0.15),
    (32, 0.12),
    (64, 0.09),
    (128, 0.07),
    (256, 0.035),
    (512, 0.015),
];

/// Why nothing can be composed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompositionError {
    /// A number must be above zero and finite.
    #[error("{what}: must be above 0, found {found}")]
    NotPositive {
        /// Name of the parameter.
        what: &'static str,
        /// The value that was given.
        found: f64,
    },
    /// A job cannot have more GPUs than there are.
    #[error("sizes: a job of {gpus} GPUs in a cluster of {cluster_gpus}")]
    TooLarge {
        /// GPUs of the job.
        gpus: u32,
        /// GPUs of the cluster.
        cluster_gpus: u32,
    },
    /// More jobs than a composition makes.
    #[error("jobs: {0} are more than {MAX_JOBS}")]
    TooMany(usize),
}

/// A composition has at most so many jobs.
const MAX_JOBS: usize = 1_000_000;

/// Random streams, one for each thing that is drawn: a change of one leaves the others as they are.
const ARRIVALS: u64 = 1;
const SIZES: u64 = 2;
const DURATIONS: u64 = 3;
const MODELS: u64 = 4;

/// A composed workload, and how busy it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedTrace {
    /// The jobs; the notes say that they are synthetic.
    pub trace: JobTrace,
    /// The most GPUs wanted at once.
    pub peak: DemandPeak,
}

/// Composes a workload; the same composition and seed give the same jobs.
///
/// # Errors
/// A number of the composition makes no sense.
pub fn compose_trace(
    composition: &TraceComposition,
    seed: u64,
) -> Result<ComposedTrace, CompositionError> {
    composition.check_values()?;
    let arrivals = draw_arrivals(composition, &mut random_stream(seed, ARRIVALS));
    let sizes = draw_sizes(composition, &mut random_stream(seed, SIZES));
    let seconds = draw_durations(composition, &sizes, &mut random_stream(seed, DURATIONS));
    let mut models = random_stream(seed, MODELS);
    let drawn = arrivals.into_iter().zip(sizes).zip(seconds);
    let jobs = drawn.zip(1..).map(|(((submitted_seconds, gpus), seconds), number)| TraceJob {
        id: format!("synthetic-{number}"),
        submitted_seconds,
        gpus,
        length: JobLength::Seconds(seconds),
        model: Some(draw_model(gpus, &mut models)),
        tenant: None,
    });
    let trace = JobTrace {
        jobs: jobs.collect(),
        skipped: SkippedRows::default(),
        notes: composition.describe_assumptions(seed),
    };
    let peak = find_peak(&trace.jobs);
    Ok(ComposedTrace { trace, peak })
}

fn random_stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

impl TraceComposition {
    fn check_values(&self) -> Result<(), CompositionError> {
        if self.jobs > MAX_JOBS {
            return Err(CompositionError::TooMany(self.jobs));
        }
        let arriving = (0..self.hours as usize).map(|hour| f64::from(jobs_in_hour(hour)));
        let positive = [
            ("jobs", self.jobs as f64),
            ("hours", f64::from(self.hours)),
            ("cluster_gpus", f64::from(self.cluster_gpus)),
            ("load", self.load),
            ("sizes", self.sizes.iter().map(|(_, share)| share).sum()),
            ("rhythm", arriving.sum()),
        ];
        let sizes = self.sizes.iter();
        let each = sizes.flat_map(|(gpus, share)| [("sizes", f64::from(*gpus)), ("sizes", *share)]);
        if let Some((what, found)) =
            positive.into_iter().chain(each).find(|(_, value)| !(*value > 0.0 && value.is_finite()))
        {
            return Err(CompositionError::NotPositive { what, found });
        }
        if !(0.0..=4.0).contains(&self.spread) {
            let (what, found) = ("spread (at most 4)", self.spread);
            return Err(CompositionError::NotPositive { what, found });
        }
        let cluster_gpus = self.cluster_gpus;
        match self.sizes.iter().find(|(gpus, _)| *gpus > cluster_gpus) {
            Some(&(gpus, _)) => Err(CompositionError::TooLarge { gpus, cluster_gpus }),
            None => Ok(()),
        }
    }

    fn describe_assumptions(&self, seed: u64) -> Vec<String> {
        let shares: Vec<String> =
            self.sizes.iter().map(|(gpus, share)| format!("{gpus}: {share}")).collect();
        vec![
            format!("synthetic: composed from published facts, seed {seed}"),
            format!("shares of sizes in GPUs, in part assumed: {}", shares.join(", ")),
            format!(
                "durations assumed log-normal, spread {}, scaled to a load of {} on {} GPUs",
                self.spread, self.load, self.cluster_gpus
            ),
            "models drawn from an assumed mix by size, again for every seed".to_owned(),
        ]
    }
}

/// Times of arrival in seconds, ascending from 0: hours in proportion to the rhythm, and any moment
/// within.
fn draw_arrivals(composition: &TraceComposition, random: &mut ChaCha8Rng) -> Vec<f64> {
    let mut until = Vec::new();
    let mut sum = 0;
    for hour in 0..composition.hours as usize {
        sum += u64::from(jobs_in_hour(hour));
        until.push(sum);
    }
    let mut times: Vec<f64> = (0..composition.jobs)
        .map(|_| {
            let ticket = random.random_range(0..sum);
            let hour = until.partition_point(|end| *end <= ticket);
            (hour as f64 + random.random_range(0.0..1.0)) * 3600.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let first = times[0];
    times.iter().map(|time| time - first).collect()
}

/// GPUs of the jobs: as many of each size as its share says, in random order.
fn draw_sizes(composition: &TraceComposition, random: &mut ChaCha8Rng) -> Vec<u32> {
    let total: f64 = composition.sizes.iter().map(|(_, share)| share).sum();
    let mut sizes = Vec::new();
    let mut sum = 0.0;
    for (gpus, share) in &composition.sizes {
        sum += share;
        // Rounding the running sum deals out every job exactly once.
        let until = (sum / total * composition.jobs as f64).round() as usize;
        sizes.resize(until.min(composition.jobs), *gpus);
    }
    sizes.shuffle(random);
    sizes
}

/// Seconds of the jobs, log-normal, at most the length of the trace before scaling to the load.
fn draw_durations(
    composition: &TraceComposition,
    sizes: &[u32],
    random: &mut ChaCha8Rng,
) -> Vec<f64> {
    let window = f64::from(composition.hours) * 3600.0;
    // A median of 1/256 of the window: an hour and a bit in two weeks.
    let median = window / 256.0;
    let seconds: Vec<f64> = sizes
        .iter()
        .map(|_| (median * (composition.spread * draw_normal(random)).exp()).min(window))
        .collect();
    let wanted = composition.load * f64::from(composition.cluster_gpus) * window;
    let jobs = sizes.iter().zip(&seconds);
    let drawn: f64 = jobs.map(|(gpus, seconds)| f64::from(*gpus) * seconds).sum();
    seconds.iter().map(|seconds| seconds * wanted / drawn).collect()
}

/// A normal deviate of mean 0 and deviation 1 (Box and Muller 1958).
fn draw_normal(random: &mut ChaCha8Rng) -> f64 {
    // 1 - [0, 1) is (0, 1], whose logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random_range(0.0..1.0_f64)).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random_range(0.0..1.0)).cos()
}

/// The moment at which most GPUs are wanted, if every job begins when it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandPeak {
    /// Time of the peak, in seconds.
    pub seconds: f64,
    /// GPUs that jobs request then.
    pub gpus: u64,
    /// By how many jobs.
    pub jobs: u64,
}

/// The peak of `jobs`; those measured in iterations count as over at once.
pub fn find_peak(jobs: &[TraceJob]) -> DemandPeak {
    let mut events: Vec<(f64, i64, i64)> = Vec::new();
    for job in jobs {
        if let JobLength::Seconds(seconds) = job.length {
            let gpus = i64::from(job.gpus);
            events.push((job.submitted_seconds, gpus, 1));
            events.push((job.submitted_seconds + seconds, -gpus, -1));
        }
    }
    // Departures before arrivals of the same moment: what one leaves, the other takes.
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut peak, mut gpus, mut running) = (DemandPeak::default(), 0, 0);
    for (seconds, more_gpus, more_jobs) in events {
        gpus += more_gpus;
        running += more_jobs;
        if gpus.unsigned_abs() > peak.gpus {
            let (gpus, jobs) = (gpus.unsigned_abs(), running.unsigned_abs());
            peak = DemandPeak { seconds, gpus, jobs };
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_facts_hold_for_every_seed() {
        for seed in [1, 2, 3] {
            let composed = compose_trace(&TraceComposition::lingjun_like(), seed).unwrap();
            let jobs = &composed.trace.jobs;
            assert_eq!(jobs.len(), 5_000);
            let large = jobs.iter().filter(|job| job.gpus >= 128).count();
            assert_eq!(large, 600);
            assert_eq!(jobs.iter().map(|job| job.gpus).max(), Some(512));
            let last = jobs.last().unwrap().submitted_seconds;
            assert!(jobs[0].submitted_seconds == 0.0 && last < 14.0 * 86_400.0);
            let peak = composed.peak;
            assert!(peak.jobs > 30 && peak.gpus > 1_000, "{peak:?}");
            assert!(composed.trace.notes[0].starts_with("synthetic"));
        }
    }

    #[test]
    fn the_load_is_as_asked_and_the_seed_decides_the_rest() {
        let composition = TraceComposition::lingjun_like();
        let jobs = |seed| compose_trace(&composition, seed).unwrap().trace.jobs;
        let gpu_seconds = |job: &TraceJob| match job.length {
            JobLength::Seconds(seconds) => seconds * f64::from(job.gpus),
            JobLength::Iterations(_) => 0.0,
        };
        let sum: f64 = jobs(7).iter().map(gpu_seconds).sum();
        assert!((sum / (2_000.0 * 14.0 * 86_400.0) - 0.6).abs() < 1e-9);
        assert_eq!(jobs(7), jobs(7));
        assert_ne!(jobs(7), jobs(8));
    }

    #[test]
    fn invalid_compositions_are_refused() {
        let refused =
            |composition: &TraceComposition| compose_trace(composition, 1).unwrap_err().to_string();
        let mut none = TraceComposition::lingjun_like();
        none.load = f64::NAN;
        assert_eq!(refused(&none), "load: must be above 0, found NaN");
        let mut small = TraceComposition::lingjun_like();
        small.cluster_gpus = 256;
        assert_eq!(refused(&small), "sizes: a job of 512 GPUs in a cluster of 256");
        let mut many = TraceComposition::lingjun_like();
        many.jobs = usize::MAX;
        assert!(refused(&many).ends_with("are more than 1000000"));
    }
}
