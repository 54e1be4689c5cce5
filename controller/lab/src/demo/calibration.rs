//! The communication volumes that the paper withholds, from the one case it gives times for.
//!
//! Crux §2.2: a 64-GPU GPT takes 1.53 s an iteration alone and 1.70 s while a 16-GPU BERT shares
//! its leaf-spine links, which costs the BERT 7.7 % of its throughput. Two times, two unknown
//! volumes: [`fit_volumes`] finds them by Newton's method, each step from a few runs of the case on
//! the embedded fabric. `crux demo --calibrate` does it again; [`CALIBRATED`] is what it gave.
//! Nothing of the demo's own scenario enters.

use serde::Serialize;

use super::emulated_run::{self, JobVisibility, TrainingOptions};
use super::scenario::{AllReduceVolumes, DemoScenario, GPT_GBPS};
use command_io::CommandError;

/// What `crux demo --calibrate` found at the demo's time scale of 1000. At 500 it finds 42.40e9 and
/// 2.249e9: latency, which does not scale, then weighs less and volume makes up for it.
pub(crate) const CALIBRATED: AllReduceVolumes = AllReduceVolumes { gpt: 42.84e9, bert: 2.131e9 };

/// Iteration time of the GPT while the BERT shares its links, seconds (Crux §2.2).
const GPT_SHARED_SECONDS: f64 = 1.70;
/// What sharing leaves of the BERT's throughput (Crux §2.2).
const BERT_THROUGHPUT: f64 = 1.0 - 0.077;
/// Steps of Newton's method.
const STEPS: usize = 4;
/// Relative step for the derivatives.
const NUDGE: f64 = 0.04;

/// What the case gives with some volumes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CalibrationCase {
    pub(super) gpt_bytes: f64,
    pub(super) bert_bytes: f64,
    /// Paper: 1.53.
    pub(super) gpt_alone_seconds: f64,
    /// Paper: 1.70.
    pub(super) gpt_shared_seconds: f64,
    /// Paper: -0.099.
    pub(super) gpt_throughput_change: f64,
    pub(super) bert_alone_seconds: f64,
    pub(super) bert_shared_seconds: f64,
    /// Paper: -0.077.
    pub(super) bert_throughput_change: f64,
}

/// The case of Crux §2.2 with these volumes.
pub(super) async fn measure_case(
    volumes: AllReduceVolumes,
    training: TrainingOptions,
) -> Result<CalibrationCase, CommandError> {
    let scenario = DemoScenario::calibration_case(volumes, GPT_GBPS, 1)?;
    let shared = iteration_seconds(&scenario, training).await?;
    let gpt = iteration_seconds(&scenario.single_job(0), training).await?[0];
    let bert = iteration_seconds(&scenario.single_job(1), training).await?[0];
    Ok(CalibrationCase {
        gpt_bytes: volumes.gpt,
        bert_bytes: volumes.bert,
        gpt_alone_seconds: gpt,
        gpt_shared_seconds: shared[0],
        gpt_throughput_change: gpt / shared[0] - 1.0,
        bert_alone_seconds: bert,
        bert_shared_seconds: shared[1],
        bert_throughput_change: bert / shared[1] - 1.0,
    })
}

/// Newton's method on (GPT's time, BERT's throughput) over the logarithms of the two volumes.
pub(super) async fn fit_volumes(
    training: TrainingOptions,
) -> Result<CalibrationCase, CommandError> {
    let mut volumes = CALIBRATED;
    let mut best = measure_case(volumes, training).await?;
    eprintln!("step 0: {best:?}");
    for step in 1..=STEPS {
        let here = case_error(&best);
        let by_gpt = AllReduceVolumes { gpt: volumes.gpt * (1.0 + NUDGE), ..volumes };
        let by_bert = AllReduceVolumes { bert: volumes.bert * (1.0 + NUDGE), ..volumes };
        let slope = |there: CalibrationCase| {
            let there = case_error(&there);
            [(there[0] - here[0]) / NUDGE, (there[1] - here[1]) / NUDGE]
        };
        let gpt = slope(measure_case(by_gpt, training).await?);
        let bert = slope(measure_case(by_bert, training).await?);
        let [move_gpt, move_bert] = solve_moves(gpt, bert, here);
        volumes.gpt *= 1.0 + move_gpt.clamp(-0.2, 0.2);
        volumes.bert *= 1.0 + move_bert.clamp(-0.2, 0.2);
        let next = measure_case(volumes, training).await?;
        eprintln!("step {step}: {next:?}");
        if squared_error(&next) < squared_error(&best) {
            best = next;
        } else {
            break;
        }
    }
    Ok(best)
}

/// How far the case is from the paper: relative in time, absolute in throughput.
fn case_error(case: &CalibrationCase) -> [f64; 2] {
    [
        case.gpt_shared_seconds / GPT_SHARED_SECONDS - 1.0,
        case.bert_throughput_change - (BERT_THROUGHPUT - 1.0),
    ]
}

fn squared_error(case: &CalibrationCase) -> f64 {
    case_error(case).iter().map(|error| error * error).sum()
}

/// The moves `(x, y)` with `x * a + y * b = -error`; none where the two act alike.
fn solve_moves(a: [f64; 2], b: [f64; 2], error: [f64; 2]) -> [f64; 2] {
    let determinant = a[0] * b[1] - a[1] * b[0];
    if determinant.abs() < 1e-9 {
        return [0.0, 0.0];
    }
    let x = (-error[0] * b[1] + error[1] * b[0]) / determinant;
    let y = (-error[1] * a[0] + error[0] * a[1]) / determinant;
    [x, y]
}

/// Mean iteration time of every job without scheduling.
async fn iteration_seconds(
    scenario: &DemoScenario,
    training: TrainingOptions,
) -> Result<Vec<f64>, CommandError> {
    let run = emulated_run::run_emulated(scenario, JobVisibility::Hidden, training).await?;
    let jobs = run.outcome.jobs.iter();
    Ok(jobs.map(|job| job.mean_iteration_seconds.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use emulator::{TestbedOptions, TimeScale};

    use super::*;

    /// Few iterations, at a scale so coarse that latency slows the BERT more than it should; the
    /// exact one is `crux demo --calibrate`.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_volumes_give_the_times_of_the_paper() {
        let scale = TimeScale::new(4000.0).unwrap();
        let case = measure_case(
            CALIBRATED,
            TrainingOptions { scale, iterations: 4, testbed: TestbedOptions::default() },
        )
        .await
        .unwrap();
        assert!((case.gpt_alone_seconds / 1.53 - 1.0).abs() < 0.01, "{case:?}");
        assert!((case.gpt_shared_seconds / 1.70 - 1.0).abs() < 0.02, "{case:?}");
        assert!(case.bert_throughput_change < -0.05, "{case:?}");
    }

    #[test]
    fn solves_two_equations() {
        let [x, y] = solve_moves([2.0, 1.0], [1.0, 3.0], [-4.0, -7.0]);
        assert!((x - 1.0).abs() < 1e-12 && (y - 2.0).abs() < 1e-12);
        assert_eq!(solve_moves([1.0, 1.0], [2.0, 2.0], [1.0, 1.0]), [0.0, 0.0]);
    }
}
