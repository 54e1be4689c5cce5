//! The mode that is advised for a job, with what each would give and why.
//!
//! The decision: advice is a short run, of a few iterations from few starts and hashes, because an
//! operator asks about each job of a fabric and waits for the answer. How often it names the mode
//! that a long run finds best is measured (`crux bench modes`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mode_run::{ModeGroup, ModeOutcome};
use super::reason::{self, BusiestLink, ModeLoad};
use super::{ForwardingMode, ModeError, PlannedJobs};

/// Modes whose GPU utilisations differ by less are equally good: 0.2 points.
pub const TOLERATED: f64 = 0.002;

/// The planner chooses pins by the samples of starts before this one, which would favour pins.
const FIRST_SAMPLE: u32 = 4;

/// What a mode is expected to give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeEstimate {
    /// The mode.
    pub mode: ForwardingMode,
    /// Seconds of an iteration of the job; null if none ends.
    pub iteration_seconds: Option<f64>,
    /// GPU utilisation of the job and all that it contends with, as a share.
    pub gpu_utilization: f64,
    /// Other jobs that it then meets on links between switches.
    pub met_jobs: usize,
    /// The link between switches that is asked for most of those that the job then uses.
    pub busiest_link: Option<BusiestLink>,
}

/// Which mode is best for a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeAdvice {
    /// Name of the job.
    pub job: String,
    /// Jobs that it contends with in some mode, directly or through others.
    pub contending_jobs: usize,
    /// The mode with the highest GPU utilisation of them all; of equally good ones the first.
    pub best: ForwardingMode,
    /// All modes.
    pub modes: Vec<ModeEstimate>,
    /// Why.
    pub reason: String,
}

/// How much is simulated for one piece of advice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceSampling {
    /// Starts of the jobs, each with another hash.
    pub samples: u32,
    /// Iterations of the slowest job that do not count.
    pub settling: f64,
    /// Iterations of the slowest job that count.
    pub counted: f64,
}

impl Default for AdviceSampling {
    fn default() -> Self {
        Self { samples: 8, settling: 8.0, counted: 16.0 }
    }
}

/// Compares the modes for the job at position `job` of the input, in a short run.
///
/// # Errors
/// The job has no path, or the fluid model rejects its group.
pub fn advise_mode(
    planned: &PlannedJobs<'_>,
    job: usize,
    sampling: AdviceSampling,
) -> Result<ModeAdvice, ModeError> {
    let group = ModeGroup::new(planned, job)?;
    let window = group.window(sampling.settling, sampling.counted);
    let mut modes = Vec::new();
    for mode in ForwardingMode::ALL {
        let outcome_of = |sample: u32| {
            let starts = group.spread_starts(FIRST_SAMPLE + sample);
            group.run_mode(mode, u64::from(sample), &starts, window)
        };
        let outcomes = (0..sampling.samples).map(outcome_of).collect::<Result<Vec<_>, _>>()?;
        let mean = ModeOutcome::mean_of(&outcomes);
        let load = ModeLoad::new(&group, mode);
        modes.push(ModeEstimate {
            mode,
            iteration_seconds: Some(mean.iteration_seconds).filter(|seconds| seconds.is_finite()),
            gpu_utilization: mean.gpu_utilization,
            met_jobs: load.met_jobs,
            busiest_link: load.busiest_link,
        });
    }
    let best = first_of_best(&modes);
    Ok(ModeAdvice {
        job: planned.input.jobs[job].id.to_string(),
        contending_jobs: group.members.len() - 1,
        best,
        reason: reason::explain_choice(&group, &modes, best),
        modes,
    })
}

/// The first mode that is as good as the best, to a tenth of the tolerance.
fn first_of_best(modes: &[ModeEstimate]) -> ForwardingMode {
    let highest = modes.iter().map(|mode| mode.gpu_utilization).fold(0.0, f64::max);
    let good = modes.iter().find(|mode| mode.gpu_utilization >= highest - TOLERATED / 10.0);
    good.map_or(ForwardingMode::Pin, |mode| mode.mode)
}

#[cfg(test)]
mod tests {
    use planner::{PlanInput, Policy};
    use topology::clos::{self, ClosSpec};

    use super::*;
    use crate::baselines::test_input::TestInput;

    /// Two leaves of two hosts at 200 Gb/s, `h1` and `h2` on the first, and so many spines.
    fn fabric_of(spines: u32, uplink_gbps: f64) -> TestInput {
        let spec = ClosSpec {
            leaves: 2,
            spines,
            hosts_per_leaf: 2,
            host_gbps: 200.0,
            uplink_gbps,
            ..ClosSpec::default()
        };
        TestInput { fabric: clos::build_clos("two leaves", &spec).unwrap(), jobs: Vec::new() }
    }

    fn advice_for(input: &PlanInput) -> ModeAdvice {
        let planned = PlannedJobs::new(input, &Policy::default());
        advise_mode(&planned, 0, AdviceSampling::default()).unwrap()
    }

    fn seconds_of(advice: &ModeAdvice) -> Vec<f64> {
        advice.modes.iter().map(|mode| mode.iteration_seconds.unwrap()).collect()
    }

    /// 12.5 GB take 0.5 s at 200 Gb/s and 1 s at 100 Gb/s, after 1 s of computation. The run need
    /// not end with an iteration.
    #[test]
    fn one_connection_that_needs_two_uplinks_is_sprayed() {
        let advice = advice_for(&fabric_of(2, 100.0).with_job("a", &[("h1", "h3")]).to_input());
        assert_eq!(advice.best, ForwardingMode::Spray);
        let seconds = seconds_of(&advice);
        for (seconds, expected) in seconds.iter().zip([2.0, 2.0, 1.5]) {
            assert!((seconds - expected).abs() < 0.01, "{seconds} for {expected}");
        }
        assert!(advice.reason.contains("is asked for"), "{}", advice.reason);
    }

    /// Both connections need both uplinks: pins and chosen ports give them one each.
    #[test]
    fn two_connections_of_a_pair_are_left_where_they_are() {
        let pairs = [("h1", "h3"), ("h1", "h3")];
        let advice = advice_for(&fabric_of(2, 100.0).with_job("a", &pairs).to_input());
        assert_eq!(advice.best, ForwardingMode::Pin);
        assert!(seconds_of(&advice).iter().all(|seconds| (seconds - 2.0).abs() < 1e-6));
        assert_eq!(advice.reason, "no mode differs by more than 0.2 points");
    }

    /// A hash puts both pairs on one uplink in half of the cases: 2 s instead of 1.5 s.
    #[test]
    fn pairs_of_one_connection_are_pinned_rather_than_hashed() {
        let pairs = [("h1", "h3"), ("h2", "h4")];
        let advice = advice_for(&fabric_of(2, 200.0).with_job("a", &pairs).to_input());
        assert_eq!(advice.best, ForwardingMode::Pin);
        let seconds = seconds_of(&advice);
        assert!((seconds[0] - 1.5).abs() < 1e-6 && seconds[1] > 1.55, "{seconds:?}");
        let why = &advice.reason;
        assert!(why.contains("a NIC pair has 1 connection for 2 paths"), "{why}");
    }

    #[test]
    fn with_one_path_there_is_nothing_to_choose() {
        let advice = advice_for(&fabric_of(1, 200.0).with_job("a", &[("h1", "h3")]).to_input());
        assert_eq!(advice.best, ForwardingMode::Pin);
        assert_eq!(advice.reason, "each of its flows has one path");
    }

    #[test]
    fn jobs_that_share_no_link_in_any_mode_do_not_count() {
        let input = fabric_of(2, 200.0).with_job("a", &[("h1", "h3")]);
        let apart = input.with_job("b", &[("h4", "h2")]).to_input();
        assert_eq!(advice_for(&apart).contending_jobs, 0);
        let beside = fabric_of(2, 200.0).with_job("a", &[("h1", "h3")]);
        let beside = beside.with_job("b", &[("h2", "h4")]).to_input();
        assert_eq!(advice_for(&beside).contending_jobs, 1);
    }
}
