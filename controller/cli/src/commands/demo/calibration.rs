//! The communication volumes that the paper withholds, from the one case it gives times for.
//!
//! Crux §2.2: a 64-GPU GPT takes 1.53 s an iteration alone and 1.70 s while a 16-GPU BERT shares
//! its leaf-spine links, which costs the BERT 7.7 % of its throughput. Two times, two unknown
//! volumes: [`fit`] finds them by Newton's method, each step from a few runs of the case on the
//! embedded fabric. `crux demo --calibrate` does it again; [`CALIBRATED`] is what it gave. Nothing
//! of the demo's own scenario enters.

use serde::Serialize;

use super::rehearsal::{self, Telling, Training};
use super::scenario::{Scenario, Volumes};
use crate::failure::Failure;

/// What `crux demo --calibrate` found at the demo's time scale of 1000. At 500 it finds 42.40e9 and
/// 2.249e9: latency, which does not scale, then weighs less and volume makes up for it.
pub(crate) const CALIBRATED: Volumes = Volumes {
    gpt: 42.84e9,
    bert: 2.131e9,
};

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
pub(super) struct Case {
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
pub(super) async fn case(volumes: Volumes, training: Training) -> Result<Case, Failure> {
    let scenario = Scenario::calibration(volumes, 1)?;
    let shared = seconds(&scenario, training).await?;
    let gpt = seconds(&scenario.alone(0), training).await?[0];
    let bert = seconds(&scenario.alone(1), training).await?[0];
    Ok(Case {
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
pub(super) async fn fit(training: Training) -> Result<Case, Failure> {
    let mut volumes = CALIBRATED;
    let mut best = case(volumes, training).await?;
    eprintln!("step 0: {best:?}");
    for step in 1..=STEPS {
        let here = error(&best);
        let by_gpt = Volumes {
            gpt: volumes.gpt * (1.0 + NUDGE),
            ..volumes
        };
        let by_bert = Volumes {
            bert: volumes.bert * (1.0 + NUDGE),
            ..volumes
        };
        let slope = |there: Case| {
            let there = error(&there);
            [(there[0] - here[0]) / NUDGE, (there[1] - here[1]) / NUDGE]
        };
        let gpt = slope(case(by_gpt, training).await?);
        let bert = slope(case(by_bert, training).await?);
        let [move_gpt, move_bert] = solve(gpt, bert, here);
        volumes.gpt *= 1.0 + move_gpt.clamp(-0.2, 0.2);
        volumes.bert *= 1.0 + move_bert.clamp(-0.2, 0.2);
        let next = case(volumes, training).await?;
        eprintln!("step {step}: {next:?}");
        if distance(&next) < distance(&best) {
            best = next;
        } else {
            break;
        }
    }
    Ok(best)
}

/// How far the case is from the paper: relative in time, absolute in throughput.
fn error(case: &Case) -> [f64; 2] {
    [
        case.gpt_shared_seconds / GPT_SHARED_SECONDS - 1.0,
        case.bert_throughput_change - (BERT_THROUGHPUT - 1.0),
    ]
}

fn distance(case: &Case) -> f64 {
    error(case).iter().map(|error| error * error).sum()
}

/// The moves `(x, y)` with `x * a + y * b = -error`; none where the two act alike.
fn solve(a: [f64; 2], b: [f64; 2], error: [f64; 2]) -> [f64; 2] {
    let determinant = a[0] * b[1] - a[1] * b[0];
    if determinant.abs() < 1e-9 {
        return [0.0, 0.0];
    }
    let x = (-error[0] * b[1] + error[1] * b[0]) / determinant;
    let y = (-error[1] * a[0] + error[0] * a[1]) / determinant;
    [x, y]
}

/// Mean iteration time of every job when the controller knows none of them.
async fn seconds(scenario: &Scenario, training: Training) -> Result<Vec<f64>, Failure> {
    let run = rehearsal::run(scenario, Telling::Nothing, training).await?;
    let jobs = run.outcome.jobs.iter();
    Ok(jobs
        .map(|job| job.mean_iteration_seconds.unwrap_or(f64::NAN))
        .collect())
}

#[cfg(test)]
mod tests {
    use emulator::Scale;

    use super::*;

    /// Few iterations, at a scale so coarse that latency slows the BERT more than it should; the
    /// exact one is `crux demo --calibrate`.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_volumes_give_the_times_of_the_paper() {
        let scale = Scale::new(4000.0).unwrap();
        let case = case(
            CALIBRATED,
            Training {
                scale,
                iterations: 4,
            },
        )
        .await
        .unwrap();
        assert!(
            (case.gpt_alone_seconds / 1.53 - 1.0).abs() < 0.01,
            "{case:?}"
        );
        assert!(
            (case.gpt_shared_seconds / 1.70 - 1.0).abs() < 0.02,
            "{case:?}"
        );
        assert!(case.bert_throughput_change < -0.05, "{case:?}");
    }

    #[test]
    fn solves_two_equations() {
        let [x, y] = solve([2.0, 1.0], [1.0, 3.0], [-4.0, -7.0]);
        assert!((x - 1.0).abs() < 1e-12 && (y - 2.0).abs() < 1e-12);
        assert_eq!(solve([1.0, 1.0], [2.0, 2.0], [1.0, 1.0]), [0.0, 0.0]);
    }
}
