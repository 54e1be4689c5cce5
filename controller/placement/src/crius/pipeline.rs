//! The iteration time of a pipeline (`GPipe`: all micro-batches forward, then all backward, without
//! overlap).
//!
//! The slowest stage determines the time of all micro-batches but one, which passes every stage.
//! Transfers between stages follow the same rule. Gradients are reduced stage after stage, and the
//! optimiser ends with its slowest stage.

/// One micro-batch on one stage in one direction, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTimes {
    /// Computation.
    pub compute: f64,
    /// Communication inside the stage.
    pub inside_stage: f64,
    /// Communication to the next stage in this direction.
    pub between_stages: f64,
}

/// What an iteration costs on one stage, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Forward, per micro-batch.
    pub forward: PassTimes,
    /// Backward, per micro-batch.
    pub backward: PassTimes,
    /// Reducing the gradients, once.
    pub synchronise: f64,
    /// Applying them, once.
    pub apply: f64,
}

/// Seconds of one iteration with so many micro-batches.
pub fn iteration_seconds(stages: &[StageTimes], micro_batches: u32) -> f64 {
    let forward = direction_seconds(stages.iter().map(|stage| stage.forward), micro_batches);
    let backward = direction_seconds(stages.iter().map(|stage| stage.backward), micro_batches);
    let synchronise: f64 = stages.iter().map(|stage| stage.synchronise).sum();
    let apply = stages.iter().map(|stage| stage.apply).fold(0.0, f64::max);
    forward + backward + synchronise + apply
}

/// All micro-batches in one direction.
fn direction_seconds(passes: impl Iterator<Item = PassTimes> + Clone, micro_batches: u32) -> f64 {
    let inside = passes.clone().map(|pass| pass.compute + pass.inside_stage);
    let across = passes.map(|pass| pass.between_stages);
    pipelined_seconds(inside, micro_batches) + pipelined_seconds(across, micro_batches)
}

/// `max (B - 1) + sum`.
fn pipelined_seconds(times: impl Iterator<Item = f64>, micro_batches: u32) -> f64 {
    let (most, sum) = times.fold((0.0_f64, 0.0), |(most, sum), time| (most.max(time), sum + time));
    most * f64::from(micro_batches.saturating_sub(1)) + sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(compute: f64, within: f64, across: f64) -> PassTimes {
        PassTimes { compute, inside_stage: within, between_stages: across }
    }

    #[test]
    fn two_stages_and_sixteen_micro_batches() {
        let first = StageTimes {
            forward: pass(0.010, 0.002, 0.001),
            backward: pass(0.020, 0.004, 0.0),
            synchronise: 0.030,
            apply: 0.003,
        };
        let second = StageTimes {
            forward: pass(0.012, 0.001, 0.0),
            backward: pass(0.024, 0.002, 0.001),
            synchronise: 0.010,
            apply: 0.005,
        };
        let seconds = iteration_seconds(&[first, second], 16);
        assert!((seconds - 0.737).abs() < 1e-12, "{seconds}");
    }

    #[test]
    fn one_stage_and_one_micro_batch_is_the_sum_of_its_parts() {
        let alone = StageTimes {
            forward: pass(1.0, 0.0, 0.0),
            backward: pass(2.0, 0.0, 0.0),
            ..StageTimes::default()
        };
        assert_eq!(iteration_seconds(&[alone], 1), 3.0);
    }
}
