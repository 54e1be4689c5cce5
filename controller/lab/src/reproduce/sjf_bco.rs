//! SJF-BCO, Figs. 4 to 7: the makespan of ring all-reduce jobs under placement policies (Yu, Ji,
//! Rajan and Liu, `MobiHoc` 2022, §7). [`theorem5`] has the ratio of §6.
//!
//! The paper gives the counts of jobs and the ranges of what is drawn, and withholds bandwidths and
//! gradients. So absolute makespans are ours; the order of the policies and their ratios are what
//! can be compared.

mod theorem5;

use placement::sjf_bco::{
    self, BatchSchedule, BoundSearch, CommunicationModel, MakespanBounds, PlacementProblem,
    PlacementRule, RingJob, SlotProgress,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::SeedOptions;
use super::report::{MeasureRow, PaperReproduction};
use command_io::CommandError;

pub(super) use theorem5::reproduce_theorem5;

/// GPUs and how many jobs have so many.
const SIZES: [(u32, usize); 6] = [(1, 80), (2, 14), (4, 26), (8, 30), (16, 8), (32, 2)];

/// GPUs that a server may have.
const SERVERS: [u32; 4] = [4, 8, 16, 32];

/// Withheld by the paper, which says that contention and overhead together cost "within 15 % of the
/// total actual execution time"; a row of Fig. 4 says what they cost here.
const CONSTANTS: CommunicationModel = CommunicationModel {
    external: 100.0,
    internal: 1_000.0,
    reduction: 400.0,
    contention: 1.0,
    overhead: 0.000_2,
    degradation: 0.2,
    progress: SlotProgress::Whole,
};

/// Gradients, in bandwidth times slots, withheld too: those at which kappa matters as in Fig. 5,
/// and smaller ones for the sweep.
const GRADIENT: f64 = 0.2;
const SMALLER: [f64; 2] = [0.1, 0.05];

/// `T`: slots until which everything must be over. The paper has 1,200 (1,500 for Fig. 6); some of
/// the clusters drawn here are too small for that.
const HORIZON: u64 = 3_000;

/// Policies in the order of the figures.
const POLICIES: [&str; 4] = ["SJF-BCO", "LS", "FF", "RAND"];

/// The paper's makespans in slots by servers: heights of the bars of Fig. 6. All values of the
/// figures are whole slots, which the vector graphics of the PDF give exactly.
const FIG_6: [(usize, [f64; 4]); 3] = [
    (10, [939.0, 1160.0, 1404.0, 1488.0]),
    (15, [715.0, 870.0, 963.0, 1260.0]),
    (20, [535.0, 595.0, 719.0, 1128.0]),
];

/// The paper's average and least completion times in slots: points and lower bounds of Fig. 4.
const FIG_4_AVERAGES: [f64; 4] = [178.0, 187.0, 452.0, 261.0];
const FIG_4_LEAST: [f64; 4] = [14.0, 14.0, 16.0, 16.0];

/// The paper's makespans in slots by kappa: points of Fig. 5.
const FIG_5: [(u32, f64); 7] =
    [(1, 626.0), (2, 564.0), (4, 541.0), (8, 535.0), (10, 700.0), (16, 749.0), (32, 736.0)];

/// The paper's makespans in slots by lambda, with kappa 1: points of Fig. 7.
const FIG_7: [(u32, f64); 4] = [(1, 1043.0), (2, 882.0), (4, 730.0), (8, 538.0)];

/// Makespans and average completion of four policies on 20 servers.
pub(super) fn reproduce_fig4(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let runs = run_policies(options, 20, GRADIENT)?;
    let (_, paper) = FIG_6[2];
    let mut rows = policy_rows("makespan", paper, &runs, |run| run.makespan);
    rows.extend(policy_rows("average completion", FIG_4_AVERAGES, &runs, |run| run.average));
    rows.extend(policy_rows("least completion", FIG_4_LEAST, &runs, |run| run.least));
    rows.extend(ratio_rows("", paper, &runs));
    let lost: Vec<f64> = runs.iter().map(|run| run[0].lost).collect();
    rows.push(MeasureRow::new("lost by SJF-BCO to sharing", "%", Some(15.0), &lost));
    for gradient in SMALLER {
        let runs = run_policies(options, 20, gradient)?;
        rows.extend(ratio_rows(&format!("m {gradient}, "), paper, &runs));
    }
    Ok(PaperReproduction {
        about: "Makespan of 160 ring all-reduce jobs on 20 servers.".to_owned(),
        source: cite_figure("Fig. 4"),
        rows,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// Makespan of SJF-BCO by the bound on what counts as a small job.
pub(super) fn reproduce_fig5(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let mut rows = Vec::new();
    for (kappa, paper) in FIG_5 {
        let makespans = makespans_of(options, SweepPoint { kappa, ..FITTED })?;
        let measure = format!("makespan, kappa {kappa}");
        rows.push(MeasureRow::new(measure, "slots", Some(paper), &makespans));
    }
    for gradient in SMALLER {
        for (kappa, _) in FIG_5 {
            let makespans = makespans_of(options, SweepPoint { kappa, gradient, ..FITTED })?;
            let measure = format!("makespan, kappa {kappa}, m {gradient}");
            rows.push(MeasureRow::new(measure, "slots", None, &makespans));
        }
    }
    Ok(PaperReproduction {
        about: "Makespan of SJF-BCO if jobs of up to kappa GPUs fill gaps.".to_owned(),
        source: cite_figure("Fig. 5"),
        rows,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// Makespan of SJF-BCO by how many servers LBSGF considers for a job.
pub(super) fn reproduce_fig7(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let mut rows = lambda_rows(options, "", FITTED)?;
    for gradient in SMALLER {
        let point = SweepPoint { gradient, ..FITTED };
        rows.extend(lambda_rows(options, &format!(", m {gradient}"), point)?);
    }
    let half = SweepPoint { servers: 10, ..FITTED };
    rows.extend(lambda_rows(options, ", 10 servers", half)?);
    for (suffix, point) in [("", FITTED), (", 10 servers", half)] {
        let bounds = options.all_seeds().map(|seed| {
            let problem = draw_problem(seed, point.servers, point.gradient);
            MakespanBounds::from_problem(&problem).lower
        });
        let measure = format!("lower bound of the makespan{suffix}");
        rows.push(MeasureRow::new(measure, "slots", None, &bounds.collect::<Vec<f64>>()));
    }
    Ok(PaperReproduction {
        about: "Makespan of SJF-BCO with kappa 1 if a job of G GPUs may choose among the least \
                busy servers with lambda G."
            .to_owned(),
        source: cite_figure("Fig. 7"),
        rows,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// Makespans by lambda, and those in units of the one with lambda 1. The paper's makespans stand
/// beside those of the fitted point alone, which has no suffix.
fn lambda_rows(
    options: SeedOptions,
    suffix: &str,
    point: SweepPoint,
) -> Result<Vec<MeasureRow>, CommandError> {
    let mut rows = Vec::new();
    let mut makespans = Vec::new();
    for (lambda, paper) in FIG_7 {
        let found = makespans_of(options, SweepPoint { lambda, ..point })?;
        let measure = format!("makespan, lambda {lambda}{suffix}");
        let paper = suffix.is_empty().then_some(paper);
        rows.push(MeasureRow::new(measure, "slots", paper, &found));
        makespans.push(found);
    }
    for ((lambda, paper), found) in FIG_7.iter().zip(&makespans).skip(1) {
        let ratios: Vec<f64> =
            found.iter().zip(&makespans[0]).map(|(found, first)| found / first).collect();
        let measure = format!("lambda {lambda} / lambda 1{suffix}");
        rows.push(MeasureRow::new(measure, "ratio", Some(paper / FIG_7[0].1), &ratios));
    }
    Ok(rows)
}

/// What a sweep varies.
#[derive(Clone, Copy, Debug)]
struct SweepPoint {
    servers: usize,
    gradient: f64,
    kappa: u32,
    lambda: u32,
}

/// Figs. 5 and 7 vary kappa and lambda from here.
const FITTED: SweepPoint = SweepPoint { servers: 20, gradient: GRADIENT, kappa: 1, lambda: 1 };

/// By seed, the makespan of SJF-BCO under the least bound on load.
fn makespans_of(options: SeedOptions, point: SweepPoint) -> Result<Vec<f64>, CommandError> {
    options
        .all_seeds()
        .map(|seed| {
            let drawn = draw_problem(seed, point.servers, point.gradient);
            let problem = PlacementProblem { server_slack: f64::from(point.lambda), ..drawn };
            let best = placed_under_least(&problem, || PlacementRule::Kappa(point.kappa));
            best.map(|best| best.makespan as f64).ok_or_else(too_tight)
        })
        .collect()
}

/// Makespans of four policies on 10, 15 and 20 servers.
pub(super) fn reproduce_fig6(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let mut rows = Vec::new();
    for (servers, paper) in FIG_6 {
        let runs = run_policies(options, servers, GRADIENT)?;
        let measure = format!("{servers} servers, makespan");
        rows.extend(policy_rows(&measure, paper, &runs, |run| run.makespan));
        rows.extend(ratio_rows(&format!("{servers} servers, "), paper, &runs));
    }
    Ok(PaperReproduction {
        about: "Makespan of 160 ring all-reduce jobs by the number of servers.".to_owned(),
        source: cite_figure("Fig. 6"),
        rows,
        assumptions: list_assumptions(),
        ..PaperReproduction::default()
    })
}

/// What one policy made of one problem, in slots.
struct PolicyMakespan {
    makespan: f64,
    average: f64,
    least: f64,
    /// Per cent of the time that jobs run and would not run alone on one server.
    lost: f64,
}

impl PolicyMakespan {
    fn from_schedule(problem: &PlacementProblem, schedule: &BatchSchedule) -> Self {
        let placed = problem.jobs.iter().zip(schedule.jobs.iter().flatten());
        let (alone, taken) = placed.fold((0.0, 0.0), |(alone, taken), (job, placed)| {
            let slots = (placed.end - placed.start) as f64;
            (alone + problem.communication.estimate_slots(job), taken + slots)
        });
        let ends = schedule.jobs.iter().flatten().map(|placed| placed.end as f64);
        Self {
            makespan: schedule.makespan as f64,
            average: ends.clone().sum::<f64>() / schedule.jobs.len() as f64,
            least: ends.fold(f64::INFINITY, f64::min),
            lost: (1.0 - alone / taken) * 100.0,
        }
    }
}

/// By seed, then by policy.
fn run_policies(
    options: SeedOptions,
    servers: usize,
    gradient: f64,
) -> Result<Vec<Vec<PolicyMakespan>>, CommandError> {
    options
        .all_seeds()
        .map(|seed| {
            let problem = draw_problem(seed, servers, gradient);
            let random = Box::new(seeded_stream(seed, 3));
            [
                sjf_bco::find_schedule(&problem, BoundSearch::Feasible),
                placed_under_least(&problem, || PlacementRule::ListScheduling),
                placed_under_least(&problem, || PlacementRule::FirstFit),
                complete_schedule(&problem, &mut PlacementRule::Random(random), HORIZON),
            ]
            .iter()
            .map(|found| found.as_ref().map(|found| PolicyMakespan::from_schedule(&problem, found)))
            .collect::<Option<Vec<PolicyMakespan>>>()
            .ok_or_else(too_tight)
        })
        .collect()
}

fn too_tight() -> CommandError {
    CommandError::Failed("the jobs of this seed do not end within the horizon".to_owned())
}

/// Slots of each policy.
fn policy_rows(
    measure: &str,
    paper: [f64; 4],
    runs: &[Vec<PolicyMakespan>],
    slots: fn(&PolicyMakespan) -> f64,
) -> Vec<MeasureRow> {
    POLICIES
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let by_seed: Vec<f64> = runs.iter().map(|run| slots(&run[policy])).collect();
            MeasureRow::new(format!("{measure}, {name}"), "slots", Some(paper[policy]), &by_seed)
        })
        .collect()
}

/// Makespans of the others in units of that of SJF-BCO.
fn ratio_rows(prefix: &str, paper: [f64; 4], runs: &[Vec<PolicyMakespan>]) -> Vec<MeasureRow> {
    POLICIES
        .iter()
        .enumerate()
        .skip(1)
        .map(|(policy, name)| {
            let ratios: Vec<f64> =
                runs.iter().map(|run| run[policy].makespan / run[0].makespan).collect();
            let paper = Some(paper[policy] / paper[0]);
            MeasureRow::new(format!("{prefix}{name} / SJF-BCO"), "ratio", paper, &ratios)
        })
        .collect()
}

/// The complete schedule under the least bound on load that admits one.
fn placed_under_least(
    problem: &PlacementProblem,
    rule: impl Fn() -> PlacementRule,
) -> Option<BatchSchedule> {
    let (mut low, mut high) = (1, problem.horizon);
    let mut best = None;
    while low <= high {
        let theta = low.midpoint(high);
        if let Some(found) = complete_schedule(problem, &mut rule(), theta) {
            best = Some(found);
            high = theta - 1;
        } else {
            low = theta + 1;
        }
    }
    best
}

fn complete_schedule(
    problem: &PlacementProblem,
    rule: &mut PlacementRule,
    theta: u64,
) -> Option<BatchSchedule> {
    let found = sjf_bco::place_jobs(problem, rule, theta);
    found.jobs.iter().all(Option::is_some).then_some(found)
}

/// The jobs and servers of a seed.
fn draw_problem(seed: u64, servers: usize, gradient: f64) -> PlacementProblem {
    let mut random = seeded_stream(seed, 1);
    let sizes = SIZES.iter().flat_map(|(gpus, count)| std::iter::repeat_n(*gpus, *count));
    let mut jobs: Vec<RingJob> = sizes.map(|gpus| draw_job(gpus, gradient, &mut random)).collect();
    // They come in no order.
    for place in (1..jobs.len()).rev() {
        jobs.swap(place, random.random_range(0..=place));
    }
    let mut random = seeded_stream(seed, 2);
    PlacementProblem {
        servers: (0..servers).map(|_| SERVERS[random.random_range(0..SERVERS.len())]).collect(),
        jobs,
        running: Vec::new(),
        communication: CONSTANTS,
        horizon: HORIZON,
        estimate_divisor: 1.0,
        server_slack: 1.0,
    }
}

/// A job whose iterations alone take 0.01 to 0.05 slots and which takes 50 to 300 slots in all.
fn draw_job(gpus: u32, gradient: f64, random: &mut ChaCha8Rng) -> RingJob {
    let iterations = random.random_range(1_000..=6_000_u64);
    let slots = random.random_range(50.0..=300.0_f64);
    let iteration = (slots / iterations as f64).clamp(0.01, 0.05);
    let still = RingJob { gpus, iterations, gradient, batch: 0.0, forward: 0.0, backward: 0.0 };
    let alone = sjf_bco::RingSpan { servers: 1, contention: 0 };
    RingJob { backward: iteration - CONSTANTS.iteration_slots(&still, alone), ..still }
}

fn seeded_stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(number);
    random
}

fn cite_figure(figure: &str) -> String {
    format!(
        "Yu, Ji, Rajan and Liu, MobiHoc 2022, {figure}; the paper's values are those of its PDF."
    )
}

fn list_assumptions() -> Vec<String> {
    let constants = format!(
        "Withheld, chosen here: b_ext {}, b_int {}, C {}, a {}, m {GRADIENT}, xi_1 {}, xi_2 {} \
         (the paper says xi_1 = xi_2 in units of its own).",
        CONSTANTS.external,
        CONSTANTS.internal,
        CONSTANTS.reduction,
        CONSTANTS.degradation,
        CONSTANTS.contention,
        CONSTANTS.overhead,
    );
    [
        "Counts and sizes of jobs as printed; iterations in [1000, 6000], an iteration alone in \
         [0.01, 0.05] slots, a job alone in [50, 300] slots, all drawn evenly.",
        "Jobs of the baselines come in random order; SJF-BCO sorts them.",
        "T = 3000 slots instead of 1200 (Fig. 6: 1500), since some of the clusters that are drawn \
         are small; servers of 4, 8, 16 or 32 GPUs, drawn evenly.",
        "Every policy picks among idle GPUs; a job that finds too few waits, and all behind it.",
        "Bounds on load: for SJF-BCO, LS and FF the least that admits a complete schedule; for \
         RAND the horizon, as printed.",
        &constants,
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SeedOptions = SeedOptions { seed: 1, seeds: 1 };

    #[test]
    fn jobs_are_as_many_and_as_long_as_printed() {
        let problem = draw_problem(1, 20, GRADIENT);
        assert_eq!(problem.jobs.len(), 160);
        for job in &problem.jobs {
            let alone = sjf_bco::RingSpan { servers: 1, contention: 0 };
            let iteration = CONSTANTS.iteration_slots(job, alone);
            assert!((0.01 - 1e-9..=0.05 + 1e-9).contains(&iteration), "{iteration}");
            assert!(job.backward > 0.0);
        }
    }

    #[test]
    fn one_kappa_and_lambda_are_in_both_figures() {
        let by_kappa = reproduce_fig5(ONE).unwrap().rows;
        let by_lambda = reproduce_fig7(ONE).unwrap().rows;
        for suffix in ["", ", m 0.1", ", m 0.05"] {
            let value = |rows: &[MeasureRow], name: &str| {
                let name = format!("makespan, {name} 1{suffix}");
                rows.iter().find(|row| row.measure == name).map(|row| row.ours)
            };
            assert!(value(&by_kappa, "kappa").is_some());
            assert_eq!(value(&by_kappa, "kappa"), value(&by_lambda, "lambda"));
        }
    }

    #[test]
    fn placing_at_random_is_slower() {
        let runs = run_policies(ONE, 20, GRADIENT).unwrap();
        let (ours, random) = (runs[0][0].makespan, runs[0][3].makespan);
        assert!(ours < random, "{ours} {random}");
    }
}
