//! Crius with deadlines: how many jobs end in time, beside `ElasticFlow` with deadlines and beside
//! policies that know of none.
//!
//! The jobs are those of crius-jct. Each has a deadline: its arrival and a multiple of its time
//! budget in the trace ([`draw_time_budgets`]). No figure of the paper with deadlines is at hand,
//! and no result is stored in sjtu-epcc/arena. What stands beside ours is what the simulator there
//! counts (`ddl_satisfied_job_num`) on its own trace of the same testbed. The decision: a policy
//! that knows no deadlines runs once and is judged by each multiple.

use std::collections::BTreeMap;

use placement::allocation::RestartStall;
use placement::crius::CriusPolicy;
use placement::deadline::JobDeadlines;
use placement::elastic_flow::{ElasticFlowPolicy, ElasticSharing, LateJobs};
use placement::fcfs::FcfsPolicy;
use placement::gavel::GavelPolicy;
use placement::{PlacementPolicy, PlacementRequest};
use simulator::rounds::{ProgressCount, RoundOutcome};

use self::ComparedPolicy::{
    Crius, CriusWithDeadlines, ElasticFlow, ElasticFlowWithDeadlines, Fcfs, Gavel,
};
use super::CriusTestbed;
use crate::reproduce::SeedOptions;
use crate::reproduce::large_models::{ModelMix, draw_mixed_jobs, draw_time_budgets};
use crate::reproduce::report::{MeasureRow, PaperReproduction};
use command_io::CommandError;

/// Jobs of the trace.
const TRACE_JOBS: f64 = 244.0;

/// Multiples of the time budget; the last is the authors' (simulator.py).
const MULTIPLES: [f64; 4] = [0.5, 1.0, 2.0, 5.0];

/// A policy that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ComparedPolicy {
    CriusWithDeadlines,
    ElasticFlowWithDeadlines,
    Crius,
    ElasticFlow,
    Gavel,
    Fcfs,
}

/// All of them, with the jobs that each ends in time in the authors' simulator by multiple:
/// `simulator.py --policy` crius-ddl, elasticflow, crius, elasticflow-l, gavel and fcfs on
/// traces/runtime_trace.csv with its iterations as they are, 16 hosts of two A40 and 16 of two A10,
/// and 68 rounds of 300 s.
const COMPARED_POLICIES: [(ComparedPolicy, &str, [f64; 4]); 6] = [
    (CriusWithDeadlines, "Crius with deadlines", [157.0, 164.0, 171.0, 145.0]),
    (ElasticFlowWithDeadlines, "ElasticFlow with deadlines", [97.0, 118.0, 115.0, 114.0]),
    (Crius, "Crius", [78.0, 112.0, 138.0, 145.0]),
    (ElasticFlow, "ElasticFlow", [106.0, 112.0, 114.0, 114.0]),
    (Gavel, "Gavel", [64.0, 66.0, 68.0, 68.0]),
    (Fcfs, "FCFS", [29.0, 50.0, 74.0, 78.0]),
];

impl ComparedPolicy {
    fn knows_deadlines(self) -> bool {
        matches!(self, CriusWithDeadlines | ElasticFlowWithDeadlines)
    }

    fn is_rival(self) -> bool {
        !matches!(self, CriusWithDeadlines | Crius)
    }

    fn is_elastic_flow(self) -> bool {
        matches!(self, ElasticFlowWithDeadlines | ElasticFlow)
    }
}

/// What is varied.
#[derive(Clone, Copy)]
struct DeadlineVariant {
    count: ProgressCount,
    sharing: ElasticSharing,
    late_jobs: LateJobs,
    /// What a start costs Crius' rivals.
    stall: RestartStall,
    mix: ModelMix,
    /// Whether it changes what a policy does.
    concerns: fn(ComparedPolicy) -> bool,
}

/// As in crius-jct, and late jobs of `ElasticFlow` as in its paper.
const AS_RUN: DeadlineVariant = DeadlineVariant {
    count: ProgressCount::AsRun,
    sharing: ElasticSharing::KeepPlaces,
    late_jobs: LateJobs::GiveWay,
    stall: RestartStall::ALL_PLANS,
    mix: ModelMix::Generator,
    concerns: |_| true,
};

/// What the sources leave open, or do otherwise than they say.
fn swept_variants() -> [(&'static str, DeadlineVariant); 6] {
    let (count, stall) = (ProgressCount::AtPresentSpeed, RestartStall::PRUNED);
    let (sharing, late_jobs) = (ElasticSharing::PlaceAnew, LateJobs::BarKind);
    let mix = ModelMix::Trace;
    let (rivals, elastic) = (ComparedPolicy::is_rival, ComparedPolicy::is_elastic_flow);
    [
        ("equal stalls", DeadlineVariant { stall, concerns: rivals, ..AS_RUN }),
        ("places anew", DeadlineVariant { sharing, concerns: elastic, ..AS_RUN }),
        ("late jobs bar their kind", DeadlineVariant { late_jobs, concerns: elastic, ..AS_RUN }),
        ("the authors' count", DeadlineVariant { count, ..AS_RUN }),
        ("the trace's models", DeadlineVariant { mix, ..AS_RUN }),
        ("all but equal stalls", DeadlineVariant { count, sharing, late_jobs, mix, ..AS_RUN }),
    ]
}

/// The jobs of a seed.
struct BudgetedJobs {
    jobs: Vec<PlacementRequest>,
    /// Seconds until the deadline, by job.
    budgets: BTreeMap<u32, f64>,
}

impl BudgetedJobs {
    fn draw(seed: u64, mix: ModelMix, lab: &CriusTestbed) -> Self {
        let jobs = draw_mixed_jobs(seed, 1.0, &lab.truth, mix);
        let budgets = draw_time_budgets(seed, &jobs);
        Self { jobs, budgets }
    }

    fn deadlines_at(&self, multiple: f64) -> JobDeadlines {
        let deadline = |job: &PlacementRequest| {
            (job.job, job.submitted_seconds + multiple * self.budgets[&job.job])
        };
        JobDeadlines { by_job: self.jobs.iter().map(deadline).collect() }
    }
}

/// What a policy achieves on the jobs of a seed under deadlines of one multiple.
#[derive(Clone, Debug)]
struct DeadlineRun {
    jobs: usize,
    in_time: usize,
    ended: usize,
    refused: usize,
}

/// What a policy achieves with each multiple.
fn run_compared(
    lab: &CriusTestbed,
    drawn: &BudgetedJobs,
    (compared, variant): (ComparedPolicy, DeadlineVariant),
) -> Result<Vec<DeadlineRun>, CommandError> {
    let replay = |deadlines| {
        let mut policy = make_policy(lab, compared, variant, deadlines);
        lab.replay_policy(&drawn.jobs, &mut *policy)
    };
    let judge = |outcome: &RoundOutcome, deadlines: &JobDeadlines| DeadlineRun {
        jobs: drawn.jobs.len(),
        in_time: outcome.jobs_in_time(&drawn.jobs, deadlines).len(),
        ended: outcome.completion_seconds.len(),
        refused: outcome.refused.len(),
    };
    let deadlines = MULTIPLES.iter().map(|multiple| drawn.deadlines_at(*multiple));
    if compared.knows_deadlines() {
        let runs = deadlines.map(|deadlines| Ok(judge(&replay(deadlines.clone())?, &deadlines)));
        return runs.collect();
    }
    let outcome = replay(JobDeadlines::default())?;
    Ok(deadlines.map(|deadlines| judge(&outcome, &deadlines)).collect())
}

fn make_policy(
    lab: &CriusTestbed,
    compared: ComparedPolicy,
    variant: DeadlineVariant,
    deadlines: JobDeadlines,
) -> Box<dyn PlacementPolicy> {
    let (table, known) = (lab.truth.clone(), lab.data_parallel.clone());
    let DeadlineVariant { sharing, stall, late_jobs, .. } = variant;
    match compared {
        CriusWithDeadlines | Crius => {
            Box::new(CriusPolicy { deadlines, ..CriusPolicy::new(table) })
        }
        ElasticFlowWithDeadlines | ElasticFlow => Box::new(ElasticFlowPolicy {
            deadlines,
            late_jobs,
            ..ElasticFlowPolicy::new(sharing, known, stall)
        }),
        Gavel => Box::new(GavelPolicy { table: known, stall }),
        Fcfs => Box::new(FcfsPolicy { table, stall }),
    }
}

/// By policy, multiple and seed, what is achieved.
type DeadlineRuns = BTreeMap<ComparedPolicy, Vec<Vec<DeadlineRun>>>;

/// Replays all that a variant concerns.
fn run_seeds(options: SeedOptions, variant: DeadlineVariant) -> Result<DeadlineRuns, CommandError> {
    let lab = CriusTestbed { count: variant.count, ..CriusTestbed::new() };
    let mut runs = DeadlineRuns::new();
    for seed in options.all_seeds() {
        let drawn = BudgetedJobs::draw(seed, variant.mix, &lab);
        let compared_policies = COMPARED_POLICIES.map(|(compared, ..)| compared);
        for compared in compared_policies.into_iter().filter(|one| (variant.concerns)(*one)) {
            let achieved = run_compared(&lab, &drawn, (compared, variant))?;
            let runs = runs.entry(compared).or_insert_with(|| vec![vec![]; MULTIPLES.len()]);
            runs.iter_mut().zip(achieved).for_each(|(runs, run)| runs.push(run));
        }
    }
    Ok(runs)
}

/// Jobs that end in time with Crius, `ElasticFlow`, Gavel and FCFS.
pub(in crate::reproduce) fn reproduce_deadlines(
    options: SeedOptions,
) -> Result<PaperReproduction, CommandError> {
    let runs = run_seeds(options, AS_RUN)?;
    let mut rows = in_time_rows("", &runs);
    rows.extend(share_rows(&runs));
    rows.extend(ratio_rows("", &runs));
    rows.extend(late_rows(&runs));
    for (name, variant) in swept_variants() {
        let runs = run_seeds(options, variant)?;
        let prefix = format!("{name}, ");
        rows.extend(in_time_rows(&prefix, &runs));
        rows.extend(ratio_rows(&prefix, &runs));
    }
    Ok(PaperReproduction {
        about: "Large models with deadlines on 32 A40 and 32 A10: jobs that end in time."
            .to_owned(),
        source: "Xue et al., arXiv 2403.16125; figures counted by simulator.py of \
                 sjtu-epcc/arena, ae-eurosys."
            .to_owned(),
        rows,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// Jobs in time of all policies by multiple.
fn in_time_rows(prefix: &str, runs: &DeadlineRuns) -> Vec<MeasureRow> {
    let mut rows = Vec::new();
    for (place, multiple) in MULTIPLES.iter().enumerate() {
        for (compared, name, theirs) in &COMPARED_POLICIES {
            let Some(runs) = runs.get(compared) else { continue };
            let measure = format!("{prefix}in time with {multiple} budgets, {name}");
            let paper = Some(theirs[place]);
            let runs = (&runs[place][..], |run: &DeadlineRun| run.in_time as f64);
            rows.push(MeasureRow::of_runs(measure, "jobs", paper, runs));
        }
    }
    rows
}

/// The jobs in time among all, with the authors' multiple.
fn share_rows(runs: &DeadlineRuns) -> Vec<MeasureRow> {
    let last = MULTIPLES.len() - 1;
    let rows = COMPARED_POLICIES.iter().map(|(compared, name, theirs)| {
        let measure = format!("share in time with {} budgets, {name}", MULTIPLES[last]);
        let paper = Some(100.0 * theirs[last] / TRACE_JOBS);
        let share = |run: &DeadlineRun| 100.0 * run.in_time as f64 / run.jobs as f64;
        MeasureRow::of_runs(measure, "%", paper, (&runs[compared][last][..], share))
    });
    rows.collect()
}

/// Jobs in time with Crius in units of those with `ElasticFlow`, both with deadlines; no row if a
/// variant concerns one of them only.
fn ratio_rows(prefix: &str, runs: &DeadlineRuns) -> Vec<MeasureRow> {
    let both = runs.get(&CriusWithDeadlines).zip(runs.get(&ElasticFlowWithDeadlines));
    let [(.., crius), (.., elastic_flow)] = [&COMPARED_POLICIES[0], &COMPARED_POLICIES[1]];
    let rows = both.into_iter().flat_map(|(ours, other)| {
        MULTIPLES.iter().enumerate().map(move |(place, multiple)| {
            let pairs = ours[place].iter().zip(&other[place]);
            let ratios = pairs.map(|(ours, other)| ours.in_time as f64 / other.in_time as f64);
            let paper = Some(crius[place] / elastic_flow[place]);
            let measure = format!("{prefix}Crius / ElasticFlow with {multiple} budgets");
            MeasureRow::new(measure, "ratio", paper, &ratios.collect::<Vec<f64>>())
        })
    });
    rows.collect()
}

/// Jobs that ended late, and those that were dropped or refused.
fn late_rows(runs: &DeadlineRuns) -> Vec<MeasureRow> {
    let mut rows = Vec::new();
    for (place, multiple) in MULTIPLES.iter().enumerate() {
        for (compared, name, _) in &COMPARED_POLICIES {
            let row = |what: &str, count: fn(&DeadlineRun) -> f64| {
                let measure = format!("{what} with {multiple} budgets, {name}");
                MeasureRow::of_runs(measure, "jobs", None, (&runs[compared][place][..], count))
            };
            rows.push(row("late", |run| (run.ended - run.in_time) as f64));
            if compared.knows_deadlines() {
                rows.push(row("dropped", |run| run.refused as f64));
            }
        }
    }
    rows
}

fn list_assumptions() -> Vec<String> {
    [
        "Jobs, speeds, rounds and stalls are those of crius-jct. A deadline is the arrival and a \
         multiple of 0.5 to 1.5 times the seconds that one of Philly's jobs took, drawn by their \
         quantiles, with the trace's correlation with iterations. The authors multiply by 5.",
        "Their column is what ddl_satisfied_job_num of their simulator comes to on their trace of \
         the testbed in 68 rounds: the paper's own figure is not at hand and none is stored.",
        "A job that waits at its deadline is dropped; one that runs then goes on and is late.",
        "ElasticFlow refuses jobs that no number of GPUs ends in time and lets running ones that \
         will be late keep theirs, as in its paper (the sweep: they bar their kind, as there).",
        "The authors' count: stalls of up to a round cost no iteration, and all rounds of a job \
         count at its present speed, those before a suspension twice.",
    ]
    .map(str::to_owned)
    .to_vec()
}
