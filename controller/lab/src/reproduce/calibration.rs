//! Crux, Fig. 7: a GPT alone, and while a BERT shares its leaf-spine links (Crux §2.2).

use simulator::{IsolatedJob, Scheduler, SimulationExperiment, SimulationOutcome};

use super::crux_gain::ideal_share;
use super::report::{MeasureRow, PaperReproduction, percent_change};
use super::{SeedOptions, testbed};
use crate::demo::scenario::GPT_GBPS;
use crate::demo::{CALIBRATED, DemoScenario};
use command_io::CommandError;

/// Simulated time: some 350 iterations of the GPT.
const SECONDS: f64 = 600.0;

/// Iteration times and throughput alone and together.
pub(super) fn reproduce_fig7(options: SeedOptions) -> Result<PaperReproduction, CommandError> {
    let scenario = DemoScenario::calibration_case(CALIBRATED, GPT_GBPS, options.seed)?;
    let experiment = testbed::default_experiment(scenario.fabric, scenario.jobs, SECONDS);
    let alone = IsolatedJob::for_experiment(&experiment).map_err(CommandError::failed)?;
    let shared = testbed::simulate_outcome(&experiment, Scheduler::Ecmp)?;
    let [(gpt_alone, gpt_shared), (bert_alone, bert_shared)] = [0, 1].map(|job: usize| {
        let shared = shared.jobs[job].mean_iteration_seconds;
        (alone[job].iteration_seconds.unwrap_or(f64::NAN), shared.unwrap_or(f64::NAN))
    });
    let row =
        |measure: &str, unit, paper, ours: f64| MeasureRow::new(measure, unit, paper, &[ours]);
    let rows = vec![
        row("iteration of GPT, alone", "s", Some(1.53), gpt_alone),
        row("iteration of GPT, with BERT", "s", Some(1.70), gpt_shared),
        row("throughput of GPT", "%", Some(-9.9), percent_change(gpt_shared, gpt_alone)),
        row("iteration of BERT, alone", "s", None, bert_alone),
        row("throughput of BERT", "%", Some(-7.7), percent_change(bert_shared, bert_alone)),
        row("GPU utilisation", "%", Some(-9.5), lost_utilisation(&experiment, &alone, &shared)),
    ];
    Ok(PaperReproduction {
        about: "A 64-GPU GPT, alone and while a 16-GPU BERT shares its links.".to_owned(),
        source: "Cao et al. (Crux), SIGCOMM 2024, Fig. 7 and §2.2.".to_owned(),
        rows,
        assumptions: [
            "Volumes, which the paper withholds: 42.84 GB for GPT's all-reduce, 2.131 GB for \
             BERT's, fitted on the embedded fabric to the times of §2.2 (crux demo --calibrate). \
             Here the fluid model judges them, so what agrees is the model with the packets.",
            "Computation: the built-in profiles; communication may begin after half of it.",
            "One spine joins the two leaves by just what GPT needs: no choice of paths. ECMP, one \
             level; all jobs begin together.",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..PaperReproduction::default()
    })
}

/// Per cent of GPU time in computation that sharing costs.
pub(super) fn lost_utilisation(
    experiment: &SimulationExperiment,
    alone: &[IsolatedJob],
    shared: &SimulationOutcome,
) -> f64 {
    percent_change(ideal_share(experiment, alone), shared.gpu_utilization)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fluid_model_agrees_with_the_packets() {
        let found = reproduce_fig7(SeedOptions { seed: 1, seeds: 1 }).unwrap();
        let paper = found.rows.iter().filter_map(|row| Some((row, row.paper?)));
        for (row, paper) in paper {
            let apart = (row.ours - paper).abs();
            let allowed = if row.unit == "s" { 0.02 } else { 3.0 };
            assert!(apart < allowed, "{row:?}");
        }
    }
}
