//! `crux bench modes`: how often `crux advise` names the forwarding mode that is best.
//!
//! [`simulator::contention`] draws the cases and one job of each; the advice for it is compared
//! with a long run of every mode, from other starts and under more hashes.

use std::fmt;

use planner::Policy;
use serde::Serialize;
use simulator::contention::generate_mode_case;
use simulator::modes::{
    AdviceSampling, ForwardingMode, ModeError, ModeOutcome, PlannedJobs, TOLERATED, advise_mode,
    measure_modes,
};

use super::parallel_cases::CaseArgs;
use command_io::CommandError;
use command_io::output;

/// Count how often the advised forwarding mode is the best of pins, ECMP and spraying.
///
/// Cases of 2 to 8 jobs that share hosts, NICs and 2 to 8 spines are drawn from a seed, and one job
/// of each. The advice for it is compared with long runs of all modes in the fluid model, in the
/// mean over random starts and hashes. An advised mode is best if no other gives more than 0.2
/// points of GPU utilisation more. About three seconds of processor for a case.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux bench modes --cases 100
  crux bench modes --cases 1 --seed 1 --first 17
  crux bench modes --cases 1000 --seed 1 --raw modes.json")]
pub(crate) struct ModesArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Budget of the search for the plan of a case
    #[arg(long, default_value_t = 20_000, value_name = "EVENTS")]
    search_events: u64,
    /// Starts and hashes that a long run is the mean of
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    draws: u64,
}

/// A case, its advice and what modes are worth.
#[derive(Serialize)]
struct ModeCase {
    number: u32,
    jobs: usize,
    advised: ForwardingMode,
    /// GPU utilisation by mode: as advised, and measured.
    estimated: Vec<f64>,
    measured: [f64; 3],
    /// Seconds of an iteration of the job by mode; null if none ends.
    iteration_seconds: [Option<f64>; 3],
}

/// What came of all cases; utilisations are shares of GPUs.
#[derive(Serialize)]
struct ModesSummary {
    cases: usize,
    seed: u64,
    /// Whoever chooses a mode for the job of each case.
    choices: Vec<ChoiceSummary>,
    /// Cases in which modes differ by more than 0.2 points.
    decided: usize,
    /// Of those, cases in which the advised mode is best.
    decided_best: usize,
}

/// One way to choose a mode.
#[derive(Serialize)]
struct ChoiceSummary {
    name: String,
    /// Cases in which its mode is best, within 0.2 points.
    best: usize,
    /// Mean GPU utilisation.
    mean: f64,
    /// The largest lead of another mode.
    largest_loss: f64,
    /// The case of that number has it.
    worst_case: u32,
}

pub(crate) fn run_modes(args: &ModesArgs) -> Result<(), CommandError> {
    let cases =
        args.cases.examine(|number| examine_case(args, number).map_err(CommandError::failed))?;
    args.cases.write_raw(&cases)?;
    args.cases.print(&ModesSummary::new(args.cases.seed, &cases))
}

fn examine_case(args: &ModesArgs, number: u32) -> Result<ModeCase, ModeError> {
    let (input, job) = generate_mode_case(args.cases.seed, number);
    let policy = Policy { search_events: args.search_events, ..Policy::default() };
    let planned = PlannedJobs::new(&input, &policy);
    let advice = advise_mode(&planned, job, AdviceSampling::default())?;
    let measured = measure_modes(&planned, job, args.draws)?;
    let seconds = |outcome: ModeOutcome| {
        Some(outcome.iteration_seconds).filter(|seconds| seconds.is_finite())
    };
    Ok(ModeCase {
        number,
        jobs: input.jobs.len(),
        advised: advice.best,
        estimated: advice.modes.iter().map(|mode| mode.gpu_utilization).collect(),
        measured: measured.map(|outcome| outcome.gpu_utilization),
        iteration_seconds: measured.map(seconds),
    })
}

impl ModeCase {
    fn highest(&self) -> f64 {
        self.measured.iter().copied().fold(0.0, f64::max)
    }

    /// How much the best mode gives more than this one.
    fn loss(&self, mode: ForwardingMode) -> f64 {
        self.highest() - self.measured_in(mode)
    }

    fn measured_in(&self, mode: ForwardingMode) -> f64 {
        let modes = ForwardingMode::ALL.iter().zip(&self.measured);
        modes.filter(|(other, _)| **other == mode).map(|(_, value)| *value).sum()
    }

    /// Whether modes differ.
    fn is_decided(&self) -> bool {
        ForwardingMode::ALL.iter().any(|mode| self.loss(*mode) > TOLERATED)
    }
}

impl ModesSummary {
    fn new(seed: u64, cases: &[ModeCase]) -> Self {
        let decided = || cases.iter().filter(|case| case.is_decided());
        let always = ForwardingMode::ALL
            .map(|mode| ChoiceSummary::new(format!("always {mode}"), cases, |_| mode));
        let advised = ChoiceSummary::new("as advised".to_owned(), cases, |case| case.advised);
        Self {
            cases: cases.len(),
            seed,
            choices: [advised].into_iter().chain(always).collect(),
            decided: decided().count(),
            decided_best: decided().filter(|case| case.loss(case.advised) <= TOLERATED).count(),
        }
    }
}

impl fmt::Display for ModesSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = output::new_table([
            "mode",
            "best in cases",
            "%",
            "GPU utilisation %",
            "largest loss, points",
        ]);
        for choice in &self.choices {
            table.add_row([
                choice.name.clone(),
                choice.best.to_string(),
                format!("{:.1}", choice.best as f64 * 100.0 / self.cases.max(1) as f64),
                format!("{:.2}", choice.mean * 100.0),
                format!("{:.2} (case {})", choice.largest_loss * 100.0, choice.worst_case),
            ]);
        }
        writeln!(f, "{} cases of seed {}\n{table}", self.cases, self.seed)?;
        write!(
            f,
            "Best: no mode gives more than {} points more. Modes differ by more than that in {} \
             cases; there the advised mode is best in {}.",
            TOLERATED * 100.0,
            self.decided,
            self.decided_best,
        )
    }
}

impl ChoiceSummary {
    fn new(
        name: String,
        cases: &[ModeCase],
        mode_of: impl Fn(&ModeCase) -> ForwardingMode,
    ) -> Self {
        let loss = |case: &ModeCase| case.loss(mode_of(case));
        let worst = cases.iter().max_by(|a, b| loss(a).total_cmp(&loss(b)));
        let sum: f64 = cases.iter().map(|case| case.measured_in(mode_of(case))).sum();
        Self {
            name,
            best: cases.iter().filter(|case| loss(case) <= TOLERATED).count(),
            mean: sum / cases.len().max(1) as f64,
            largest_loss: worst.map_or(0.0, loss),
            worst_case: worst.map_or(0, |case| case.number),
        }
    }
}
