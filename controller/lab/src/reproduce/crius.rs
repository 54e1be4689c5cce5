//! Crius (arXiv 2403.16125; Arena at `EuroSys` 2026): completion times on 64 GPUs of two kinds, and
//! what each of its parts is worth.
//!
//! As in the simulator of its authors, jobs run as fast as the published measurements say and are
//! decided about in rounds; there is no network between them. What the paper reports of its testbed
//! is recomputed from the results stored in sjtu-epcc/arena (runtime/data/rt_plot), in both ways of
//! counting jobs that did not end.

mod ablation;
mod deadlines;

pub(super) use ablation::reproduce_ablation;
pub(super) use deadlines::reproduce_deadlines;
use placement::PlacementRequest;
use placement::allocation::RestartStall;
use placement::crius::CriusPolicy;
use placement::deadline;
use placement::elastic_flow::{ElasticFlowPolicy, ElasticSharing};
use placement::fcfs::FcfsPolicy;
use placement::gavel::GavelPolicy;
use placement::throughput::ThroughputTable;
use placement::{GpuCluster, PlacementPolicy};
use simulator::rounds::{self, ProgressCount, RoundExperiment, RoundOutcome};

use super::SeedOptions;
use super::large_models::{END_SECONDS, crius_cluster, draw_jobs};
use super::report::{MeasureCurve, MeasureRow, PaperReproduction, mean_value, percent_change};
use command_io::CommandError;

/// Seconds between decisions.
const ROUND_SECONDS: f64 = deadline::ROUND_SECONDS;

/// Whom Crius is compared with.
const RIVALS: [&str; 3] = ["FCFS", "Gavel", "ElasticFlow"];

/// What the stored results of the testbed come to: jobs that ended, their mean completion time in
/// seconds and samples per second; Crius first, then its rivals.
const TESTBED: [(f64, f64, f64); 4] =
    [(151.0, 5645.0, 311.5), (98.0, 6632.0, 209.4), (102.0, 6930.0, 225.9), (97.0, 3289.0, 260.4)];

/// By how much Crius cuts completion times there, in %: with jobs that a rival did not end counted
/// as long as the longest of all, and over jobs that ended.
const TESTBED_CUTS: [(f64, f64); 3] = [(48.9, 14.9), (48.3, 18.5), (37.2, -71.6)];

/// The cluster, how fast jobs are on it, and how fast those think who know data parallelism only.
struct CriusTestbed {
    cluster: GpuCluster,
    truth: ThroughputTable,
    data_parallel: ThroughputTable,
    /// How iterations are counted.
    count: ProgressCount,
}

/// What is varied.
#[derive(Clone, Copy)]
struct CriusVariant {
    /// Jobs, in units of the trace.
    load: f64,
    /// What a start costs Crius' rivals.
    stall: RestartStall,
    /// Whether they use more than data parallelism.
    all_knowing: bool,
    /// How ElasticFlow shares.
    sharing: ElasticSharing,
}

/// As on the testbed.
const AS_PRINTED: CriusVariant = CriusVariant {
    load: 1.0,
    stall: RestartStall::ALL_PLANS,
    all_knowing: false,
    sharing: ElasticSharing::KeepPlaces,
};

/// A share of what a start cost Crius' rivals on the testbed.
fn share_of_stall(share: f64) -> RestartStall {
    let RestartStall { per_gpu_seconds, most_seconds } = RestartStall::ALL_PLANS;
    RestartStall { per_gpu_seconds: share * per_gpu_seconds, most_seconds: share * most_seconds }
}

impl CriusTestbed {
    fn new() -> Self {
        let cluster = crius_cluster();
        let truth = ThroughputTable::from_published(&cluster);
        let data_parallel = truth.clone().data_parallel_only(&cluster);
        Self { cluster, truth, data_parallel, count: ProgressCount::AsRun }
    }

    fn replay_policy(
        &self,
        jobs: &[PlacementRequest],
        policy: &mut dyn PlacementPolicy,
    ) -> Result<RoundOutcome, CommandError> {
        let experiment = RoundExperiment {
            cluster: &self.cluster,
            truth: &self.truth,
            jobs,
            round_seconds: ROUND_SECONDS,
            end_seconds: END_SECONDS,
            count: self.count,
        };
        rounds::run_rounds(&experiment, policy)
            .map_err(|error| CommandError::Failed(error.to_string()))
    }

    /// Crius and its rivals on the jobs of one seed.
    fn replay_all(
        &self,
        seed: u64,
        variant: CriusVariant,
    ) -> Result<Vec<RoundOutcome>, CommandError> {
        let jobs = draw_jobs(seed, variant.load, &self.truth);
        let stall = variant.stall;
        let known = if variant.all_knowing { &self.truth } else { &self.data_parallel };
        let (table, known) = (|| self.truth.clone(), || known.clone());
        let policies: [Box<dyn PlacementPolicy>; 4] = [
            Box::new(CriusPolicy::new(table())),
            Box::new(FcfsPolicy { table: table(), stall }),
            Box::new(GavelPolicy { table: known(), stall }),
            Box::new(ElasticFlowPolicy::new(variant.sharing, known(), stall)),
        ];
        let replayed =
            policies.into_iter().map(|mut policy| self.replay_policy(&jobs, &mut *policy));
        replayed.collect()
    }
}

/// By seed, what Crius and its rivals achieve.
fn run_seeds(
    options: SeedOptions,
    variant: CriusVariant,
) -> Result<Vec<Vec<RoundOutcome>>, CommandError> {
    let lab = CriusTestbed::new();
    options.all_seeds().map(|seed| lab.replay_all(seed, variant)).collect()
}

/// Completion times and throughput against FCFS, Gavel and `ElasticFlow`.
pub(super) fn reproduce_jct(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let runs = run_seeds(options, AS_PRINTED)?;
    let mut rows = absolute_rows(&runs);
    rows.extend(cut_rows(&runs));
    rows.extend(speed_rows("", &runs));
    let curves = speed_curves(&runs);
    for (prefix, variant) in swept_variants() {
        let runs = self::run_seeds(options, variant)?;
        rows.extend(padded_rows(prefix, &runs));
        rows.extend(speed_rows(prefix, &runs));
    }
    Ok(PaperReproduction {
        about: "Large models on 32 A40 and 32 A10: Crius against FCFS, Gavel and ElasticFlow."
            .to_owned(),
        source: "Xue et al., arXiv 2403.16125; figures recomputed from the results stored in \
                 sjtu-epcc/arena, runtime/data/rt_plot."
            .to_owned(),
        rows,
        curves,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// What the sources leave open, swept.
fn swept_variants() -> [(&'static str, CriusVariant); 8] {
    let stalled = |share| CriusVariant { stall: share_of_stall(share), ..AS_PRINTED };
    let anew = CriusVariant { sharing: ElasticSharing::PlaceAnew, ..AS_PRINTED };
    let cheap = CriusVariant { stall: RestartStall::PRUNED, ..AS_PRINTED };
    [
        ("half the stalls, ", stalled(0.5)),
        ("a quarter of the stalls, ", stalled(0.25)),
        ("equal stalls, ", cheap),
        ("equal stalls and knowledge, ", CriusVariant { all_knowing: true, ..cheap }),
        ("places anew, ", anew),
        ("places anew and equal stalls, ", CriusVariant { stall: RestartStall::PRUNED, ..anew }),
        ("half the jobs, ", CriusVariant { load: 0.5, ..AS_PRINTED }),
        ("a quarter of the jobs, ", CriusVariant { load: 0.25, ..AS_PRINTED }),
    ]
}

fn absolute_rows(runs: &[Vec<RoundOutcome>]) -> Vec<MeasureRow> {
    let names = ["Crius"].into_iter().chain(RIVALS).enumerate();
    let mut rows: Vec<MeasureRow> = names
        .flat_map(|(policy, name)| {
            let (ended, completion, speed) = TESTBED[policy];
            let of = |measure: fn(&RoundOutcome) -> f64| -> Vec<f64> {
                runs.iter().map(|run| measure(&run[policy])).collect()
            };
            let row = |measure: &str, unit, paper, values: &[f64]| {
                MeasureRow::new(format!("{measure}, {name}"), unit, Some(paper), values)
            };
            let ended =
                row("jobs ended", "jobs", ended, &of(|run| run.completion_seconds.len() as f64));
            let completion =
                row("completion of ended jobs", "s", completion, &of(completion_seconds));
            let speed =
                row("throughput", "samples/s", speed, &of(RoundOutcome::mean_samples_per_second));
            [ended, completion, speed]
        })
        .collect();
    // Like beside like.
    rows.sort_by_key(|row| ["jobs", "s", "samples/s"].iter().position(|unit| row.unit == *unit));
    rows
}

/// Rounds that one point of a curve is the mean of: half an hour.
const CURVE_ROUNDS: usize = 6;

/// Samples per second of all jobs over the hours of the trace, by policy.
fn speed_curves(runs: &[Vec<RoundOutcome>]) -> Vec<MeasureCurve> {
    let names = ["Crius"].into_iter().chain(RIVALS).enumerate();
    let curves = names.map(|(policy, name)| {
        let by_seed: Vec<Vec<f64>> = runs
            .iter()
            .map(|run| {
                run[policy].samples_per_second.chunks(CURVE_ROUNDS).map(mean_value).collect()
            })
            .collect();
        let points = by_seed.iter().map(Vec::len).max().unwrap_or(0);
        let hours = CURVE_ROUNDS as f64 * ROUND_SECONDS / 3_600.0;
        let x = (0..points).map(|point| (point as f64 + 0.5) * hours).collect();
        let by_seed: Vec<&[f64]> = by_seed.iter().map(Vec::as_slice).collect();
        MeasureCurve::new(format!("throughput, {name}"), x, &by_seed)
    });
    curves.collect()
}

/// By how much Crius cuts completion times, in three ways of counting.
fn cut_rows(runs: &[Vec<RoundOutcome>]) -> Vec<MeasureRow> {
    let rows =
        RIVALS.iter().zip(TESTBED_CUTS).enumerate().flat_map(|(rival, (name, (padded, ended)))| {
            let row = |how: &str, paper, cut: fn(&[RoundOutcome], usize) -> f64| {
                let cuts: Vec<f64> = runs.iter().map(|run| cut(run, rival + 1)).collect();
                let measure = format!("completion against {name}, {how}");
                MeasureRow::new(measure, "% less", paper, &cuts)
            };
            [
                row("padded", Some(padded), padded_cut),
                row("ended jobs", Some(ended), ended_cut),
                row("jobs that both ended", None, common_cut),
            ]
        });
    rows.collect()
}

/// By how much, counted as the authors do, in a variant.
fn padded_rows(prefix: &str, runs: &[Vec<RoundOutcome>]) -> Vec<MeasureRow> {
    RIVALS
        .iter()
        .enumerate()
        .map(|(rival, name)| {
            let cuts: Vec<f64> = runs.iter().map(|run| padded_cut(run, rival + 1)).collect();
            let measure = format!("{prefix}completion against {name}, padded");
            MeasureRow::new(measure, "% less", None, &cuts)
        })
        .collect()
}

/// Throughput of Crius in units of its rivals'; the paper's where nothing is varied.
fn speed_rows(prefix: &str, runs: &[Vec<RoundOutcome>]) -> Vec<MeasureRow> {
    RIVALS
        .iter()
        .enumerate()
        .map(|(rival, name)| {
            let paper = prefix.is_empty().then(|| TESTBED[0].2 / TESTBED[rival + 1].2);
            let ratios: Vec<f64> = runs
                .iter()
                .map(|run| {
                    run[0].mean_samples_per_second() / run[rival + 1].mean_samples_per_second()
                })
                .collect();
            let measure = format!("{prefix}throughput / {name}");
            MeasureRow::new(measure, "ratio", paper, &ratios)
        })
        .collect()
}

/// Seconds that the jobs that ended took in the mean.
fn completion_seconds(run: &RoundOutcome) -> f64 {
    mean_value(&run.completion_seconds.values().copied().collect::<Vec<_>>())
}

/// As the authors count: every job that Crius ended and a rival did not took the rival as long as
/// the longest job of all policies (runtime/data/plot/plotter.py).
fn padded_cut(runs: &[RoundOutcome], rival: usize) -> f64 {
    let seconds = runs.iter().flat_map(|run| run.completion_seconds.values());
    let longest = seconds.copied().fold(0.0, f64::max);
    let ended = runs[0].completion_seconds.len();
    let rival = runs[rival].completion_seconds.values().copied();
    let missing = ended.saturating_sub(rival.len());
    let padded: Vec<f64> = rival.chain(std::iter::repeat_n(longest, missing)).collect();
    -percent_change(mean_value(&padded), completion_seconds(&runs[0]))
}

/// Over the jobs that each ended, which are not the same.
fn ended_cut(runs: &[RoundOutcome], rival: usize) -> f64 {
    -percent_change(completion_seconds(&runs[rival]), completion_seconds(&runs[0]))
}

/// Over the jobs that both ended.
fn common_cut(runs: &[RoundOutcome], rival: usize) -> f64 {
    let (ours, theirs) = (&runs[0].completion_seconds, &runs[rival].completion_seconds);
    let common = ours.iter().filter_map(|(job, ours)| Some((*ours, *theirs.get(job)?)));
    let (ours, theirs): (Vec<f64>, Vec<f64>) = common.unzip();
    -percent_change(mean_value(&theirs), mean_value(&ours))
}

fn list_assumptions() -> Vec<String> {
    [
        "No network between jobs: they run as fast as the published measurements of the best \
         parallelism say, as in the authors' own simulator; a job spread over twice the hosts that \
         it needs loses a tenth unless that was measured.",
        "Jobs are drawn: arrivals by half hour, quantiles of iterations and weights of models, \
         batches and GPUs are those of the trace and its generator; which job is which is not.",
        "Decisions every 300 s; a start or other GPUs cost Crius min(10 g, 40) s, and its rivals, \
         which search all plans, min(150 g, 400) s (the sweep: all the former).",
        "Gavel and ElasticFlow know where data parallelism fits into memory and nothing else; once \
         started, their jobs run in the best parallelism too.",
        "Padded: jobs that Crius ended and a rival did not count as long as the longest of all, \
         which is how the authors get their 48.9 %.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn achieved(seconds: &[(u32, f64)]) -> RoundOutcome {
        RoundOutcome {
            completion_seconds: seconds.iter().copied().collect(),
            ..RoundOutcome::default()
        }
    }

    #[test]
    fn a_job_that_only_crius_ended_counts_as_the_longest() {
        let ours = achieved(&[(1, 100.0), (2, 200.0), (3, 300.0)]);
        let theirs = achieved(&[(1, 200.0), (4, 400.0)]);
        let runs = [ours, theirs];
        // 200 against (200 + 400 + 400) / 3, against (200 + 400) / 2, and 100 against 200.
        for (cut, expect) in [
            (padded_cut(&runs, 1), 40.0),
            (ended_cut(&runs, 1), 100.0 / 3.0),
            (common_cut(&runs, 1), 50.0),
        ] {
            assert!((cut - expect).abs() < 1e-9, "{cut} {expect}");
        }
    }
}
